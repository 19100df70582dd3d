"""The comparison with other engines: what its tables say, and where its environments are. Nothing is timed here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import duckdb
import pip
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from benchmarks.peers import table
from benchmarks.peers.checking import differences, result_files
from benchmarks.peers.competitors import COMPETITORS, DURABLE, NAMES, REFERENCE
from benchmarks.peers.contest import DROPPED, KEPT, Contest
from benchmarks.peers.environments import FLINK, PATHWAY, POLARS, ROOT, Environment, EnvironmentFailed
from benchmarks.peers.outcome import Outcome
from benchmarks.peers.processes import CompetitorFailed, Run, run_in_process
from benchmarks.peers.task import Task
from benchmarks.readme import README, Place


def batches(*milliseconds: int) -> list[dict[str, int]]:
    return [{"input_rows": 1_000, "milliseconds": duration} for duration in milliseconds]


def outcome(kind: str = "micro-batches", rows: int = 12_000, **reported: object) -> Outcome:
    made = Outcome("midstream", kind, rows, expected=500)
    given = {"engine": "an engine", "seconds": 6.0, "results": 500, **reported}
    made.take(Run(given, 9.0, 2_048.0))
    return made


def test_steady_state_is_the_median_batch_once_windows_are_full() -> None:
    measured = outcome(batches=[*batches(9_000, 9_000, 9_000, 9_000), *batches(100, 500, 500, 500, 500, 500, 900, 500)])
    assert measured.steady == 2_000
    assert measured.rate == 2_000


def test_without_batches_steady_state_is_what_a_longer_run_takes_beyond_a_shorter_one() -> None:
    measured = outcome("continuous", results=None)
    measured.take_short(Run({"seconds": 4.0}, 5.0, 0.0), 4_000)
    assert measured.steady == 4_000
    assert measured.rate == 2_000


def test_a_run_that_was_stopped_counts_only_the_rows_it_read_and_is_not_exact() -> None:
    measured = outcome(batches=batches(*[500] * 6), results=100)
    assert (measured.rate, measured.is_whole, measured.is_exact()) == (1_000, False, False)
    assert "stopped after 6,000 of 12,000 rows" in table.comparison([measured])


@pytest.mark.parametrize(
    ("differing", "said", "exact"),
    [
        ({"missing": 0, "repeated": 0, "wrong": 0}, "0 missing, 0 repeated, 0 wrong", True),
        ({"missing": 1_000, "repeated": 2, "wrong": 3}, "1,000 missing, 2 repeated, 3 wrong", False),
    ],
)
def test_the_table_says_how_results_differ(differing: dict[str, int], said: str, exact: bool) -> None:
    measured = outcome()
    measured.differences = {"expected": 500, "found": 500, **differing}
    assert said in table.comparison([measured])
    assert measured.is_exact() is exact


def test_counts_alone_are_compared_where_rows_are_not() -> None:
    assert outcome().exactness() == "count equal"
    assert not outcome().is_exact()
    assert outcome(results=484).exactness() == "count off by -16"
    assert not outcome(results=484).is_exact()


def test_a_competitor_that_failed_has_its_reason_in_the_table() -> None:
    failed = Outcome("flink", "continuous", 12_000, failure="ended with 1: no | Java")
    line = table.comparison([failed]).splitlines()[-1]
    assert "failed: ended with 1: no \\| Java" in line
    assert line.replace("\\|", "").count("|") == len(table.HEADINGS) + 1


def test_changes_of_a_plan_are_told_as_refused_or_by_what_became_of_the_results() -> None:
    text = table.plan_changes(
        [
            {"engine": "one", "change": "x", "refusal": "[CODE] no\nway"},
            {
                "engine": "two",
                "change": "y",
                "seen": "restores",
                "expected": 9,
                "missing": 1,
                "repeated": 0,
                "wrong": 2,
            },
            {"engine": "three", "change": "z", "failure": "no Java"},
        ]
    ).splitlines()
    assert text[2] == "| one | x | refuses: [CODE] no way |  |"
    assert text[3] == "| two | y | restores | 1 missing, 0 repeated, 2 wrong (of 9) |"
    assert text[4] == "| three | z | could not be tried: no Java |  |"


def test_only_what_is_between_the_markers_is_written(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    place = Place("some", "a command", readme)
    readme.write_text(f"before\n{place.begin}old\n{place.end}after\n")
    place.write("new\n")
    assert readme.read_text() == f"before\n{place.begin}new\n{place.end}after\n"
    readme.write_text("before\n")
    with pytest.raises(ValueError, match="no place for the text"):
        place.write("new\n")


@pytest.mark.parametrize("contest", [DROPPED, KEPT], ids=lambda contest: contest.name)
def test_the_readme_has_a_place_for_the_tables(contest: Contest) -> None:
    text = README.read_text()
    assert text.index(contest.place.begin) < text.index(contest.place.end)


@pytest.mark.parametrize("contest", [DROPPED, KEPT], ids=lambda contest: contest.name)
def test_bars_are_about_figures_that_there_are(contest: Contest) -> None:
    none = [Outcome(competitor.name, competitor.kind, 12_000) for competitor in contest.competitors]
    figures = contest.figures({"small": none, "large": none})
    assert {bar.figure for bar in contest.bars} <= set(figures)
    assert figures["sizes on which midstream's results are exact"] == 0


def test_with_durable_sinks_nobody_drops_results() -> None:
    assert all(competitor.keeps_results for competitor in DURABLE if competitor is not REFERENCE)


def test_only_the_files_that_a_log_names_are_results(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"x": [1, 2]}))
    pq.write_table(pa.table({"x": [3]}), tmp_path / "of_a_failed_attempt.parquet")
    assert duckdb.sql(f"SELECT sum(x) FROM ({result_files(tmp_path)})").fetchall() == [(3,)]


def test_environments_are_pinned_and_lie_where_git_does_not_look() -> None:
    for environment in (FLINK, PATHWAY, POLARS):
        assert environment.directory.parent == ROOT / ".peers"
        assert "==" in environment.requirements[0]
        ignored = subprocess.run(["git", "check-ignore", "-q", environment.directory], cwd=ROOT, check=False)
        assert ignored.returncode == 0


def test_an_environment_is_ready_only_with_its_own_requirements(tmp_path: Path) -> None:
    environment = Environment("some", (), tmp_path)
    assert not environment.is_ready
    environment.python.parent.mkdir(parents=True)
    environment.python.touch()
    assert not environment.is_ready
    (environment.directory / ".ready").write_text(environment._contents())
    assert environment.is_ready
    assert not Environment("some", ("polars==2.1.0",), tmp_path).is_ready


def test_an_environment_that_cannot_be_made_says_why_and_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With this environment's pip: installing one more takes ten seconds.
    call = Environment._call
    without_pip = ["--without-pip"]
    monkeypatch.setattr(
        Environment, "_call", lambda self, command: call(self, [*command, *without_pip * ("venv" in command)])
    )
    (tmp_path / "borrowed").mkdir()
    (tmp_path / "borrowed" / "pip").symlink_to(Path(pip.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "borrowed"))
    environment = Environment("some", ("./no/such/package",), tmp_path)
    with pytest.raises(EnvironmentFailed, match=r"could not be installed: .*no/such/package"):
        environment.make()
    assert not environment.is_ready


def test_a_process_that_fails_or_takes_too_long_says_so(tmp_path: Path) -> None:
    nothing = Task(str(tmp_path), 0, 0, str(tmp_path), 30, options={"found": str(tmp_path / "none")})
    with pytest.raises(CompetitorFailed, match="no results below"):
        run_in_process("benchmarks.peers.checking", nothing)
    with pytest.raises(CompetitorFailed, match="not done within 0 s"):
        run_in_process("benchmarks.peers.checking", Task(str(tmp_path), 0, 0, str(tmp_path), 0))


def test_missing_repeated_and_wrong_rows_are_told_apart() -> None:
    rows = "SELECT * FROM (VALUES {}) AS rows(x, y)"
    expected = rows.format("(1, 1), (2, 2), (2, 2), (3, 3)")
    found = rows.format("(1, 1), (1, 1), (2, 2), (4, 4)")
    counted = differences(duckdb.connect(), expected, found, ["x", "y"])
    assert counted == {"expected": 4, "found": 4, "missing": 2, "repeated": 1, "wrong": 1}


def test_every_competitor_has_a_name_of_its_own_and_a_module() -> None:
    assert len(NAMES) == len(COMPETITORS) + len(DURABLE) - 1  # the reference is in both
    for competitor in COMPETITORS + DURABLE:
        assert (ROOT / "benchmarks" / "peers" / f"{competitor.module}.py").exists()
