"""The interface every operator of a running plan implements, and the counters it keeps.

An operator turns the batches its inputs produced during one push into its own. ``frontier`` is its promise: no later
output will begin to be valid earlier. It follows the watermark; states are purged by the frontier of the input that
could still meet them. ``final_until`` is another one: no later output will be valid before it, except by operators that
wait until a result is final (see ``final_operator``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from midstream.algebra.windows import BEGINNING, NEVER
from midstream.engine.batch import Batch, Layout

__all__ = ["Counters", "Operator", "back_by"]


def back_by(frontier: int, ticks: int) -> int:
    """The frontier moved back; the beginning and the end of time stay where they are."""
    if frontier in (BEGINNING, NEVER):
        return frontier
    return max(BEGINNING, frontier - ticks)


@dataclass
class Counters:
    """What an operator did since it was built. ``compared`` counts tuples looked at in states."""

    rows_in: int = 0
    rows_out: int = 0
    probes: int = 0
    compared: int = 0

    def as_dict(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Operator(ABC):
    """One operator of a running plan."""

    def __init__(self, name: str, layout: Layout, inputs: tuple[Operator, ...]) -> None:
        self.name = name
        self.layout = layout
        self.inputs = inputs
        self.counters = Counters()
        self.frontier = BEGINNING

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

    def needed_below(self, retention: int) -> int:
        """Input rows that ended by then are no longer needed, given until when the output is."""
        return retention

    @property
    def state_key(self) -> tuple[str, ...] | None:
        """What the operator's state is known by across plans; None if it has no state of its own to pass on."""
        return None

    def adopt(self, other: Operator) -> None:
        """Take over the state of an operator with the same state key, which is not used any more."""
        raise NotImplementedError

    def expire(self, retention: int) -> None:  # noqa: B027 - operators without state have nothing to drop
        """Drop what no later push can need: what ended by ``retention`` is needed by nobody above."""

    @property
    def emits_in_order(self) -> bool:
        """Whether the batches of one push come out ordered by ``valid_from``, each and together."""
        return False

    @property
    def state_rows(self) -> int:
        return 0

    @property
    def state_bytes(self) -> int:
        return 0

    def metrics(self) -> dict[str, int | str]:
        return {
            "operator": self.name,
            **self.counters.as_dict(),
            "state_rows": self.state_rows,
            "state_bytes": self.state_bytes,
        }
