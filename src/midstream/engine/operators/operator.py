"""The interface every operator of a running plan implements, and the counters it keeps.

An operator turns the batches its inputs produced during one push into its own. ``frontier`` is its promise: no later
output will begin to be valid earlier. It follows the watermark; states are purged by the frontier of the input that
could still meet them. ``final_until`` says how far results are certain: no later row changes what the output is before
that instant, though a final operator may still have to emit it (see ``final_operator``). What an operator remembers
between pushes is described by its state handles (see ``state_handle``).
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.engine.batch import Batch, Layout
from midstream.engine.operators.state_handle import StateHandle, have_same_progress

if TYPE_CHECKING:
    from midstream.engine.operators.join import JoinOperator

__all__ = ["Counters", "EmissionType", "Operator", "StatefulOperator", "back_by"]


class EmissionType(enum.Enum):
    """When output is emitted."""

    INCREMENTAL = "incremental"
    """At once: everything that follows from the rows seen."""
    FINAL = "final"
    """When no later row can change it."""
    BOTH = "both"
    """Some parts of the output are incremental, others final."""


def back_by(frontier: int, ticks: int) -> int:
    """The frontier moved back; the beginning and the end of time stay where they are."""
    if frontier in (BEGINNING, NEVER):
        return frontier
    return max(BEGINNING, frontier - ticks)


@dataclass
class Counters:
    """What an operator did since it was built.

    ``compared`` counts tuples looked at in states. Of just-in-time processing: ``suspended`` counts tuples that were
    kept back (by a multi-way join: from a visit), ``resumed`` those that were let go later, and ``avoided`` partial
    results that were not made (estimated, see ``execution/just_in_time``).
    """

    rows_in: int = 0
    rows_out: int = 0
    probes: int = 0
    compared: int = 0
    suspended: int = 0
    resumed: int = 0
    avoided: int = 0

    def reset(self) -> None:
        """Count from zero again: in place, because parts of an operator may count, too."""
        for counter in fields(self):
            setattr(self, counter.name, 0)


class Operator(ABC):
    """One operator of a running plan."""

    kind: str = ""
    """What it is, in one word: the kind of the plan's node that it runs (``Plan.kind``). Operators that no node asks
    for have a kind of their own."""

    def __init__(self, name: str, layout: Layout, inputs: tuple[Operator, ...]) -> None:
        self.name = name
        self.layout = layout
        self.inputs = inputs
        self.counters = Counters()
        self.frontier = BEGINNING
        self.subplan = ""
        """The fingerprint of the subplan that the operator computes, the same in every plan that contains it."""

    def advance(self, watermark: int) -> None:
        """Move the frontier; the inputs have moved already."""
        self.frontier = min(child.frontier for child in self.inputs)

    @abstractmethod
    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        """The output that the inputs' new output and the moved frontier cause."""

    @property
    def final_until(self) -> int:
        """No later row changes what the output is before this instant."""
        return min(child.final_until for child in self.inputs)

    @property
    def emission(self) -> EmissionType:
        """When the output is emitted: as the inputs' is."""
        kinds = {child.emission for child in self.inputs}
        return kinds.pop() if len(kinds) == 1 else EmissionType.BOTH

    @property
    def source(self) -> str | None:
        """The identity of the window whose rows a leaf passes on; None for other operators."""
        return None

    @property
    def evaluation_order(self) -> Sequence[Operator]:
        """The inputs in the order in which they are to be evaluated in a push."""
        return self.inputs

    @property
    def depends_on_other_inputs(self) -> bool:
        """Whether output may come though no input does, because of what another part of the plan got."""
        return False

    @property
    def join_below(self) -> tuple[JoinOperator, list[Operator]] | None:
        """The join whose results the operator passes on, and the selections above it, if there is one."""
        return None

    def needed_below(self, retention: int) -> int:
        """Input rows that ended by then are no longer needed, given until when the output is."""
        return retention

    def states(self) -> Sequence[StateHandle]:
        """The operator's states, in the order of its inputs."""
        return ()

    def history(self) -> list[Batch]:
        """Everything emitted that may still count, read from the states; only where these give it."""
        return []

    def expire(self, retention: int) -> None:  # noqa: B027 - operators without state have nothing to drop
        """Drop what no later push can need: what ended by ``retention`` is needed by nobody above."""

    @property
    def emits_in_order(self) -> bool:
        """Whether the batches of one push come out ordered by ``valid_from``, each and together."""
        return False

    def gauges(self) -> dict[str, int]:
        """What the operator holds now, by the names that it has in ``metrics()``."""
        return {"state_rows": self.state_rows, "state_bytes": self.state_bytes}

    @property
    def state_rows(self) -> int:
        return 0

    @property
    def state_bytes(self) -> int:
        return 0


class StatefulOperator(Operator, StateHandle):
    """An operator with one state, computed from all its inputs, which it is the handle of."""

    def states(self) -> Sequence[StateHandle]:
        return (self,)

    def serves(self, needed: StateHandle, retention: int) -> bool:
        return have_same_progress(needed.inputs, self.inputs)

    def rebuild(self, *histories: Iterable[Batch]) -> Iterator[Batch]:
        return self.push(*histories)
