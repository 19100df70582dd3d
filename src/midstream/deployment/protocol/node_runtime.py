"""A node of the topology: the stages that run on it, and how it takes part in a reconfiguration.

A node is a state machine. :meth:`NodeRuntime.step` takes what has come (control messages, messages from other nodes,
rows at its sources) and gives what is to be sent. It knows no clock and does no I/O: whoever runs it stores its state
after each step, before anything is sent, and calls :meth:`NodeRuntime.ask_again` from time to time, because messages
may be lost.

A stage on a node, seen by the reconfiguration with generation g (ISQD §4.2 and §6; the states are those of
``docs/deployment.md``):

    (absent) ──Prepare: deploy──▶ awaiting its state ──last chunk──▶ running
    (absent) ──Prepare: deploy, without a past──▶ running
    running  ──Prepare: update or drain──▶ running, with a context
             ──marker──▶ update: running, on another route
                         drain:  held; its snapshot is sent to where the stage goes on
    held     ──Commit──▶ (absent)         held ──Resume──▶ running
    awaiting ──Abort───▶ (absent)         (an Abort for a stage that runs already is refused)

A held stage takes no more messages, and goes on sending those in its outbox: its successor has the same ones under the
same numbers. A stage acts on the first copy of the marker that reaches it. Its snapshot has a cursor per input, so the
copies need not be aligned.
"""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from midstream.deployment.placement.global_plan import NodeId, StageId
from midstream.deployment.protocol.messages import (
    Abort,
    Aborted,
    Acted,
    Commit,
    Committed,
    Connect,
    Control,
    Cursor,
    DeployStage,
    DrainStage,
    EnterMarker,
    Envelope,
    Installed,
    Marker,
    MigrateStage,
    Numbered,
    Path,
    Prepare,
    Prepared,
    ProvideState,
    Report,
    RerouteState,
    Resume,
    Resumed,
    StageContext,
    StageMigrated,
    StateChunk,
    StateCursor,
    UpdateStage,
)
from midstream.deployment.protocol.patience import Patience
from midstream.deployment.protocol.stage_instance import StageInstance
from midstream.engine.state.window_store import ReceivedRows
from midstream.errors import DataError, MalformedMessage
from midstream.runtime.framing import frame_prefix, split_frame

__all__ = ["CHUNKS_AT_ONCE", "CHUNK_BYTES", "Arrival", "Awaiting", "Held", "NodeRuntime", "Outgoing", "chunks_of"]

CHUNK_BYTES = 1 << 20
"""A snapshot is sent in pieces of so many bytes, so that its first pieces are further on while the last are read."""
CHUNKS_AHEAD = 64
"""So many pieces are under way at most, for each hop, before the first is confirmed."""
CHUNKS_AT_ONCE = 16
"""So many pieces leave a node in one step at most, where a step's output leaves as a whole (on sites)."""


@dataclass(frozen=True)
class Arrival:
    """Rows that arise at a stream's source on this node."""

    stream: str
    table: pa.Table | None
    at_least: int | None = None
    """The watermark, if it is known to be at least this; NEVER at the end of the stream."""


@dataclass
class Outgoing:
    """What a step gives."""

    envelopes: list[Envelope] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    results: list[tuple[str, ReceivedRows]] = field(default_factory=list)
    """Results that have reached their sink, by query."""


@dataclass
class Awaiting:
    """A stage that is to begin here when its state has come."""

    context: DeployStage
    generation: int
    chunks: list[bytes] = field(default_factory=list)
    way_back: Path | None = None
    connects: dict[StageId, tuple[int, Path]] = field(default_factory=dict)
    """Producers that have asked already, with their generation and the way back to them."""


@dataclass
class Held:
    """A stage that has ended here, until it is certain that it runs elsewhere."""

    instance: StageInstance
    generation: int
    path: Path
    chunks: list[bytes]
    confirmed: int = 0
    next_to_send: int = 0
    patience: Patience = field(default_factory=Patience)

    @property
    def may_be_sent(self) -> int:
        """Up to which chunk the snapshot may be under way."""
        ahead = CHUNKS_AHEAD * max(1, len(self.path) - 1)
        return min(len(self.chunks), self.confirmed + ahead) if self.path else 0


class NodeRuntime:
    """What runs on one node."""

    instances: type[StageInstance] = StageInstance
    """What a stage runs as. Benchmarks put another in its place, whose rows cost nothing to compute."""

    def __init__(self, name: NodeId, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.name = name
        self.chunks_at_once = sys.maxsize
        """So many chunks of snapshots leave in one step at most; then ``has_more_to_send``."""
        self.running: dict[StageId, StageInstance] = {}
        self.held: dict[StageId, Held] = {}
        self.awaiting: dict[StageId, Awaiting] = {}
        self.contexts: dict[tuple[str, int], dict[StageId, StageContext]] = {}
        """Contexts that the marker has not reached yet, by query and generation."""
        self.generations: dict[str, int] = {}
        """The latest generation of each query that this node was prepared for: older messages are stale."""
        self._chunk_bytes = chunk_bytes
        self._chunks_left = self.chunks_at_once
        self._touched: dict[StageId, None] | None = None
        """The stages that may have something to do; None: all. A step costs what has come, not what runs."""
        self._consumers: dict[StageId, StageId] = {}
        """Which stage took an edge's messages last: a hint, for it may have moved."""
        self.unclaimed: list[Arrival] = []
        """Rows of streams that have no source here yet."""
        self.refused_arrivals = 0
        """How often rows did not fit their stream, since the node was last restored."""
        self.refused_snapshots = 0
        """How often the snapshot of an awaited stage was damaged, since the node was last restored."""
        self.last_refusal: str | None = None
        self._local: deque[Envelope] = deque()
        self._out = Outgoing()

    def is_busy(self, cut_off: Collection[StageId] = ()) -> bool:
        """Whether something waits for an answer, or for the rest of a reconfiguration.

        What waits in the outbox of an edge that is ``cut_off`` does not count.
        """
        outputs = (i.output for stage, i in self.running.items() if not i.is_sink and stage not in cut_off)
        return bool(self.held or self.awaiting) or any(out.messages or not out.is_connected for out in outputs)

    # One step

    def step(
        self,
        control: Iterable[Control] = (),
        envelopes: Iterable[Envelope] = (),
        arrivals: Iterable[Arrival] = (),
    ) -> Outgoing:
        """Take all that has come, and work until nothing is left to do."""
        self._begin_step()
        for message in control:
            self._obey(message)
        for envelope in envelopes:
            self._receive(envelope)
        self._feed_unclaimed()
        for arrival in arrivals:
            self._feed(arrival)
        self._work()
        return self._out

    def ask_again(self) -> Outgoing:
        """Repeat what has not been answered since the last call."""
        self._begin_step()
        self._touched = None
        for output in self._outputs():
            output.output.check_connection()
        for held in self.held.values():
            if held.confirmed < len(held.chunks) and held.patience.is_over():
                held.next_to_send = held.confirmed
        self._work()
        return self._out

    @property
    def has_more_to_send(self) -> bool:
        """Whether chunks of a snapshot wait for the next step, though nothing may come until then."""
        return any(held.next_to_send < held.may_be_sent for held in self.held.values())

    def _begin_step(self) -> None:
        self._out = Outgoing()
        self._chunks_left = self.chunks_at_once

    def _work(self) -> None:
        """Let stages work, and pass messages between those on this node, until nothing moves."""
        while True:
            touched, self._touched = self._touched, {}
            stages = list(self.running) if touched is None else [stage for stage in touched if stage in self.running]
            for stage in stages:
                self._work_on(self.running[stage])
            self._send_all(touched)
            for stage in stages:
                instance = self.running.get(stage)
                if instance is not None and instance.results:
                    self._out.results += [(instance.stage.query, rows) for rows in instance.results]
                    instance.results = []
            if not self._local and not self._touched:
                break
            while self._local:
                self._receive(self._local.popleft())

    def _touch(self, stage: StageId) -> None:
        """A stage may have something to do."""
        if self._touched is not None:
            self._touched[stage] = None

    def _work_on(self, instance: StageInstance) -> None:
        for marker in instance.work():
            self._meet(marker, instance)
            if instance.stage.id not in self.running:
                return

    # Rows at sources

    def _feed(self, arrival: Arrival) -> None:
        """Give rows to the sources of their stream. Without one they wait; rows that do not fit it are refused."""
        sources = [
            instance
            for instance in self.running.values()
            if instance.plan.source is not None and instance.plan.source.stream.name == arrival.stream
        ]
        if not sources:
            self.unclaimed.append(arrival)
        for instance in sources:
            try:
                instance.feed(arrival.table, arrival.at_least)
            except DataError as problem:
                self.refused_arrivals += 1
                self.last_refusal = str(problem)
            self._touch(instance.stage.id)

    def _feed_unclaimed(self) -> None:
        """Rows that came before their source."""
        unclaimed, self.unclaimed = self.unclaimed, []
        for arrival in unclaimed:
            self._feed(arrival)

    # Messages between nodes

    def _post(self, path: Path, message: Connect | Numbered | Cursor | StateChunk | StateCursor) -> None:
        if len(path) == 1:
            self._local.append(Envelope(path, message, 0))
        else:
            self._out.envelopes.append(Envelope(path, message))

    def _receive(self, envelope: Envelope) -> None:
        assert envelope.node == self.name, "an envelope was brought to the wrong node"
        if envelope.place < len(envelope.path) - 1:
            self._out.envelopes.append(Envelope(envelope.path, envelope.message, envelope.place + 1))
            return
        way_back = envelope.path[::-1]
        match envelope.message:
            case Connect(edge, generation):
                self._connect(edge, generation, way_back)
            case Numbered(edge, generation, number, content):
                consumer = self._consumer_of(edge)
                if consumer is not None:
                    consumer.inputs[edge].receive(generation, number, content)
                    self._touch(consumer.stage.id)
            case Cursor(edge, generation, next_expected, answers_connect):
                for instance in self._instances(edge):
                    if generation == instance.output.generation:
                        # The snapshot of a held stage stays as it is, whoever reads it and whenever.
                        instance.output.take_cursor(next_expected, answers_connect, keeps=edge not in self.running)
                        self._touch(edge)
            case StateChunk() as chunk:
                self._take_chunk(chunk, way_back)
            case StateCursor(stage, generation, next_expected):
                held = self.held.get(stage)
                if held is not None and held.generation == generation:
                    held.confirmed = next_expected
                    held.patience.answered()
                    held.next_to_send = max(held.next_to_send, next_expected)

    def _connect(self, edge: StageId, generation: int, way_back: Path) -> None:
        consumer = self._consumer_of(edge)
        if consumer is not None:
            consumer.inputs[edge].connect(generation, way_back)
            self._touch(consumer.stage.id)
            return
        for awaiting in self.awaiting.values():
            if edge in awaiting.context.plan.stage.inputs:
                awaiting.connects[edge] = generation, way_back

    def _consumer_of(self, edge: StageId) -> StageInstance | None:
        instance = self.running.get(self._consumers.get(edge, ""))
        if instance is None or edge not in instance.inputs:
            instance = next((instance for instance in self.running.values() if edge in instance.inputs), None)
            if instance is not None:
                self._consumers[edge] = instance.stage.id
        return instance

    def _instances(self, stage: StageId) -> Iterator[StageInstance]:
        """The instance of a stage here, running or held."""
        if stage in self.running:
            yield self.running[stage]
        if stage in self.held:
            yield self.held[stage].instance

    def _outputs(self) -> Iterator[StageInstance]:
        for instance in self.running.values():
            if not instance.is_sink:
                yield instance
        for held in self.held.values():
            yield held.instance

    def _send_all(self, touched: dict[StageId, None] | None) -> None:
        """Send what the touched stages have to send, and what is left of the snapshots of those that have ended."""
        instances = self._outputs() if touched is None else (i for stage in touched for i in self._instances(stage))
        for instance in instances:
            if not instance.is_sink:
                self._send_output(instance)
        running = self.running if touched is None else [stage for stage in touched if stage in self.running]
        for stage in running:
            for edge, end in self.running[stage].inputs.items():
                if end.is_to_answer and end.way_back is not None:
                    self._post(end.way_back, Cursor(edge, end.generation, end.next_number, end.answers_connect))
                    end.is_to_answer = end.answers_connect = False
        for stage, held in self.held.items():
            last = min(held.may_be_sent, held.next_to_send + self._chunks_left)
            for number in range(held.next_to_send, last):
                chunk = StateChunk(stage, held.generation, number, len(held.chunks), held.chunks[number])
                self._post(held.path, chunk)
                self._chunks_left -= 1
            held.next_to_send = max(held.next_to_send, last)

    def _send_output(self, instance: StageInstance) -> None:
        output = instance.output
        if not output.is_connected:
            if not output.has_asked and output.route:
                self._post(output.route, Connect(instance.stage.id, output.generation))
                output.has_asked = True
            return
        for number, content in output.unsent():
            self._post(output.route, Numbered(instance.stage.id, output.generation, number, content))

    # Reconfiguration

    def _obey(self, message: Control) -> None:
        match message:
            case Prepare():
                self._prepare(message)
            case EnterMarker(marker, stages):
                for stage in stages:
                    if stage in self.running:
                        # What has come before the marker is taken before it.
                        self._work_on(self.running[stage])
                    if stage in self.running:
                        self._meet(marker, self.running[stage])
                    elif self._has_ended(stage, marker.generation):
                        self._report(Acted(self.name, marker.query, marker.generation, stage))
            case Commit(query, generation):
                self.contexts.pop((query, generation), None)
                for stage in [s for s, h in self.held.items() if _query_of(h) == query and h.generation <= generation]:
                    del self.held[stage]
                self._report(Committed(self.name, query, generation))
            case Abort(query, generation, stages):
                for stage in stages:
                    self._abort(query, generation, stage)
            case Resume(query, generation, stage):
                held = self.held.get(stage)
                if held is not None and held.generation == generation:
                    self.running[stage] = self.held.pop(stage).instance
                    self._touch(stage)
                if stage in self.running:
                    # It may not have met the marker yet, which must not end it any more.
                    self.contexts.get((query, generation), {}).pop(stage, None)
                    self._report(Resumed(self.name, query, generation, stage))
            case RerouteState(stage, generation, path):
                held = self.held.get(stage)
                if held is not None and held.generation == generation and held.path != path:
                    held.path, held.next_to_send = path, held.confirmed
            case ProvideState(stage, generation, files):
                awaiting = self.awaiting.get(stage)
                if awaiting is not None and awaiting.generation == generation:
                    self._install(stage, lambda: dict(files))
            case MigrateStage(query, stage, number, plan, strategy, options):
                if stage in self.running:
                    refusal = self.running[stage].migrate(number, plan, strategy, options)
                    self._report(StageMigrated(self.name, query, stage, number, refusal))

    def _prepare(self, message: Prepare) -> None:
        query, generation = message.query, message.generation
        if generation < self.generations.get(query, 0):
            return
        if generation > self.generations.get(query, 0):
            self.generations[query] = generation
            self._forget_before(query, generation)
            contexts = self.contexts[query, generation] = {}
            for context in message.contexts:
                if not isinstance(context, DeployStage):
                    contexts[context.stage] = context
                elif context.awaits_state and context.stage in self.running:
                    # A source whose node was removed and has come back: it never ended here.
                    self.running[context.stage].output.set_route(context.route, generation)
                    self.running[context.stage].installed_in = generation
                elif context.awaits_state:
                    self.awaiting[context.stage] = Awaiting(context, generation)
                else:
                    assert context.stage not in self.running, "I1: one instance of a stage"
                    self.running[context.stage] = self.instances(context.plan, context.route, generation)
                    self._touch(context.stage)
        for context in message.contexts:
            if isinstance(context, DeployStage) and self._runs_since(context.stage, generation):
                self._report(Installed(self.name, query, generation, context.stage))
        self._report(Prepared(self.name, query, generation))

    def _forget_before(self, query: str, generation: int) -> None:
        """Forget contexts of earlier generations: they were given up."""
        for known in [key for key in self.contexts if key[0] == query and key[1] < generation]:
            del self.contexts[known]
        for stage, awaiting in list(self.awaiting.items()):
            if awaiting.context.plan.stage.query == query and awaiting.generation < generation:
                del self.awaiting[stage]

    def _meet(self, marker: Marker, instance: StageInstance) -> None:
        """A stage meets the marker: it passes it on, and acts if it has a context and has not acted yet."""
        stage, generation = instance.stage.id, marker.generation
        self._touch(stage)
        if stage in marker.passed_on_by and generation > instance.last_marker:
            instance.output.append(marker)
        instance.last_marker = max(instance.last_marker, generation)
        match self.contexts.get((marker.query, generation), {}).pop(stage, None):
            case UpdateStage(route=route):
                instance.acted_in = generation
                if route != instance.output.route:
                    instance.output.set_route(route, generation)
            case DrainStage(state_path=path):
                instance.acted_in = generation
                chunks = chunks_of(instance.save(), self._chunk_bytes)
                del self.running[stage]
                self.held[stage] = Held(instance, generation, path, chunks, patience=Patience.over(len(path) - 1))
        if instance.acted_in == generation:
            self._report(Acted(self.name, marker.query, generation, stage))

    def _has_ended(self, stage: StageId, generation: int) -> bool:
        held = self.held.get(stage)
        return held is not None and held.generation == generation

    def _runs_since(self, stage: StageId, generation: int) -> bool:
        """Whether a stage began here in this generation."""
        return stage in self.running and self.running[stage].installed_in == generation

    def _abort(self, query: str, generation: int, stage: StageId) -> None:
        if self._runs_since(stage, generation):
            self._report(Installed(self.name, query, generation, stage))
            return
        awaiting = self.awaiting.get(stage)
        if awaiting is not None and awaiting.generation == generation:
            del self.awaiting[stage]
        self.generations[query] = max(generation, self.generations.get(query, 0))
        self._report(Aborted(self.name, query, generation, stage))

    # State that moves

    def _take_chunk(self, chunk: StateChunk, way_back: Path) -> None:
        awaiting = self.awaiting.get(chunk.stage)
        if awaiting is None or awaiting.generation != chunk.generation:
            if self._runs_since(chunk.stage, chunk.generation):
                self._post(way_back, StateCursor(chunk.stage, chunk.generation, chunk.count))
            return
        if chunk.number == len(awaiting.chunks):
            awaiting.chunks.append(chunk.data)
        self._post(way_back, StateCursor(chunk.stage, chunk.generation, len(awaiting.chunks)))
        if len(awaiting.chunks) == chunk.count:
            chunks, awaiting.chunks = awaiting.chunks, []
            if not self._install(chunk.stage, lambda: _files_of(chunks)):
                self._post(way_back, StateCursor(chunk.stage, chunk.generation, 0))

    def _install(self, stage: StageId, files: Callable[[], dict[str, bytes]]) -> bool:
        """Let an awaited stage begin from its snapshot. One that is damaged is refused, and the stage still awaited."""
        awaiting = self.awaiting[stage]
        context = awaiting.context
        assert stage not in self.running, "I1: one instance of a stage"
        try:
            instance = self.instances.restored(context.plan, files())
        except MalformedMessage as problem:
            self.refused_snapshots += 1
            self.last_refusal = str(problem)
            return False
        del self.awaiting[stage]
        instance.installed_in = awaiting.generation
        instance.output.set_route(context.route, awaiting.generation)
        self.running[stage] = instance
        self._touch(stage)
        for edge, (generation, way_back) in awaiting.connects.items():
            instance.inputs[edge].connect(generation, way_back)
        self._report(Installed(self.name, instance.stage.query, awaiting.generation, stage))
        return True

    def _report(self, report: Report) -> None:
        self._out.reports.append(report)


def _query_of(held: Held) -> str:
    return held.instance.stage.query


def chunks_of(files: Mapping[str, bytes], chunk_bytes: int) -> list[bytes]:
    """A snapshot as pieces of at most so many bytes: the same ones, in whichever order its files were stored."""
    files = dict(sorted(files.items()))
    names = "\n".join(files).encode()
    content = b"".join([frame_prefix(names, [len(data) for data in files.values()]), *files.values()])
    whole = hashlib.blake2b(content, digest_size=16).digest() + content
    return [whole[start : start + chunk_bytes] for start in range(0, len(whole), chunk_bytes)]


def _files_of(chunks: Iterable[bytes]) -> dict[str, bytes]:
    whole = b"".join(chunks)
    content = whole[16:]
    if hashlib.blake2b(content, digest_size=16).digest() != whole[:16]:
        raise MalformedMessage("the snapshot of a stage is damaged", detail="It is not what its checksum says.")
    names, places = split_frame(content)
    return {
        name: content[start : start + length]
        for name, (start, length) in zip(bytes(names).decode().split("\n"), places, strict=True)
    }
