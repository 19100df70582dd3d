"""Files of messages: one Parquet file holds what one sender has for one receiver at one moment.

Links between sites, instructions of the coordinator and reports to it are directories of such files (a *log*). A file
is written aside and gets its name when it is complete, so whoever reads the directory sees whole files only. Parquet,
because Spark reads it as a stream and everything else can look into it.

    place     the row's place in the file
    node      the node that the message is for; empty: all
    spread    a number that follows from the node's name, by which a site finds the node's group; NULL: all groups
    kind      what the message is
    blob      the message (``wire_format``)
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.deployment.placement.global_plan import NodeId
from midstream.deployment.sites.durable_files import write_whole
from midstream.deployment.sites.file_names import file_name
from midstream.errors import MalformedMessage

__all__ = [
    "CONTROL",
    "ENVELOPE",
    "NETWORK",
    "REPORT",
    "TICK",
    "WAKE",
    "MessageRow",
    "read_messages",
    "spread",
    "write_messages",
]

ENVELOPE, CONTROL, NETWORK, TICK, WAKE, REPORT = "envelope", "control", "network", "tick", "wake", "report"
"""The kinds: a message between nodes, one from the coordinator, what is there, time to ask again, time to go on with
what one step could not send, a report."""

_SCHEMA = pa.schema(
    {"place": pa.int64(), "node": pa.string(), "spread": pa.int64(), "kind": pa.string(), "blob": pa.binary()}
)


class MessageRow(NamedTuple):
    """One message in a file."""

    kind: str
    node: NodeId
    blob: bytes


def spread(node: NodeId) -> int:
    """A number by which nodes are spread over groups. Spark computes it, too, from a node's directory."""
    return zlib.crc32(file_name(node).encode())


def write_messages(path: Path, rows: Iterable[MessageRow]) -> None:
    """Write a file of messages, unless it is there: then it has the same messages."""
    if path.exists():
        return
    rows = list(rows)
    table = pa.table(
        {
            "place": range(len(rows)),
            "node": [row.node for row in rows],
            "spread": [spread(row.node) if row.node else None for row in rows],
            "kind": [row.kind for row in rows],
            "blob": [row.blob for row in rows],
        },
        schema=_SCHEMA,
    )
    sink = io.BytesIO()
    # Messages are large and differ: a dictionary and statistics of them would cost more than writing them.
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_statistics=False)
    write_whole(path, sink.getvalue())


def read_messages(path: Path) -> list[MessageRow]:
    """The messages of a file, in order."""
    try:
        table = pq.read_table(io.BytesIO(path.read_bytes()), schema=_SCHEMA)
    except (pa.ArrowException, ValueError) as problem:
        raise MalformedMessage(f"{path} is no file of messages", detail=f"{problem}.") from problem
    return [MessageRow(*row) for row in zip(*(table[name].to_pylist() for name in MessageRow._fields), strict=True)]
