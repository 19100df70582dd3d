"""Suspend: keeps tuples back as long as nobody can use the partial results that they would give.

Output from input: the tuples for which every consumer above has a partner; a tuple for which one has none is
*suspended*, and comes out when a partner arrives, without the part of its validity in which no later partner can begin.
Intuitively, a suspended tuple has not arrived yet. Results do not depend on when rows arrive, so nothing else in a plan
has to know of it.

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
- Later tuples that equal an MNS in the columns compared have the same code, and are suspended, too.
- A tuple with NULL in a key can never have a partner: it is dropped, like one that fails a selection. (Selections
  themselves are moved below the joins by the planner.)

**Why nothing is lost.** A join lets the tuples below one input, the *waiting* one, wait for its other input, the
*consumer input*; never both. Which tuples come out of an input depends only on consumer inputs of joins above it, so
nobody waits in a circle. Take a result, and a join of the plan all whose consumers above have a partner for the
result's components, from the root down. Its consumer input emits its part of the result, by induction over the size of
the plan; so the join has a partner for the components below its waiting input, which therefore come out, too. In
``(a b) (c d)`` the paper's rule lets ``a`` wait for a partner in ``c d``, and ``c`` for one in ``a b``: where each
lacks what the other keeps back, results are lost.

State: a blacklist per consumer. A tuple is in that of the first consumer that has no partner for it, until it ends.

Looking for partners costs time and memory, and pays only where many tuples have none. So an operator starts with the
nearest consumer, when its first tuple comes, and reviews its choice again and again: a consumer that keeps back too few
tuples is not asked any more (its suspended tuples go on), and while too many tuples pass, the next consumer is tried.
One that did not pay is tried again later, each time after twice as long. For tuples that are combined already, the keys
that the consumer notes count as well: to note them may cost more than the tuples saved. When an operator asks makes no
difference to results: whoever starts is told of all tuples that the consumer holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from midstream.algebra.expressions import Expression
from midstream.algebra.window_spec import BEGINNING
from midstream.engine.batch import Batch, concatenate
from midstream.engine.kernels import Flags, Ints
from midstream.engine.operators.demand import DemandOperator, KeyDemand
from midstream.engine.operators.key_codes import KeyCodes
from midstream.engine.operators.operator import Operator, StatefulOperator
from midstream.engine.operators.state_handle import StateHandle, StateKey
from midstream.engine.state.blacklist import Blacklist
from midstream.engine.state.join_state import FROM, REFERENCES, TO

__all__ = ["SuspendOperator"]


ENOUGH = 0.8
"""No further consumer is tried while this share of the tuples is kept back."""
UNSETTLED = 8
"""Reviews after which whole batches are taken."""
FADING = 0.9
"""How much of what was counted before a trial still counts in the next one."""
KEY_COST = 0.1
"""What it costs to note a consumer's key, in suspended tuples; of combined tuples, so many must be saved."""
FIRST_PAUSE = 8
"""Reviews until a consumer that did not pay is tried again, the first time."""


class SuspendOperator(StatefulOperator):
    """Keeps back the tuples of a join input that some consumer above has no partner for.

    ``demands`` are those of the consumers, from the nearest to the topmost, each with the key that is compared. One
    that keeps back less than ``least_share`` of the tuples is not asked; that is reviewed after every ``trial_rows``
    tuples.
    """

    kind = "suspend"

    def __init__(
        self,
        child: Operator,
        demands: Sequence[tuple[KeyDemand[DemandOperator], Sequence[Expression]]],
        least_share: float,
        trial_rows: int,
    ) -> None:
        super().__init__(f"Suspend {child.name}", child.layout, (child,))
        self._consumers = [_Consumer(demand, KeyCodes(child.layout, keys), child) for demand, keys in demands]
        self._least_share = least_share
        self._trial_rows = trial_rows
        self._seen = 0
        self._passed = 0
        self._reviews = 0
        self._is_started = False

    def advance(self, watermark: int) -> None:
        # A suspended tuple comes out when a partner arrives, however late that is for its own stream.
        self.frontier = min([self.inputs[0].frontier, *(c.demand.consumer.frontier for c in self._consumers)])

    @property
    def final_until(self) -> int:
        return min([self.inputs[0].final_until, *(c.demand.consumer.final_until for c in self._consumers)])

    @property
    def depends_on_other_inputs(self) -> bool:
        """Tuples may come out though none came in."""
        return True

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        for consumer in self._consumers:
            consumer.keys_noted += len(consumer.demand.announced)
            if consumer.may_resume:
                yield from self._resumed(consumer.resumed())
        new = concatenate(self.layout, list(inputs[0]))
        if len(new) and not self._is_started:
            # Not before there is a tuple: keys that nobody asks for need not be noted.
            self._consumers[0].start()
            self._is_started = True
        self.counters.rows_in += len(new)
        start = 0
        while start < len(new):
            # While it is not known whom to ask, a large batch is taken in pieces, with a review after each.
            end = min(len(new), start + self._trial_rows) if self._reviews < UNSETTLED else len(new)
            piece = new.sliced(start, end)
            start = end
            demanded = self._demanded(piece)
            self.counters.suspended += len(piece) - len(demanded)
            self._seen += len(piece)
            yield from self._passing(demanded)
            if self._seen >= self._trial_rows or any(c.noting_cost >= self._trial_rows for c in self._consumers):
                yield from self._review()

    def _resumed(self, batch: Batch) -> Iterator[Batch]:
        """What was on a blacklist, as far as all other consumers demand it."""
        demanded = self._demanded(batch)
        self.counters.resumed += len(demanded)
        yield from self._passing(demanded)

    def _passing(self, batch: Batch) -> Iterator[Batch]:
        if len(batch):
            self._passed += len(batch)
            self.counters.rows_out += len(batch)
            yield batch

    def _demanded(self, batch: Batch) -> Batch:
        """The tuples that every consumer asked has a partner for; the others are put on a blacklist."""
        for consumer in self._consumers:
            if len(batch) and consumer.is_asked:
                batch = consumer.demanded(batch)
        return batch

    def _review(self) -> Iterator[Batch]:
        """Decide whom to ask from now on; gives the tuples that nobody keeps back any more.

        After a few tuples, which is too early to try another consumer, only because of what noting keys cost.
        """
        passing = self._passed / self._seen
        for consumer in self._consumers:
            if consumer.is_asked and not consumer.pays(self._least_share):
                yield from self._resumed(consumer.stop())
        for consumer in self._consumers:
            consumer.begin_trial()
        if passing > 1 - ENOUGH and self._seen >= self._trial_rows:
            untried = [consumer for consumer in self._consumers if not consumer.is_asked and consumer.pause <= 0]
            if untried:
                untried[0].start()
        self._seen = self._passed = 0
        self._reviews += 1

    def expire(self, retention: int) -> None:
        for consumer in self._consumers:
            # A partner that arrives later begins no earlier than this.
            consumer.blacklist.expire(consumer.demand.consumer.frontier)

    @property
    def state_rows(self) -> int:
        return sum(len(consumer.blacklist) for consumer in self._consumers)

    def gauges(self) -> dict[str, int]:
        """Also the different keys of suspended tuples (the size of the paper's MNS buffer), and who is asked."""
        return super().gauges() | {
            "suspended_keys": sum(consumer.blacklist.codes_held for consumer in self._consumers),
            "consumers": len(self._consumers),
            "consumers_asked": sum(consumer.is_asked for consumer in self._consumers),
        }

    @property
    def state_bytes(self) -> int:
        return sum(consumer.blacklist.bytes for consumer in self._consumers)

    def rebuild(self, *histories: Iterable[Batch]) -> Iterator[Batch]:
        yield from self.push(*histories)
        # As after any push: what the next one resumes must not begin before the consumers' frontiers.
        self.expire(BEGINNING)

    # State: what is suspended depends on all consumers above; it is computed again from the input's history.

    @property
    def state_key(self) -> StateKey:
        return ("suspended", str(id(self)))

    @property
    def shapes_output(self) -> bool:
        return False

    def serves(self, needed: StateHandle, retention: int) -> bool:
        return False

    def adopt(self, donor: StateHandle) -> None:
        raise AssertionError("what is suspended is computed again")


class _Consumer:
    """One of the joins above, as seen from here: what it demands, and the tuples that are suspended because of it."""

    def __init__(self, demand: KeyDemand[DemandOperator], codes: KeyCodes, child: Operator) -> None:
        self.demand = demand
        self.blacklist = Blacklist(len(child.layout.stores))
        self.is_asked = False
        self.pause = 0
        """Reviews until the consumer may be asked again."""
        self.keys_noted = 0
        """Keys that the consumer has noted since the latest review."""
        self._next_pause = FIRST_PAUSE
        self._layout = child.layout
        self._codes = codes
        self._seen = 0
        self._suspended = 0
        self._suspended_lately = 0.0
        self._resumed_lately = 0.0

    @property
    def noting_cost(self) -> float:
        """What it cost that the consumer noted its keys for this, in tuples; only where tuples are combined already.

        A tuple of a stream that is not suspended may give any number of partial results.
        """
        return KEY_COST * self.keys_noted if len(self._layout.stores) > 1 else 0.0

    def pays(self, least_share: float) -> bool:
        """Whether enough of the tuples are suspended, and enough of these stay so."""
        if self._seen == 0:
            return True
        stays = self._resumed_lately <= (1 - least_share) * self._suspended_lately
        return self._suspended >= least_share * max(self._seen, self.noting_cost) and stays

    def begin_trial(self) -> None:
        self._seen = self._suspended = self.keys_noted = 0
        self._suspended_lately *= FADING
        self._resumed_lately *= FADING
        if not self.is_asked:
            self.pause -= 1

    def start(self) -> None:
        """Ask the consumer from now on."""
        self.is_asked = True
        self.demand.start()

    def stop(self) -> Batch:
        """Do not ask the consumer any more; gives the tuples that were suspended because of it."""
        self.is_asked = False
        self.demand.stop()
        self.pause, self._next_pause = self._next_pause, 2 * self._next_pause
        return self.batch_of(self.blacklist.take_all())

    @property
    def may_resume(self) -> bool:
        """Whether keys have been announced, and there are tuples that may have them."""
        return len(self.demand.announced) > 0 and len(self.blacklist) > 0

    def resumed(self) -> Batch:
        """The tuples whose key has been announced."""
        taken = self.batch_of(self.blacklist.take(self.demand.announced))
        self._resumed_lately += len(taken)
        return taken

    def demanded(self, batch: Batch) -> Batch:
        """The tuples that are demanded; the others are suspended, or dropped if they cannot have a partner."""
        codes, valid = self._codes.of(batch)
        is_demanded = self.demand.contains(codes, batch.valid_from)
        rest: Flags = ~is_demanded
        if valid is not None:
            is_demanded, rest = is_demanded & valid, rest & valid
        places = np.flatnonzero(rest)
        self.blacklist.add(codes, batch.valid_from, batch.valid_to, batch.references, places)
        demanded = batch.filtered(is_demanded)
        self._seen += len(batch)
        self._suspended += len(batch) - len(demanded)
        self._suspended_lately += len(batch) - len(demanded)
        return demanded

    def batch_of(self, tuples: Ints) -> Batch:
        references = np.ascontiguousarray(tuples[:, REFERENCES:].T)
        return Batch(self._layout, tuples[:, FROM].copy(), tuples[:, TO].copy(), references)
