"""Messages in transit: a site passes on what is only on its way through one of its nodes, without a micro-batch.

A node in between does nothing with a message but send it on, and keeps nothing of it: if a message is lost, whoever
waits for an answer asks again. So the site's process does that for its nodes, and a hop over such a node takes some
hundredths of a second instead of a micro-batch. That counts most for a stage's snapshot, whose chunks follow each other
over all hops of their way.

Files in transit have their own directory, which Spark does not read. A file that was passed on twice, because the
process was killed in between, is a doubled message.
"""

from __future__ import annotations

import logging
from pathlib import Path

from midstream.deployment.protocol.messages import Envelope
from midstream.deployment.protocol.wire_format import message_from_bytes, message_to_bytes
from midstream.deployment.sites.connectivity import Connectivity
from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.sites.message_file import ENVELOPE, MessageRow, read_messages, write_messages
from midstream.errors import MidstreamError

__all__ = ["Transit", "is_in_transit"]

_LOG = logging.getLogger(__name__)


def is_in_transit(envelope: Envelope) -> bool:
    """Whether the node that an envelope reaches next only passes it on."""
    return envelope.place < len(envelope.path) - 1


class Transit:
    """What passes through the nodes of a site."""

    def __init__(self, directory: DeploymentDirectory, site: str) -> None:
        self._directory = directory
        self._site = site
        self._layout = directory.layout()
        self._known: tuple[int, Connectivity] | None = None
        """When what is there was written, and what it says."""

    def pass_on(self) -> None:
        """Send on what has come."""
        files = sorted(self._directory.transit(self._site, "x").parent.glob("*/[!_]*.parquet"))
        there = self._connectivity() if files else None
        for path in files:
            if there is not None:
                self._pass_on(path, there)
            path.unlink(missing_ok=True)

    def _connectivity(self) -> Connectivity | None:
        """What is there; None if nobody has said so yet: then nothing gets through."""
        path = self._directory.connectivity
        try:
            written = path.stat().st_mtime_ns
            if self._known is None or self._known[0] != written:
                self._known = written, Connectivity.from_bytes(path.read_bytes())
        except FileNotFoundError:
            return None
        return self._known[1]

    def _pass_on(self, path: Path, there: Connectivity) -> None:
        waiting: list[Envelope] = []
        try:
            messages = [message_from_bytes(row.blob) for row in read_messages(path)]
            waiting = [message for message in messages if isinstance(message, Envelope)]
        except MidstreamError as problem:
            # It must not end the site. A message that is lost is asked for again.
            _LOG.warning("ignored %s: %s", path, problem)
        by_target: dict[Path, list[MessageRow]] = {}
        while waiting:
            envelope = waiting.pop(0)
            if envelope.place and not there.carries(envelope.path[envelope.place - 1], envelope.node):
                continue
            if is_in_transit(envelope) and self._layout.site_of(envelope.node) == self._site:
                waiting.append(Envelope(envelope.path, envelope.message, envelope.place + 1))
                continue
            site = self._layout.site_of(envelope.node)
            folder = self._directory.transit if is_in_transit(envelope) else self._directory.inbox
            row = MessageRow(ENVELOPE, envelope.node, message_to_bytes(envelope))
            by_target.setdefault(folder(site, self._site), []).append(row)
        for target, rows in by_target.items():
            # Of this sender and file: passed on again after a crash, it has the same name.
            write_messages(target / f"{path.stem}-{path.parent.name}.parquet", rows)
