"""Durable cells: whatever a cluster does to them, the results of the committed micro-batches are the query's."""

from __future__ import annotations

import functools
import json
import math
import random
from dataclasses import dataclass
from itertools import islice
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan import Plan
from midstream.algebra.plan_json import plan_from_json, plan_to_json
from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.engine.state import row_store
from midstream.errors import CheckpointMismatch
from midstream.execution.just_in_time import JustInTime
from midstream.migration.state_matching import Completion
from midstream.runtime import durable_cell, segment_log
from midstream.runtime.cell_setup import CellSetup
from midstream.runtime.durable_cell import DurableCell
from midstream.runtime.ingest import ticks
from midstream.runtime.messages import STATE_FORMAT, Command, DeclareIdle, Finish, Migrate, SwitchJustInTime
from midstream.spark import backfill, cell_work
from midstream.spark.backfill import Backfill
from midstream.testing import (
    JOIN_OPERATORS,
    STRATEGIES,
    WINDOWS,
    Scenario,
    assert_same_bag,
    assert_snapshot_equivalent,
    scenarios,
)
from midstream.testing.migration_cases import may_refuse
from tests.examples import EXAMPLES, random_examples
from tests.spark.simulated import FAULTS, QUERY_ID, Fault, LoneCell, SimulatedCluster, command, packs_of

MOST_PLANS = 8


@dataclass(frozen=True)
class Migration:
    """With the micro-batch of this number: change to the plan at this place among the query's."""

    moment: int
    plan: int
    strategy: str
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Script:
    """What happens around the rows of a scenario."""

    cells: int = 1
    seed: int = 0
    first_plan: int = 0
    migrations: tuple[Migration, ...] = ()
    idle: tuple[tuple[int, int], ...] = ()
    """Micro-batches, and which of the streams that may be declared idle there is."""
    faults: tuple[tuple[int, Fault], ...] = ()
    hosted: bool = False
    small_segment: int = 4
    sparse: int = 2
    chunk_rows: int = 1 << 20


@st.composite
def scripts(draw, batches: int) -> Script:
    moments = st.integers(0, batches)
    ways = [(name, tuple(options.items())) for name, options in STRATEGIES.values()]
    migrations = st.builds(
        lambda moment, plan, way: Migration(moment, plan, *way),
        moments,
        st.integers(0, MOST_PLANS - 1),
        st.sampled_from(ways),
    )
    faults = st.builds(Fault, st.sampled_from(FAULTS), st.integers(0, 3), st.integers(0, 2))
    return Script(
        draw(st.integers(1, 4)),
        draw(st.integers(0, 2**16)),
        draw(st.integers(0, 3)),
        tuple(draw(st.lists(migrations, max_size=3))),
        tuple(draw(st.lists(st.tuples(moments, st.integers(0, 3)), max_size=2))),
        tuple(draw(st.lists(st.tuples(moments, faults), min_size=1, max_size=6))),
        draw(st.sampled_from([False, False, False, True])),
        draw(st.sampled_from([1, 3, 4096])),
        draw(st.sampled_from([1, 2, 4])),
        draw(st.sampled_from([2, 1 << 20])),
    )


@st.composite
def scripted(draw, **choices: Any) -> tuple[Scenario, Script]:
    windows = draw(st.sampled_from([WINDOWS - {"unbounded"}, WINDOWS - {"unbounded"}, WINDOWS]))
    scenario = draw(scenarios(max_streams=4, batchings=["mixed", "mixed", "mixed", "rows"], windows=windows, **choices))
    return scenario, draw(scripts(len(scenario.pushes)))


def in_small(script: Script):
    """Rings, segments and chunks of results so small that what takes millions of rows happens within a few."""
    stack = [
        mock.patch.object(row_store, "_SMALLEST", 4),
        mock.patch.object(segment_log, "SMALL_SEGMENT", script.small_segment),
        mock.patch.object(segment_log, "SPARSE", script.sparse),
        mock.patch.object(durable_cell, "CHUNK_ROWS", script.chunk_rows),
        # Reading the same plans again and again is most of what a cell made again costs here.
        mock.patch.object(CellSetup, "plan", lambda setup, text: read_once(text, setup.derived_from)),
    ]
    return functools.reduce(lambda function, patch: patch(function), stack, played)


@functools.lru_cache(64)
def read_once(text: str, derived_from: str) -> Plan:
    plan = plan_from_json(json.loads(text))
    plan.mark_as_derived_from(derived_from)
    return plan


def played(scenario: Scenario, script: Script) -> SimulatedCluster:
    """The cluster, after all micro-batches and the end of the streams."""
    plans = list(islice(ContinuousQuery(scenario.query_text, scenario.streams).plans(), MOST_PLANS))
    first = plans[script.first_plan % len(plans)]
    cluster = SimulatedCluster(
        scenario.query_text, scenario.streams, first, script.cells, script.seed, hosted=script.hosted
    )
    refusable: dict[int, bool] = {}
    for number in range(len(scenario.pushes) + 1):
        commands = []
        for change in [change for change in script.migrations if change.moment == number]:
            plan = plans[change.plan % len(plans)]
            commands.append(cluster.migrate(plan, change.strategy, **dict(change.options)))
            refusable[cluster.last_command] = may_refuse(change.strategy, change.options, plan)
        silent = silent_from(scenario, number)
        commands += [cluster.idle(silent[s % len(silent)]) for moment, s in script.idle if moment == number and silent]
        faults = [fault for moment, fault in script.faults if moment == number]
        restart_with = cluster.random.choice(plans)
        if number < len(scenario.pushes):
            cluster.run(scenario.pushes[number].rows, commands, faults, restart_with)
        else:
            cluster.run({}, [*commands, cluster.finish()], faults, restart_with)
    check_end(cluster, refusable)
    return cluster


def check_end(cluster: SimulatedCluster, refusable: dict[int, bool]) -> None:
    for figures, state in zip(cluster.figures, cluster.committed, strict=True):
        assert state.keys() == {"progress", "manifest"}
        assert (figures.migrating, figures.window_rows, figures.batches) == (False, 0, len(cluster.batches))
        outcomes = {outcome.number: outcome.state for outcome in figures.commands}
        assert outcomes.keys() == refusable.keys()
        assert all(outcome != "refused" or refusable[number] for number, outcome in outcomes.items())
    for table in (table for batch in cluster.batches for table in batch):
        begins = table.column("valid_from").cast(pa.int64()).to_pylist()
        assert begins == sorted(begins)
    assert sum(figures.results for figures in cluster.figures) == cluster.results.num_rows


def silent_from(scenario: Scenario, number: int) -> list[str]:
    """The streams without a row from this micro-batch on: they may be declared idle, and no row becomes late."""
    later = {
        name
        for push in scenario.pushes[number:]
        for name, table in push.rows.items()
        if table.column("ts").null_count < table.num_rows
    }
    return [stream.name for stream in scenario.streams if stream.name not in later]


@random_examples(EXAMPLES * 4 // 5)
@given(scripted())
def test_any_run_on_a_cluster_equals_the_oracle(case):
    scenario, script = case
    cluster = in_small(script)(scenario, script)
    assert_snapshot_equivalent(cluster.results, scenario.expected())


@random_examples(EXAMPLES * 8 // 15)
@given(scripted(operators=JOIN_OPERATORS, min_streams=2))
def test_joins_on_a_cluster_give_each_row_once(case):
    scenario, script = case
    cluster = in_small(script)(scenario, script)
    assert_same_bag(cluster.results, scenario.expected_intervals())


# Late rows


class Clock:
    """When rows are late, said once more in the simplest way."""

    def __init__(self, streams) -> None:
        self.lateness = {stream.name: stream.lateness_ticks for stream in streams}
        self.latest: dict[str, int] = {}
        self.idle: set[str] = set()
        self.watermark = BEGINNING

    def see(self, rows: dict[str, pa.Table], idle: list[str]) -> int | None:
        """The watermark after rows, as a local run takes it."""
        self.idle |= set(idle)
        for name, table in rows.items():
            times, timed = ticks(table.column("ts").combine_chunks())
            if timed.any():
                self.latest[name] = max(self.latest.get(name, BEGINNING), int(times[timed].max()))
                self.idle.discard(name)
        said = [self.latest.get(s, NEVER) - late if s in self.latest else BEGINNING for s, late in self.at_work()]
        self.watermark = max([self.watermark, min(said, default=BEGINNING)])
        return None if self.watermark == BEGINNING else self.watermark

    def at_work(self) -> list[tuple[str, int]]:
        return [(stream, late) for stream, late in self.lateness.items() if stream not in self.idle]


def shuffled(scenario: Scenario, choose: random.Random) -> list[dict[str, pa.Table]]:
    """All rows in any order, and so many of them late, in a few micro-batches."""
    batches: list[dict[str, pa.Table]] = [{} for _ in range(choose.randint(2, 6))]
    for name, table in scenario.tables.items():
        order = choose.sample(range(table.num_rows), table.num_rows)
        homes = [choose.randrange(len(batches)) for _ in order]
        for number, batch in enumerate(batches):
            places = [place for place, home in zip(order, homes, strict=True) if home == number]
            if places or choose.random() < 0.2:
                batch[name] = table.take(pa.array(places, pa.int64()))
    return batches


@random_examples(EXAMPLES * 2 // 5)
@given(scripted())
def test_late_rows_are_dropped_and_counted_as_by_a_local_run(case):
    check_late_rows(*case)


def check_late_rows(scenario: Scenario, script: Script) -> None:
    choose = random.Random(script.seed)
    batches = shuffled(scenario, choose)
    query = ContinuousQuery(scenario.query_text, scenario.streams)
    first = list(islice(query.plans(), script.first_plan + 1))[-1]
    run, clock = query.run_locally(first), Clock(scenario.streams)
    cluster = SimulatedCluster(
        scenario.query_text, scenario.streams, first, script.cells, script.seed, keep_column=False, hosted=script.hosted
    )
    expected = []
    for number, rows in enumerate(batches):
        idle = [scenario.streams[s % len(scenario.streams)].name for moment, s in script.idle if moment == number]
        faults = [fault for moment, fault in script.faults if moment == number]
        cluster.run(rows, [cluster.idle(name) for name in idle], faults)
        expected.append(run.push(rows, clock.see(rows, idle)))
        assert cluster.progress.metrics().watermark == run.watermark
    assert msgspec.to_builtins(cluster.progress.metrics().streams) == run.metrics()["streams"]
    cluster.run({}, [cluster.finish()])
    expected.append(run.finish())
    assert_snapshot_equivalent(cluster.results, pa.concat_tables(expected))
    # After the end every row is late.
    cluster.run(batches[0])
    assert cluster.batches[-1][0].num_rows == 0


# Batch input


@random_examples(EXAMPLES * 4 // 15)
@given(scenarios(max_streams=4), st.integers(1, 6))
def test_a_backfill_equals_the_oracle_wherever_time_is_cut(scenario, slice_rows):
    query = ContinuousQuery(scenario.query_text, scenario.streams)
    cluster = SimulatedCluster(scenario.query_text, scenario.streams)
    blobs = pa.record_batch({"blob": pa.array(list(packs_of(query, scenario.tables)), pa.binary())})
    with mock.patch.object(backfill, "SLICE_ROWS", slice_rows):
        results = list(Backfill(cluster.setup)((0,), iter([blobs.slice(0, 1), blobs.slice(1)])))
    table = pa.Table.from_batches(results) if results else cluster.results
    assert_snapshot_equivalent(table.rename_columns(cluster.schema.names), scenario.expected())


# One cell, batch by batch

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "s": pa.string()})
STREAMS = [Stream(name, SCHEMA, "ts", lateness=4) for name in "abc"]
QUERIES = {
    "join": "SELECT a.ts AS i, b.ts AS j, c.s FROM a [RANGE 12], b [RANGE 12], c [RANGE 12]"
    " WHERE a.k = b.k AND b.s = c.s",
    "distinct": "SELECT DISTINCT a.k, b.s FROM a [RANGE 12], b [RANGE 12], c [RANGE 12] WHERE a.k = b.k AND b.k = c.k",
    "count of distinct": "SELECT COUNT(*) AS n FROM (SELECT DISTINCT a.k, a.s FROM a [RANGE 9]) x,"
    " b [RANGE 12], c [NOW] WHERE x.k = b.k AND b.s = c.s",
    "aggregate": "SELECT a.k, COUNT(*) AS n, MIN(c.s) AS m FROM a [RANGE 12], b [RANGE 9], c [RANGE 7]"
    " WHERE a.k = b.k AND b.k = c.k GROUP BY a.k",
    "difference": "SELECT k FROM a [RANGE 20] EXCEPT ALL SELECT k FROM b [RANGE 12]"
    " EXCEPT ALL SELECT k FROM c [RANGE 5 SLIDE 2]",
    "unbounded": "SELECT a.s, u.k FROM a [RANGE 9], (SELECT DISTINCT k FROM b [RANGE UNBOUNDED]) u, c [RANGE 8]"
    " WHERE a.k = u.k AND c.k = u.k",
}
PAIR = "SELECT a.k, b.s FROM a [RANGE {}], b [RANGE {}] WHERE a.k = b.k"


def rows(*values):
    return pa.table(dict(zip(SCHEMA.names, zip(*values, strict=True), strict=True)), schema=SCHEMA)


def dense(generator: np.random.Generator, now: int) -> pa.Table:
    """A few rows, one in twenty far ahead of its time."""
    count = int(generator.integers(0, 6))
    ahead = np.where(generator.random(count) < 0.05, generator.integers(50, 400, count), 0)
    return pa.table(
        {
            "ts": now + generator.integers(-3, 2, count) + ahead,
            "k": pa.array(generator.integers(0, 3, count), mask=generator.random(count) < 0.1),
            "s": [str(value) for value in generator.integers(0, 3, count)],
        },
        schema=SCHEMA,
    )


@pytest.mark.parametrize("completion", list(Completion))
@pytest.mark.parametrize("name", QUERIES)
def test_a_cell_made_again_after_every_batch_does_and_writes_the_same(name, completion, monkeypatch):
    """Results, row numbers and segments are those of a cell that never stopped, whatever migrations are under way."""
    monkeypatch.setattr(row_store, "_SMALLEST", 4)
    monkeypatch.setattr(segment_log, "SMALL_SEGMENT", 12)
    generator, choose = np.random.default_rng(2), random.Random(2)
    unbroken, broken = LoneCell(QUERIES[name], STREAMS), LoneCell(QUERIES[name], STREAMS)
    plans = list(islice(unbroken.query.plans(), 12))
    for number in range(32):
        tables = {stream.name: dense(generator, 2 * number) for stream in STREAMS}
        commands = (
            [migrate(number, choose.choice(plans), *choose.choice(list(STRATEGIES.values())))]
            if number % 5 == 3
            else []
        )
        expected, actual = unbroken.run(tables, commands), broken.run(tables, commands)
        # Where a distinct cuts what it tells depends on the order in which rows came.
        same = assert_snapshot_equivalent if name == "distinct" else assert_same_bag
        same(actual, expected)
        assert progress(broken) == progress(unbroken)
        assert broken.segments.keys() == unbroken.segments.keys()
        for (header, batches), (same_header, same_batches) in zip(
            broken.segments.values(), unbroken.segments.values(), strict=True
        ):
            assert header == same_header
            assert all(one.equals(other) for one, other in zip(batches, same_batches, strict=True))
        broken.rebuild(completion)
    assert len(unbroken.segments) > 0


def migrate(number: int, plan: Plan, strategy: str, options: dict[str, Any]) -> Command:
    identity = plan.derived_from or ""
    action = Migrate(plan=plan_to_json(plan), identity=identity, strategy=strategy, options=dict(options))
    return command(number, action)


def progress(cell: LoneCell) -> dict[str, Any]:
    # How much work operators had, and where results were cut, is not the same after a restart.
    differing = ("version", "checksum", "results", "operators")
    content = json.loads(cell.backend["progress"])
    return {name: value for name, value in content.items() if name not in differing}


def test_what_is_written_is_proportional_to_the_batch():
    cell = LoneCell(PAIR.format(10**6, 10**6), STREAMS)
    written, progresses = [], []
    for number in range(256):
        cell.run({"ab"[number % 2]: rows((number, number, f"{number * 7919 % 10007}"))})
        written.append(cell.backend.written["segment"])
        progresses.append(len(cell.backend["progress"]))
        assert len(cell.segments) <= 2 + math.log2(number + 1)
        assert sum(cell.segment_rows) == number + 1
    # A segment has a head of about a kilobyte; rows are written log n times, at about ten bytes.
    assert written[-1] <= 256 * (1500 + 10 * math.log2(256))
    assert written[-1] <= 2.2 * written[127] <= 4.9 * written[63]
    assert progresses[-1] <= progresses[0] + 30
    assert cell.backend.written["manifest"] == len(cell.backend["manifest"])


def test_large_segments_are_not_written_again(monkeypatch):
    monkeypatch.setattr(segment_log, "SMALL_SEGMENT", 64)
    cell = LoneCell(PAIR.format(10**6, 10**6), STREAMS)
    for number in range(200):
        cell.run({"a": rows(*((number, number, f"{place}") for place in range(8)))})
        assert len(cell.segments) <= 2 + math.log2(64) + (number + 1) * 8 / 64
    assert max(cell.segment_rows) <= 3 * 64
    before = dict(cell.backend)
    cell.run({"a": rows((200, 0, "x"))})
    assert sum(before.get(key) != value for key, value in cell.backend.items()) == 2


def test_a_batch_without_rows_writes_only_how_far_the_cell_has_come():
    cell = LoneCell(PAIR.format(9, 9), STREAMS)
    cell.run({"a": rows((1, 1, "x")), "b": rows((1, 1, "x"))})
    before, written = dict(cell.backend), dict(cell.backend.written)
    cell.run({})
    assert {key for key in cell.backend if cell.backend[key] != before.get(key)} == {"progress"}
    assert cell.backend.written == {**written, "progress": written["progress"] + len(cell.backend["progress"])}
    assert cell.durable.last_bytes == len(cell.backend["progress"])


@pytest.mark.parametrize("is_broken", [False, True], ids=["unbroken", "made again"])
def test_segments_go_when_their_rows_have_left(is_broken, monkeypatch):
    monkeypatch.setattr(segment_log, "SMALL_SEGMENT", 16)
    cell = LoneCell(PAIR.format(20, 20), STREAMS)
    for number in range(120):
        cell.run({name: rows((number, number, "x"), (number, -number, "y")) for name in "ab"})
        if is_broken:
            cell.rebuild()
        # 25 instants (21 in the window, 4 of lateness) of 4 rows, and a segment that is partly dead.
        assert cell.durable.figures().segment_rows <= 25 * 4 + 4 * 16
    assert sum(cell.segment_rows) == cell.durable.figures().segment_rows >= 25 * 4
    cell.run({}, [command(1, Finish())])
    assert cell.backend.keys() == {"progress", "manifest"}


def test_a_segment_stays_while_rows_of_one_of_its_windows_do(monkeypatch):
    monkeypatch.setattr(segment_log, "SMALL_SEGMENT", 1)
    cell = LoneCell(PAIR.format(5, 50), STREAMS)
    for moment in (1, 30, 31):
        cell.run({name: rows((moment, moment, "x")) for name in "ab"})
    cell.rebuild()
    assert cell.run({"a": rows((32, 1, "x"))}).num_rows == 1


def test_what_operators_did_is_counted_across_restarts():
    cell = LoneCell(PAIR.format(50, 50), STREAMS)
    seen = []
    for moment in (1, 2, 3):
        cell.run({name: rows((moment, moment, "x")) for name in "ab"})
        operators = cell.durable.figures().operators
        seen.append({one.operator: (one.rows_in, one.rows_out) for one in operators})
        cell.rebuild()
        assert {one.operator: (one.rows_in, one.rows_out) for one in cell.durable.figures().operators} == seen[-1]
    windows = [counts for name, counts in seen[-1].items() if name.startswith("Window")]
    assert windows == [(3, 3), (3, 3)]


@pytest.mark.parametrize("is_broken", [False, True], ids=["unbroken", "made again"])
@pytest.mark.parametrize("kind", ["unbounded window", "far ahead"])
def test_a_few_rows_that_stay_do_not_keep_whole_segments(kind, is_broken, monkeypatch):
    """A cell made again after each batch looked at the same segment for ever, and the others stayed as they were."""
    monkeypatch.setattr(segment_log, "SMALL_SEGMENT", 8)
    monkeypatch.setattr(row_store, "_SMALLEST", 4)
    is_endless = kind == "unbounded window"
    cell = LoneCell(PAIR.format(5, "UNBOUNDED" if is_endless else 5), STREAMS)
    for number in range(160):
        tables = {"a": rows(*((number, number, "x") for _ in range(5)))}
        if number % 8 == 0:
            tables["b"] = rows((number if is_endless else 10**6, number, "y"))
        cell.run(tables, [command(number, DeclareIdle(stream="b"))])
        if is_broken:
            cell.rebuild()
    staying, others = 20, 10 * 5
    assert staying + others <= sum(cell.segment_rows) <= 2 * (staying + others)
    assert len(cell.segments) <= 20
    assert cell.durable.cell.windows.rows <= 2 * (staying + others)


@pytest.mark.parametrize("is_broken", [False, True], ids=["unbroken", "made again"])
def test_a_row_that_stays_keeps_nothing_of_later_pushes(is_broken):
    """A distinct below an aggregate does not have to know how rows came, so that segments' heads stay short."""
    text = "SELECT COUNT(*) AS n FROM (SELECT DISTINCT a.k FROM a [RANGE 9], b [RANGE UNBOUNDED] WHERE a.k = b.k) x"
    cell = LoneCell(text, STREAMS)
    cell.run({"b": rows((0, 0, "x")), "a": rows((0, 0, "x"))})
    for number in range(140):
        cell.run({"a": rows((number, number % 3, "x"))}, [command(number, DeclareIdle(stream="b"))])
        if is_broken:
            cell.rebuild()
    assert all(len(msgspec.json.encode(header)) < 100 for header, _ in cell.segments.values())
    assert cell.durable.cell.windows.rows <= 40


# Commands

TRIPLE = "SELECT a.k FROM a [RANGE 50], b [RANGE 50], c [RANGE 50] WHERE a.k = b.k AND b.k = c.k"


def outcomes(cell: LoneCell) -> list[tuple[int, str]]:
    return [(outcome.number, outcome.state) for outcome in cell.durable.figures().commands]


@pytest.mark.parametrize("is_broken", [False, True], ids=["unbroken", "made again"])
def test_a_command_that_comes_again_is_carried_out_once(is_broken):
    cell = LoneCell(TRIPLE, STREAMS, "(a b) c")
    tables = {name: rows((1, 1, "x")) for name in "abc"}
    there = migrate(1, cell.query.plan("a (b c)"), "gen-mig", {})
    back = migrate(2, cell.query.plan("(a b) c"), "jisc", {})
    for commands in ([there], [there, back], [back, there], [there]):
        cell.run(tables, commands)
        if is_broken:
            cell.rebuild()
    assert outcomes(cell) == [(1, "completed"), (2, "completed")]
    assert cell.durable.cell.plan == cell.query.plan("(a b) c")
    assert cell.durable.cell.manifest()["migrations"] == 2


@pytest.mark.parametrize("is_broken", [False, True], ids=["unbroken", "made again"])
def test_what_became_of_a_command_is_remembered(is_broken):
    cell = LoneCell(TRIPLE, STREAMS, "(a b) c")
    other, foreign = cell.query.plan("a (b c)"), LoneCell(TRIPLE.replace("50", "9"), STREAMS).query.plan()
    for number, (plan, strategy, options) in enumerate(
        [
            (cell.query.plan("(a b) c"), "jisc", {}),
            (other, "pause-drain-resume", {}),
            (other, "faster", {}),
            (other, "gen-mig", {"variant": "best"}),
            (foreign, "jisc", {}),
            (other, "parallel-track", {}),
        ]
    ):
        change = migrate(number, plan, strategy, options)
        change = replace(change, action=replace(change.action, identity=cell.setup.derived_from))
        cell.run({name: rows((1, 1, "x")) for name in "abc"}, [change])
        if is_broken:
            cell.rebuild()
    told = cell.durable.figures().commands
    assert [(outcome.number, outcome.state) for outcome in told] == [
        (0, "unchanged"), (1, "refused"), (2, "refused"), (3, "refused"), (4, "refused"), (5, "running")
    ]  # fmt: skip
    refusals = [outcome.reason for outcome in told if outcome.reason]
    assert [why.split("\n")[0] for why in refusals] == [
        "[M3004] pause-drain-resume cannot change a plan with state",
        "[M3004] there is no migration strategy 'faster'",
        "[M3004] gen-mig has no variant 'best'",
        "[M2001] the plan reads what the query does not",
    ]
    assert not told[-1].figures.is_over
    assert cell.durable.figures().migrating
    assert cell.durable.cell.plan == other


def test_what_became_of_all_commands_of_one_batch_is_told_however_many_there_are():
    cell = LoneCell(TRIPLE, STREAMS, "(a b) c")
    plans = [cell.query.plan("a (b c)"), cell.query.plan("(a b) c")]
    cell.run({}, [migrate(number, plans[number % 2], "jisc", {}) for number in range(50)])
    assert outcomes(cell) == [(number, "completed") for number in range(50)]
    cell.run({}, [])
    assert outcomes(cell) == [(number, "completed") for number in range(18, 50)]


def test_a_plan_of_another_query_is_refused():
    """Its text was changed, and commands to what it was before are still there."""
    cell = LoneCell(TRIPLE, STREAMS, "(a b) c")
    other = LoneCell(TRIPLE.replace("a.k = b.k", "a.k < b.k"), STREAMS)
    cell.run({}, [migrate(1, other.query.plan("a (b c)"), "jisc", {})])
    assert outcomes(cell) == [(1, "refused")]
    assert "another query" in cell.durable.figures().commands[0].reason


def test_the_latest_commands_are_remembered():
    cell = LoneCell(TRIPLE, STREAMS, "(a b) c")
    plans = [cell.query.plan("a (b c)"), cell.query.plan("(a b) c")]
    for number in range(40):
        cell.run({}, [migrate(number, plans[number % 2], "jisc", {})])
    cell.rebuild()
    assert outcomes(cell) == [(number, "completed") for number in range(7, 40)]
    assert cell.durable.figures().migrating is False


def test_a_running_migration_is_reported_however_many_commands_follow():
    """Its outcome was dropped after 32 later ones, and nobody saw it end."""
    cell = LoneCell(TRIPLE, STREAMS, "(a b) c")
    tables = {name: rows((1, 1, "x")) for name in "abc"}
    cell.run(tables)
    cell.run(tables, [migrate(0, cell.query.plan("a (b c)"), "gen-mig", {})])
    for number in range(1, 40):
        cell.run({}, [migrate(number, cell.query.plan("a (b c)"), "faster", {})])
    cell.rebuild()
    assert outcomes(cell) == [(0, "running"), *((number, "refused") for number in range(7, 40))]
    cell.run({name: rows((200, 1, "x")) for name in "abc"})
    assert outcomes(cell)[0] == (0, "completed")
    cell.run({})
    assert (0, "completed") not in outcomes(cell)


@pytest.mark.parametrize("is_broken", [False, True], ids=["unbroken", "made again"])
def test_that_a_migration_has_ended_is_known_after_a_restart(is_broken):
    cell = LoneCell(TRIPLE, STREAMS, "(a b) c")
    tables = {name: rows((1, 1, "x")) for name in "abc"}
    cell.run(tables)
    cell.run(tables, [migrate(1, cell.query.plan("a (b c)"), "gen-mig", {})])
    if is_broken:
        cell.rebuild()
    assert outcomes(cell) == [(1, "running")]
    cell.run({name: rows((200, 1, "x")) for name in "abc"})
    cell.rebuild()
    assert (outcomes(cell), cell.durable.figures().migrating) == ([(1, "completed")], False)


def test_commands_of_one_batch_are_carried_out_in_their_order():
    cluster = SimulatedCluster(TRIPLE, STREAMS, "(a b) c", cells=2)
    cluster.run({name: rows((1, 1, "x"), (2, 2, "y")) for name in "abc"})
    orders = ["a (b c)", "(a c) b", "b (a c)"]
    cluster.run({}, [cluster.migrate(cluster.query.plan(order), "jisc") for order in orders][::-1])
    assert [figures.plan for figures in cluster.figures] == [cluster.query.plan(orders[-1]).explain()] * 2
    assert [len(figures.commands) for figures in cluster.figures] == [3, 3]


def test_a_new_checkpoint_does_not_obey_commands_given_to_an_earlier_run():
    earlier = SimulatedCluster(TRIPLE, STREAMS, "(a b) c")
    # One was given before the earlier run reported, and one after.
    old = [earlier.migrate(earlier.query.plan("a (b c)")), replace(earlier.finish(), query="the earlier one")]
    cluster = SimulatedCluster(TRIPLE, STREAMS, "(a b) c")
    cluster.last_command, cluster.claims = earlier.last_command, [("the earlier one", 1)]
    cluster._start_driver("(a b) c")
    new = cluster.migrate(cluster.query.plan("(a c) b"))
    cluster.run({name: rows((1, 1, "x")) for name in "abc"}, [*old, new])
    assert cluster.figures[0].plan == cluster.query.plan("(a c) b").explain()
    assert cluster.run({name: rows((2, 2, "x")) for name in "abc"}).num_rows == 1


def test_a_cell_does_not_obey_commands_from_before_query_json_was_removed():
    cluster = SimulatedCluster(TRIPLE, STREAMS, "(a b) c")
    old = [replace(cluster.migrate(cluster.query.plan("a (b c)")), directory="before"), cluster.finish()]
    old[1] = replace(old[1], directory="before")
    cluster.run({name: rows((1, 1, "x")) for name in "abc"}, old)
    assert cluster.figures[0].plan == cluster.query.plan("(a b) c").explain()
    assert cluster.run({name: rows((2, 2, "x")) for name in "abc"}).num_rows == 1


@pytest.mark.parametrize("fault", ["query restarted", "batch replayed after restart"])
def test_a_command_of_the_first_micro_batch_survives_a_restart(fault):
    """The new driver took all commands that it found for those of an earlier run, because the state was empty."""
    cluster = SimulatedCluster(TRIPLE, STREAMS, "(a b) c")
    cluster.claims = [(QUERY_ID, 1)]
    change = cluster.migrate(cluster.query.plan("(a c) b"))
    tables = {name: rows((1, 1, "x")) for name in "abc"}
    cluster.run(tables, [change], [Fault(fault)])
    assert cluster.figures[0].plan == cluster.query.plan("(a c) b").explain()


def test_packs_are_taken_in_the_order_of_their_places():
    """Whatever the shuffle did: an attempt that is repeated takes the rows as the one before it."""
    cluster = SimulatedCluster(TRIPLE, STREAMS)
    received = [("rows", place, bytes([99 - place])) for place in range(20)]
    _, packs = cell_work._received(cluster._frames(received))
    assert packs == [bytes([99 - place]) for place in range(20)]


# Restarts


@pytest.mark.parametrize("kind", ["batch replayed", "task fails after save"])
def test_a_micro_batch_that_is_repeated_counts_once(kind):
    cluster = SimulatedCluster(TRIPLE, STREAMS)
    tables = {name: rows((1, 1, "x")) for name in "abc"}
    cluster.run(tables)
    assert cluster.run(tables, faults=[Fault(kind)]).num_rows == 7
    (figures,) = cluster.figures
    assert (figures.streams["a"].rows, figures.window_rows, figures.results, figures.batches) == (2, 6, 8, 2)


def test_counts_continue_after_a_restart():
    cell = LoneCell(TRIPLE, STREAMS)
    for late in (100, 1):
        cell.run({name: rows((100, 1, "x"), (late, 2, "x")) for name in "abc"})
    before = cell.durable.figures()
    assert (before.results, before.streams["a"].late) == (9, 1)
    cell.rebuild()
    after = cell.durable.figures()
    for name in ("results", "streams", "batches", "watermark", "window_rows", "segment_rows"):
        assert getattr(after, name) == getattr(before, name)


def test_a_switch_of_just_in_time_processing_survives_a_restart():
    """Whatever the query began with; and plans that come later are run in the same way."""
    cell = LoneCell(TRIPLE, STREAMS, "(a b) c")
    cell.run({name: rows((1, 1, "x")) for name in "abc"})
    for number, (options, order) in enumerate([(JustInTime(least_share=0.0), "a (b c)"), (None, "(a b) c")]):
        cell.run({}, [command(2 * number, SwitchJustInTime(options=options))])
        cell.rebuild()
        seen = [cell.durable.figures()]
        cell.run({"a": rows((2, 1, "x"))}, [migrate(2 * number + 1, cell.query.plan(order), "moving-state", {})])
        seen.append(cell.durable.figures())
        assert [figures.just_in_time for figures in seen] == [options] * 2
        suspending = [any(o.kind == "suspend" for o in figures.operators) for figures in seen]
        assert suspending == [options is not None] * 2


def test_a_restart_goes_on_with_the_plan_in_force_not_with_the_one_it_names():
    cluster = SimulatedCluster(TRIPLE, STREAMS, "(a b) c")
    tables = {name: rows((1, 1, "x")) for name in "abc"}
    cluster.run(tables)
    cluster.run({}, [cluster.migrate(cluster.query.plan("a (b c)"), "moving-state")])
    cluster.run(tables, faults=[Fault("query restarted")], restart_with="(a c) b")
    assert cluster.figures[0].plan == cluster.query.plan("a (b c)").explain()
    assert cluster.results.num_rows == 8


CHANGED = {
    "text": {"text": TRIPLE.replace("a.k = b.k", "a.k < b.k")},
    "streams": {"streams": [Stream(name, SCHEMA, "ts", lateness=5) for name in "abc"]},
    "cells": {"cells": 3},
}


@pytest.mark.parametrize("name", CHANGED)
def test_the_state_of_another_query_is_refused(name):
    first = SimulatedCluster(TRIPLE, STREAMS, cells=2)
    first.run({name: rows((1, 1, "x"), (2, 2, "y")) for name in "abc"})
    changed = SimulatedCluster(**{"text": TRIPLE, "streams": STREAMS, "cells": 2} | CHANGED[name])
    for state in first.committed:
        with pytest.raises(
            CheckpointMismatch, match=rf"\[M3005\] the checkpoint belongs to a query with another {name}"
        ):
            DurableCell.from_kept(changed.setup, state)


def test_a_host_refuses_with_the_error_that_a_worker_would():
    first = SimulatedCluster(TRIPLE, STREAMS, cells=2)
    tables = {name: rows((1, 1, "x"), (2, 2, "y")) for name in "abc"}
    first.run(tables)
    changed = SimulatedCluster(**{"text": TRIPLE, "streams": STREAMS, "cells": 2} | CHANGED["text"], hosted=True)
    changed.committed = first.committed
    with pytest.raises(CheckpointMismatch, match=r"(?s)\[M3005\].*another text.*detail: There: .*hint: Use the query"):
        changed.run(tables)


def test_what_a_host_changes_is_changed_in_the_state_store():
    cluster = SimulatedCluster(TRIPLE, STREAMS, hosted=True)
    cluster.run({name: rows((1, 1, "x")) for name in "abc"})
    assert cluster.committed[0].keys() == {"progress", "manifest", segment_log.segment_key(0)}
    cluster.run({}, [cluster.finish()])
    assert cluster.committed[0].keys() == {"progress", "manifest"}


def test_the_state_of_the_same_query_in_other_words_is_taken():
    cell = LoneCell(TRIPLE, STREAMS)
    cell.run({name: rows((1, 1, "x")) for name in "abc"})
    same = LoneCell(TRIPLE.replace(" WHERE", "  where"), STREAMS)
    same.backend.update(cell.backend)
    same.rebuild()
    assert same.run({"a": rows((2, 1, "x"))}).num_rows == 1


def test_late_rows_of_a_stream_that_is_read_twice_are_counted_once():
    """They were counted in the window whose pack came first, and divided by the copies of another."""
    text = (
        "SELECT p.ts AS i FROM a [RANGE 5] pppppppp, b [RANGE 5] q, a [RANGE 5] p WHERE pppppppp.k = q.k AND q.s = p.s"
    )
    for cells in (1, 2, 3, 4, 6):
        cluster = SimulatedCluster(text, STREAMS[:2], cells=cells)
        assert cluster.partitioning.cells == cells
        cluster.run({name: rows((100, 1, "x")) for name in "ab"})
        cluster.run({"a": rows(*((number, number, f"{number}") for number in range(80, 110)))})
        # Not older than 100 less the lateness of 4.
        assert msgspec.to_builtins(cluster.progress.metrics().streams["a"]) == {
            "rows": 31, "without_event_time": 0, "event_time_out_of_range": 0, "late": 16, "bad_messages": 0,
        }  # fmt: skip


def test_a_row_exactly_at_the_watermark_is_in_time():
    cluster = SimulatedCluster(PAIR.format(50, 50), STREAMS, keep_column=False)
    cluster.run({name: rows((100, 1, "x")) for name in "ab"})
    assert cluster.run({"a": rows((95, 1, "late"), (96, 1, "in time"))}).num_rows == 1
    assert cluster.progress.metrics().streams["a"].late == 1


def test_all_cells_agree_on_the_watermark_though_few_have_rows():
    cluster = SimulatedCluster(TRIPLE, STREAMS, cells=4)
    cluster.run({name: rows((100, 1, "x")) for name in "abc"})
    assert {figures.watermark for figures in cluster.figures} == {96}
    cluster.run({"a": rows((200, 1, "x"))}, [cluster.idle("b"), cluster.idle("c")])
    assert {figures.watermark for figures in cluster.figures} == {196}
    assert [figures.idle for figures in cluster.figures] == [["b", "c"]] * 4


def test_a_directory_of_its_own_numbers_commands_anew():
    """A query that is started again without its control directory gives its first command number 1 again."""
    cell = LoneCell(TRIPLE, STREAMS, "(a b) c")
    plans = [cell.query.plan(order) for order in ("a (b c)", "(a c) b")]
    for plan, directory in zip(plans, ("one", "other"), strict=True):
        cell.run({}, [replace(migrate(1, plan, "jisc", {}), directory=directory)])
        cell.rebuild()
    assert cell.durable.cell.plan == plans[1]
    told = cell.durable.figures().commands
    assert [(known.directory, known.number) for known in told] == [("one", 1), ("other", 1)]


def test_silence_that_was_noticed_is_over_when_a_row_has_come():
    cell = LoneCell(TRIPLE, STREAMS)
    cell.run({name: rows((1, 1, "x")) for name in "abc"})
    cell.run({"b": rows((2, 1, "x"))}, [command(1, DeclareIdle(stream="c", rows=0))])
    assert cell.durable.time.idle == set()
    cell.run({}, [command(2, DeclareIdle(stream="c", rows=1))])
    assert cell.durable.time.idle == {"c"}


def test_what_a_migration_did_is_known_after_a_restart():
    """Its duration and figures went with the process that did it."""
    cluster = SimulatedCluster(TRIPLE, STREAMS, "(a b) c", cells=2)
    tables = {name: rows((1, 1, "x"), (2, 2, "y")) for name in "abc"}
    cluster.run(tables)
    cluster.run(tables, [cluster.migrate(cluster.query.plan("a (b c)"), "moving-state")])
    before = [figures.commands for figures in cluster.figures]
    assert all(outcome.state == "completed" and outcome.figures.seconds >= 0 for (outcome,) in before)
    assert sum(outcome.figures.rows_recomputed for (outcome,) in before) > 0
    cluster.run(tables, faults=[Fault("query restarted")])
    assert [figures.commands for figures in cluster.figures] == before


def test_files_that_are_no_commands_reach_no_cell():
    cluster = SimulatedCluster(TRIPLE, STREAMS)
    received = [("command", 1, b"{}"), ("command", 2, b'{"format": 7, "number": 2}'), ("command", 3, b"\xff")]
    commands, packs = cell_work._received(cluster._frames(received))
    assert (commands, packs) == ([], [])


def test_other_columns_than_the_checkpoint_has_are_refused():
    cell = LoneCell(TRIPLE, STREAMS)
    cell.run({"a": rows((1, 1, "x"))})
    manifest = json.loads(cell.backend["manifest"])
    window = next(iter(manifest["columns"]))
    manifest["columns"][window] = ["k", "more"]
    cell.backend["manifest"] = json.dumps(manifest).encode()
    with pytest.raises(CheckpointMismatch, match="other columns"):
        cell.rebuild()


@pytest.mark.parametrize("form", [None, *range(1, STATE_FORMAT), STATE_FORMAT + 1])
def test_the_state_of_another_version_is_refused(form):
    cell = LoneCell(TRIPLE, STREAMS)
    cell.run({"a": rows((1, 1, "x"))})
    manifest = json.loads(cell.backend["manifest"])
    manifest |= {"format": form}
    cell.backend["manifest"] = json.dumps(manifest).encode()
    with pytest.raises(CheckpointMismatch, match="another version of midstream"):
        cell.rebuild()


def test_the_state_of_a_version_with_other_keys_is_refused_not_overlooked():
    cell = LoneCell(TRIPLE, STREAMS)
    cell.run({"a": rows((1, 1, "x"))})
    cell.backend["standing"], cell.backend["description"] = cell.backend.pop("progress"), cell.backend.pop("manifest")
    with pytest.raises(CheckpointMismatch, match="an earlier format"):
        cell.rebuild()
