"""What one side of a join remembers: tuples in runs sorted by key code.

A batch of new tuples becomes a sorted run. Runs of similar size are merged, so that there are about log n runs and each
tuple is copied about log n times; merging forgets dead tuples, and a run whose tuples are all dead is dropped whole.
Probing tuples are sorted by code as well: one walk along both finds, for each, the stored codes between its lowest and
highest (equal for equality joins, an interval for range joins). A directory over the span of codes says where to begin,
so that memory can be asked for some steps ahead. The cost follows the batch and its matches, and memory is read in
order. (Hash tables were tried first, and were several times slower: each tuple was a cache miss of its own.)

    stored codes   1  1  3  4  4  4  7  8  9 …       tuples beside them: [valid_from, valid_to, references …]
    probing        1 ─┘     └── 4            └── 9

A join without a usable key is the case of one code for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from midstream.algebra.window_spec import BEGINNING
from midstream.engine.fixed_width import new_array
from midstream.engine.kernels import Ints, compiled, prefetch, sort_order
from midstream.engine.state.runs import merge_similar_runs

__all__ = ["FROM", "REFERENCES", "TO", "JoinState", "Matches", "Meeting", "NewTuples", "PairBuffer", "added_counts"]

FROM, TO, REFERENCES = 0, 1, 2

_AHEAD = 8
"""How many probing tuples ahead memory is asked for."""

Matches = tuple[Ints, Ints, Ints]
"""References, valid_from, valid_to of candidate pairs."""


@dataclass(frozen=True)
class NewTuples:
    """New tuples of one input, sorted by code: rows of (valid_from, valid_to, references …)."""

    codes: Ints
    tuples: Ints
    lows: Ints
    highs: Ints

    @classmethod
    def none(cls, width: int) -> NewTuples:
        """No tuples."""
        codes = np.empty(0, np.int64)
        return cls(codes, np.empty((0, REFERENCES + width), np.int64), codes, codes)

    @classmethod
    def sorted_by_code(
        cls, codes: Ints, valid_from: Ints, valid_to: Ints, references: Ints, ranges: tuple[Ints, Ints] | None
    ) -> NewTuples:
        """``ranges`` are the lowest and highest code of the other side each tuple can meet; None: its own code."""
        order = sort_order(codes)
        if order is None:
            order = np.arange(len(codes))
        codes = codes[order]
        tuples = np.empty((len(codes), REFERENCES + len(references)), np.int64)
        _pack(valid_from, valid_to, references, order, tuples)
        if ranges is None:
            return cls(codes, tuples, codes, codes)
        return cls(codes, tuples, ranges[0][order], ranges[1][order])


class _Run:
    """Tuples sorted by code, with a directory: where the codes of each section of the span of codes begin."""

    def __init__(self, codes: Ints, tuples: Ints, ends: int) -> None:
        self.codes = codes
        self.tuples = tuples
        self.ends = ends
        """When the last of the run's tuples dies."""
        span = int(codes[-1]) - int(codes[0])
        size = max(1, len(codes) // 4)
        # At most 63: a shift by all 64 bits is undefined.
        self.shift = min(63, max(0, span.bit_length() - size.bit_length() + 1))
        self.directory = np.empty((span >> self.shift) + 2, np.int64)
        _fill_directory(codes, self.shift, self.directory)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def bytes(self) -> int:
        return self.codes.nbytes + self.tuples.nbytes + self.directory.nbytes


class JoinState:
    """Tuples of one join input, found by intervals of codes."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._runs: list[_Run] = []
        self._frontier = BEGINNING

    def __len__(self) -> int:
        """Tuples held, including those that are dead but not yet dropped."""
        return sum(len(run) for run in self._runs)

    @property
    def frontier(self) -> int:
        """Tuples that ended by then are gone."""
        return self._frontier

    def copy(self) -> JoinState:
        """The same tuples, apart from now on. Runs never change, so that nothing is copied."""
        other = JoinState(self.width)
        other._runs, other._frontier = list(self._runs), self._frontier
        return other

    def take_in(self, other: JoinState) -> None:
        """Hold the other's tuples as well."""
        self._runs += other._runs
        self.settle()

    def everything(self) -> NewTuples:
        """All tuples, sorted by code."""
        if not self._runs:
            return NewTuples.none(self.width)
        run = self._runs[0]
        for other in self._runs[1:]:
            merged = _merged(run, other, self._frontier)
            if not merged:
                return NewTuples.none(self.width)
            run = merged[0]
        return NewTuples(run.codes, run.tuples, run.codes, run.codes)

    def codes_and_ends(self) -> tuple[Ints, Ints]:
        """The codes of all tuples, in no order, and when they end."""
        none = np.empty(0, np.int64)
        codes = np.concatenate([none, *(run.codes for run in self._runs)])
        return codes, np.concatenate([none, *(run.tuples[:, TO] for run in self._runs)])

    def counts_by_code(self, ended: int) -> tuple[Ints, Ints]:
        """The different codes of tuples that end after this instant, in order, and how many tuples each has."""
        codes, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for run in self._runs:
            alive = run.codes[run.tuples[:, TO] > max(ended, self._frontier)]
            if len(alive):
                starts = np.flatnonzero(np.concatenate([[True], alive[1:] != alive[:-1]]))
                codes.append(alive[starts])
                counts.append(np.diff(starts, append=len(alive)))
        return added_counts(list(zip(codes, counts, strict=True)))

    def one_of_each(self, codes: Ints, ended: int) -> dict[int, Ints]:
        """For each code that a tuple has which ends after this instant, such a tuple."""
        found: dict[int, Ints] = {}
        for run in self._runs:
            starts, ends = np.searchsorted(run.codes, codes, "left"), np.searchsorted(run.codes, codes, "right")
            for code, start, end in zip(codes.tolist(), starts, ends, strict=True):
                alive = np.flatnonzero(run.tuples[start:end, TO] > max(ended, self._frontier))
                if len(alive):
                    found[code] = run.tuples[start + alive[0]]
        return found

    def code_after(self, code: int, count: int) -> int | None:
        """A code such that about so many tuples lie between the two; None if there are none from the first on."""
        ahead = [(run, int(np.searchsorted(run.codes, code))) for run in self._runs]
        ahead = [(run, place) for run, place in ahead if place < len(run)]
        if not ahead:
            return None
        longest, place = max(ahead, key=lambda item: len(item[0]))
        if place + count < len(longest):
            return int(longest.codes[place + count])
        return max(int(run.codes[-1]) for run, _ in ahead)

    def between(self, lows: Ints, highs: Ints) -> tuple[Ints, Ints]:
        """The tuples whose code lies in one of the intervals (both ends included; in order, none overlapping).

        Their codes, in order, and the tuples.
        """
        codes = [np.empty(0, np.int64)]
        tuples = [np.empty((0, REFERENCES + self.width), np.int64)]
        for run in self._runs:
            starts = np.searchsorted(run.codes, lows, "left")
            counts = np.searchsorted(run.codes, highs, "right") - starts
            found = int(counts.sum())
            if found:
                places = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(found)
                codes.append(run.codes[places])
                tuples.append(run.tuples[places])
        if len(codes) == 2:
            return codes[1], tuples[1]
        together = np.concatenate(codes)
        order = np.argsort(together, kind="stable")
        return together[order], np.concatenate(tuples)[order]

    def sampled_candidates(self, new: NewTuples, most: int, generator: np.random.Generator) -> tuple[Ints, Ints, int]:
        """A random sample of the stored tuples whose code each new tuple can meet, or all if there are not more.

        For each candidate the place of the new tuple and the stored tuple, and how many candidates there are in all.
        Validities are not compared.
        """
        spans = []
        for run in self._runs:
            starts = np.searchsorted(run.codes, new.lows, "left")
            counts = np.searchsorted(run.codes, new.highs, "right") - starts
            spans.append((run, starts, np.concatenate([[0], np.cumsum(counts)])))
        total = int(sum(sums[-1] for _, _, sums in spans))
        # With repetitions: the same chance for each candidate, whatever was drawn before.
        drawn = np.arange(total) if total <= most else np.sort(generator.integers(0, total, most))
        places, tuples = [np.empty(0, np.int64)], [np.empty((0, REFERENCES + self.width), np.int64)]
        passed = 0
        for run, starts, sums in spans:
            here = drawn[np.searchsorted(drawn, passed) : np.searchsorted(drawn, passed + sums[-1])] - passed
            probing = np.searchsorted(sums, here, "right") - 1
            places.append(probing)
            tuples.append(run.tuples[starts[probing] + here - sums[probing]])
            passed += int(sums[-1])
        return np.concatenate(places), np.concatenate(tuples), total

    @property
    def bytes(self) -> int:
        return sum(run.bytes for run in self._runs)

    def insert(self, new: NewTuples) -> None:
        """Add tuples as a run of their own; ``settle`` merges it with the others."""
        if len(new.codes):
            self._runs.append(_Run(new.codes, new.tuples, int(new.tuples[:, TO].max())))

    def take_back(self, new: NewTuples) -> None:
        """Undo the latest insertion."""
        if len(new.codes):
            self._runs.pop()

    def expire(self, frontier: int) -> None:
        """Drop tuples that have ended by the frontier, at the latest when they are merged."""
        self._frontier = frontier
        self._runs = [run for run in self._runs if run.ends > frontier]
        self.settle()

    def drop_ended(self, instant: int) -> None:
        """Drop all tuples that have ended by the instant, at once."""
        kept = [(run, run.tuples[:, TO] > instant) for run in self._runs]
        self._runs = [
            run if alive.all() else _Run(run.codes[alive], run.tuples[alive], run.ends)
            for run, alive in kept
            if alive.any()
        ]

    def settle(self) -> None:
        """Merge runs of similar size (within a factor of four): the latest insertion can no longer be undone."""
        merged: list[_Run] = []
        for run in sorted(self._runs, key=len, reverse=True):
            merged.append(run)
            merge_similar_runs(merged, lambda one, other: _merged(one, other, self._frontier), factor=4)
        self._runs = merged

    def meet(self, new: NewTuples, stored_rows: Ints, new_rows: Ints, pairs: PairBuffer) -> Iterator[Matches]:
        """Pairs of a new tuple of the other side and a stored one with intersecting validities, into the buffer.

        The rows say where each side's references belong in the pair. The buffer is handed out, and started anew, each
        time it is full.
        """
        if len(new.codes) == 0:
            return
        for run in self._runs:
            cursor = np.array([0, -1, 0])
            places = _first_places(run.codes, run.shift, run.directory, new.lows)
            while True:
                pairs.count = _meet(
                    cursor, run.codes, run.tuples, places, new.lows, new.highs, new.tuples,
                    stored_rows, new_rows, pairs.references, pairs.valid_from, pairs.valid_to, pairs.count,
                )  # fmt: skip
                if cursor[0] == len(new.codes):
                    break
                yield from pairs.flush()
            pairs.compared += int(cursor[2])


def added_counts(parts: Sequence[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Different codes and their counts, of several parts together."""
    parts = [part for part in parts if len(part[0])] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    codes = np.concatenate([codes for codes, _ in parts])
    order = np.argsort(codes, kind="stable")
    codes, counts = codes[order], np.concatenate([counts for _, counts in parts])[order]
    starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    return codes[starts], np.add.reduceat(counts, starts)


class PairBuffer:
    """Room for pairs: small at first, because most batches of a selective join fit, and fresh memory is slow."""

    def __init__(self, width: int, expected: int, chunk: int) -> None:
        self._width = width
        self._chunk = chunk
        self.compared = 0
        self._allocate(min(chunk, max(1024, expected)))

    def _allocate(self, room: int) -> None:
        self._room = room
        self.count = 0
        self.references = new_array((self._width, room))
        self.valid_from = new_array(room)
        self.valid_to = new_array(room)

    def flush(self) -> Iterator[Matches]:
        """Hand out what is there, and make room."""
        if self.count:
            yield self.references[:, : self.count], self.valid_from[: self.count], self.valid_to[: self.count]
            self._allocate(min(self._chunk, 4 * self._room))


class Meeting:
    """New tuples of both inputs meet what the other side remembers, and each other, and are remembered themselves.

    ``rows`` says where the left and the right references belong in a pair (default: left above right). ``completed``
    are further states of the left and the right side, which are met and not added to: what a state was before its plan
    came into force, as far as it has been asked for.
    """

    def __init__(
        self,
        left: JoinState,
        right: JoinState,
        new_left: NewTuples,
        new_right: NewTuples,
        rows: tuple[Ints, Ints] | None = None,
        completed: tuple[Sequence[JoinState], Sequence[JoinState]] = ((), ()),
    ) -> None:
        self._left, self._right = left, right
        self._new_left, self._new_right = new_left, new_right
        width = left.width + right.width
        self._left_rows, self._right_rows = rows or (np.arange(left.width), np.arange(left.width, width))
        self._completed = completed
        self._inserted = 0
        self.compared = 0

    def pairs(self, chunk: int, expected: int) -> Iterator[Matches]:
        """The pairs, at most ``chunk`` at a time; ``expected`` is a guess of how many there are."""
        pairs = PairBuffer(self._left.width + self._right.width, expected, chunk)
        for state in (self._right, *self._completed[1]):
            yield from state.meet(self._new_left, self._right_rows, self._left_rows, pairs)
        self._left.insert(self._new_left)
        self._inserted = 1
        for state in (self._left, *self._completed[0]):
            yield from state.meet(self._new_right, self._left_rows, self._right_rows, pairs)
        self._right.insert(self._new_right)
        self._inserted = 2
        yield from pairs.flush()
        self.compared = pairs.compared

    def undo(self) -> None:
        """Take the tuples inserted so far out of the states."""
        if self._inserted > 0:
            self._left.take_back(self._new_left)
        if self._inserted > 1:
            self._right.take_back(self._new_right)


def _merged(left: _Run, right: _Run, frontier: int) -> list[_Run]:
    """One run of the tuples still alive, or none."""
    codes = new_array(len(left) + len(right))
    tuples = new_array((len(codes), left.tuples.shape[1]))
    kept = _merge(left.codes, left.tuples, right.codes, right.tuples, frontier, codes, tuples)
    return [_Run(codes[:kept], tuples[:kept], max(left.ends, right.ends))] if kept else []


@compiled
def _pack(valid_from, valid_to, references, order, out):  # type: ignore[no-untyped-def]
    for i in range(order.shape[0]):
        source = order[i]
        out[i, FROM] = valid_from[source]
        out[i, TO] = valid_to[source]
        for j in range(references.shape[0]):
            out[i, REFERENCES + j] = references[j, source]


@compiled
def _merge(left_codes, left, right_codes, right, frontier, out_codes, out):  # type: ignore[no-untyped-def]
    """Merge two runs, passing over dead tuples; how many are alive.

    Every tuple is written, and stays only if the place moves on: which run is next, and who is dead, is a coin toss
    that a branch would predict wrongly half of the time (measured 2.5 times slower).
    """
    i = 0
    j = 0
    kept = 0
    while i < left_codes.shape[0] and j < right_codes.shape[0]:
        from_left = left_codes[i] <= right_codes[j]
        source = left[i] if from_left else right[j]
        out_codes[kept] = left_codes[i] if from_left else right_codes[j]
        for word in range(out.shape[1]):
            out[kept, word] = source[word]
        kept += source[TO] > frontier
        i += from_left
        j += not from_left
    while i < left_codes.shape[0]:
        out_codes[kept] = left_codes[i]
        for word in range(out.shape[1]):
            out[kept, word] = left[i, word]
        kept += left[i, TO] > frontier
        i += 1
    while j < right_codes.shape[0]:
        out_codes[kept] = right_codes[j]
        for word in range(out.shape[1]):
            out[kept, word] = right[j, word]
        kept += right[j, TO] > frontier
        j += 1
    return kept


@compiled
def _fill_directory(codes, shift, directory):  # type: ignore[no-untyped-def]
    """directory[i] is the first place whose code is at least (i << shift) above the lowest."""
    low = np.uint64(codes[0])
    filled = 0
    for place in range(codes.shape[0]):
        section = np.int64((np.uint64(codes[place]) - low) >> np.uint64(shift))
        while filled <= section:
            directory[filled] = place
            filled += 1
    while filled < directory.shape[0]:
        directory[filled] = codes.shape[0]
        filled += 1


@compiled
def _first_places(codes, shift, directory, lows):  # type: ignore[no-untyped-def]
    """For each bound a place at or shortly before the first code that is not below it."""
    places = np.empty(lows.shape[0], np.int64)
    lowest = codes[0]
    highest = codes[-1]
    for i in range(lows.shape[0]):
        if lows[i] <= lowest:
            places[i] = 0
        elif lows[i] > highest:
            places[i] = codes.shape[0]
        else:
            places[i] = directory[np.int64((np.uint64(lows[i]) - np.uint64(lowest)) >> np.uint64(shift))]
    return places


@compiled
def _gallop(codes, place, low):  # type: ignore[no-untyped-def]
    """The first place from the given one on whose code is at least low."""
    end = codes.shape[0]
    step = 1
    below = place
    while place < end and codes[place] < low:
        below = place + 1
        place += step
        step *= 2
    above = min(place, end)
    while below < above:
        middle = (below + above) >> 1
        if codes[middle] < low:
            below = middle + 1
        else:
            above = middle
    return below


@compiled
def _meet(  # type: ignore[no-untyped-def]
    cursor, codes, tuples, places, lows, highs, new_tuples, stored_rows, new_rows, out, out_from, out_to, found
):
    """Fill the output, which has ``found`` pairs already; how many it has then.

    The cursor is (probing tuple, place to go on or -1, compared).
    """
    room = out_from.shape[0]
    count = lows.shape[0]
    width = tuples.shape[1]
    row = cursor[0]
    place = cursor[1]
    compared = 0
    while row < count:
        if row + 2 * _AHEAD < count:
            prefetch(codes, places[row + 2 * _AHEAD])
        if row + _AHEAD < count:
            soon = places[row + _AHEAD] * width
            for line in range(4):
                prefetch(tuples, soon + 8 * line)
        if place < 0:
            place = places[row]
            low = lows[row]
            steps = 0
            while place < codes.shape[0] and codes[place] < low:
                place += 1
                steps += 1
                if steps == 16:
                    place = _gallop(codes, place, low)
        high = highs[row]
        begin = new_tuples[row, FROM]
        end = new_tuples[row, TO]
        while place < codes.shape[0] and codes[place] <= high:
            compared += 1
            if tuples[place, FROM] < end and begin < tuples[place, TO]:
                if found == room:
                    cursor[0] = row
                    cursor[1] = place
                    cursor[2] += compared - 1
                    return found
                out_from[found] = max(begin, tuples[place, FROM])
                out_to[found] = min(end, tuples[place, TO])
                for j in range(stored_rows.shape[0]):
                    out[stored_rows[j], found] = tuples[place, REFERENCES + j]
                for j in range(new_rows.shape[0]):
                    out[new_rows[j], found] = new_tuples[row, REFERENCES + j]
                found += 1
            place += 1
        row += 1
        place = -1
    cursor[0] = row
    cursor[2] += compared
    return found
