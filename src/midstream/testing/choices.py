"""Where random choices come from: one generator of cases, driven by Hypothesis, by a seed, or by a recording.

Every random case is a function of a sequence of choices, each a number between two bounds. Three sources make them:
`HypothesisChoices` draws them from Hypothesis (which then shrinks and remembers failures), `SeededChoices` takes them
from a seeded generator and records them (a hundred times faster), `ReplayedChoices` reads a recording. A choice is
recorded as its distance from the lower bound, so that zeros always stand for the simplest case: the first option, the
smallest number, the shortest list. A recording that ends early is continued with zeros; one that is cut or lowered is
still a recording of some legal case. `shrunk` relies on that: it deletes and lowers choices for as long as the case
they make still fails, as Hypothesis does.

>>> made = SeededChoices(7)
>>> words = [made.pick(["a", "b", "c"]) for _ in range(4)]
>>> again = ReplayedChoices(made.recording)
>>> [again.pick(["a", "b", "c"]) for _ in range(4)] == words
True
>>> ReplayedChoices([]).number(3, 9)
3
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from hypothesis import reject
from hypothesis import strategies as st

__all__ = ["Choices", "Draw", "HypothesisChoices", "Rejected", "ReplayedChoices", "SeededChoices", "shrunk"]

T = TypeVar("T")
Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]

SHRINK_SECONDS = 20.0
"""How long `shrunk` searches by default, in seconds of this process's own time."""


class Rejected(Exception):
    """The choices made so far lead to no useful case."""


class Choices(ABC):
    """A source of random choices. The simplest choice is the lowest number, the first option, no."""

    @abstractmethod
    def number(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""

    def reject(self) -> None:
        """Give up this case."""
        raise Rejected

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.number(0, len(options) - 1)]

    def chance(self, one_in: int) -> bool:
        """True about once in so many times."""
        return self.number(0, one_in - 1) == one_in - 1


class HypothesisChoices(Choices):
    """Choices drawn from Hypothesis: `draw` is what `st.composite` or `st.data()` gives."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def number(self, low: int, high: int) -> int:
        return int(self._draw(st.integers(low, high)))

    def reject(self) -> None:
        reject()


class SeededChoices(Choices):
    """Choices of a random generator with this seed, recorded."""

    def __init__(self, seed: int | str) -> None:
        self.recording: list[int] = []
        self._random = random.Random(seed).random

    def number(self, low: int, high: int) -> int:
        distance = int(self._random() * (high - low + 1))
        self.recording.append(distance)
        return low + distance


class ReplayedChoices(Choices):
    """The choices of a recording; `recording` afterwards holds those that were asked for, as they were taken."""

    def __init__(self, recording: Sequence[int]) -> None:
        self.recording: list[int] = []
        self._given = recording

    def number(self, low: int, high: int) -> int:
        place = len(self.recording)
        distance = min(self._given[place], high - low) if place < len(self._given) else 0
        self.recording.append(distance)
        return low + distance


def shrunk(
    recording: Sequence[int], fails: Callable[[ReplayedChoices], bool], seconds: float = SHRINK_SECONDS
) -> list[int]:
    """A shorter and lower recording for which `fails` is still true, found within so many seconds.

    `fails` makes the case of the choices and says whether it fails as the first one did; a `Rejected` means that
    it does not. Recordings are ordered by length, then from the first choice on; the result is never worse than what
    was given.

    >>> def fails(choices):
    ...     rows = [choices.number(0, 99) for _ in range(choices.number(0, 20))]
    ...     return sum(row > 50 for row in rows) >= 2
    >>> shrunk([9, 3, 77, 60, 1, 99, 4, 80, 2, 5], fails)
    [2, 51, 51]
    """
    search = _Search(list(recording), fails, time.process_time() + seconds)
    improved = True
    while improved and not search.is_over:
        # What comes first decides most, and what comes last is most easily left out.
        improved = any(
            [
                search.adopt_all(_zeroed, from_end=False),
                search.adopt_all(_without_blocks, from_end=True),
                search.adopt_all(_lowered, from_end=False),
                search.adopt_all(_fewer, from_end=True),
            ]
        )
    return search.best


class _Search:
    """The best recording so far, and the ones that were tried."""

    def __init__(self, recording: list[int], fails: Callable[[ReplayedChoices], bool], until: float) -> None:
        self.best = recording
        self._fails = fails
        self._until = until
        self._tried: set[tuple[int, ...]] = set()

    @property
    def is_over(self) -> bool:
        return time.process_time() > self._until

    def adopt_all(self, candidates: Callable[[list[int], int], Iterator[list[int]]], from_end: bool) -> bool:
        """Try the candidates at each place of the recording, and adopt what fails. Whether there was one."""
        adopted = False
        places = range(len(self.best))
        for place in reversed(places) if from_end else places:
            if place >= len(self.best) or self.is_over:
                continue
            # What succeeds once often succeeds again at the same place.
            while any(self._adopt(candidate) for candidate in candidates(self.best, place)) and not self.is_over:
                adopted = True
                if place >= len(self.best):
                    break
        return adopted

    def _adopt(self, candidate: list[int]) -> bool:
        key = tuple(candidate)
        if key in self._tried or self.is_over:
            return False
        self._tried.add(key)
        choices = ReplayedChoices(candidate)
        try:
            fails = self._fails(choices)
        except Rejected:
            return False
        taken = choices.recording
        while taken and taken[-1] == 0:
            taken.pop()
        if not fails or (len(taken), taken) >= (len(self.best), self.best):
            return False
        self.best = taken
        return True


def _without_blocks(best: list[int], place: int) -> Iterator[list[int]]:
    """The recording without some choices from this place on."""
    for length in (64, 32, 16, 8, 4, 3, 2, 1):
        if place % max(1, length // 2) == 0 and place + length <= len(best):
            yield best[:place] + best[place + length :]


def _zeroed(best: list[int], place: int) -> Iterator[list[int]]:
    """The recording with the simplest choices from this place on."""
    for length in (16, 4, 1):
        if place % length == 0 and any(best[place : place + length]):
            yield best[:place] + [0] * len(best[place : place + length]) + best[place + length :]


def _lowered(best: list[int], place: int) -> Iterator[list[int]]:
    """The recording with a lower choice at this place."""
    value = best[place]
    for lower in sorted({value // 2, value - value // 4 - 1, value - 1}):
        if 0 <= lower < value:
            yield [*best[:place], lower, *best[place + 1 :]]


def _fewer(best: list[int], place: int) -> Iterator[list[int]]:
    """The recording with a lower choice here and some choices less behind it, as when the choice is a count."""
    if best[place]:
        for length in (1, 2, 3, 4, 6, 8):
            for start in range(place + 1, min(place + 1 + 4 * length, len(best)), length):
                yield [*best[:place], best[place] - 1, *best[place + 1 : start], *best[start + length :]]
