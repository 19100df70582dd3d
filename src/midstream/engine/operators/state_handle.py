"""A state that can pass from one plan to another: what identifies it, and what a new plan can do with it.

A derived state is identified by its *state key*: what its tuples are (the identity of a subplan) and how they are kept
(a join's key, an aggregate's functions). Operators of two plans with the same state key hold the same tuples once they
have seen the same input. So a new plan may *adopt* a state of its predecessor; otherwise it *rebuilds* the state from
the history of its inputs. State matching (``migration/state_matching``) works on handles and knows no operator by its
type: an operator with state implements ``StateHandle``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from midstream.engine.batch import Batch

if TYPE_CHECKING:
    from midstream.engine.operators.operator import Operator
    from midstream.engine.state.row_store import RowStore

__all__ = ["StateHandle", "StateInventory", "StateKey", "have_same_progress"]

StateKey = tuple[str, ...]
"""Identifies a state across plans: its kind, what its tuples are, how they are kept."""


class StateHandle(ABC):
    """One state of an operator."""

    inputs: tuple[Operator, ...]
    """The operators whose output the state is computed from."""

    @property
    @abstractmethod
    def state_key(self) -> StateKey:
        """What identifies the state across plans."""

    @property
    def is_complete(self) -> bool:
        """Whether the state lacks nothing that is to be computed on demand."""
        return True

    def complete(self) -> None:  # noqa: B027 - most states are always complete
        """Compute everything that is still missing now."""

    @property
    def can_be_completed_later(self) -> bool:
        """Whether what the state lacks can be computed on demand (see ``migration/old_tuples``)."""
        return False

    @property
    def may_lack_tuples(self) -> bool:
        """Whether the operator can work while the state is incomplete."""
        return True

    @property
    def is_inherited(self) -> bool:
        """Whether the operator was built on a predecessor's state: there is nothing to adopt or rebuild."""
        return False

    @property
    def row_store(self) -> RowStore | None:
        """The store, if the state is one: states above refer to its rows, so a new operator is built on it."""
        return None

    @property
    def shapes_output(self) -> bool:
        """Whether the operator's output depends on more than its input: where it is cut, how its rows are numbered.

        Then a state above it can be adopted only together with this one.
        """
        return True

    @property
    def gives_history(self) -> bool:
        """Whether ``Operator.history`` can read the operator's output back from its states."""
        return False

    @abstractmethod
    def serves(self, needed: StateHandle, retention: int) -> bool:
        """Whether this state can be adopted as ``needed``, which has the same key.

        Tuples that ended by ``retention`` are not needed.
        """

    @abstractmethod
    def adopt(self, donor: StateHandle) -> None:
        """Take over the state of a donor that serves; the donor is not used any more."""

    @abstractmethod
    def rebuild(self, *histories: Iterable[Batch]) -> Iterator[Batch]:
        """Compute the state from everything that the inputs have emitted.

        Gives what the operator has emitted, unless it ``gives_history``.
        """


StateInventory = Mapping[StateKey, Sequence[StateHandle]]
"""The states of an executor. A key has several where a query contains the same part more than once."""


def have_same_progress(new: Sequence[Operator], old: Sequence[Operator]) -> bool:
    """Whether operators of a new plan and of an old one have seen equally much of the streams."""
    return all((a.final_until, a.frontier) == (b.final_until, b.frontier) for a, b in zip(new, old, strict=True))
