"""Soaking: random migration cases for as long as one likes, on all cores, judged by the oracle and the brute force.

`soak` starts one process per core. Each makes scenarios from seeds of its own, computes what each scenario must give,
and plays several lists of changes on it; every played list is a case, with at least one migration. A case that fails is
shrunk to a small one, given out as the code of a regression test, and the soaking goes on. The same master seed
gives the same cases, as many of them as there is time for.

The command is `make soak`; `Trial` is one case with its judgement, to be had without processes:

>>> trial = next(trial for seed in range(20) for trial in trials(seed))
>>> trial.failure is None and trial.played.results.num_columns > 0
True
"""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from midstream.algebra.plan import Aggregate, Difference, Distinct
from midstream.testing.brute_force import brute_force_snapshots
from midstream.testing.choices import Choices, Rejected, ReplayedChoices, SeededChoices, shrunk
from midstream.testing.coverage import Coverage, reachable
from midstream.testing.equivalence import assert_snapshot_equivalent
from midstream.testing.generators import Scenario
from midstream.testing.generators_migrations import random_case, random_changes, random_migrated_scenario
from midstream.testing.migration_cases import Migrate, MigrationCase, Played, Switch, plans_of, simpler_cases
from midstream.testing.snapshot_series import SnapshotSeries

__all__ = [
    "Failure",
    "JudgesDisagree",
    "Soak",
    "Trial",
    "expected_result",
    "failure_kind",
    "shrunk_case",
    "soak",
    "trials",
]

CASES_PER_SCENARIO = 8
"""Lists of changes tried on a scenario: planning it and asking the oracle take as long as playing one or two."""
SHRUNK_FAILURES = 20
"""Failures that a process shrinks; later ones are given out as they are, so that a broken engine does not stop the
soaking."""
_REPORT_SECONDS = 2.0


@dataclass(frozen=True)
class Failure:
    """How a case failed."""

    kind: str
    """ "too many", "missing", "too many and missing", or the name of the exception."""
    message: str
    case: MigrationCase
    recording: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """A name for a regression test, the same for the same case."""
        strategies = dict.fromkeys(change.strategy for change in self.case.changes if isinstance(change, Migrate))
        digest = hashlib.sha256(repr(self.case).encode()).hexdigest()[:6]
        words = [self.kind, "after", *strategies, digest]
        return "test_" + "_".join("_".join(words).lower().replace("-", " ").split()).strip("_")

    def made_again(self, choices: Choices) -> MigrationCase:
        """The case that other choices make, in the way in which this one's recording made its case."""
        is_just_in_time = any(isinstance(change, Switch) for change in self.case.changes)
        return random_case(choices, just_in_time=is_just_in_time, braces=self.case.braces)

    def code(self) -> str:
        """The case as a regression test."""
        body = repr(self.case).replace("\n", "\n    ")
        comment = "\n".join(f"    # {line}" for line in self.message.splitlines()[:6])
        return f"def {self.name}():\n{comment}\n    case = {body}\n    case.check()\n"


@dataclass(frozen=True)
class Trial:
    """A case that was played: what happened, or how it failed."""

    case: MigrationCase
    played: Played | None
    failure: Failure | None


class JudgesDisagree(AssertionError):
    """The oracle and the brute force do not give the same result."""


def expected_result(scenario: Scenario) -> SnapshotSeries | pa.Table:
    """What the scenario must give: the exact intervals for joins alone, snapshots for all else.

    Both judges are asked. Raises ``JudgesDisagree`` if their snapshots differ.
    """
    _, plans = plans_of(scenario)
    is_exact = not any(isinstance(node, Distinct | Aggregate | Difference) for node in plans[0].walk())
    expected = scenario.expected_intervals() if is_exact else scenario.expected()
    try:
        assert_snapshot_equivalent(
            expected, brute_force_snapshots(scenario.query_text, scenario.streams, scenario.tables)
        )
    except AssertionError as difference:
        raise JudgesDisagree(str(difference)) from None
    return expected


def judged(case: MigrationCase, recording: list[int], expected: SnapshotSeries | pa.Table | None = None) -> Trial:
    """Play the case and compare, by default with what the judges say."""
    try:
        return Trial(case, case.check(expected_result(case.scenario) if expected is None else expected), None)
    except Exception as error:
        return Trial(case, None, Failure(failure_kind(error), str(error), case, tuple(recording)))


def failure_kind(error: Exception) -> str:
    """Rows too many, rows missing, both, or the name of an exception.

    >>> failure_kind(AssertionError("snapshots differ first at instant 1, and so until 5\\n  too many: (1)"))
    'too many'
    """
    if isinstance(error, JudgesDisagree):
        return type(error).__name__
    found = [kind for kind in ("too many", "missing") if f"  {kind}:" in str(error)]
    return " and ".join(found) if isinstance(error, AssertionError) and found else type(error).__name__


def _is_just_in_time(number: int) -> bool:
    """Whether just-in-time processing is switched on in this case of a scenario: in every fourth."""
    return number % 4 == 3


def trials(seed: int | str, cases: int = CASES_PER_SCENARIO) -> Iterator[Trial]:
    """The cases of a seed, played: one scenario with several lists of changes; none if the seed makes no scenario."""
    choices = SeededChoices(seed)
    try:
        scenario = random_migrated_scenario(choices)
    except Rejected:
        return
    try:
        expected = expected_result(scenario)
    except Exception:
        yield judged(random_changes(choices, scenario), choices.recording)
        return
    rows = expected.table.num_rows if isinstance(expected, SnapshotSeries) else expected.num_rows
    of_scenario = list(choices.recording)
    # A scenario without results can only show rows too many.
    count = cases if rows else 1
    for number in range(count + count // 2):
        start = len(choices.recording)
        # The last third of the lists has plans with multi-way joins as well.
        case = random_changes(choices, scenario, just_in_time=_is_just_in_time(number), braces=number >= count)
        yield judged(case, of_scenario + choices.recording[start:], expected)


def shrunk_case(
    failure: Failure,
    seconds: float | None = None,
    make: Callable[[Choices], MigrationCase] | None = None,
) -> Failure:
    """The failure of the smallest case found that fails in the same way; ``make`` made its case."""
    best = failure
    make = failure.made_again if make is None else make

    def fails(choices: ReplayedChoices) -> bool:
        nonlocal best
        case = make(choices)
        trial = judged(case, choices.recording)
        if trial.failure is None or trial.failure.kind != failure.kind:
            return False
        best = trial.failure
        return True

    found = shrunk(failure.recording, fails) if seconds is None else shrunk(failure.recording, fails, seconds)
    # The last case that failed is not always the best one.
    fails(ReplayedChoices(found))
    improved = True
    while improved:
        improved = False
        for case in simpler_cases(best.case):
            trial = judged(case, [])
            if trial.failure is not None and trial.failure.kind == failure.kind:
                best, improved = trial.failure, True
                break
    return best


@dataclass
class Soak:
    """What was soaked so far."""

    seed: str
    processes: int
    cases: int = 0
    scenarios: int = 0
    migrations: int = 0
    refused: int = 0
    rebuilds: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)

    @property
    def cases_per_second(self) -> float:
        return self.cases / self.seconds if self.seconds else 0.0

    def line(self) -> str:
        """The state in one line."""
        return (
            f"{self.seconds:6.0f} s  {self.cases} cases ({self.cases_per_second:.1f}/s)  {self.migrations} migrations  "
            f"{self.rebuilds} rebuilds  pairs {self.coverage.share(2):.1%}  triples {self.coverage.share(3):.1%}  "
            f"{len(self.failures)} failures"
        )

    def summary(self) -> dict[str, Any]:
        """The figures to keep."""
        return {
            "seed": self.seed,
            "processes": self.processes,
            "seconds": round(self.seconds, 1),
            "cases": self.cases,
            "scenarios": self.scenarios,
            "migrations": self.migrations,
            "migrations_refused": self.refused,
            "rebuilds": self.rebuilds,
            "cases_per_second": round(self.cases_per_second, 1),
            "failures": len(self.failures),
            "failing_tests": [failure.name for failure in self.failures],
            "pairs_reached": self.coverage.reached(2),
            "pairs_reachable": len(reachable(2)),
            "pairs_missing": [", ".join(map(str, group)) for group in self.coverage.missing(2)],
            "triples_reached": self.coverage.reached(3),
            "triples_reachable": len(reachable(3)),
            "triples_missing": [", ".join(map(str, group)) for group in self.coverage.missing(3)],
        }

    def _count(self, report: dict[str, Any]) -> None:
        for name in ("cases", "scenarios", "migrations", "refused", "rebuilds"):
            setattr(self, name, getattr(self, name) + report[name])
        self.coverage.update(report["coverage"])


def soak(
    seconds: float,
    seed: str,
    processes: int,
    on_failure: Callable[[Failure], None] = lambda failure: None,
    on_progress: Callable[[Soak], None] = lambda state: None,
    progress_seconds: float = 10.0,
    cases: int | None = None,
) -> Soak:
    """Play random cases for so many seconds, or until there were so many cases; the callbacks run in this process."""
    context = multiprocessing.get_context("spawn")
    reports: multiprocessing.Queue[Any] = context.Queue()
    enough = context.Event()
    workers = [
        context.Process(target=_work, args=(f"{seed}-{number}", seconds, reports, enough), daemon=True)
        for number in range(processes)
    ]
    state, start = Soak(seed, processes), time.monotonic()
    for worker in workers:
        worker.start()
    ended, shown = 0, start
    while ended < len(workers):
        try:
            report = reports.get(timeout=1.0)
        except queue.Empty:
            report = {}
            if not any(worker.is_alive() for worker in workers) and reports.empty():
                raise RuntimeError("a soaking process ended without a report") from None
        state.seconds = time.monotonic() - start
        if isinstance(report, Failure):
            state.failures.append(report)
            on_failure(report)
        elif report:
            state._count(report)
            ended += report["ended"]
            if cases is not None and state.cases >= cases:
                enough.set()
        if time.monotonic() - shown >= progress_seconds:
            shown = time.monotonic()
            on_progress(state)
    for worker in workers:
        worker.join()
    return state


def _work(seed: str, seconds: float, reports: Any, enough: Any) -> None:
    """One process: cases until the time is over or there are enough. The clock starts when the imports are done."""
    until, shrinks = time.monotonic() + seconds, 0
    report, reported = _Report(), time.monotonic()
    # Plans and tables are many and live short; collecting them in between takes a tenth of the time.
    gc.disable()
    number = 0
    while time.monotonic() < until and not enough.is_set():
        for trial in trials(f"{seed}-{number}"):
            report.count(trial)
            if trial.failure is not None:
                shrinks += 1
                reports.put(shrunk_case(trial.failure) if shrinks <= SHRUNK_FAILURES else trial.failure)
        number += 1
        if time.monotonic() - reported > _REPORT_SECONDS:
            gc.collect()
            reports.put(report.taken(ended=False))
            report, reported = _Report(), time.monotonic()
    reports.put(report.taken(ended=True))


class _Report:
    """What a process did since its last report."""

    def __init__(self) -> None:
        self._figures = dict.fromkeys(("cases", "scenarios", "migrations", "refused", "rebuilds"), 0)
        self._coverage = Coverage()
        self._scenario: Scenario | None = None

    def count(self, trial: Trial) -> None:
        self._figures["cases"] += 1
        self._figures["scenarios"] += trial.case.scenario is not self._scenario
        self._scenario = trial.case.scenario
        if trial.played is not None:
            self._figures["migrations"] += len(trial.played.migrations)
            self._figures["refused"] += trial.played.refused
            self._figures["rebuilds"] += trial.played.rebuilds
            self._coverage.add(trial.played.migrations)

    def taken(self, ended: bool) -> dict[str, Any]:
        counts = {size: dict(counter) for size, counter in self._coverage.counts.items()}
        return {**self._figures, "coverage": counts, "ended": ended}
