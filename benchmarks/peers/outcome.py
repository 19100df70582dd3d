"""What was measured of a competitor on one size, and the rates that follow from it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.processes import Run
from benchmarks.spark_j4 import FULL


@dataclass
class Outcome:
    """Filled run by run: what a failure leaves out stays None.

    ``rows`` are those of the input, ``expected`` the results of DuckDB. ``seconds`` are those of the query,
    ``process_seconds`` from the start of the process to its end. ``differences`` are those of the written results.
    """

    name: str
    kind: str
    rows: int
    expected: int | None = None
    engine: str = ""
    seconds: float | None = None
    process_seconds: float | None = None
    peak_mebibytes: float | None = None
    results: int | None = None
    batches: list[dict[str, Any]] = field(default_factory=list)
    steady: float | None = None
    differences: dict[str, int] | None = None
    failure: str | None = None

    def take(self, run: Run) -> None:
        """The timed run."""
        self.engine = run.outcome["engine"]
        self.seconds = run.outcome["seconds"]
        self.process_seconds = run.seconds
        self.peak_mebibytes = run.peak_mebibytes
        self.results = run.outcome["results"]
        self.batches = [batch for batch in run.outcome.get("batches", []) if batch["input_rows"]]
        if len(self.batches) > FULL:
            milliseconds = statistics.median(batch["milliseconds"] for batch in self.batches[FULL:])
            self.steady = self.batches[-1]["input_rows"] / milliseconds * 1000

    def take_short(self, run: Run, rows: int) -> None:
        """A run over the first batches only, with so many rows: what the others took beyond is steady state."""
        beyond = (self.seconds or 0.0) - run.outcome["seconds"]
        if beyond > 0:
            self.steady = (self.rows - rows) / beyond

    @property
    def done_rows(self) -> int:
        """Input rows that were read: fewer than all if there was not enough time."""
        return sum(batch["input_rows"] for batch in self.batches) if self.batches else self.rows

    @property
    def is_whole(self) -> bool:
        """Whether all of the input was read."""
        return self.seconds is not None and self.done_rows == self.rows

    @property
    def rate(self) -> float | None:
        """Input rows per second over the whole run."""
        return self.done_rows / self.seconds if self.seconds else None

    @property
    def result_rate(self) -> float | None:
        """Results per second over the whole run."""
        count = self.count
        return count / self.seconds if self.seconds and count is not None else None

    @property
    def count(self) -> int | None:
        """Results: as the engine says, or as they were found in its files."""
        if self.results is not None:
            return self.results
        return None if self.differences is None else self.differences["found"]

    def exactness(self) -> str:
        """How the results compare with DuckDB's, in a few words."""
        if self.failure and self.count is None:
            return "not known"
        if self.differences is not None:
            parts = [f"{self.differences[what]:,} {what}" for what in ("missing", "repeated", "wrong")]
            return ", ".join(parts)
        if not self.is_whole or self.count is None:
            return "not known"
        if self.expected is None:
            return "the reference"
        off = self.count - self.expected
        return "count equal" if off == 0 else f"count off by {off:+,}"

    def is_exact(self) -> bool:
        """Whether all rows were compared and none differs: an equal count alone says nothing of them."""
        if not self.is_whole or self.failure or self.differences is None:
            return False
        differs = any(self.differences[what] for what in ("missing", "repeated", "wrong"))
        return not differs and self.expected in (None, self.count)

    def to_json(self) -> dict[str, Any]:
        """Everything, with the rates."""
        return {
            "engine": self.engine,
            "steady rows/s": _whole(self.steady),
            "rows/s": _whole(self.rate),
            "results/s": _whole(self.result_rate),
            "query seconds": self.seconds,
            "process seconds": self.process_seconds,
            "peak MiB": _whole(self.peak_mebibytes),
            "results": self.count,
            "exactness": self.exactness(),
            "differences": self.differences,
            "input rows read": self.done_rows if self.seconds else 0,
            "failure": self.failure,
            "batch milliseconds": [batch["milliseconds"] for batch in self.batches],
        }


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
