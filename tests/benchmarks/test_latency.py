"""The latency benchmark: its load, what counts as visible, and the arithmetic. Nothing is timed here."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from benchmarks.latency.comparison import BARS, PLACE, RATES, figures, table
from benchmarks.latency.competitors import COMPETITORS
from benchmarks.latency.generator import as_messages, is_warm, rows, write
from benchmarks.latency.load import COLUMNS, EVERY_MS, STREAMS, WARM_UP_COMMITS, Load
from benchmarks.latency.outcome import Latencies, Outcome, differences_from_duckdb, latencies
from benchmarks.latency.visibility import commits, visible_files
from benchmarks.peers.environments import ROOT

RIGHT = {"expected": 4, "found": 4, "missing": 0, "repeated": 0, "wrong": 0}


def outcome(*seconds: float, **given: object) -> Outcome:
    """Latencies of results whose last rows were written at equal distances during 60 s from 1000."""
    written = 1000 + np.arange(len(seconds)) * 60 / len(seconds)
    known = {"engine": "an engine", "measured_from": 1000.0, "commits": [1001.0, 1031.0], "differences": RIGHT}
    return Outcome(Load(1_000), results=Latencies(written, np.array(seconds)), **{**known, **given})


def test_messages_are_the_rows_as_json() -> None:
    load = Load(1_000, "kafka")
    made = rows(load, 1, 5_000, np.random.default_rng(0))
    assert [json.loads(message) for message in as_messages(made)] == made.to_pylist()
    assert load.suffix == "parquet"


@pytest.mark.parametrize("rate", RATES)
def test_the_load_has_its_rate_exactly(rate: int) -> None:
    assert Load(rate).rows_per_file * len(STREAMS) * 1000 == rate * EVERY_MS


def test_rows_have_times_of_their_interval_and_numbers_by_which_their_file_is_found() -> None:
    load = Load(1_000)
    made = rows(load, 3, 5_000, np.random.default_rng(0))
    times, numbers = made["ts"].to_numpy(), made["v"].to_numpy().astype(int)
    assert (times >= 5_000 + 3 * EVERY_MS).all() and (times < 5_000 + 4 * EVERY_MS).all()
    assert (np.diff(times) >= 0).all()
    assert set(load.file_of(numbers)) == {3}
    assert made["k"].to_numpy().max() < load.keys


def test_an_engine_is_warm_after_enough_time_and_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Load(1_000)
    assert not is_warm(60.0, load, tmp_path)
    assert is_warm(180.0, load, tmp_path)
    monkeypatch.setattr("benchmarks.latency.generator.commits", lambda visible: [0.0] * WARM_UP_COMMITS)
    assert not is_warm(59.0, load, tmp_path)
    assert is_warm(60.0, load, tmp_path)


def test_files_of_a_delta_table_are_visible_with_the_entry_of_its_log(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"x": [1]}))
    write_deltalake(tmp_path, pa.table({"x": [2]}), mode="append")
    pq.write_table(pa.table({"x": [3]}), tmp_path / "of_a_failed_attempt.parquet")
    found = visible_files(tmp_path)
    assert [pq.ParquetFile(path).read()["x"].to_pylist() for path in found] == [[1], [2]]
    entries = sorted((tmp_path / "_delta_log").glob("*.json"))
    assert list(found.values()) == [entry.stat().st_ctime for entry in entries]


def test_files_of_sparks_sink_are_visible_with_the_first_entry_that_names_them(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    lines = [json.dumps({"path": f"file://{tmp_path}/part%20{number}.parquet", "action": "add"}) for number in range(3)]
    (log / "8").write_text("\n".join(["v1", lines[0]]))
    (log / "9.compact").write_text("\n".join(["v1", *lines[:2]]))
    (log / ".10.tmp").write_text("\n".join(["v1", lines[2]]))
    assert visible_files(tmp_path) == {
        tmp_path / "part 0.parquet": (log / "8").stat().st_ctime,
        tmp_path / "part 1.parquet": (log / "9.compact").stat().st_ctime,
    }


def test_files_of_flink_are_visible_when_they_are_renamed(tmp_path: Path) -> None:
    assert visible_files(tmp_path / "not there yet") == {}
    (tmp_path / ".part-0.inprogress").write_text("1\n")
    assert visible_files(tmp_path) == {}
    os.rename(tmp_path / ".part-0.inprogress", tmp_path / "part-0")
    assert list(visible_files(tmp_path)) == [tmp_path / "part-0"]


def test_files_that_become_visible_together_are_one_commit() -> None:
    assert commits({Path("a"): 2.0, Path("b"): 1.0, Path("c"): 2.01}) == [1.0, 2.0]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_latency_counts_from_the_last_row_of_a_result(tmp_path: Path, form: str) -> None:
    load = Load(1_000, form)
    for stream, numbers in {"a": [0, 85], "b": [1, 0], "c": [2, 0]}.items():
        (tmp_path / stream).mkdir()
        times = [1_000 + number for number in numbers]
        write(pa.table({"ts": times, "k": [1, 2], "v": [float(n) for n in numbers]}), tmp_path / stream / f"0.{form}")
    results = {name: [] for name in COLUMNS}
    for key, numbers in ((1, (0, 1, 2)), (2, (85, 0, 0))):
        for stream, number in zip(STREAMS, numbers, strict=True):
            for column, value in (("ts", 1_000 + number), ("k", key), ("v", float(number))):
                results[f"{stream}_{column}"].append(value)
    found = tmp_path / ("found.parquet" if form == "parquet" else "found.csv")
    write(pa.table(results), found)
    renamed = {"a": [10.0, 10.25], "b": [10.01], "c": [10.02]}
    measured = latencies({found: 11.0}, renamed, load)
    assert measured.written.tolist() == [10.02, 10.25]
    assert measured.seconds.tolist() == pytest.approx([0.98, 0.75])
    right = {"expected": 2, "found": 2, "missing": 0, "repeated": 0, "wrong": 0}
    assert differences_from_duckdb(tmp_path, [found], load) == right
    assert differences_from_duckdb(tmp_path, [], load)["missing"] == 2


def test_percentiles_are_of_the_measured_time_only() -> None:
    seconds = [0.1] * 100
    measured = outcome(*seconds)
    assert measured.percentiles() == {50: 100, 95: 100, 99: 100}
    assert measured.milliseconds_between_commits == 30_000
    late = Latencies(np.append(measured.results.written, [999.0, 1060.0]), np.array([*seconds, 9.0, 9.0]))
    assert len(Outcome(measured.load, measured_from=1000.0, results=late).measured) == 100


@pytest.mark.parametrize(
    ("seconds", "differences", "said"),
    [
        ([1.0] * 8, {}, "keeps up"),
        ([1.0] * 6 + [1.9] * 2, {}, "keeps up"),
        ([1.0] * 6 + [2.1] * 2, {}, "does not keep up: the median latency grows from 1.0 to 2.1 s"),
        ([1.0] * 8, {"missing": 3}, "does not keep up: 3 results are missing in the end"),
        ([1.0] * 8, {"repeated": 3}, "keeps up"),
    ],
)
def test_a_growing_backlog_is_not_a_percentile(seconds: list[float], differences: dict[str, int], said: str) -> None:
    measured = outcome(*seconds, differences={**RIGHT, **differences})
    assert measured.verdict() == said
    assert ("p50 ms" in measured.to_json()) is (said == "keeps up")
    assert measured.is_exact is not bool(differences)


def test_the_table_has_a_line_for_everybody_and_bars_have_their_figures() -> None:
    names = [competitor.name for competitor in COMPETITORS]
    outcomes = {(rate, name): outcome(*[0.5] * 8) for rate in RATES for name in names}
    outcomes[RATES[1], names[1]] = outcome(*[1.0] * 6 + [9.0] * 2)
    outcomes[RATES[1], names[2]] = Outcome(Load(RATES[1]), failure="no Java")
    lines = table(outcomes).splitlines()
    assert len(lines) == 2 + len(outcomes)
    assert "| 500 | 500 | 500 | 30,000 |" in lines[2]
    said = figures(outcomes)
    assert said[f"{RATES[1]:,} rows/s, {names[2]}"] == "failed: no Java"
    assert all(bar.is_met(said) for bar in BARS)


def test_every_competitor_has_a_module_and_the_readme_a_place() -> None:
    for competitor in COMPETITORS:
        assert (ROOT / "benchmarks" / "latency" / f"{competitor.module}.py").exists()
    text = PLACE.readme.read_text()
    assert text.index(PLACE.begin) < text.index(PLACE.end)
