"""A soak counts what it does, shrinks what fails, and writes both down."""

import json

import pytest

from midstream.errors import MidstreamError
from midstream.testing import MigrationCase, Rejected, ReplayedChoices, SeededChoices, random_case
from midstream.testing.migration_cases import Migrate
from midstream.testing.soak import Failure, Soak, failure_kind, judged, shrunk_case, soak, trials
from tests.property import soak as command


def test_the_same_seed_gives_the_same_cases() -> None:
    first, again = ([repr(trial.case) for seed in "abc" for trial in trials(seed)] for _ in range(2))
    assert first == again
    assert first


def test_each_case_of_a_seed_has_a_recording_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch)
    played = [trial for seed in range(20) for trial in trials(seed, cases=4)]
    failed = [trial for trial in played if trial.failure is not None]
    assert len(failed) > 2
    # Different choices may make the same case, but not the same choices different ones.
    assert len({trial.failure.recording for trial in failed}) >= len({repr(trial.case) for trial in failed})
    for trial in failed:
        assert repr(trial.failure.made_again(ReplayedChoices(trial.failure.recording))) == repr(trial.case)


def test_kinds_of_failures() -> None:
    assert failure_kind(AssertionError("snapshots differ\n  missing:  (1)\n  too many: (2)")) == "too many and missing"
    assert failure_kind(AssertionError("snapshots differ\n  missing:  (1)")) == "missing"
    assert failure_kind(AssertionError("out of order")) == "AssertionError"
    assert failure_kind(MidstreamError("no")) == "MidstreamError"


def _break(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every second result be lost once there was a migration by gen-mig."""
    play = MigrationCase.play

    def lossy(case: MigrationCase):  # type: ignore[no-untyped-def]
        played = play(case)
        if any(isinstance(change, Migrate) and change.strategy == "gen-mig" for change in case.changes):
            played.results_of_pushes = [played.results.slice(0, played.results.num_rows // 2)]
        return played

    monkeypatch.setattr(MigrationCase, "play", lossy)


def test_a_failure_shrinks_to_a_regression_test(monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch)
    for seed in range(100):
        choices = SeededChoices(f"broken-{seed}")
        try:
            case = random_case(choices, emphasis="plans")
        except Rejected:
            continue
        failure = judged(case, choices.recording).failure
        if failure is not None:
            break
    assert failure is not None
    assert failure.kind == "missing"
    small = shrunk_case(failure, seconds=5, make=lambda choices: random_case(choices, emphasis="plans"))
    assert small.kind == "missing"
    assert [change.strategy for change in small.case.changes if isinstance(change, Migrate)] == ["gen-mig"]
    assert len(small.case.changes) == 1
    assert len(small.case.scenario.pushes) <= len(case.scenario.pushes)
    code = small.code()
    assert code.startswith(f"def {small.name}():\n    # ")
    assert small.name.startswith("test_missing_after_gen_mig_")
    compile(code, "regression", "exec")


def test_a_soak_stops_when_there_were_enough_cases() -> None:
    state = soak(600, "few", 1, cases=3)
    assert state.cases >= 3
    assert state.seconds < 300


def test_a_soak_counts_cases_and_coverage() -> None:
    states: list[str] = []
    state = soak(6, "tiny", 1, on_progress=lambda state: states.append(state.line()), progress_seconds=1)
    assert state.cases >= state.scenarios > 0
    assert state.migrations > 0
    assert states
    figures = json.loads(json.dumps(state.summary()))
    assert figures["seed"] == "tiny"
    assert figures["cases"] == state.cases
    assert figures["failures"] == len(state.failures)
    assert 0 < figures["pairs_reached"] <= figures["pairs_reachable"]
    assert figures["triples_reachable"] == figures["triples_reached"] + len(figures["triples_missing"])


@pytest.mark.parametrize("failing", [False, True])
def test_the_command_writes_a_summary_and_fails_if_a_case_did(
    failing: bool, tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = next(trial.case for seed in "abcdef" for trial in trials(seed, 1))
    failures = [Failure("missing", "snapshots differ", case)] * failing

    def done(seconds: float, seed: str, processes: int, on_failure, on_progress, cases) -> Soak:  # type: ignore[no-untyped-def]
        state = Soak(seed, processes, cases=60, seconds=seconds, failures=failures)
        on_progress(state)
        for failure in failures:
            on_failure(failure)
        return state

    monkeypatch.setattr(command, "soak", done)
    path = tmp_path / "soak.json"
    code = command.main(["--minutes", "0.5", "--seed", "7", "--processes", "2", "--results", str(path)])
    assert code == int(failing)
    printed = capsys.readouterr().out
    assert "seed 7" in printed
    assert "60 cases (2.0/s)" in printed
    assert ("def test_missing_after" in printed) == failing
    written = json.loads(path.read_text())
    assert (written["failures"], written["cases_per_second"]) == (int(failing), 2.0)
    assert written["environment"].keys() >= {"commit", "machine", "versions", "date"}
