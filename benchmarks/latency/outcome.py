"""What was measured of a competitor at one rate: latencies of its results, and whether it keeps up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from benchmarks.j4 import Size, duckdb_sql
from benchmarks.latency.load import COLUMNS, STREAMS, WINDOW_MS, Load
from benchmarks.peers.checking import differences

PERCENTILES = (50, 95, 99)
DIFFERENCES = ("missing", "repeated", "wrong")
PARTS = 4
"""Into how many parts the measured time is divided to see whether the backlog grows."""
GROWTH, LEAST_GROWTH_SECONDS = 1.5, 1.0
"""The backlog grows if the last part's median latency is so many times the first's, and so much longer."""


@dataclass(frozen=True)
class Latencies:
    """For each result when its last row was written, and how many seconds later it was visible."""

    written: np.ndarray
    seconds: np.ndarray

    def between(self, start: float, end: float) -> np.ndarray:
        """Those of results whose last row was written within this time."""
        return self.seconds[(self.written >= start) & (self.written < end)]


NONE = Latencies(np.empty(0), np.empty(0))


@dataclass(frozen=True)
class Outcome:
    """``measured_from`` is when the time that counts began, ``commits`` when something became visible, ``latest_file``
    how many seconds after its time a file was written at most."""

    load: Load
    engine: str = ""
    peak_mebibytes: float = 0.0
    latest_file: float = 0.0
    measured_from: float = 0.0
    commits: Sequence[float] = ()
    results: Latencies = NONE
    differences: Mapping[str, int] = field(default_factory=dict)
    failure: str | None = None

    @property
    def measured(self) -> np.ndarray:
        """The latencies that count."""
        return self.results.between(*self._span(0, PARTS))

    def verdict(self) -> str:
        """Whether it keeps up with the rate, in a few words."""
        if self.failure is not None:
            return f"failed: {self.failure}"
        parts = self._parts()
        if not all(map(len, parts)):
            return "does not keep up: no results of a part of the time"
        before, after = float(np.median(parts[0])), float(np.median(parts[-1]))
        if after > GROWTH * before and after > before + LEAST_GROWTH_SECONDS:
            return f"does not keep up: the median latency grows from {before:.1f} to {after:.1f} s"
        if self.differences["missing"]:
            return f"does not keep up: {self.differences['missing']:,} results are missing in the end"
        return "keeps up"

    @property
    def keeps_up(self) -> bool:
        return self.verdict() == "keeps up"

    @property
    def is_exact(self) -> bool:
        """Whether its results are DuckDB's, row by row."""
        return self.failure is None and not any(self.differences[what] for what in DIFFERENCES)

    def exactness(self) -> str:
        """How the results compare with DuckDB's, in a few words."""
        if self.failure is not None:
            return "not known"
        return ", ".join(f"{self.differences[what]:,} {what}" for what in DIFFERENCES)

    def percentiles(self) -> dict[int, int]:
        """Of the latencies that count, in milliseconds."""
        return {percent: round(1000 * float(np.percentile(self.measured, percent))) for percent in PERCENTILES}

    @property
    def milliseconds_between_commits(self) -> int | None:
        """On average over the time that counts."""
        start, end = self._span(0, PARTS)
        counted = sum(start <= time < end for time in self.commits)
        return round(1000 * self.load.measured / counted) if counted else None

    def to_json(self) -> dict[str, Any]:
        """Everything; without percentiles if it does not keep up."""
        seen: dict[str, Any] = {"engine": self.engine, "verdict": self.verdict()}
        if self.failure is not None:
            return seen
        if self.keeps_up:
            seen |= {f"p{percent} ms": value for percent, value in self.percentiles().items()}
            seen["longest ms"] = round(1000 * float(self.measured.max()))
        return {
            **seen,
            "median ms by quarter of the measured time": [
                round(1000 * float(np.median(part))) if len(part) else None for part in self._parts()
            ],
            "results measured": len(self.measured),
            "ms between commits": self.milliseconds_between_commits,
            "commits before the measured time": sum(time < self.measured_from for time in self.commits),
            "peak MiB": round(self.peak_mebibytes),
            "a file was late by at most, ms": round(1000 * self.latest_file),
            **self.differences,
        }

    def _parts(self) -> list[np.ndarray]:
        return [self.results.between(*self._span(part, part + 1)) for part in range(PARTS)]

    def _span(self, first: int, last: int) -> tuple[float, float]:
        """When these parts of the measured time begin and end."""
        start, part = self.measured_from, self.load.measured / PARTS
        return start + first * part, start + last * part


def latencies(visible: Mapping[Path, float], renamed: Mapping[str, Sequence[float]], load: Load) -> Latencies:
    """Of all results in the files of a sink, given when each file of the input was renamed."""
    times = {stream: np.array(seconds) for stream, seconds in renamed.items()}
    written, seconds = [], []
    for path, visible_at in visible.items():
        numbers = _row_numbers(path)
        last = np.max([times[stream][load.file_of(numbers[stream])] for stream in STREAMS], axis=0)
        written.append(last)
        seconds.append(visible_at - last)
    return Latencies(np.concatenate(written), np.concatenate(seconds)) if written else NONE


def _row_numbers(path: Path) -> dict[str, np.ndarray]:
    """Of each result in a file the numbers of its rows."""
    names = [f"{stream}_v" for stream in STREAMS]
    if path.suffix == ".parquet":
        table = pq.ParquetFile(path).read(columns=names)
    elif path.stat().st_size:
        options = csv.ConvertOptions(include_columns=names, column_types={name: pa.float64() for name in names})
        table = csv.read_csv(path, csv.ReadOptions(column_names=list(COLUMNS)), convert_options=options)
    else:
        table = pa.table({name: pa.array([], pa.float64()) for name in names})
    return {stream: table[f"{stream}_v"].to_numpy().astype(np.int64) for stream in STREAMS}


def differences_from_duckdb(inputs: Path, found: Sequence[Path], load: Load) -> dict[str, int]:
    """What the files of a sink lack, have too often, or should not have."""
    database = duckdb.connect()
    for stream in STREAMS:
        files = [str(path) for path in sorted((inputs / stream).glob(f"*.{load.suffix}"))]
        database.execute(f"CREATE TABLE {stream} AS {_read(files, ('ts', 'k', 'v'))}")
    results = _read([str(path) for path in found], COLUMNS)
    counted = differences(database, duckdb_sql(Size(0, 0, WINDOW_MS, 0), STREAMS), results, COLUMNS)
    database.close()
    return counted


def _read(files: Sequence[str], columns: Sequence[str]) -> str:
    """The rows of files as a query; none without files."""
    types = {name: "DOUBLE" if name.endswith("v") else "BIGINT" for name in columns}
    if not files:
        return "SELECT " + ", ".join(f"NULL::{type_name} AS {name}" for name, type_name in types.items()) + " LIMIT 0"
    if files[0].endswith(".parquet"):
        return f"FROM read_parquet({list(files)})"
    return f"FROM read_csv({list(files)}, delim = ',', header = false, columns = {types})"
