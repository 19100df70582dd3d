"""The stateful operator of a site: one call per group of nodes and micro-batch.

What comes are rows: messages from other sites and the coordinator, files of the nodes' feeds, the tick that says that
it is time to ask again. What goes are rows, too. In between a ``NodeGroup`` works, which stays in the memory of the
Python worker from one micro-batch to the next, under a version that is also in Spark's state. If the two differ
(another worker, a restart, an attempt that failed), the group is restored from the state.
"""

from __future__ import annotations

import io
import logging
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from midstream.algebra.window_spec import NEVER
from midstream.deployment.connectivity import Connectivity
from midstream.deployment.deployment_directory import SiteLayout
from midstream.deployment.file_names import name_of_file
from midstream.deployment.global_plan import NodeId
from midstream.deployment.message_file import CONTROL, ENVELOPE, NETWORK, REPORT, TICK
from midstream.deployment.messages import Control, Envelope
from midstream.deployment.node_group import GroupInput, GroupOutput, NodeGroup
from midstream.deployment.node_runtime import Arrival
from midstream.deployment.site_output import RESCUE, RESULT, STATE, OutputRow, rows_to_bytes
from midstream.deployment.wire_format import message_from_bytes, message_to_bytes
from midstream.errors import MalformedMessage, MidstreamError

__all__ = ["END_OF_FEED", "FEED", "GroupActivity", "NodeOperator"]

_LOG = logging.getLogger(__name__)
FEED = "feed"
"""The kind of a row that is a file of a node's feed."""
END_OF_FEED = "end"
VERSION = "version"
"""Where the state has the version of the group that it belongs to."""


class GroupActivity(msgspec.Struct, frozen=True):
    """What a group did in a micro-batch, for the site's process."""

    group: int
    is_busy: bool
    ticks: int
    was_restored: bool
    seconds: float
    rows: int


_GROUPS: dict[tuple[str, int], tuple[str, NodeGroup]] = {}
"""The groups in this process with their versions, by run of a site and number."""


class NodeOperator(StatefulProcessor):
    """Runs the nodes of a site. ``run`` names the running process of the site, ``keys`` are those of its groups."""

    def __init__(self, layout: SiteLayout, site: str, run: str, keys: list[int]) -> None:
        self._layout = layout
        self._site = site
        self._run = run
        self._groups = {key: group for group, key in enumerate(keys)}

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getMapState("stored", "name string", "value binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        began = time.perf_counter()
        number = self._groups[int(key[0])]
        given, ticks, count = _given(rows)
        group, was_restored = self._group(number)
        output = list(self._output(group.step(given)))
        self._store(number, group)
        activity = GroupActivity(number, group.is_busy, ticks, was_restored, time.perf_counter() - began, count)
        output.append(OutputRow(STATE, "", "", msgspec.json.encode(activity)))
        yield pd.DataFrame(
            {
                "kind": [row.kind for row in output],
                "target": [row.target for row in output],
                "node": [row.node for row in output],
                "blob": [row.blob for row in output],
            }
        )

    def close(self) -> None:
        pass

    def _hosts(self, number: int) -> Any:
        layout, site = self._layout, self._site
        return lambda node: layout.site_of(node) == site and layout.group_of(node) == number

    def _group(self, number: int) -> tuple[NodeGroup, bool]:
        """The group, and whether it had to be restored. It is taken out while it works: see ``cell_cache``."""
        stored = self._state.getValue((VERSION,))
        version = "" if stored is None else bytes(stored[0]).decode()
        known_version, group = _GROUPS.pop((self._run, number), ("", None))
        if group is not None and known_version == version:
            return group, False
        kept = {key[0]: bytes(value[0]) for key, value in self._state.iterator()}
        kept.pop(VERSION, None)
        return NodeGroup.restored(self._hosts(number), kept), True

    def _store(self, number: int, group: NodeGroup) -> None:
        for name, data in group.changes().items():
            if data is not None:
                self._state.updateValue((name,), (data,))
            elif self._state.containsKey((name,)):
                self._state.removeKey((name,))
        version = uuid.uuid4().hex
        self._state.updateValue((VERSION,), (version.encode(),))
        _GROUPS[self._run, number] = version, group

    def _output(self, out: GroupOutput) -> Iterator[OutputRow]:
        for envelope in out.envelopes:
            site = self._layout.site_of(envelope.node)
            yield OutputRow(ENVELOPE, site, envelope.node, message_to_bytes(envelope))
        for report in out.reports:
            yield OutputRow(REPORT, "", report.node, message_to_bytes(report))
        for query, rows in out.results:
            yield OutputRow(RESULT, query, "", rows_to_bytes(rows))
        for node, rescue in out.rescues:
            yield OutputRow(RESCUE, "", node, message_to_bytes(rescue))


def _given(frames: Iterable[pd.DataFrame]) -> tuple[GroupInput, int, int]:
    """What rows say, in an order that does not depend on the shuffle; how many ticks there are, and rows."""
    rows = sorted(
        (str(origin), int(place), str(kind), str(node), bytes(blob))
        for frame in frames
        for origin, place, kind, node, blob in zip(
            frame["origin"], frame["place"], frame["kind"], frame["node"], frame["blob"], strict=True
        )
    )
    given = GroupInput()
    ticks = 0
    for origin, _, kind, node, blob in rows:
        try:
            if kind == TICK:
                given.asks_again = True
                ticks += 1
            elif kind == FEED:
                given.arrivals.append(_arrival(origin, blob))
            elif kind == NETWORK:
                there = Connectivity.from_bytes(blob)
                if given.connectivity is None or there.version > given.connectivity.version:
                    given.connectivity = there
            else:
                _add_message(given, kind, node, blob)
        except MidstreamError as problem:
            # Anybody may put a file there: it must not end the site. A message that is lost is asked for again.
            _LOG.warning("ignored %s: %s", origin, problem)
    return given, ticks, len(rows)


def _add_message(given: GroupInput, kind: str, node: NodeId, blob: bytes) -> None:
    message = message_from_bytes(blob)
    if kind == ENVELOPE and isinstance(message, Envelope):
        given.envelopes.append(message)
    elif kind == CONTROL and isinstance(message, Control):
        given.control.append((node, message))
    else:
        raise MalformedMessage(f'a {type(message).__name__} as "{kind}"')


def _arrival(origin: str, content: bytes) -> tuple[NodeId, Arrival]:
    """A file of a feed: the node and the stream are in its path."""
    *_, node, stream, name = origin.split("/")
    if name == END_OF_FEED:
        return name_of_file(node), Arrival(name_of_file(stream), None, NEVER)
    try:
        table = pq.read_table(io.BytesIO(content))
    except (pa.ArrowException, ValueError) as problem:
        raise MalformedMessage("a file of a feed cannot be read", detail=f"{problem}.") from problem
    return name_of_file(node), Arrival(name_of_file(stream), table)
