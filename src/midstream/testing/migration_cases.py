"""Migration cases: a scenario whose plan is replaced, and whose derived state is thrown away, while it runs.

A case is a scenario and a list of changes, each before one of its pushes: `Migrate` to one of the query's plans by a
strategy, `Rebuild` everything derived, as after a crash, or `Switch` just-in-time processing. `play` runs it and
records what each migration met; `check` compares the result with the oracle's. A case prints as the Python code that
makes it, ready to be pasted:

>>> import pyarrow as pa
>>> from midstream import Stream
>>> schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
>>> scenario = Scenario.from_rows(
...     "SELECT x.k FROM s [RANGE 5] x, s [NOW] y, s [RANGE 3] z WHERE x.k = y.k AND y.k = z.k",
...     [Stream("s", schema, "ts")], [{"s": [(1, 7)]}, {"s": [(2, 7)]}])
>>> case = MigrationCase(scenario, [Migrate(1, 2, "gen-mig", {"shortened": True}), Rebuild(1, "jisc")])
>>> case
MigrationCase(
    Scenario.from_rows(
        "SELECT x.k FROM s [RANGE 5] x, s [NOW] y, s [RANGE 3] z WHERE x.k = y.k AND y.k = z.k",
        [
            Stream("s", pa.schema([("ts", pa.int64()), ("k", pa.int64())]), "ts", 0),
        ],
        [
            {"s": [(1, 7)]},
            {"s": [(2, 7)]},
        ],
    ),
    [
        Migrate(1, 2, "gen-mig", {'shortened': True}),
        Rebuild(1, "jisc"),
    ],
)
>>> case.check().migrations[0].rebuilds
frozenset({'during'})
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any

import pyarrow as pa

from midstream.algebra.plan import Aggregate, Difference, Distinct, Plan
from midstream.algebra.window_spec import NEVER
from midstream.errors import MigrationRefused
from midstream.execution.just_in_time import JustInTime
from midstream.execution.plan_executor import CHUNK_ROWS
from midstream.query import ContinuousQuery
from midstream.runtime.local_run import LocalRun
from midstream.testing.equivalence import assert_same_bag, assert_snapshot_equivalent
from midstream.testing.generators import Scenario
from midstream.testing.generators_braces import plans_with_braces, restless_stairs
from midstream.testing.snapshot_series import SnapshotSeries

__all__ = [
    "MOST_PLANS",
    "REBUILDS",
    "STRATEGIES",
    "Change",
    "Migrate",
    "MigrationCase",
    "Played",
    "PlayedMigration",
    "Rebuild",
    "Switch",
    "may_refuse",
    "plans_of",
    "scenarios_with_less",
    "simpler_cases",
    "strategy_label",
]

STRATEGIES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "jisc": ("jisc", {}),
    "moving-state": ("moving-state", {}),
    "coalesce": ("gen-mig", {}),
    "coalesce, shortened": ("gen-mig", {"shortened": True}),
    "positive-negative": ("gen-mig", {"variant": "positive-negative"}),
    "positive-negative, shortened": ("gen-mig", {"variant": "positive-negative", "shortened": True}),
    "reference-point": ("gen-mig", {"variant": "reference-point"}),
    "reference-point, shortened": ("gen-mig", {"variant": "reference-point", "shortened": True}),
    "jisc as published": ("jisc", {"as_published": True}),
    "parallel-track": ("parallel-track", {}),
    "parallel-track as published": ("parallel-track", {"as_published": True}),
    "pause-drain-resume": ("pause-drain-resume", {}),
}
"""Every strategy with every option that changes what it does, by a short name for both."""
REBUILDS = ("moving-state", "jisc")
"""The ways to compute derived state anew."""
MOST_PLANS = 24
"""So many of a query's plans, from the best on, are counted."""


def strategy_label(name: str, options: Mapping[str, Any]) -> str:
    """The short name of a strategy with its options.

    >>> strategy_label("gen-mig", {"variant": "reference-point", "shortened": True})
    'reference-point, shortened'
    """
    return next(label for label, known in STRATEGIES.items() if known == (name, dict(options)))


@dataclass(frozen=True)
class Migrate:
    """Before the push with this number: change to the plan at this place among the query's."""

    before: int
    plan: int
    strategy: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        options = f", {dict(self.options)!r}" if self.options else ""
        return f'Migrate({self.before}, {self.plan}, "{self.strategy}"{options})'


@dataclass(frozen=True)
class Rebuild:
    """Before the push with this number: throw everything derived away and compute it anew."""

    before: int
    completion: str

    def __repr__(self) -> str:
        return f'Rebuild({self.before}, "{self.completion}")'


@dataclass(frozen=True)
class Switch:
    """Before the push with this number: switch just-in-time processing on with these options, or off (None)."""

    before: int
    just_in_time: JustInTime | None

    def __repr__(self) -> str:
        return f"Switch({self.before}, {self.just_in_time!r})"


Change = Migrate | Rebuild | Switch


@dataclass
class PlayedMigration:
    """A migration that began in a played case, and what it met."""

    number: int
    strategy: str
    """The label of the strategy with its options."""
    plan: Plan
    """The plan it led to."""
    watermark: int | None
    """Where the watermark stood when it began, in ticks."""
    overlaps: bool
    """Whether another migration was in progress when it started."""
    rebuilds: frozenset[str] = frozenset()
    """When derived state was thrown away: "before" it, "during" it, "after" it was over."""

    def met(self, moment: str) -> None:
        """Note that derived state was thrown away at this moment."""
        self.rebuilds |= {moment}


@dataclass
class Played:
    """The results of a played case, and what happened on the way."""

    results_of_pushes: list[pa.Table]
    """One for each push, then those of the end."""
    migrations: list[PlayedMigration]
    refused: int
    rebuilds: int

    @property
    def results(self) -> pa.Table:
        """All results."""
        return pa.concat_tables(self.results_of_pushes)


@dataclass(frozen=True, eq=False, repr=False)
class MigrationCase:
    """A scenario, and the changes made while it runs, in order of their moments."""

    scenario: Scenario
    changes: Sequence[Change]
    first_plan: int = 0
    chunk_rows: int = CHUNK_ROWS
    braces: bool = False
    """Whether plans with multi-way joins are among the plans."""

    def play(self) -> Played:
        """Run the case. Raises if a result is out of order, a plan is refused without a reason, or the run breaks."""
        with restless_stairs():
            return self._play()

    def _play(self) -> Played:
        query, plans = plans_of(self.scenario, self.braces)
        run = query.run_locally(self._first_plan, chunk_rows=self.chunk_rows)
        player = _Player(run, plans)
        pushes, pending = self.scenario.pushes, list(self.changes)
        results = []
        for number in range(len(pushes) + 1):
            while pending and pending[0].before <= number:
                player.change(pending.pop(0))
            if number < len(pushes):
                results.append(run.push(pushes[number].rows, watermark=pushes[number].watermark))
        results.append(run.finish())
        assert not run.migrating, "the run is still migrating after its end"
        assert not player.under_way(), "a migration is not over after the end of the run"
        for result in results:
            begins = result.column("valid_from").cast(pa.int64()).to_pylist()
            assert begins == sorted(begins), "results of a push are not in order of valid_from"
        return Played(results, player.migrations, player.refused, player.rebuilds)

    def check(self, expected: SnapshotSeries | pa.Table | None = None) -> Played:
        """Run the case and fail unless its result is the expected one, by default the oracle's.

        A table of intervals, for queries of joins alone, is compared as an exact bag. Before the first migration, the
        results must be those of a run whose derived state is never thrown away, down to where they are cut; only those
        of a distinct may be cut elsewhere.
        """
        played = self.play()
        if isinstance(expected, pa.Table):
            assert_same_bag(played.results, expected)
        else:
            assert_snapshot_equivalent(played.results, self.scenario.expected() if expected is None else expected)
        unmigrated = list(takewhile(lambda change: isinstance(change, Rebuild), self.changes))
        if unmigrated and not self._first_plan.gives_pieces:
            pushes = len(played.results_of_pushes)
            if len(unmigrated) < len(self.changes):
                pushes = min(pushes, self.changes[len(unmigrated)].before)
            if unmigrated[0].before < pushes:
                undisturbed = _undisturbed_run(self.scenario, self.first_plan, self.chunk_rows, self.braces).results(
                    pushes
                )
                assert_same_bag(pa.concat_tables(played.results_of_pushes[:pushes]), pa.concat_tables(undisturbed))
        return played

    @property
    def _first_plan(self) -> Plan:
        plans = plans_of(self.scenario, self.braces)[1]
        return plans[self.first_plan % len(plans)]

    def __repr__(self) -> str:
        scenario = repr(self.scenario).replace("\n", "\n    ")
        lines = ["MigrationCase(", f"    {scenario},", "    ["]
        lines += [f"        {change!r}," for change in self.changes]
        lines.append("    ],")
        lines += [f"    first_plan={self.first_plan},"] * bool(self.first_plan)
        lines += [f"    chunk_rows={self.chunk_rows},"] * (self.chunk_rows != CHUNK_ROWS)
        lines += ["    braces=True,"] * self.braces
        return "\n".join([*lines, ")"])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show falsifying examples as code too."""
        printer.text(repr(self))


@lru_cache(maxsize=4)
def plans_of(scenario: Scenario, braces: bool = False) -> tuple[ContinuousQuery, list[Plan]]:
    """The scenario's query and the first of its plans, then some with braces, if these are wanted.

    Planning takes as long as running; the last few are kept.
    """
    query = ContinuousQuery(scenario.query_text, scenario.streams)
    plans = list(islice(query.plans(), MOST_PLANS))
    return query, [*plans, *plans_with_braces(plans)] if braces else plans


class _UndisturbedRun:
    """A run of a scenario without changes, played as far as somebody asks for its results."""

    def __init__(self, case: MigrationCase) -> None:
        self._run = plans_of(case.scenario)[0].run_locally(case._first_plan, chunk_rows=case.chunk_rows)
        self._pushes = case.scenario.pushes
        self._results: list[pa.Table] = []

    def results(self, count: int) -> list[pa.Table]:
        """The results of so many pushes; those of the end are the last."""
        for push in self._pushes[len(self._results) : count]:
            self._results.append(self._run.push(push.rows, watermark=push.watermark))
        if len(self._results) == len(self._pushes) < count:
            self._results.append(self._run.finish())
        return self._results[:count]


@lru_cache(maxsize=4)
def _undisturbed_run(scenario: Scenario, first_plan: int, chunk_rows: int, braces: bool) -> _UndisturbedRun:
    """Kept, because several lists of changes are tried on one scenario."""
    return _UndisturbedRun(MigrationCase(scenario, [], first_plan, chunk_rows, braces))


def simpler_cases(case: MigrationCase) -> Iterator[MigrationCase]:
    """The case without one of its changes, pushes or rows, or with a simpler option: for what is left of a failure."""
    for place in reversed(range(len(case.changes))):
        yield replace(case, changes=[*case.changes[:place], *case.changes[place + 1 :]])
    pushes = case.scenario.pushes
    for place in reversed(range(len(pushes))):
        yield replace(
            case,
            scenario=replace(case.scenario, pushes=pushes[:place] + pushes[place + 1 :]),
            changes=[replace(c, before=c.before - (c.before > place)) for c in case.changes],
        )
    for scenario in scenarios_with_less(case.scenario):
        yield replace(case, scenario=scenario)
    if case.chunk_rows != CHUNK_ROWS:
        yield replace(case, chunk_rows=CHUNK_ROWS)
    for place, change in enumerate(case.changes):
        if isinstance(change, Migrate) and change.options:
            yield replace(
                case, changes=[*case.changes[:place], replace(change, options={}), *case.changes[place + 1 :]]
            )


def scenarios_with_less(scenario: Scenario) -> Iterator[Scenario]:
    """The scenario with as many pushes, but without one of its rows or explicit watermarks."""
    pushes = scenario.pushes
    for place, push in reversed(list(enumerate(pushes))):
        for rows in _with_a_row_less(push.rows):
            yield replace(scenario, pushes=(*pushes[:place], replace(push, rows=rows), *pushes[place + 1 :]))
        if push.watermark is not None:
            yield replace(scenario, pushes=(*pushes[:place], replace(push, watermark=None), *pushes[place + 1 :]))


def _with_a_row_less(tables: Mapping[str, pa.Table]) -> Iterator[dict[str, pa.Table]]:
    for name, table in tables.items():
        for row in reversed(range(table.num_rows)):
            left = pa.concat_tables([table.slice(0, row), table.slice(row + 1)])
            yield {other: rows for other, rows in {**tables, name: left}.items() if rows.num_rows}


def may_refuse(strategy: str, options: Collection[tuple[str, Any]], plan: Plan, before: Plan | None = None) -> bool:
    """Whether the strategy has a reason to refuse the plan; `before` is the only one in force, if that is known."""
    others = any(isinstance(node, Distinct | Aggregate | Difference) for node in plan.walk())
    endless = any(window.longest >= NEVER for window in plan.windows())
    if strategy == "pause-drain-resume":
        return any(node.is_stateful for node in plan.walk())
    if strategy == "parallel-track":
        return others or endless
    if strategy == "gen-mig":
        return endless or (others and ("variant", "reference-point") in options)
    # An aggregate or difference that is ahead of other inputs, to be replaced by another one. Only windows that slide
    # and other aggregates or differences make them differ.
    slides = any(window.window.slide is not None for window in plan.windows())
    final = _outermost_final(plan)
    # Two that compute the same in different ways may have changed places.
    if before is not None and _outermost_final(before) == final and len({p.identity for p in final}) == len(final):
        return False
    return sum(final.values()) > 1 or (bool(final) and slides)


def _outermost_final(plan: Plan) -> Counter[Plan]:
    """The aggregates and differences that have none above them."""
    if isinstance(plan, Aggregate | Difference):
        return Counter([plan])
    return sum((_outermost_final(child) for child in plan.inputs), Counter())


class _Player:
    """Makes the changes of a case, and keeps what they met."""

    def __init__(self, run: LocalRun, plans: Sequence[Plan]) -> None:
        self.migrations: list[PlayedMigration] = []
        self.refused = 0
        self.rebuilds = 0
        self._run = run
        self._plans = plans

    def change(self, change: Change) -> None:
        if isinstance(change, Migrate):
            self._migrate(change)
            return
        if isinstance(change, Switch):
            self._switch(change)
            return
        under_way = self.under_way()
        for migration in self.migrations:
            migration.met("during" if migration.number in under_way else "after")
        self.rebuilds += 1
        self._run.rebuild(change.completion)

    def under_way(self) -> set[int]:
        """The numbers of the migrations that have started and are not over."""
        if not self.migrations or not self._run.migrating:
            return set()
        records = self._run.metrics()["migrations"]
        return {record["number"] for record in records if not record["is_over"]}

    def _switch(self, change: Switch) -> None:
        before = self._run.plan if not self.under_way() else None
        try:
            self._run.switch_just_in_time(change.just_in_time or False)
        except MigrationRefused:
            assert may_refuse("moving-state", [], self._run.plan, before), "a switch was refused without a reason"
            self.refused += 1

    def _migrate(self, change: Migrate) -> None:
        before, watermark, overlaps = self._run.plan, self._run.watermark, bool(self.under_way())
        plan = self._plans[change.plan % len(self._plans)]
        try:
            migration = self._run.migrate(plan, change.strategy, **change.options)
        except MigrationRefused:
            assert self._run.plan == before, "a refused migration changed the plan"
            reasons = may_refuse(change.strategy, change.options.items(), plan, None if overlaps else before)
            assert reasons, "a migration was refused without a reason"
            self.refused += 1
            return
        assert self._run.plan == plan, "the run does not have the plan it was migrated to"
        if plan != before:
            label = strategy_label(change.strategy, change.options)
            made = PlayedMigration(migration.number, label, plan, watermark, overlaps)
            self.migrations.append(made)
            if self.rebuilds:
                made.met("before")
