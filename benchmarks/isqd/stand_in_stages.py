"""Stages that compute almost nothing, so that 171 nodes can be simulated for 150 s within a minute.

Nodes, edges, markers, snapshots and the coordinator are the real ones. Only what a stage makes of its rows is put in
place of the engine: a source and a map pass rows on, a join pairs the rows of its two sides that have the same number.
A row stands for many tuples, in its bytes and in what it costs a node (``costs.py``).

A row is a pair of integers: when it was created, in microseconds (``valid_from``), and its number (``valid_to``), which
is below 0 for the rows by which the emulation finds out when data flow again after a change.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from midstream.algebra.window_spec import BEGINNING
from midstream.deployment.placement.global_plan import Stage, StageId
from midstream.deployment.placement.stage_plans import StagePlan
from midstream.deployment.protocol.logical_edge import ConsumerEnd, ProducerEnd
from midstream.deployment.protocol.messages import Data
from midstream.deployment.protocol.node_runtime import Arrival, NodeRuntime
from midstream.deployment.protocol.stage_instance import StageInstance
from midstream.engine.state.window_store import ReceivedRows

__all__ = ["StandInInstance", "StandInNode", "StandInRows", "stand_in_plans"]


@dataclass(frozen=True)
class _Weight:
    """In place of columns: what they would weigh."""

    nbytes: int


class StandInRows(ReceivedRows):
    """Rows that each stand for many."""

    def __init__(self, created: Iterable[int], numbers: Iterable[int], bytes_each: int) -> None:
        created, numbers = np.asarray(created, np.int64), np.asarray(numbers, np.int64)
        super().__init__(created, numbers, [_Weight(bytes_each * len(created))])  # type: ignore[list-item]
        object.__setattr__(self, "bytes_each", bytes_each)

    bytes_each: int

    @property
    def num_rows(self) -> int:
        return len(self)

    def __reduce__(self) -> tuple[object, ...]:
        return StandInRows, (self.valid_from, self.valid_to, self.bytes_each)


def stand_in_plans(stages: Iterable[Stage]) -> list[StagePlan]:
    """Stages without plans."""
    return [
        StagePlan(stage, None, {edge: str(side) for side, edge in enumerate(stage.inputs)} if stage.is_stateful else {})
        for stage in stages
    ]


class StandInInstance(StageInstance):
    """A stage that passes rows on, or pairs them."""

    def __init__(self, plan, route, generation, files=None) -> None:  # type: ignore[no-untyped-def]
        self.plan = plan
        self.files = {} if files is None else files
        self.inputs: dict[StageId, ConsumerEnd] = {edge: ConsumerEnd(generation) for edge in plan.stage.inputs}
        self.output = ProducerEnd(route, generation)
        self.results: list[ReceivedRows] = []
        self.installed_in, self.acted_in, self.last_marker = generation, 0, 0
        self.migrations, self.refusal = 0, None
        self.cell = None
        self.waiting: tuple[dict[int, int], dict[int, int]] = ({}, {})
        """For a join: the rows of each side without a partner, by their numbers."""
        self.unpaired_bytes = 0
        self._sent_frontier = BEGINNING

    @property
    def is_sink(self) -> bool:
        return self.stage.id.endswith("/sink")

    def feed(self, table, at_least=None) -> None:  # type: ignore[no-untyped-def]
        assert at_least is not None
        self._send(table, at_least)

    def _push(self, taken, counted) -> None:  # type: ignore[no-untyped-def]
        if self.is_sink:
            self.results += [rows for pieces in taken.values() for rows in pieces if len(rows)]
        elif self.stage.is_stateful:
            self._send(self._paired(taken), self.frontier)
        else:
            (pieces,) = taken.values()
            self._send(_together(pieces), self.frontier)

    def _send(self, rows: ReceivedRows, frontier: int) -> None:
        if len(rows) or frontier > self._sent_frontier:
            self._sent_frontier = max(frontier, self._sent_frontier)
            self.output.append(Data(rows, self._sent_frontier))

    def _paired(self, taken: dict[str, list[ReceivedRows]]) -> ReceivedRows:
        created, numbers = [], []
        bytes_each = 0
        for side, pieces in taken.items():
            own, other = self.waiting[int(side)], self.waiting[1 - int(side)]
            for rows in pieces:
                bytes_each = rows.bytes_each  # type: ignore[attr-defined]
                for when, number in zip(rows.valid_from.tolist(), rows.valid_to.tolist(), strict=True):
                    if number in other:
                        created.append(max(when, other.pop(number)))
                        numbers.append(number)
                    else:
                        own[number] = when
        self.unpaired_bytes = max(self.unpaired_bytes, bytes_each)
        return StandInRows(created, numbers, bytes_each)

    # Snapshots

    def save(self) -> dict[str, bytes]:
        kept = {key: value for key, value in vars(self).items() if key not in ("plan", "files", "results")}
        self.files["stage"] = pickle.dumps(kept)
        self.files["rows"] = bytes(self.unpaired_bytes * max(1, *map(len, self.waiting)))
        return self.files

    @classmethod
    def restored(cls, plan: StagePlan, files) -> StandInInstance:  # type: ignore[no-untyped-def]
        instance = cls(plan, (), 0, files)
        vars(instance).update(pickle.loads(files["stage"]))
        instance.output.next_to_send = instance.output.first_number
        return instance


def _together(pieces: list[ReceivedRows]) -> ReceivedRows:
    if len(pieces) == 1:
        return pieces[0]
    created = np.concatenate([rows.valid_from for rows in pieces])
    return StandInRows(created, np.concatenate([rows.valid_to for rows in pieces]), pieces[0].bytes_each)  # type: ignore[attr-defined]


class StandInNode(NodeRuntime):
    """A node that runs such stages. Its sources are fed by the names of their stages."""

    instances = StandInInstance

    def _feed(self, arrival: Arrival) -> None:
        instance = self.running.get(arrival.stream)
        if instance is not None:
            instance.feed(arrival.table, arrival.at_least)
            self._touch(arrival.stream)
