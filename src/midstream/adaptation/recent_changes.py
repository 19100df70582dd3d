"""What changes of plan have cost lately: a reason for a plan that need not be changed.

A plan with intermediate results pays for every change: these are computed anew, and before the change time was lost,
because it is made only when as much was lost as it costs. A multi-way join pays for neither, since its indexes are the
same for all probe orders. So where the best order changes again and again, braces may be better than any sequence of
trees, though each tree is better than braces while it is the best.

The rule: changes to plans with intermediate results count for as long as :data:`RECENT_WINDOWS` times the rows in the
windows have arrived since. If there are at least :data:`LEAST_CHANGES`, what they cost (the migration, and the time
lost before it) is divided by the rows of that period; so much per row is added to the cost of every plan with
intermediate results. While no such plan is in force, the controller looks how the cheapest tree changes: when the one
that was the cheapest no longer is, by the factor ``least_gain`` of the policy, that counts like a mean change before
it. When changes become rare, they are forgotten, and trees are chosen again. Nothing is added to costs by sizes that
were measured over whole windows, because streams are volatile (``measuring``): these are sizes of a mixture of all that
comes, and a tree that is the best for it need not be changed.

>>> changes = RecentChanges()
>>> for _ in range(3):
...     changes.advance(rows=1_000, held_rows=2_000)
...     changes.note(seconds=0.06)
>>> round(changes.seconds_per_row, 6)
6e-05
>>> changes.advance(rows=14_000, held_rows=2_000)
>>> changes.seconds_per_row
0.0
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["LEAST_CHANGES", "RECENT_WINDOWS", "RecentChanges"]

RECENT_WINDOWS = 8
"""For how many windows a change counts."""
LEAST_CHANGES = 3
"""Fewer changes are not taken as a habit of the streams."""


class RecentChanges:
    """The changes of a query's plan that count, each with the rows that have arrived since and its seconds."""

    def __init__(self, changes: Iterable[tuple[int, float]] = (), rows: int = 0) -> None:
        self._changes = list(changes)
        self.rows = rows
        """How many rows have arrived in the period, at most."""

    @property
    def changes(self) -> tuple[tuple[int, float], ...]:
        """For a controller in another process."""
        return tuple(self._changes)

    @property
    def seconds_per_row(self) -> float:
        """What changes have cost lately, by the rule."""
        if len(self._changes) < LEAST_CHANGES:
            return 0.0
        return sum(seconds for _, seconds in self._changes) / max(1, self.rows)

    def is_any_within(self, rows: float) -> bool:
        """Whether a change was made less than so many rows ago."""
        return any(since < rows for since, _ in self._changes)

    def advance(self, rows: int, held_rows: float) -> None:
        """So many rows have arrived; so many are in their windows."""
        period = int(RECENT_WINDOWS * held_rows)
        self.rows = min(self.rows + rows, max(period, rows))
        self._changes = [(since + rows, seconds) for since, seconds in self._changes if since + rows < period]

    def note(self, seconds: float) -> None:
        """A change to a plan with intermediate results has cost so much."""
        self._changes.append((0, seconds))

    def note_spared(self) -> None:
        """A tree would have had to be changed, but none is in force: it would have cost as much as those before."""
        if self._changes:
            self.note(sum(seconds for _, seconds in self._changes) / len(self._changes))
