"""What every competitor is fed with. Needs nothing but Python: any environment has it."""

from __future__ import annotations

from dataclasses import dataclass

STREAMS = "abc"
COLUMNS = tuple(f"{stream}_{column}" for stream in STREAMS for column in ("ts", "k", "v"))
"""The columns of a result, in order."""
EVERY_MS = 240
"""A file of each stream is written so often: with this, files have whole numbers of rows at the rates measured."""
WINDOW_MS = 10_000
PARTNERS = 0.5
"""How many rows of another stream a key has in a window, on average; its square is the number of results per row."""
WARM_UP_SECONDS, LONGEST_WARM_UP_SECONDS = 60.0, 180.0
WARM_UP_COMMITS = 40
"""What is not counted: so many seconds, longer if the sink has seen fewer commits by then, but not for ever."""
MEASURED_SECONDS = 60.0
COOL_DOWN_SECONDS = 10.0
"""The load goes on after the part that is measured: its results must not become visible on an idle machine."""


@dataclass(frozen=True)
class Load:
    """So many rows per second of all streams together. ``form`` is that of the files, "parquet" or "csv".

    With "kafka" rows are messages, as JSON, of a topic for each stream; the same rows are in parquet files, which
    nobody reads meanwhile.

    A row is (ts, k, v): event time in milliseconds, key, and its number within its stream, from 0.
    """

    rate: int
    form: str = "parquet"
    warm_up: float = WARM_UP_SECONDS
    measured: float = MEASURED_SECONDS

    @property
    def rows_per_file(self) -> int:
        return round(self.rate * EVERY_MS / 1000 / len(STREAMS))

    @property
    def suffix(self) -> str:
        """What the names of files end with."""
        return "csv" if self.form == "csv" else "parquet"

    @property
    def keys(self) -> int:
        """How many different ones: windows have :data:`PARTNERS` rows of each."""
        return round(self.rows_per_file / EVERY_MS * WINDOW_MS / PARTNERS)

    def file_of(self, number: int) -> int:
        """In which file of its stream the row with this number is."""
        return number // self.rows_per_file
