"""A stage as it runs on one node: its cell, and its ends of the edges around it.

It takes the messages that have come, in the order of their numbers on each edge, and puts what it makes of them into
its outbox. Everything it needs to go on elsewhere is its *snapshot*: the rows in their windows, a cursor per input,
the outbox and the number of its next message. What it sends after having moved is therefore what it would have sent
without: its instances, one after the other, are one run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import msgspec
import pyarrow as pa

from midstream.algebra.plan_json import plan_from_json
from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.deployment.placement.global_plan import Stage, StageId
from midstream.deployment.placement.reconfiguration_marker import Action, MarkerEntry
from midstream.deployment.placement.stage_plans import StagePlan
from midstream.deployment.protocol.logical_edge import ConsumerEnd, ProducerEnd
from midstream.deployment.protocol.messages import Content, Data, Marker, Path
from midstream.deployment.protocol.stage_cell import StageCell, concatenated
from midstream.engine.state.window_store import ReceivedRows
from midstream.errors import BadPlan, MigrationRefused
from midstream.runtime.ingest import Ingest
from midstream.runtime.messages import EventTimeProgress
from midstream.runtime.state_backend import refusing_damage
from midstream.runtime.stream_counters import StreamCounters
from midstream.runtime.transport import from_bytes, to_bytes

__all__ = ["StageInstance", "content_from_bytes", "content_to_bytes"]

Files = MutableMapping[str, bytes]
"""A snapshot: named pieces of bytes."""

EDGES, CELL, MESSAGE = "edges", "cell/", "message/"


class _Input(msgspec.Struct, frozen=True):
    edge: StageId
    generation: int
    next_number: int
    frontier: int


class _Edges(msgspec.Struct, frozen=True):
    """The ends of a stage's edges, without the messages in the outbox."""

    inputs: list[_Input]
    next_number: int
    first_number: int
    generation: int
    route: list[str]
    migrations: int
    refusal: str | None
    installed_in: int
    acted_in: int
    last_marker: int
    source: EventTimeProgress | None
    counters: dict[str, StreamCounters]


class _CellFiles:
    """The part of a snapshot that the cell writes."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def get(self, key: str) -> bytes | None:
        return self._files.get(CELL + key)

    def put(self, key: str, value: bytes) -> None:
        self._files[CELL + key] = value

    def remove(self, key: str) -> None:
        self._files.pop(CELL + key, None)

    def items(self) -> Iterator[tuple[str, bytes]]:
        return ((key.removeprefix(CELL), data) for key, data in self._files.items() if key.startswith(CELL))


class StageInstance:
    """A running stage. ``files`` is where its snapshot is kept up to date by :meth:`save`."""

    def __init__(self, plan: StagePlan, route: Path, generation: int, files: Files | None = None) -> None:
        self.plan = plan
        self.files: Files = {} if files is None else files
        self.inputs = {edge: ConsumerEnd(generation) for edge in plan.stage.inputs}
        self.output = ProducerEnd(route, generation)
        self.cell = None if plan.plan is None else StageCell(plan.plan)
        source = plan.source
        self.ingest = None if source is None else Ingest({source.stream.name: source.stream})
        self.results: list[ReceivedRows] = []
        """What a sink has received and nobody has fetched yet."""
        self.installed_in = generation
        """The generation in which it began on this node."""
        self.acted_in = 0
        """The generation in which it last acted on a marker here."""
        self.last_marker = 0
        """The generation of the last marker that it met."""
        self.migrations = 0
        """The number of the last change of the stage's plan."""
        self.refusal: str | None = None
        """Why that was refused, if it was."""
        self._sent_frontier = BEGINNING
        self._saved = (0, 0)
        """From and up to which message the outbox has been saved."""
        self._types = {
            leaf.identity: [field.type for field in leaf.schema]
            for leaf in (() if plan.plan is None else plan.plan.leaves())
        }

    @property
    def stage(self) -> Stage:
        return self.plan.stage

    @property
    def is_sink(self) -> bool:
        return self.cell is None

    @property
    def frontier(self) -> int:
        """How far the inputs are: no later row begins to be valid earlier."""
        return min((end.frontier for end in self.inputs.values()), default=BEGINNING)

    # Work

    def feed(self, table: pa.Table | None, at_least: int | None = None) -> None:
        """Rows that arise at a source, and the watermark if that is known to be later; None, NEVER: the end."""
        assert self.ingest is not None and self.cell is not None, "only sources are fed"
        window = self.plan.source
        assert window is not None
        rows = {}
        if table is not None:
            rows = self.ingest.accept(self.ingest.check({window.stream.name: table}))
        watermark = NEVER if at_least == NEVER else self.ingest.advance(at_least)
        if self.cell.watermark == NEVER:
            return
        self._emit(self.cell.push(self.cell.cell.windows.of_streams(rows), watermark))

    def work(self) -> Iterator[Marker]:
        """Take all messages that have come. Gives each marker when it is met: all rows before it have been taken.

        Whoever gets a marker may stop asking: then no message after it is taken.
        """
        taken: dict[str, list[ReceivedRows]] = {}
        counted: Counter[StageId] = Counter()
        for edge, end in self.inputs.items():
            while end.has_next:
                content = end.take()
                if isinstance(content, Data):
                    counted[edge] += 1
                    taken.setdefault(self.plan.leaf_of.get(edge, ""), []).append(content.rows)
                    continue
                if counted:
                    self._push(taken, counted)
                    taken, counted = {}, Counter()
                if self.cell is not None:
                    self.cell.taken[edge] += 1
                yield content
        if counted:
            self._push(taken, counted)

    def migrate(self, number: int, plan: dict[str, Any], strategy: str, options: Mapping[str, Any]) -> str | None:
        """Replace the stage's plan by an equivalent one; why not, if the strategy refuses it.

        A change that was made already, or refused, is passed over.
        """
        assert self.cell is not None and self.plan.plan is not None
        if number <= self.migrations:
            return self.refusal
        self.migrations, self.refusal = number, None
        try:
            self.cell.migrate(plan_from_json(plan, self.plan.plan.derived_from), strategy, options)
        except (BadPlan, MigrationRefused) as refused:
            self.refusal = str(refused)
        return self.refusal

    def _push(self, taken: dict[str, list[ReceivedRows]], counted: Mapping[StageId, int]) -> None:
        if self.cell is None:
            self.results += [rows for pieces in taken.values() for rows in pieces if len(rows)]
            return
        rows = {leaf: concatenated(pieces, self._types[leaf]) for leaf, pieces in taken.items()}
        self._emit(self.cell.push(rows, self.frontier, counted))

    def _emit(self, output: ReceivedRows) -> None:
        assert self.cell is not None
        if len(output) or self.cell.frontier > self._sent_frontier:
            self._sent_frontier = self.cell.frontier
            self.output.append(Data(output, self.cell.frontier))

    # Snapshots

    def save(self) -> Files:
        """The snapshot, brought up to date."""
        if self.cell is not None:
            self.cell.save(_CellFiles(self.files))
        output, (first, last) = self.output, self._saved
        for number in range(first, min(last, output.first_number)):
            self.files.pop(_message_key(number), None)
        for number in range(max(last, output.first_number), output.next_number):
            content = output.messages[number - output.first_number]
            self.files[_message_key(number)] = content_to_bytes(content)
        self._saved = output.first_number, output.next_number
        self.files[EDGES] = msgspec.json.encode(self._edges())
        return self.files

    def _edges(self) -> _Edges:
        output = self.output
        inputs = [_Input(edge, end.generation, end.next_number, end.frontier) for edge, end in self.inputs.items()]
        ingest = self.ingest
        return _Edges(
            inputs,
            output.next_number,
            output.first_number,
            output.generation,
            list(output.route),
            self.migrations,
            self.refusal,
            self.installed_in,
            self.acted_in,
            self.last_marker,
            None if ingest is None else ingest.progress(),
            {} if ingest is None else ingest.counters,
        )

    @classmethod
    def restored(cls, plan: StagePlan, files: Files) -> StageInstance:
        """The stage as its snapshot says, for where it has run or for another node."""
        with refusing_damage("The snapshot of a stage"):
            edges = msgspec.json.decode(files[EDGES], type=_Edges)
            instance = cls(plan, tuple(edges.route), edges.generation, files)
            for known in edges.inputs:
                end = instance.inputs[known.edge]
                end.generation, end.next_number, end.frontier = known.generation, known.next_number, known.frontier
            output = instance.output
            output.next_number, output.first_number = edges.next_number, edges.first_number
            output.next_to_send = edges.first_number
            for number in range(edges.first_number, edges.next_number):
                output.messages.append(content_from_bytes(files[_message_key(number)]))
        instance._saved = edges.first_number, edges.next_number
        instance.migrations, instance.refusal = edges.migrations, edges.refusal
        instance.installed_in, instance.acted_in = edges.installed_in, edges.acted_in
        instance.last_marker = edges.last_marker
        if plan.plan is not None:
            instance.cell = StageCell.restored(plan.plan, dict(_CellFiles(files).items()))
            instance._sent_frontier = instance.cell.frontier
            cursors = {edge: end.next_number for edge, end in instance.inputs.items() if end.next_number}
            assert instance.cell.taken == cursors, "I2: a state is the effect of all messages before its cursors"
        if instance.ingest is not None and edges.source is not None:
            instance.ingest.restore(edges.source, edges.counters)
        return instance


def _message_key(number: int) -> str:
    return f"{MESSAGE}{number:015d}"


# Contents as bytes


class _DataHeader(msgspec.Struct, frozen=True, tag="data"):
    frontier: int


class _MarkerHeader(msgspec.Struct, frozen=True, tag="marker"):
    query: str
    generation: int
    entries: list[tuple[str, int, str, int | None]]
    passed_on_by: list[str]


class _Header(msgspec.Struct, frozen=True):
    content: _DataHeader | _MarkerHeader


def content_to_bytes(content: Content) -> bytes:
    """A message of an edge's log, for storage or for the way."""
    if isinstance(content, Marker):
        entries = [
            (fragment, version, entry.action.value, entry.new_version)
            for (fragment, version), entry in content.entries.items()
        ]
        header = _MarkerHeader(content.query, content.generation, entries, sorted(content.passed_on_by))
        return to_bytes(_Header(header), [])
    return to_bytes(_Header(_DataHeader(content.frontier)), [content.rows.to_record_batch()])


def content_from_bytes(data: bytes) -> Content:
    """The message that :func:`content_to_bytes` gave this for."""
    header, batches = from_bytes(data, _Header)
    if isinstance(header.content, _MarkerHeader):
        marker = header.content
        entries = {
            (fragment, version): MarkerEntry(Action(action), new_version)
            for fragment, version, action, new_version in marker.entries
        }
        return Marker(marker.query, marker.generation, entries, frozenset(marker.passed_on_by))
    (batch,) = batches
    return Data(ReceivedRows.of_record_batch(batch), header.content.frontier)
