"""Demand: the side of a join that decides which tuples of the other side are needed, and tells their producers.

Output from input: every tuple, unchanged. On the way, the operator notes the keys of the tuples, as far as predicates
of the join compare them with columns of the other input, and announces the keys of new tuples. Intuitively, a tuple
below the other input can contribute to a result only if this input has a partner for it; ``suspend`` keeps all others
back. In the words of Yang and Papadias (2008), the join is the *consumer*, whose feedback, suspension and resumption,
is read here by the *producers* below its other input.

State: for each key that a producer asks for, the codes of the tuples that have not ended, and until when. An input
without a tuple demands nothing: the empty tuple ∅ is non-demanded, which is demand-driven operator execution (DOE).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from midstream.algebra.expressions import Expression
from midstream.engine.batch import Batch
from midstream.engine.operators.key_codes import KeyCodes
from midstream.engine.operators.operator import Operator, StatefulOperator
from midstream.engine.operators.state_handle import StateHandle, StateKey
from midstream.engine.state.demanded_keys import BloomDemandedKeys, DemandedKeys

__all__ = ["DemandOperator", "KeyDemand"]

_NONE = np.empty(0, np.int64)


class KeyDemand:
    """What a join demands of its other input by one key. Without users it is not kept up to date."""

    def __init__(
        self, consumer: DemandOperator, keys: Sequence[Expression], demanded: DemandedKeys | BloomDemandedKeys
    ) -> None:
        self.consumer = consumer
        self.demanded = demanded
        self.users = 0
        """Operators that suspend tuples by it."""
        self.announced = _NONE
        """The codes of the latest push's tuples."""
        self._codes = KeyCodes(consumer.layout, keys)

    def note(self, batches: Sequence[Batch]) -> None:
        """Note the keys of new tuples, and announce them."""
        announced = [_NONE]
        for batch in batches:
            codes, valid = self._codes.of(batch)
            ends = batch.valid_to
            if valid is not None:
                codes, ends = codes[valid], ends[valid]
            self.demanded.add(codes, ends)
            announced.append(codes)
        self.announced = np.concatenate(announced)


class DemandOperator(StatefulOperator):
    """Passes the tuples of one join input on, and notes what they demand of the other."""

    def __init__(self, child: Operator, make: Callable[[], DemandedKeys | BloomDemandedKeys]) -> None:
        super().__init__("Demand", child.layout, (child,))
        self._make = make
        self._demands: dict[tuple[str, ...], KeyDemand] = {}

    def by_key(self, keys: Sequence[Expression]) -> KeyDemand:
        """What is demanded by these columns of the input; without columns: anything, as long as there is a tuple."""
        name = tuple(key.text for key in keys)
        if name not in self._demands:
            self._demands[name] = KeyDemand(self, keys, self._make())
        self._demands[name].users += 1
        return self._demands[name]

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        batches = [batch for batch in inputs[0] if len(batch)]
        count = sum(len(batch) for batch in batches)
        self.counters.rows_in += count
        self.counters.rows_out += count
        for demand in self._demands.values():
            if demand.users:
                demand.note(batches)
        yield from batches

    def expire(self, retention: int) -> None:
        for demand in self._demands.values():
            demand.demanded.expire(retention)

    @property
    def join_below(self) -> None:
        """What is below must be known before anything is demanded: it is not completed on demand."""
        return None

    @property
    def state_rows(self) -> int:
        return sum(len(demand.demanded) for demand in self._demands.values() if demand.users)

    @property
    def state_bytes(self) -> int:
        return sum(demand.demanded.bytes for demand in self._demands.values() if demand.users)

    # State: rebuilt from the input's history, because what is demanded is cheap to note.

    @property
    def state_key(self) -> StateKey:
        return ("demand", str(id(self)))

    @property
    def shapes_output(self) -> bool:
        return False

    def serves(self, needed: StateHandle, retention: int) -> bool:
        return False

    def adopt(self, donor: StateHandle) -> None:
        raise AssertionError("what is demanded is noted anew")
