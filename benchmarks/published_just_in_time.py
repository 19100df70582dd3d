"""Just-in-time processing as Yang and Papadias 2008 publish it, tuple by tuple: what it saves, and what it loses.

A reference, not a part of midstream: it follows figures 6 and 8 of the paper, where both inputs of a join may suspend
each other's producers, and so loses results of bushy plans (``engine/operators/suspend`` says why, and what is done
instead). With ``suspends=False`` it is REF, the same joins without feedback.

Readings where the text leaves a choice, each in favour of the published rule:

- A resumed tuple is joined with all partners that it has not met, also those that were suspended themselves meanwhile.
  (The paper compares arrival and suspension times, which forgets such pairs.) What waits for it is resumed, as if it
  had arrived.
- Line 14 of figure 8 reports dead nodes as printed; here a node is reported only if it is alive and no node below is.
- Marks serve to find the pairs that a type II MNS forbids. Here such pairs are found when they are made, set aside
  without being counted, and given to the consumer on resumption: as many partial results as with marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

__all__ = ["PublishedRun", "Row"]


@dataclass(frozen=True, eq=False)
class Row:
    """A row of a stream: its time, and its values by column. Columns of the same name are to be equal."""

    stream: str
    time: int
    values: dict[str, int]


Tuple = tuple[Row, ...]
Signature = tuple[tuple[str, tuple[int, ...]], ...]
"""A sub-tuple by the values that its consumer compares, for each component; () is the empty tuple."""
Mns = tuple[tuple[tuple[str, tuple[str, ...]], ...], Signature]
"""The components with the columns that are compared, and their values."""


@dataclass
class _Side:
    """The state of an input, and what is suspended."""

    state: list[Tuple] = field(default_factory=list)
    blacklist: dict[Mns, list[Tuple]] = field(default_factory=dict)
    """By MNS: its super-tuples."""
    reported: set[Mns] = field(default_factory=set)
    """The MNS buffer: what this input's producer was told to suspend."""

    def is_suspended(self, tuple_: Tuple) -> bool:
        """Whether the tuple belongs on the blacklist; it is put there."""
        for mns, tuples in self.blacklist.items():
            if _contains(tuple_, mns):
                if tuple_ not in tuples:
                    tuples.append(tuple_)
                return True
        return False


class _Join:
    def __init__(self, run: PublishedRun, left: _Join | str, right: _Join | str) -> None:
        self.inputs = (left, right)
        self.streams = tuple(
            "".join(child if isinstance(child, str) else "".join(child.streams)) for child in (left, right)
        )
        self.sides = (_Side(), _Side())
        self.forbidden: dict[Mns, list[Tuple]] = {}
        """By type II MNS: the results that were set aside."""
        self.results = 0
        self._met: set[tuple[Tuple, Tuple]] = set()
        self.consumer: Callable[[Tuple], None] = lambda _: None
        self._run = run
        for place, child in enumerate(self.inputs):
            if isinstance(child, _Join):
                child.consumer = lambda arrived, place=place: self.process(place, arrived)

    # The consumer: Process_Input of figure 6

    def process(self, place: int, arrived: Tuple) -> None:
        own, other = self.sides[place], self.sides[1 - place]
        if own.is_suspended(arrived):
            return
        self._meet(place, arrived)
        producer = self.inputs[place]
        if self._run.suspends and isinstance(producer, _Join):
            for mns in self._identify(arrived, other):
                if mns not in own.reported:
                    own.reported.add(mns)
                    producer.suspend(mns)

    def _meet(self, place: int, arrived: Tuple) -> None:
        """Enter a tuple that arrives or is resumed, and resume what waits for it."""
        other, opposite = self.sides[1 - place], self.inputs[1 - place]
        resumed = [mns for mns in other.reported if self._matches(mns, arrived)]
        other.reported.difference_update(resumed)
        other.state = [partner for partner in other.state if self._run.is_alive(partner)]
        self._join_and_insert(place, arrived)
        for mns in resumed:
            assert isinstance(opposite, _Join)
            opposite.resume(mns)

    def _join_and_insert(self, place: int, arrived: Tuple) -> None:
        """Join a tuple with the other state, then insert it; both end when the consumer suspends it meanwhile."""
        own, other = self.sides[place], self.sides[1 - place]
        for partner in list(other.state):
            pair = (arrived, partner) if place == 0 else (partner, arrived)
            if own.is_suspended(arrived):
                return
            if pair not in self._met and self._run.joins(*pair) and not other.is_suspended(partner):
                self._met.add(pair)
                self._emit(pair[0] + pair[1])
        if not own.is_suspended(arrived):
            own.state.append(arrived)

    def _emit(self, result: Tuple) -> None:
        for mns, aside in self.forbidden.items():
            if _contains(result, mns):
                aside.append(result)
                return
        self.results += 1
        self.consumer(result)

    def _identify(self, arrived: Tuple, other: _Side) -> Iterator[Mns]:
        """Identify_MNS of figure 8."""
        if not other.state:
            yield (), ()
            return
        others = {row.stream for row in other.state[0]}
        columns = {row.stream: self._run.compared(row.stream, others) for row in arrived}
        rows = [row for row in arrived if columns[row.stream]]
        dead: set[frozenset[str]] = set()
        for partner in other.state:
            matched = [row.stream for row in rows if self._run.joins((row,), partner, in_time=False)]
            for size in range(1, len(matched) + 1):
                dead.update(map(frozenset, combinations(matched, size)))
        found: list[frozenset[str]] = []
        for size in range(1, len(rows) + 1):
            for chosen in combinations(rows, size):
                node = frozenset(row.stream for row in chosen)
                if node not in dead and not any(below <= node for below in found):
                    found.append(node)
                    yield (
                        tuple((row.stream, columns[row.stream]) for row in chosen),
                        tuple((row.stream, tuple(row.values[c] for c in columns[row.stream])) for row in chosen),
                    )

    def _matches(self, mns: Mns, arrived: Tuple) -> bool:
        """Whether a tuple of the other input is a partner for the MNS."""
        values = {row.stream: row.values for row in arrived}
        return all(
            column not in columns or values[other][column] == part[columns.index(column)]
            for (stream, columns), (_, part) in zip(*mns, strict=True)
            for other in values
            for column in self._run.compared(stream, {other})
        )

    # The producer: Handle_Feedback of figure 6

    def suspend(self, mns: Mns) -> None:
        place = self._place_of(mns)
        if place is None:
            self.forbidden.setdefault(mns, [])
            return
        for chosen in (0, 1) if not mns[0] else (place,):
            child, side = self.inputs[chosen], self.sides[chosen]
            if isinstance(child, _Join):
                child.suspend(mns)
            tuples = side.blacklist.setdefault(mns, [])
            tuples += [tuple_ for tuple_ in side.state if _contains(tuple_, mns)]
            side.state = [tuple_ for tuple_ in side.state if not _contains(tuple_, mns)]

    def resume(self, mns: Mns) -> None:
        place = self._place_of(mns)
        if place is None:
            for result in self.forbidden.pop(mns, []):
                if self._run.is_alive(result):
                    self._emit(result)
            return
        for chosen in (0, 1) if not mns[0] else (place,):
            child, side = self.inputs[chosen], self.sides[chosen]
            for tuple_ in side.blacklist.pop(mns, []):
                if self._run.is_alive(tuple_) and not side.is_suspended(tuple_):
                    self._meet(chosen, tuple_)
            if isinstance(child, _Join):
                child.resume(mns)

    def _place_of(self, mns: Mns) -> int | None:
        """The input that all components are from; None for a type II MNS."""
        components = {stream for stream, _ in mns[0]}
        return next((place for place in (0, 1) if components <= set(self.streams[place])), None)


class PublishedRun:
    """A clique join of streams, in a join order given as nested pairs, over windows of one length."""

    def __init__(
        self, order: Sequence[object], columns: dict[str, list[str]], window: int, suspends: bool = True
    ) -> None:
        self.suspends = suspends
        self.found: set[tuple[int, ...]] = set()
        """The results, by the times of their rows in the order of the streams' names."""
        self._columns, self._window = columns, window
        self._now = 0
        self._joins: list[_Join] = []
        self._leaves: dict[str, tuple[_Join, int]] = {}
        root = self._built(order)
        assert isinstance(root, _Join)
        root.consumer = self._result

    @property
    def partial_results(self) -> int:
        """The results of all joins but the topmost."""
        return sum(join.results for join in self._joins[:-1])

    def push(self, row: Row) -> None:
        """Process a row; rows come in order of their times."""
        self._now = row.time
        join, place = self._leaves[row.stream]
        join.process(place, (row,))

    def is_alive(self, tuple_: Tuple) -> bool:
        return min(row.time for row in tuple_) + self._window > self._now

    def compared(self, stream: str, others: set[str]) -> tuple[str, ...]:
        """The columns of a stream that are compared with one of the others."""
        there = {column for other in others for column in self._columns[other]}
        return tuple(column for column in self._columns[stream] if column in there)

    def joins(self, first: Tuple, second: Tuple, in_time: bool = True) -> bool:
        times = [row.time for row in first + second]
        if in_time and max(times) >= min(times) + self._window:
            return False
        return all(
            one.values[column] == two.values[column]
            for one in first
            for two in second
            for column in one.values.keys() & two.values.keys()
        )

    def _built(self, order: object) -> _Join | str:
        if isinstance(order, str):
            return order
        assert isinstance(order, Sequence)
        left, right = (self._built(each) for each in order)
        join = _Join(self, left, right)
        self._joins.append(join)
        for place, child in enumerate((left, right)):
            if isinstance(child, str):
                self._leaves[child] = (join, place)
        return join

    def _result(self, result: Tuple) -> None:
        self.found.add(tuple(row.time for row in sorted(result, key=lambda row: row.stream)))


def _contains(tuple_: Tuple, mns: Mns) -> bool:
    """Whether the tuple has the components of the MNS, or others with the same values."""
    rows = {row.stream: row for row in tuple_}
    return all(
        stream in rows and tuple(rows[stream].values[column] for column in columns) == part
        for (stream, columns), (_, part) in zip(*mns, strict=True)
    )
