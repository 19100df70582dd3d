"""Random migration cases: which plans, by which strategies, at which moments, and where derived state is lost.

`migration_cases()` is a Hypothesis strategy, `random_case` makes a case from any source of choices. A case is made of
the choices of its scenario, then those of its changes, so that several lists of changes can be tried on one scenario
(whose expected result is computed once) and each still has a recording of its own.

Choices lean to where migrations are hard: changes come in clusters, one before the other is over; derived state is
lost right after a change, or shortly before a migration comes to its end; strategies that can only refuse the query's
plans are tried now and then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from midstream.algebra.plan import Plan
from midstream.execution.just_in_time import JustInTime
from midstream.execution.plan_executor import CHUNK_ROWS
from midstream.testing.choices import Choices, Draw, HypothesisChoices
from midstream.testing.generators import JOIN_OPERATORS, Scenario, random_scenario
from midstream.testing.generators_moments import AroundSplit, moments_around_splits
from midstream.testing.generators_queries import OPERATORS
from midstream.testing.migration_cases import (
    REBUILDS,
    STRATEGIES,
    Change,
    Migrate,
    MigrationCase,
    Rebuild,
    Switch,
    may_refuse,
    plans_of,
)

__all__ = ["migration_cases", "random_case", "random_changes", "random_just_in_time", "random_migrated_scenario"]

_ENDLESS = ("unbounded", "none")
_BOUNDED = ("slide", "range", "now")
_TAKING_OVER: list[tuple[str, dict[str, Any]]] = [("jisc", {}), ("moving-state", {})]
_OTHER_OPERATORS = sorted(OPERATORS - {"join", "subquery"})


def random_case(
    choices: Choices, *, rebuilds: bool = True, just_in_time: bool = False, braces: bool = False, **limits: Any
) -> MigrationCase:
    """A case of one scenario and one list of changes; `limits` are those of `random_scenario`."""
    scenario = random_migrated_scenario(choices, **limits)
    return random_changes(choices, scenario, rebuilds=rebuilds, just_in_time=just_in_time, braces=braces)


def migration_cases(*, rebuilds: bool = True, **limits: Any) -> st.SearchStrategy[MigrationCase]:
    """Cases drawn by Hypothesis; the options are those of `random_case`."""

    @st.composite
    def build(draw: Draw) -> MigrationCase:
        return random_case(HypothesisChoices(draw), rebuilds=rebuilds, **limits)

    return build()


def random_migrated_scenario(choices: Choices, **limits: Any) -> Scenario:
    """A scenario whose query has more than one plan."""
    emphasis = choices.pick(
        ["final beside incremental"] * 4
        + ["plans"] * 5
        + ["final beside final"] * 6
        + ["final over distinct"] * 5
        + ["language"]
    )
    windows, operators = _some_windows(choices), _some_operators(choices)
    if emphasis.startswith("final"):
        # Windows of both kinds, so that results are final up to different instants.
        windows, operators = {"slide", "range"}, set(OPERATORS)
    elif "none" in windows:
        # Only under a union beside other rows does a stream without a window have plans to choose from.
        operators |= {"union_all"}
    least = choices.pick([3] * 7 + [2])
    given = {
        "operators": operators,
        "windows": windows,
        "emphasis": emphasis,
        "min_streams": least,
        "batchings": ["mixed", "mixed", "rows"],
        **limits,
    }
    if given["operators"] != operators and emphasis.startswith("final"):
        given["emphasis"] = "plans"
    scenario = random_scenario(choices, **given)
    if len(plans_of(scenario)[1]) < 2:
        choices.reject()
    return scenario


def _some_windows(choices: Choices) -> set[str]:
    """Some window kinds: queries of few kinds have more of each together than queries of all kinds have."""
    windows = {kind for kind in _BOUNDED if choices.chance(2)}
    # Gen-mig and parallel-track refuse windows that never end.
    if choices.chance(3):
        windows |= {kind for kind in _ENDLESS if not choices.chance(3)}
    return windows if windows - {"none"} else windows | {"slide"}


def _some_operators(choices: Choices) -> set[str]:
    """Some operators, or joins and their unions alone, which is what all strategies accept."""
    if choices.chance(3):
        return set(JOIN_OPERATORS)
    return {"join", "subquery", *(operator for operator in _OTHER_OPERATORS if choices.chance(2))}


def random_changes(
    choices: Choices,
    scenario: Scenario,
    *,
    rebuilds: bool = True,
    just_in_time: bool = False,
    braces: bool = False,
) -> MigrationCase:
    """The scenario with a list of changes, at least one of them a migration.

    With ``just_in_time``, just-in-time processing is switched on at a moment, and maybe changed or switched off later.
    With ``braces``, plans with multi-way joins are among the plans.
    """
    _, plans = plans_of(scenario, braces)
    writer = _ChangeWriter(choices, plans, scenario, rebuilds and not choices.chance(4))
    first_plan = writer.plan
    chunk_rows = choices.pick([CHUNK_ROWS] * 6 + [1, 3])
    changes = writer.changes()
    if just_in_time:
        changes = sorted([*changes, *_random_switches(choices, len(scenario.pushes))], key=lambda each: each.before)
    return MigrationCase(scenario, changes, first_plan, chunk_rows, braces)


def random_just_in_time(choices: Choices) -> JustInTime:
    """Any options; few rows are enough to review whom to ask."""
    return JustInTime(
        detection=choices.pick(["exact", "bloom"]),
        type_two=not choices.chance(4),
        propagate=not choices.chance(4),
        least_share=choices.pick([0.0, 0.2, 0.6]),
        trial_rows=choices.pick([1000, 3, 1]),
    )


def _random_switches(choices: Choices, pushes: int) -> Iterator[Switch]:
    moment = choices.pick([0, 0, choices.number(0, pushes)])
    yield Switch(moment, random_just_in_time(choices))
    while choices.chance(3):
        moment = choices.number(moment, pushes)
        yield Switch(moment, None if choices.chance(2) else random_just_in_time(choices))


class _ChangeWriter:
    """Writes a list of changes; `plan` is the one in force after those written so far, if none is refused."""

    def __init__(self, choices: Choices, plans: Sequence[Plan], scenario: Scenario, rebuilds: bool) -> None:
        self.plan = choices.number(0, len(plans) - 1)
        self._choices = choices
        self._plans = plans
        self._scenario = scenario
        self._pushes = len(scenario.pushes)
        self._with_rows = [number for number, push in enumerate(scenario.pushes) if push.rows]
        self._rebuilds = rebuilds
        accepted = [way for way in STRATEGIES.values() if not _always_refuses(way, plans[0])]
        # These two take over state, where the others wait for it to end; some of the others accept joins alone.
        joins_alone = ("parallel-track", {}) in accepted
        self._accepted = [way for way in accepted for _ in range(3 if way in _TAKING_OVER and not joins_alone else 1)]

    def changes(self) -> list[Change]:
        choices = self._choices
        if (
            ("gen-mig", {}) in self._accepted
            and choices.chance(2)
            and (around := moments_around_splits(self._scenario))
        ):
            return self._around_a_split(choices.pick(around))
        # Before every stream has had a row there is little to replace, but no watermark either.
        if choices.chance(6):
            moment = choices.number(0, min(2, self._pushes))
        elif self._with_rows and choices.chance(3):
            # What is missing in a state shows when the next rows meet it.
            moment = choices.pick(self._with_rows[len(self._with_rows) // 2 :])
        else:
            moment = max(choices.number(0, self._pushes), choices.number(0, self._pushes))
        changes: list[Change] = []
        if self._rebuilds and choices.chance(2):
            for _ in range(choices.pick([1, 1, 2, 4])):
                before = max(choices.number(0, moment), choices.number(0, moment))
                changes.append(Rebuild(before, choices.pick(REBUILDS)))
            changes.sort(key=lambda change: change.before)
        for _ in range(choices.pick([1, 2, 2, 3, 4])):
            changes.append(self._migration(moment))
            if self._rebuilds and choices.pick([False, True, True]):
                moment = self._later(moment)
                changes.append(Rebuild(moment, choices.pick(REBUILDS)))
            moment = self._later(moment)
        return changes

    def _around_a_split(self, around: AroundSplit) -> list[Change]:
        """A migration with GenMig; shortly before its end it is replaced, or computed again, or both."""
        choices = self._choices
        options: dict[str, Any] = {"shortened": True} if around.shortened else {}
        if choices.chance(3):
            options = {"variant": "positive-negative", **options}
        changes: list[Change] = [self._migration(around.begins, ("gen-mig", options))]
        if self._rebuilds and choices.chance(2):
            changes.append(Rebuild(around.close, choices.pick(REBUILDS)))
        if len(changes) == 1 or choices.chance(3):
            changes.append(self._migration(around.close, choices.pick(_TAKING_OVER)))
        if self._rebuilds and choices.chance(4):
            changes.append(Rebuild(self._later(around.close), choices.pick(REBUILDS)))
        return changes

    def _migration(self, moment: int, way: tuple[str, Mapping[str, Any]] | None = None) -> Migrate:
        choices = self._choices
        # The plans next to each other differ in more than the order of joins, where the query allows that.
        step = choices.pick([1, choices.number(1, len(self._plans) - 1)])
        self.plan = (self.plan + step) % len(self._plans)
        if way is None:
            way = choices.pick(list(STRATEGIES.values()) if choices.chance(16) else self._accepted)
        strategy, options = way
        return Migrate(moment, self.plan, strategy, options)

    def _later(self, moment: int) -> int:
        """This moment, the next one, or any after it."""
        return min(self._pushes, moment + self._choices.pick([0, 1, 1, 2, 3, self._choices.number(0, self._pushes)]))


def _always_refuses(way: tuple[str, Any], plan: Plan) -> bool:
    strategy, options = way
    # Whether jisc and moving-state refuse depends on what must be computed anew.
    return strategy not in REBUILDS and may_refuse(strategy, options.items(), plan)
