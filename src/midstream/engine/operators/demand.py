"""Demand: the side of a join that decides which tuples of the other side are needed, and tells their producers.

Output from input: every tuple, unchanged. On the way, the operator notes the keys of the tuples, as far as predicates
of the join compare them with columns of the other input, and announces the keys of new tuples. Intuitively, a tuple
below the other input can contribute to a result only if this input has a partner for it; ``suspend`` keeps all others
back. In the words of Yang and Papadias (2008), the join is the *consumer*, whose feedback, suspension and resumption,
is read here by the *producers* below its other input.

An input without a tuple demands nothing: the empty tuple ∅ is non-demanded, which is demand-driven operator execution
(DOE). Keys are noted as long as somebody asks for them: whoever starts to is told of the tuples that the join holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from midstream.algebra.expressions import Expression
from midstream.engine.batch import Batch, Layout
from midstream.engine.kernels import Flags, Ints
from midstream.engine.operators.key_codes import KeyCodes
from midstream.engine.operators.operator import Operator
from midstream.engine.state.demanded_keys import AnyTuple, BloomDemandedKeys, DemandedKeys

if TYPE_CHECKING:
    from midstream.engine.operators.join_side import JoinSide

__all__ = ["DemandOperator", "KeyDemand", "KeyHolder"]

_NONE = np.empty(0, np.int64)
_ANY = np.zeros(1, np.int64)
"""The code of every tuple, where no columns are compared."""


class KeyHolder(Protocol):
    """Holds the tuples whose keys are demanded."""

    layout: Layout
    make_demanded_keys: Callable[[], DemandedKeys | BloomDemandedKeys]

    def tuples_held(self) -> list[Batch]:
        """All tuples that can be met from now on."""


Holder = TypeVar("Holder", bound=KeyHolder)


class KeyDemand(Generic[Holder]):
    """What a join demands of its waiting input by one key, as long as it has users."""

    def __init__(self, consumer: Holder, keys: Sequence[Expression]) -> None:
        self.consumer = consumer
        self.announced = _NONE
        """The codes of the latest push's tuples."""
        self.noted = 0
        """How many keys have been noted."""
        self._keys = keys
        self._codes = KeyCodes(consumer.layout, keys)
        self._users = 0
        self._make = consumer.make_demanded_keys if keys else AnyTuple
        self._demanded = self._make()

    def __len__(self) -> int:
        return len(self._demanded)

    @property
    def is_used(self) -> bool:
        return self._users > 0

    @property
    def bytes(self) -> int:
        return self._demanded.bytes if self.is_used else 0

    def start(self) -> None:
        """Add a user: from now on the keys of all tuples that the join holds are known."""
        self._users += 1
        if self._users == 1:
            self._demanded = self._make()
            for batch in self.consumer.tuples_held():
                self._note(batch)

    def stop(self) -> None:
        """Remove a user."""
        self._users -= 1
        if self._users == 0:
            self._demanded = self._make()
            self.announced = _NONE

    def announce(self, batches: Sequence[Batch]) -> None:
        """Note the keys of new tuples, and announce them."""
        noted = [self._note(batch) for batch in batches]
        self.announced = np.concatenate(noted) if noted else _NONE

    def contains(self, codes: Ints, starts: Ints) -> Flags:
        """Whether the join has, or may have, a partner that ends after the start, for each code and start."""
        return self._demanded.contains(codes, starts)

    def expire(self, frontier: int) -> None:
        self.announced = _NONE
        self._demanded.expire(frontier)

    def _note(self, batch: Batch) -> Ints:
        """Note the keys of tuples; the codes that are to be announced."""
        if not self._keys:
            self._demanded.add(_ANY, batch.valid_to)
            return _ANY
        codes, valid = self._codes.of(batch)
        ends = batch.valid_to
        if valid is not None:
            codes, ends = codes[valid], ends[valid]
        self.noted += len(codes)
        self._demanded.add(codes, ends)
        return codes


class DemandOperator(Operator):
    """Passes the tuples of a join's consumer input on, and notes what they demand of the other input."""

    kind = "demand"
    side: JoinSide
    """The join's side that these tuples go to."""

    def __init__(self, child: Operator, make_demanded_keys: Callable[[], DemandedKeys | BloomDemandedKeys]) -> None:
        super().__init__("Demand", child.layout, (child,))
        self.make_demanded_keys = make_demanded_keys
        self._demands: dict[tuple[str, ...], KeyDemand[DemandOperator]] = {}
        self._latest: list[Batch] = []

    def by_key(self, keys: Sequence[Expression]) -> KeyDemand[DemandOperator]:
        """What is demanded by these columns of the input; without columns: anything, as long as there is a tuple."""
        name = tuple(key.text for key in keys)
        if name not in self._demands:
            self._demands[name] = KeyDemand(self, keys)
        return self._demands[name]

    def tuples_held(self) -> list[Batch]:
        """The tuples that the join holds, and those of this push, which it may not have yet."""
        return [*self.side.tuples_held(), *self._latest]

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        self._latest = [batch for batch in inputs[0] if len(batch)]
        count = sum(len(batch) for batch in self._latest)
        self.counters.rows_in += count
        self.counters.rows_out += count
        for demand in self._demands.values():
            if demand.is_used:
                demand.announce(self._latest)
        yield from self._latest

    def expire(self, retention: int) -> None:
        self._latest = []
        for demand in self._demands.values():
            demand.expire(retention)

    @property
    def state_rows(self) -> int:
        return sum(len(demand) for demand in self._demands.values())

    @property
    def state_bytes(self) -> int:
        return sum(demand.bytes for demand in self._demands.values())
