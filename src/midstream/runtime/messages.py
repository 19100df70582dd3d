"""Messages: everything that passes between processes, or is kept for a later one, as typed structs.

    control directory    QueryFile, Command, Status,           written by anybody who may write there: decoded strictly
                         AdaptationEntry
    cell to driver       CellFigures                           what a cell did and holds, after each micro-batch
    state backend        CellProgress, CellManifest            what a cell needs to continue elsewhere

A message that is kept has a *format*, a number that changes whenever an earlier version could not read it, or would
read it wrongly. :func:`decode` checks the format first: what another version wrote is refused as a whole, with one
message, and never read in part. Unknown fields, missing ones and values of other types are refused with their place.

>>> decode(b'{"format": 7, "plan": 5}', Status, "status.json", CONTROL_FORMAT)
Traceback (most recent call last):
...
midstream.errors.MalformedMessage: [M3011] status.json is damaged
  detail: Expected `str`, got `int` - at `$.plan`.
  hint: It was changed by something other than midstream, or is not complete.
"""

from __future__ import annotations

import zlib
from typing import Any, Literal, Self, TypeVar

import msgspec

from midstream.adaptation.controller import ControllerState
from midstream.adaptation.decisions import Decision
from midstream.adaptation.measured_sizes import MeasuredSizes
from midstream.adaptation.policy import Adaptation
from midstream.errors import CheckpointMismatch, MalformedMessage
from midstream.execution.just_in_time import JustInTime
from midstream.migration.record import MigrationFigures
from midstream.planning.cost.statistics import JoinKeys, StreamStatistics
from midstream.runtime.query_fingerprint import QueryFingerprint
from midstream.runtime.stream_counters import StreamCounters

__all__ = [
    "CONTROL_FORMAT",
    "STATE_FORMAT",
    "Action",
    "Adapt",
    "AdaptationEntry",
    "CellFigures",
    "CellManifest",
    "CellMigration",
    "CellProgress",
    "ClusterMetrics",
    "Command",
    "CommandOutcome",
    "Counts",
    "DeclareIdle",
    "EventTimeProgress",
    "Finish",
    "Migrate",
    "MigrationEntry",
    "MigrationOutcome",
    "MigrationState",
    "OperatorFigures",
    "PlanJson",
    "QueryFile",
    "Rates",
    "RunFigures",
    "RunMetrics",
    "Status",
    "SwitchJustInTime",
    "decode",
    "encode",
]

CONTROL_FORMAT = 7
"""The format of query.json, status.json, adaptation.jsonl and commands."""
STATE_FORMAT = 8
"""The format of what is in a state backend."""

PlanJson = dict[str, Any]
"""A plan as ``algebra.plan_json`` writes it, which checks it when it is read."""
MigrationState = Literal["submitted", "running", "completed", "refused", "unchanged"]
"""What became of a migration, the same word everywhere: no cell has taken it yet; both plans matter; nothing of the old
plan is left; a cell refused it, and the plan stays; the plan was in force already."""

Kind = TypeVar("Kind")


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that is sent or kept: immutable, with named fields only, and none that it does not know."""


# Commands


class Migrate(Message, frozen=True, kw_only=True, tag_field="kind", tag="migrate"):
    """Replace the plan."""

    plan: PlanJson
    identity: str
    """The identity of the query that the plan belongs to."""
    strategy: str
    options: dict[str, Any]
    decision: Decision | None = None
    """The decision of the query's own that led to it; None: a person asked for it."""


class SwitchJustInTime(Message, frozen=True, kw_only=True, tag_field="kind", tag="just-in-time"):
    """Switch just-in-time processing on, with these options, or off."""

    options: JustInTime | None


class Adapt(Message, frozen=True, kw_only=True, tag_field="kind", tag="adapt"):
    """Measure the joins from now on, as this policy says, or no more. Decisions are the driver's."""

    policy: Adaptation | None


class DeclareIdle(Message, frozen=True, kw_only=True, tag_field="kind", tag="idle"):
    """Let the watermark pass without a silent stream."""

    stream: str
    rows: int | None = None
    """Only if the stream has had no more rows than these: its silence was noticed automatically."""


class Finish(Message, frozen=True, kw_only=True, tag_field="kind", tag="finish"):
    """The end of all streams."""


Action = Migrate | SwitchJustInTime | Adapt | DeclareIdle | Finish


class Command(Message, frozen=True, kw_only=True):
    """What every cell of a query is to do, in the order of the commands' numbers."""

    format: int = CONTROL_FORMAT
    number: int
    directory: str
    """The mark of the control directory: two directories number their commands alike."""
    query: str | None
    """The id of the query that it is for, as Spark knows it; None if no query had reported by then."""
    submitted: float
    """Clock time, in seconds since 1970."""
    action: Action


class CommandOutcome(Message, frozen=True, kw_only=True):
    """What became of a command to migrate, or to switch just-in-time processing, in one cell."""

    directory: str
    number: int
    state: MigrationState
    reason: str | None = None
    """Why it was refused."""
    migration: int | None = None
    """The number of the migration among those of the cell."""
    figures: MigrationFigures | None = None


# What a cell did and holds


class OperatorFigures(Message, frozen=True, kw_only=True):
    """What an operator did, and what it holds."""

    operator: str
    """Its name: what it is, and its parameters."""
    kind: str
    """What it is: of an operator of the plan, the kind of its node; else "materialize", "suspend" or "demand"."""
    subplan: str
    """Identifies what it computes; what earlier operators with the same subplan did is included."""
    rows_in: int
    rows_out: int
    probes: int
    compared: int
    suspended: int = 0
    """Tuples kept back by just-in-time processing; ``resumed`` were let go later. Of a multi-way join: left out of a
    visit, for which nothing has to be let go."""
    resumed: int = 0
    avoided: int = 0
    """Partial results that a join would have made of suspended tuples: at least about so many."""
    state_rows: int
    """Tuples held; of a Suspend operator: on its blacklists; of a Demand operator: whose keys it knows."""
    state_bytes: int
    suspended_keys: int = 0
    """Different keys of the tuples on blacklists."""
    consumers: int = 0
    """Joins above whose partners a Suspend operator can let tuples wait for."""
    consumers_asked: int = 0
    """Those that it lets them wait for now: none while that does not pay."""


class Counts(Message, frozen=True, kw_only=True):
    """What was done since the query began, and what is held now: in one cell, or in all of them together."""

    operators: list[OperatorFigures]
    results: int
    window_rows: int
    state_rows: int
    state_bytes: int
    buffered: int


class RunFigures(Counts, frozen=True, kw_only=True):
    """What is reported of a cell, of a query in this process and of one on Spark."""

    streams: dict[str, StreamCounters]
    migrating: bool
    batches: int
    seconds: float = 0.0
    """How long the latest micro-batch or push took."""
    just_in_time: JustInTime | None = None
    """How just-in-time processing works; None while it is off."""


class CellFigures(RunFigures, frozen=True, kw_only=True):
    """What is reported of a cell on Spark."""

    cell: int = 0
    query: str | None = None
    """The id of the query, as Spark knows it."""
    plan: str
    """The plan in force as a tree; during a migration, the one it leads to."""
    plan_json: PlanJson | None
    watermark: int
    idle: list[str]
    commands: list[CommandOutcome]
    segments: int
    segment_rows: int
    bytes_written: int
    rebuild_seconds: float | None
    """How long it took to restore the cell, if that was necessary for this micro-batch."""
    latest: dict[str, int] = {}
    """By stream: the latest event time seen, in ticks."""
    received: dict[str, int] = {}
    """By the fingerprint of a window: how many rows have entered it since the query began."""
    sizes: MeasuredSizes | None = None
    """Sizes of joins, if they were measured after this micro-batch."""
    measuring_failure: str | None = None
    """Why that failed, if it did."""

    @property
    def rows_received(self) -> int:
        """How many rows its windows have received since the query began, each window counted for itself."""
        return sum(self.received.values())


# What is known of a query


class RunMetrics(RunFigures, frozen=True, kw_only=True):
    """What ``metrics()`` has, wherever a query runs."""

    watermark: int | None
    finished: bool
    rebuilds: int

    @property
    def rows(self) -> int:
        """The rows of all streams."""
        return sum(counters.rows for counters in self.streams.values())


class ClusterMetrics(RunMetrics, frozen=True, kw_only=True):
    """Of a query on Spark: all its cells together, and each one's own figures."""

    query: str | None
    segments: int
    segment_rows: int
    bytes_written: int
    cells: list[CellFigures]


class Rates(Message, frozen=True, kw_only=True):
    """Per second, over the last micro-batches; None while there are too few."""

    rows: float | None = None
    results: float | None = None


class CellMigration(Message, frozen=True, kw_only=True):
    """What became of a migration in one cell."""

    cell: int
    state: MigrationState
    reason: str | None = None
    figures: MigrationFigures | None = None


class MigrationOutcome(Message, frozen=True, kw_only=True):
    """What became of a migration so far, over all cells."""

    state: MigrationState = "submitted"
    reason: str | None = None
    figures: MigrationFigures | None = None
    cells: list[CellMigration] = []

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state not in ("submitted", "running")


class MigrationEntry(Message, frozen=True, kw_only=True):
    """A migration in ``status.json``: what was asked for, and what became of it."""

    number: int
    strategy: str
    options: dict[str, Any]
    old_plan: str
    new_plan: str
    submitted: float
    outcome: MigrationOutcome
    decision: int | None = None
    """The number of the decision of the query's own that led to it; None: a person asked for it."""


class Status(Message, frozen=True, kw_only=True):
    """``status.json``: what a query last reported."""

    format: int = CONTROL_FORMAT
    plan: str
    plan_json: PlanJson
    history: list[MigrationEntry]
    """The latest migrations, and earlier ones that are not over."""
    earlier: dict[MigrationState, list[int]] = {}
    """The numbers of earlier ones that were refused or unchanged; the others are completed."""
    metrics: ClusterMetrics
    rates: Rates
    streams: tuple[StreamStatistics, ...] = ()
    hot_keys: tuple[JoinKeys, ...] = ()
    """Of a query that adapts, over all cells."""
    has_ended: bool
    """Whether the streams have ended, and all results are committed."""
    reported: float
    """Clock time, in seconds since 1970."""


class QueryFile(Message, frozen=True, kw_only=True):
    """``query.json``: which query a control directory belongs to."""

    format: int = CONTROL_FORMAT
    query: QueryFingerprint
    first_plan: PlanJson
    mark: str
    """What the commands of this directory carry: numbers alone could be those of another directory."""


class AdaptationEntry(Message, frozen=True, kw_only=True):
    """A line of ``adaptation.jsonl``: a decision, or another event, and how adaptation continues after it."""

    format: int = CONTROL_FORMAT
    query: str | None
    """The id of the query that it is about, as Spark knows it; None before it has reported."""
    policy: Adaptation
    """With the cost coefficients that were given or measured."""
    since: int
    """A later command of a person to migrate pins the plan."""
    state: ControllerState
    awaited: int | None = None
    """The command of the migration that was decided last, until it is over."""
    decision: Decision | None = None


# What a cell keeps in its state backend


class EventTimeProgress(Message, frozen=True, kw_only=True):
    """How far the streams have come in event time, in ticks."""

    latest: dict[str, int]
    idle: list[str]
    watermark: int


class _Stored(Message, frozen=True, kw_only=True):
    """Something in a state backend, with a checksum: it must be what was written, not only look like it."""

    checksum: int = 0

    def sealed(self) -> Self:
        """The message with its checksum."""
        return msgspec.structs.replace(self, checksum=zlib.crc32(encode(msgspec.structs.replace(self, checksum=0))))

    @property
    def is_intact(self) -> bool:
        return self.sealed().checksum == self.checksum


class SubplanCounts(Message, frozen=True, kw_only=True):
    """What the operators of a subplan did until now."""

    kind: str
    subplan: str
    counts: tuple[int, ...]
    """In the order of ``engine.operators.operator.Counters``."""


class CellProgress(_Stored, frozen=True, kw_only=True):
    """How far a cell has come; written with every micro-batch."""

    format: int = STATE_FORMAT
    version: str
    """Names this state of the cell: memory with another version is stale."""
    batches: int
    results: int
    watermark: int
    time: EventTimeProgress
    streams: dict[str, StreamCounters]
    operators: list[SubplanCounts]
    next_segment: int
    looked_at: int
    segments: list[tuple[int, int]]
    """The numbers of the segments that must be there, as runs: the first of each and the last."""
    windows: list[tuple[int, int, int, int]]
    """Of each window: the number of its next row, what is released, the latest start and the latest end."""


class CellManifest(_Stored, frozen=True, kw_only=True):
    """What a cell runs; written when a migration changed it."""

    format: int = STATE_FORMAT
    query: QueryFingerprint
    first_plan: str
    columns: dict[str, list[str]]
    cell: dict[str, Any]
    """See ``migration.manifest``."""
    commands: list[CommandOutcome]
    adaptation: Adaptation | None
    """How the cell measures its joins; None: it does not."""


class _Formatted(msgspec.Struct):
    """Any message, as far as its format."""

    format: int | None = None


def encode(message: msgspec.Struct) -> bytes:
    """A message as JSON, for :func:`decode`."""
    return msgspec.json.encode(message)


def decode(data: bytes | str, kind: type[Kind], name: str, format: int, remedy: str | None = None) -> Kind:
    """The message of this kind in ``data``, which ``name`` names in errors; ``remedy`` is a hint where it is damaged.

    Raises ``CheckpointMismatch`` if another version of midstream wrote it and ``MalformedMessage`` if it is damaged.
    """
    try:
        found = msgspec.json.decode(data, type=_Formatted).format
        if found == format:
            return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise MalformedMessage(
            f"{name} is damaged",
            detail=f"{problem}." if not isinstance(problem, RecursionError) else "It is nested too deeply.",
            hint=remedy or "It was changed by something other than midstream, or is not complete.",
        ) from None
    raise CheckpointMismatch(
        f"{name} was written by another version of midstream",
        detail=f"It has {'an earlier format' if found is None else f'format {found}'}; this version reads format "
        f"{format}.",
        hint="Continue with the version of midstream that wrote it, or use another checkpoint and control directory.",
    )
