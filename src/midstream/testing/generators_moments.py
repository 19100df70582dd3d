"""Moments between the pushes of a scenario at which changes are hard, found without running it.

Windows that slide are ahead of the watermark: what begins from now on begins at their next slide. So, shortly before a
migration with GenMig comes to its end, when the watermark reaches its split time, there are moments at which the
windows of an aggregate or a difference have passed the split already. Whatever replaces the two plans then, or computes
their states again, must know that neither has emitted anything beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from midstream.algebra.plan import Aggregate, Difference, Plan, Window
from midstream.algebra.window_spec import BEGINNING
from midstream.engine.state.window_store import validities
from midstream.runtime.ingest import Ingest
from midstream.testing.generators import Scenario
from midstream.testing.migration_cases import plans_of

__all__ = ["AroundSplit", "moments_around_splits"]


@dataclass(frozen=True)
class AroundSplit:
    """A migration with GenMig would begin before one push, and before another its split is close."""

    begins: int
    close: int
    shortened: bool
    shows: bool
    """Whether an aggregate or a difference that has passed the split has rows there."""


@dataclass(frozen=True)
class _Moment:
    """Where a run stands before a push, and what rows it has seen."""

    watermark: int
    furthest: int
    """How far the first of its windows is."""
    final: tuple[tuple[int, int], ...]
    """For each aggregate and difference: how far all its windows are, and until when all have rows."""
    latest_start: int
    latest_end: int


@lru_cache(maxsize=4)
def moments_around_splits(scenario: Scenario) -> list[AroundSplit]:
    """The pairs of moments between which a migration with GenMig would come close to its split."""
    plan = plans_of(scenario)[1][0]
    windows = list(plan.windows())
    below = [list(node.windows()) for node in _outermost_final(plan)]
    final = [[window.identity for window in some] for some in below if all(window.window.slide for window in some)]
    if not final or not all(window.window.is_bounded for window in windows):
        return []
    moments = _moments(scenario, windows, final)
    longest = max(window.longest for window in windows)
    found = []
    for begins, start in enumerate(moments):
        if start.latest_end == BEGINNING:
            continue
        for shortened in (True, False):
            split_at = start.latest_end if shortened else start.latest_start + longest
            split_at = max(split_at, start.latest_end, start.watermark, start.furthest + 1)
            found += [
                AroundSplit(begins, close, shortened, any(last >= split_at for last in lasts))
                for close, moment in enumerate(moments[begins:], begins)
                if moment.watermark < split_at
                and (lasts := [last for until, last in moment.final if until >= split_at])
            ]
    return [around for around in found if around.shows] or found


def _outermost_final(plan: Plan) -> list[Plan]:
    """The aggregates and differences that have none above them."""
    if isinstance(plan, Aggregate | Difference):
        return [plan]
    return [found for child in plan.inputs for found in _outermost_final(child)]


def _moments(scenario: Scenario, windows: Sequence[Window], final: Sequence[Sequence[str]]) -> list[_Moment]:
    """One for each push, and one for the end; `final` has the windows below each aggregate and difference."""
    ingest = Ingest({window.stream.name: window.stream for window in windows})
    latest_start = BEGINNING
    last = {window.identity: BEGINNING for window in windows}
    found = [_Moment(BEGINNING, BEGINNING, (), BEGINNING, BEGINNING)]
    for push in scenario.pushes:
        rows = ingest.accept(ingest.check(push.rows))
        watermark = ingest.advance(push.watermark)
        for window in windows:
            if window.stream.name in rows and len(rows[window.stream.name].times):
                begins, ends = validities(window.window, rows[window.stream.name].times)
                latest_start = max(latest_start, int(begins.max()))
                last[window.identity] = max(last[window.identity], int(ends.max()))
        frontiers = {window.identity: window.window.frontier(watermark) for window in windows}
        reached = tuple((min(frontiers[i] for i in below), min(last[i] for i in below)) for below in final)
        found.append(_Moment(watermark, max(frontiers.values()), reached, latest_start, max(last.values())))
    return found
