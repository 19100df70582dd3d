"""What happens when adaptation itself fails: it is logged and counted, and adaptation pauses. The query goes on.

A plan in force gives the right results, whatever is known about it. So nothing that goes wrong while joins are measured
or plans compared may fail a push. Each further failure makes the pauses longer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

__all__ = ["Pause"]

Result = TypeVar("Result")
_LOG = logging.getLogger(__name__)
_FIRST, _LONGEST = 16, 4_096


class Pause:
    """When adaptation may be tried again. Time is counted in pushes, or in micro-batches: ``unit`` says which."""

    def __init__(self, unit: str = "pushes") -> None:
        self._unit = unit
        self._length = _FIRST
        self._until = 0

    def is_over(self, push: int) -> bool:
        """Whether adaptation is to be tried after this push."""
        return push >= self._until

    def attempt(self, push: int, work: Callable[[], Result], note_failure: Callable[[str], None]) -> Result | None:
        """What the work gives; None during a pause, and if the work fails.

        A failure begins a pause, and ``note_failure`` is told in a sentence what happened.
        """
        if not self.is_over(push):
            return None
        try:
            return work()
        except Exception as problem:
            note_failure(self.begin(problem, push))
            return None

    def begin(self, problem: Exception, push: int) -> str:
        """Pause because of this problem, which is being handled; what happened, in a sentence."""
        reason = (
            f"Adaptation failed ({type(problem).__name__}: {problem}) and pauses for {self._length:,} {self._unit}; "
            "the query goes on with its plan."
        )
        _LOG.warning("%s", reason, exc_info=problem)
        self.extend(push)
        return reason

    def extend(self, push: int) -> None:
        """Pause from this push on; the next pause is twice as long."""
        self._until = push + self._length
        self._length = min(_LONGEST, 2 * self._length)
