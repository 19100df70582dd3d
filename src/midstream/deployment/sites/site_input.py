"""What comes to a site, as rows: messages from other sites and the coordinator, files of feeds, ticks.

A row says where it comes from (the path of its file, and its place there), what it is, for which node, and carries the
message as bytes. Rows reach a group in any order; they are taken in the order of their files' names.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.algebra.window_spec import NEVER
from midstream.deployment.placement.global_plan import NodeId
from midstream.deployment.protocol.messages import Control, Envelope
from midstream.deployment.protocol.node_runtime import Arrival
from midstream.deployment.protocol.wire_format import message_from_bytes
from midstream.deployment.sites.connectivity import Connectivity
from midstream.deployment.sites.file_names import name_of_file
from midstream.deployment.sites.message_file import CONTROL, ENVELOPE, NETWORK, TICK
from midstream.deployment.sites.node_group import GroupInput
from midstream.errors import MalformedMessage, MidstreamError

__all__ = ["END_OF_FEED", "FEED", "InputRow", "group_input"]

_LOG = logging.getLogger(__name__)
FEED = "feed"
"""The kind of a row that is a file of a node's feed."""
END_OF_FEED = "end"
"""The name of the file that ends a feed."""


class InputRow(NamedTuple):
    """A row that comes to a site."""

    origin: str
    """The path of its file."""
    place: int
    kind: str
    node: NodeId
    blob: bytes


def group_input(rows: Iterable[InputRow]) -> GroupInput:
    """What rows say to a group of nodes. Rows that say nothing are left out: anybody may put a file there."""
    given = GroupInput()
    for row in sorted(rows):
        try:
            _add(given, row)
        except MidstreamError as problem:
            # It must not end the site. A message that is lost is asked for again.
            _LOG.warning("ignored %s: %s", row.origin, problem)
    return given


def _add(given: GroupInput, row: InputRow) -> None:
    if row.kind == TICK:
        given.asks_again = True
    elif row.kind == FEED:
        given.arrivals.append(_arrival(row.origin, row.blob))
    elif row.kind == NETWORK:
        there = Connectivity.from_bytes(row.blob)
        if given.connectivity is None or there.version > given.connectivity.version:
            given.connectivity = there
    else:
        message = message_from_bytes(row.blob)
        if row.kind == ENVELOPE and isinstance(message, Envelope):
            given.envelopes.append(message)
        elif row.kind == CONTROL and isinstance(message, Control):
            given.control.append((row.node, message))
        else:
            raise MalformedMessage(f'a {type(message).__name__} as "{row.kind}"')


def _arrival(origin: str, content: bytes) -> tuple[NodeId, Arrival]:
    """A file of a feed: the node and the stream are in its path."""
    try:
        node, stream, name = origin.split("/")[-3:]
        node, stream = name_of_file(node), name_of_file(stream)
        table = None if name == END_OF_FEED else pq.read_table(io.BytesIO(content))
    except (pa.ArrowException, ValueError, OSError) as problem:
        raise MalformedMessage("a file of a feed cannot be read", detail=f"{problem}.") from problem
    return node, Arrival(stream, table, NEVER if table is None else None)
