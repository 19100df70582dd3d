"""Suspend: keeps tuples back as long as nobody can use the partial results that they would give.

Output from input: the tuples for which every consumer above has a partner; a tuple for which one has none is
*suspended*, and comes out when a partner arrives. Intuitively, a suspended tuple has not arrived yet. Results do not
depend on when rows arrive, so nothing else in a plan has to know of it.

This is just-in-time processing (Yang and Papadias 2008) with the feedback of a consumer taken to the producers below
its other input, however deep they are (their section III-C). The names there, and where they are here:

- *Minimal non-demanded sub-tuple* (MNS): a tuple of this input without a partner at one of the consumers. On an input
  of a join that is a stream, it is a node of level 1 of their lattice; on one that is itself a join's output, a node of
  a higher level (a *type II* MNS of the join below), which is minimal because the tuples it is made of were all
  demanded. So the lattice (their Identify_MNS) is walked bottom-up along the plan, one node per join input.
- *Suspend* and *resume* feedback: keys that the consumer announces (``demand``). It is detected before a tuple is
  joined, not after its first fruitless result, because a batch is checked at once. A resumed tuple has therefore met no
  partner yet, and meets all: their rule about the time of suspension is not needed.
- *Mark* and *unmark*: needed there because a tuple that is suspended in combination with one partner must still meet
  the others. Here combinations are suspended where they enter the next join, as tuples of their own.
- Tuples like an MNS that arrive later are found by their equal key, hence equal code, like any other.
- A tuple with NULL in a key can never have a partner: it is dropped, like one that fails a selection. (Selections
  themselves are moved below the joins by the planner.)

**Why nothing is lost.** A join lets the tuples below one input, the *waiting* one, wait for its other input, the
*consumer input*; never both. Which tuples come out of an input depends only on consumer inputs of joins above it, so
nobody waits in a circle. Take a result, and a join of the plan all whose consumers above have a partner for the
result's components, from the root down. Its consumer input emits its part of the result, by induction over the size of
the plan; so the join has a partner for the components below its waiting input, which therefore come out, too. In
``(a b) (c d)`` the paper's rule lets ``a`` wait for a partner in ``c d``, and ``c`` for one in ``a b``: where each lacks
what the other keeps back, results are lost.

State: a blacklist per consumer. A tuple is in that of the first consumer that has no partner for it, until it ends.

Where most tuples are demanded anyway, looking is a waste: then the operator switches itself off for good, and lets all
tuples pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from midstream.algebra.expressions import Expression
from midstream.engine.batch import Batch, concatenate
from midstream.engine.kernels import Flags, Ints
from midstream.engine.operators.demand import KeyDemand
from midstream.engine.operators.key_codes import KeyCodes
from midstream.engine.operators.operator import Operator, StatefulOperator
from midstream.engine.operators.state_handle import StateHandle, StateKey
from midstream.engine.state.blacklist import Blacklist
from midstream.engine.state.join_state import FROM, REFERENCES, TO

__all__ = ["SuspendOperator"]


class SuspendOperator(StatefulOperator):
    """Keeps back the tuples of a join input that some consumer above has no partner for.

    ``least_share`` of the tuples must be kept back, otherwise the operator switches itself off; it is decided each time
    after ``trial_rows`` tuples.
    """

    def __init__(
        self,
        child: Operator,
        demands: Sequence[tuple[KeyDemand, Sequence[Expression]]],
        least_share: float,
        trial_rows: int,
    ) -> None:
        super().__init__(f"Suspend {child.name}", child.layout, (child,))
        self.is_on = True
        self._consumers = [_Consumer(demand, KeyCodes(child.layout, keys), child) for demand, keys in demands]
        self._least_share = least_share
        self._trial_rows = trial_rows
        self._seen = 0
        self._kept_back = 0

    def advance(self, watermark: int) -> None:
        # A suspended tuple comes out when a partner arrives, however late that is for its own stream.
        self.frontier = min([self.inputs[0].frontier, *(c.demand.consumer.frontier for c in self._consumers)])

    @property
    def final_until(self) -> int:
        return min([self.inputs[0].final_until, *(c.demand.consumer.final_until for c in self._consumers)])

    @property
    def join_below(self) -> None:
        """What is suspended must be known when the plan starts: it is not completed on demand."""
        return None

    @property
    def depends_on_other_inputs(self) -> bool:
        """Tuples may come out though none came in."""
        return True

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        new = concatenate(self.layout, list(inputs[0]))
        self.counters.rows_in += len(new)
        if not self.is_on:
            passed = [new]
        else:
            resumed = [self._demanded(consumer.resumed()) for consumer in self._consumers]
            demanded = self._demanded(new)
            self.counters.suspended += len(new) - len(demanded)
            self.counters.resumed += sum(len(batch) for batch in resumed)
            passed = [demanded, *resumed]
            self._judge(len(new), len(new) - len(demanded) - sum(len(batch) for batch in resumed))
            if not self.is_on:
                passed += self._release()
        for batch in passed:
            if len(batch):
                self.counters.rows_out += len(batch)
                yield batch

    def _demanded(self, batch: Batch) -> Batch:
        """The tuples that every consumer has a partner for; the others are put on a blacklist."""
        for consumer in self._consumers:
            if len(batch) == 0:
                break
            batch = consumer.demanded(batch)
        return batch

    def _judge(self, seen: int, kept_back: int) -> None:
        """Switch off if too few tuples are kept back."""
        self._seen += seen
        self._kept_back += kept_back
        if self._seen >= self._trial_rows:
            if self._kept_back < self._least_share * self._seen:
                self.is_on = False
            self._seen = self._kept_back = 0

    def _release(self) -> Iterator[Batch]:
        """Everything that is suspended, for good."""
        for consumer in self._consumers:
            consumer.demand.users -= 1
            batch = consumer.batch_of(consumer.blacklist.take_all())
            self.counters.resumed += len(batch)
            yield batch

    def expire(self, retention: int) -> None:
        for consumer in self._consumers:
            # A partner that arrives later begins no earlier than this.
            consumer.blacklist.expire(consumer.demand.consumer.frontier)

    @property
    def state_rows(self) -> int:
        return sum(len(consumer.blacklist) for consumer in self._consumers)

    @property
    def suspended_keys(self) -> int:
        """Different keys of suspended tuples: the size of the paper's MNS buffer."""
        return sum(consumer.blacklist.codes_held for consumer in self._consumers)

    @property
    def state_bytes(self) -> int:
        return sum(consumer.blacklist.bytes for consumer in self._consumers)

    # State: what is suspended depends on all consumers above; it is found out anew from the input's history.

    @property
    def state_key(self) -> StateKey:
        return ("suspended", str(id(self)))

    @property
    def shapes_output(self) -> bool:
        return False

    def serves(self, needed: StateHandle, retention: int) -> bool:
        return False

    def adopt(self, donor: StateHandle) -> None:
        raise AssertionError("what is suspended is found out anew")


class _Consumer:
    """One of the joins above, as seen from here: what it demands, and the tuples that are suspended because of it."""

    def __init__(self, demand: KeyDemand, codes: KeyCodes, child: Operator) -> None:
        self.demand = demand
        self.blacklist = Blacklist(len(child.layout.stores))
        self._layout = child.layout
        self._codes = codes

    def resumed(self) -> Batch:
        """The tuples whose key has been announced."""
        return self.batch_of(self.blacklist.take(self.demand.announced))

    def demanded(self, batch: Batch) -> Batch:
        """The tuples that are demanded; the others are suspended, or dropped if they cannot have a partner."""
        codes, valid = self._codes.of(batch)
        is_demanded = self.demand.demanded.contains(codes, batch.valid_from)
        rest: Flags = ~is_demanded
        if valid is not None:
            is_demanded, rest = is_demanded & valid, rest & valid
        if rest.any():
            places = np.flatnonzero(rest)
            self.blacklist.add(codes[places], _tuples(batch, places))
        return batch.filtered(is_demanded)

    def batch_of(self, tuples: Ints) -> Batch:
        references = np.ascontiguousarray(tuples[:, REFERENCES:].T)
        return Batch(self._layout, tuples[:, FROM].copy(), tuples[:, TO].copy(), references)


def _tuples(batch: Batch, places: Ints) -> Ints:
    tuples = np.empty((len(places), REFERENCES + len(batch.references)), np.int64)
    tuples[:, FROM] = batch.valid_from[places]
    tuples[:, TO] = batch.valid_to[places]
    tuples[:, REFERENCES:] = batch.references[:, places].T
    return tuples
