"""Soaking deployments: random deployment cases for as long as one likes, judged by the oracle or the brute force.

As :mod:`midstream.testing.soak` does for migrations: a seed makes one or two scenarios, and several deployments are
tried on them. What fails is shrunk and given out as the code of a regression test. The command is
`make soak-deployment`.

>>> trial = next(trial for seed in range(9) for trial in deployment_trials(seed))
>>> trial.failure is None and trial.played.generations > 0
True
"""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from midstream.testing.choices import Choices, Rejected, ReplayedChoices, SeededChoices, shrunk
from midstream.testing.deployment_cases import DeploymentCase, PlayedDeployment, expected_of, simpler_deployments
from midstream.testing.deployment_coverage import KINDS, missing_kinds
from midstream.testing.generators_deployment import (
    random_deployment,
    random_deployment_on,
    random_deployment_scenarios,
)
from midstream.testing.snapshot_series import SnapshotSeries
from midstream.testing.soak import failure_kind

__all__ = [
    "DeploymentFailure",
    "DeploymentSoak",
    "DeploymentTrial",
    "deployment_trials",
    "shrunk_deployment",
    "soak_deployments",
]

CASES_PER_SCENARIO = 4
"""Deployments tried on the same scenarios."""
ORACLE_EVERY = 8
"""The scenarios of every eighth seed are judged by DuckDB, the others by the brute force, which is quicker."""
_BLOCK = 32
"""So many seeds are handed out at once."""


@dataclass(frozen=True)
class DeploymentFailure:
    """How a case failed."""

    kind: str
    message: str
    case: DeploymentCase
    recording: tuple[int, ...] = ()

    def code(self) -> str:
        """The case as a regression test."""
        digest = hashlib.sha256(repr(self.case).encode()).hexdigest()[:6]
        name = "test_" + "_".join([*self.kind.lower().split(), "in_a_deployment", digest])
        body = repr(self.case).replace("\n", "\n    ")
        comment = "\n".join(f"    # {line}" for line in self.message.splitlines()[:6])
        return f"def {name}():\n{comment}\n    case = {body}\n    case.check()\n"


@dataclass(frozen=True)
class DeploymentTrial:
    """A case that was played: what happened, or how it failed."""

    played: PlayedDeployment | None
    failure: DeploymentFailure | None


def judged(
    case: DeploymentCase, recording: list[int], expected: dict[str, SnapshotSeries] | None = None
) -> DeploymentTrial:
    """Play the case and compare, by default with what the brute force says."""
    try:
        return DeploymentTrial(case.check(expected_of(case.queries) if expected is None else expected), None)
    except Exception as error:
        failure = DeploymentFailure(_kind(error), str(error), case, tuple(recording))
        return DeploymentTrial(None, failure)


def _kind(error: Exception) -> str:
    """As for migrations; of an assertion, what it is about, so that shrinking does not end at another one."""
    kind = failure_kind(error)
    return f"{kind} {str(error)[:2]}" if kind == "AssertionError" else kind


def deployment_trials(
    seed: int | str, cases: int = CASES_PER_SCENARIO, oracle: bool = False
) -> Iterator[DeploymentTrial]:
    """The cases of a seed, played; none if the seed makes no scenario."""
    choices = SeededChoices(seed)
    try:
        scenarios = random_deployment_scenarios(choices)
    except Rejected:
        return
    of_scenarios, expected = list(choices.recording), None
    for _ in range(cases):
        start = len(choices.recording)
        case = random_deployment_on(choices, scenarios)
        if expected is None:
            by_oracle = {query.name: query.scenario.expected() for query in case.queries} if oracle else None
            expected = by_oracle or expected_of(case.queries)
        yield judged(case, of_scenarios + choices.recording[start:], expected)


def shrunk_deployment(
    failure: DeploymentFailure,
    seconds: float = 20.0,
    make: Callable[[Choices], DeploymentCase] = random_deployment,
) -> DeploymentFailure:
    """The failure of the smallest case found within about so many seconds that fails in the same way."""
    best = failure

    def fails(choices: ReplayedChoices) -> bool:
        nonlocal best
        trial = judged(make(choices), choices.recording)
        if trial.failure is None or trial.failure.kind != failure.kind:
            return False
        best = trial.failure
        return True

    fails(ReplayedChoices(shrunk(failure.recording, fails, seconds)))
    until, improved = time.process_time() + seconds, True
    while improved:
        improved = False
        for case in simpler_deployments(best.case):
            if time.process_time() > until:
                break
            trial = judged(case, [])
            if trial.failure is not None and trial.failure.kind == failure.kind:
                best, improved = trial.failure, True
                break
    return best


@dataclass
class DeploymentSoak:
    """What was soaked so far."""

    seed: str
    processes: int
    cases: int = 0
    generations: int = 0
    faults: int = 0
    seconds: float = 0.0
    met: Counter[str] = field(default_factory=Counter)
    failures: list[DeploymentFailure] = field(default_factory=list)

    def count(self, figures: Counter[str]) -> None:
        """Add what a process did."""
        self.cases += figures.pop("cases")
        self.generations += figures.pop("generations")
        self.faults += figures.pop("faults")
        self.met.update(figures)

    def line(self) -> str:
        """The state in one line."""
        return (
            f"{self.seconds:6.0f} s  {self.cases} cases  {self.generations} generations  "
            f"{self.met['state moved']} stages moved  {self.faults} faults  {len(self.failures)} failures"
        )

    def summary(self) -> dict[str, Any]:
        """The figures to keep."""
        return {
            "seed": self.seed,
            "processes": self.processes,
            "seconds": round(self.seconds, 1),
            "cases": self.cases,
            "generations": self.generations,
            "faults": self.faults,
            "failures": len(self.failures),
            "met": {kind: self.met[kind] for kind in KINDS},
            "not_met": missing_kinds(self.met),
        }


def soak_deployments(
    seconds: float,
    seed: str,
    processes: int,
    on_failure: Callable[[DeploymentFailure], None] = lambda failure: None,
    on_progress: Callable[[DeploymentSoak], None] = lambda state: None,
    cases: int | None = None,
    progress_seconds: float = 10.0,
) -> DeploymentSoak:
    """Play random cases for so many seconds, or until there were so many cases; the callbacks run in this process."""
    state, start = DeploymentSoak(seed, processes), time.monotonic()
    shown = start
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for block in count():
            numbers = range(block * _BLOCK, (block + 1) * _BLOCK)
            for figures, failures in pool.imap_unordered(partial(_play, seed), numbers):
                state.seconds = time.monotonic() - start
                state.count(figures)
                for failure in failures:
                    state.failures.append(failure)
                    on_failure(failure)
                if time.monotonic() - shown >= progress_seconds:
                    shown = time.monotonic()
                    on_progress(state)
            if state.seconds >= seconds or (cases is not None and state.cases >= cases):
                return state
    raise AssertionError("unreachable")


def _play(seed: str, number: int) -> tuple[Counter[str], list[DeploymentFailure]]:
    """In a process of its own: the cases of one seed."""
    gc.disable()
    figures: Counter[str] = Counter({"cases": 0, "generations": 0, "faults": 0})
    failures = []
    for trial in deployment_trials(f"{seed}-{number}", oracle=number % ORACLE_EVERY == 0):
        figures["cases"] += 1
        if trial.played is not None:
            figures["generations"] += trial.played.generations
            figures["faults"] += trial.played.faults
            figures.update(trial.played.met)
        if trial.failure is not None:
            failures.append(shrunk_deployment(trial.failure))
    if number % 20 == 0:
        gc.collect()
    return figures, failures
