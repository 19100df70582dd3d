"""A line while a query runs, whenever it changes its plan by itself or advises a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream.adaptation.decision_text import decisions_with_text
from midstream.cli.output import Output, escape

if TYPE_CHECKING:
    from midstream.spark import LiveQuery

__all__ = ["DecisionNotes"]


class DecisionNotes:
    """Says once of each decision that is not to keep the plan, what was decided and why."""

    def __init__(self, live: LiveQuery, output: Output) -> None:
        self._live = live
        self._output = output
        self._seen = max((decision.number for decision in live.decisions()), default=0)
        """The number of the last decision that was looked at; those of a run that is resumed were said before."""
        self._advised: str | None = None

    def check(self) -> None:
        """Say what is new. Advice is not repeated as long as it is the same."""
        for decision, text in decisions_with_text(self._live.decisions()):
            if decision.number <= self._seen:
                continue
            if decision.outcome == "changed" or (decision.outcome != "kept" and decision.best != self._advised):
                self._output.note(escape(f"decision #{decision.number}: {text}"))
            self._advised = decision.best if decision.outcome != "kept" else None
            self._seen = decision.number
