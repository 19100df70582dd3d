"""Messages as bytes: what nodes, sites and the coordinator send each other, and what is kept of it.

A message is written as its kind and its fields (msgpack), behind a checksum and the number of this format. Rows are
Arrow inside, plans are JSON. Bytes that were damaged, or written by another version, are refused as a whole:

>>> data = message_to_bytes(Prepared("edge 1", "q", 3))
>>> message_from_bytes(data)
Prepared(node='edge 1', query='q', generation=3)
>>> message_from_bytes(data[:-1] + b"?")
Traceback (most recent call last):
...
midstream.errors.MalformedMessage: [M3011] a message is damaged
  detail: It is not what its checksum says.

Messages without rows have a form as JSON, too (:func:`message_to_json`), for files that people read.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from midstream.deployment.placement.global_plan import NodeId, StageId
from midstream.deployment.placement.stage_plans import StagePlan, stage_plan_from_json, stage_plan_to_json
from midstream.deployment.protocol.messages import (
    Abort,
    Aborted,
    Acted,
    Commit,
    Committed,
    Connect,
    Control,
    Cursor,
    EnterMarker,
    Envelope,
    InspectLostNode,
    Installed,
    Marker,
    MigrateStage,
    Numbered,
    Prepare,
    Prepared,
    ProvideState,
    Report,
    RerouteState,
    RescueState,
    Resume,
    Resumed,
    StageMigrated,
    StateChunk,
    StateCursor,
)
from midstream.deployment.protocol.node_runtime import Arrival
from midstream.deployment.protocol.node_storage import StoredContext, context_from_json, context_to_json
from midstream.deployment.protocol.stage_instance import content_from_bytes, content_to_bytes
from midstream.deployment.topology.topology_events import (
    AddLink,
    AddNode,
    LoseNode,
    RemoveLink,
    RemoveNode,
    TopologyEvent,
)
from midstream.errors import BadPlan, BadTopology, MalformedMessage

__all__ = [
    "WIRE_FORMAT",
    "Message",
    "PlainMessage",
    "message_from_bytes",
    "message_from_json",
    "message_to_bytes",
    "message_to_json",
]

WIRE_FORMAT = 2
"""Changes whenever an earlier version could not read a message, or would read it wrongly."""
CHECKSUM_BYTES = 8

Message = Envelope | Control | Report | Arrival | TopologyEvent | StagePlan
"""Everything that has a form as bytes."""
PlainMessage = Report | TopologyEvent | StagePlan
"""Messages that have a form as JSON, too."""


# Kinds whose fields are not plain


class _Envelope(msgspec.Struct, frozen=True):
    path: tuple[NodeId, ...]
    place: int
    kind: str
    message: Any


class _Numbered(msgspec.Struct, frozen=True):
    edge: StageId
    generation: int
    number: int
    content: bytes


class _Prepare(msgspec.Struct, frozen=True):
    query: str
    generation: int
    contexts: list[StoredContext]


class _EnterMarker(msgspec.Struct, frozen=True):
    marker: bytes
    stages: tuple[StageId, ...]


class _Arrival(msgspec.Struct, frozen=True):
    stream: str
    table: bytes | None
    at_least: int | None


@dataclass(frozen=True)
class _Form:
    """How the messages of one kind are written: the type of what is written, and the ways there and back."""

    written: Any
    write: Callable[[Any], Any] = lambda message: message
    read: Callable[[Any], Any] = lambda written: written


def _write_envelope(envelope: Envelope) -> _Envelope:
    kind, written = _written(envelope.message)
    return _Envelope(envelope.path, envelope.place, kind, written)


def _read_envelope(written: _Envelope) -> Envelope:
    if written.kind not in _CARRIED or not 0 <= written.place < len(written.path):
        raise ValueError(f'an envelope with a "{written.kind}" at place {written.place} of {len(written.path)}')
    return Envelope(written.path, _read(written.kind, written.message), written.place)


def _write_arrival(arrival: Arrival) -> _Arrival:
    table = None
    if arrival.table is not None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, arrival.table.schema) as writer:
            writer.write_table(arrival.table)
        table = sink.getvalue().to_pybytes()
    return _Arrival(arrival.stream, table, arrival.at_least)


def _read_arrival(written: _Arrival) -> Arrival:
    table = None if written.table is None else pa.ipc.open_stream(written.table).read_all()
    return Arrival(written.stream, table, written.at_least)


def _read_marker(data: bytes) -> Marker:
    marker = content_from_bytes(data)
    if not isinstance(marker, Marker):
        raise ValueError("rows in place of a marker")
    return marker


_CARRIED = {kind.__name__ for kind in (Connect, Numbered, Cursor, StateChunk, StateCursor)}
"""What may be in an envelope."""

_PLAIN: tuple[type, ...] = (
    *(Connect, Cursor, StateChunk, StateCursor),
    *(Commit, Abort, Resume, RerouteState, RescueState, InspectLostNode, ProvideState, MigrateStage),
    *(Prepared, Acted, Installed, Committed, Aborted, Resumed, StageMigrated),
    *(AddNode, RemoveNode, LoseNode, AddLink, RemoveLink),
)

_FORMS: dict[str, _Form] = {kind.__name__: _Form(kind) for kind in _PLAIN} | {
    "Envelope": _Form(_Envelope, _write_envelope, _read_envelope),
    "Numbered": _Form(
        _Numbered,
        lambda m: _Numbered(m.edge, m.generation, m.number, content_to_bytes(m.content)),
        lambda w: Numbered(w.edge, w.generation, w.number, content_from_bytes(w.content)),
    ),
    "Prepare": _Form(
        _Prepare,
        lambda m: _Prepare(m.query, m.generation, [context_to_json(context) for context in m.contexts]),
        lambda w: Prepare(w.query, w.generation, tuple(context_from_json(context) for context in w.contexts)),
    ),
    "EnterMarker": _Form(
        _EnterMarker,
        lambda m: _EnterMarker(content_to_bytes(m.marker), m.stages),
        lambda w: EnterMarker(_read_marker(w.marker), w.stages),
    ),
    "Arrival": _Form(_Arrival, _write_arrival, _read_arrival),
    "StagePlan": _Form(dict[str, Any], stage_plan_to_json, stage_plan_from_json),
}


def _written(message: Any) -> tuple[str, Any]:
    kind = type(message).__name__
    return kind, _FORMS[kind].write(message)


def _read(kind: str, written: Any) -> Any:
    form = _FORMS.get(kind)
    if form is None:
        raise ValueError(f'there is no message "{kind}"')
    return form.read(msgspec.convert(written, form.written, builtin_types=(bytes,)))


_UNREADABLE = (
    AttributeError,
    BadPlan,
    BadTopology,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
    pa.ArrowException,
    struct.error,
)
"""What reading bytes that are no message may fail of."""


def message_to_bytes(message: Message) -> bytes:
    """A message for the way, or to be kept."""
    body = msgspec.msgpack.encode((WIRE_FORMAT, *_written(message)))
    return _checksum(body) + body


def message_from_bytes(data: bytes) -> Message:
    """The message that :func:`message_to_bytes` gave these bytes for. Raises if they are none."""
    body = data[CHECKSUM_BYTES:]
    if data[:CHECKSUM_BYTES] != _checksum(body):
        raise MalformedMessage("a message is damaged", detail="It is not what its checksum says.")
    try:
        format, kind, written = msgspec.msgpack.decode(body, type=tuple[int, str, Any])
        if format != WIRE_FORMAT:
            raise ValueError(f"its format is {format}, not {WIRE_FORMAT}: another version of midstream wrote it")
        message: Message = _read(kind, written)
    except _UNREADABLE as problem:
        raise MalformedMessage("a message cannot be read", detail=f"{problem}.") from problem
    return message


def message_to_json(message: PlainMessage) -> dict[str, Any]:
    """A message as a value for ``json.dumps``."""
    kind, written = _written(message)
    return {"kind": kind, "message": msgspec.to_builtins(written)}


def message_from_json(data: dict[str, Any]) -> PlainMessage:
    """The message that :func:`message_to_json` gave this for. Raises if there is none."""
    try:
        message = _read(data["kind"], data["message"])
        if not isinstance(message, PlainMessage):
            raise ValueError(f"a {type(message).__name__} is not kept as JSON")
    except _UNREADABLE as problem:
        raise MalformedMessage("a message cannot be read", detail=f"{problem}.") from problem
    return message


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=CHECKSUM_BYTES).digest()
