"""A running query as data: described, carried elsewhere as JSON and made again, it goes on as if nothing had been."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import cycle, product
from typing import Any

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan import Plan
from midstream.algebra.window_spec import NEVER
from midstream.engine.batch import Batch
from midstream.engine.output import output_schema, to_record_batches
from midstream.engine.state.window_store import Rows
from midstream.migration.manifest import PlanList
from midstream.migration.state_matching import Completion
from midstream.runtime.cell import Cell
from midstream.testing import STRATEGIES, assert_same_bag, join_intervals

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "s": pa.string()})
STREAMS = [Stream(name, SCHEMA, "ts") for name in "abcd"]
TEXT = (
    "SELECT a.ts AS i, b.ts AS j, c.ts AS l, d.s FROM a [RANGE 10], b [RANGE 10], c [RANGE 10], d [RANGE 10]"
    " WHERE a.k = b.k AND b.k = c.k AND c.s = d.s"
)
QUERY = ContinuousQuery(TEXT, STREAMS)
ORDERS = ["((a b) c) d", "a (b (c d))", "(a b) (c d)", "(a (b c)) d"]
WAYS = {name: way for name, way in STRATEGIES.items() if name != "pause-drain-resume"}


def rows(now: int) -> dict[str, pa.Table]:
    """Two rows of each stream, at two instants."""
    return {
        name: pa.table({"ts": [now, now + 2], "k": [0, place % 2], "s": ["x", "xy"[place % 2]]}, schema=SCHEMA)
        for place, name in enumerate("abcd", start=now)
    }


class Running:
    """A cell at work, which may be carried elsewhere."""

    def __init__(self, text: str = TEXT) -> None:
        self.query = ContinuousQuery(text, STREAMS)
        self.cell = Cell(self.query.plan(ORDERS[0]) if text == TEXT else self.query.plan(), self.query.plan())

    def push(self, now: int) -> pa.Table:
        arrays = {
            name: {c: table.column(c).combine_chunks() for c in SCHEMA.names} for name, table in rows(now).items()
        }
        by_stream = {name: Rows(columns["ts"].to_numpy(), columns) for name, columns in arrays.items()}
        return self._table(self.cell.push(self.cell.windows.of_streams(by_stream), now))

    def finish(self) -> pa.Table:
        return self._table(self.cell.push({}, NEVER))

    def _table(self, batches: Iterator[Batch]) -> pa.Table:
        schema = output_schema(self.query.plan())
        return pa.Table.from_batches([b for batch in batches for b in to_record_batches(batch, schema)], schema)

    def carried(self, completion: Completion) -> Running:
        """Another cell that goes on with this one's rows and manifest."""
        other = Running(self.query.text)
        windows, ends = self.cell.windows, self.cell.windows.ends()
        kept = windows.kept(dict.fromkeys(ends, 0), ends)
        other.cell.windows.restore([kept], windows.progress())
        other.cell.restore(json.loads(json.dumps(self.cell.manifest())), self.cell.watermark, completion)
        return other


def records(running: Running) -> list[dict[str, Any]]:
    """What is told of migrations, except for what a cell made again computes once more."""
    # The new box of a positive-negative migration gets all rows when it is made again, the old ones too.
    computed = {"rows_recomputed", "rows_completed", "states_shared", "states_incomplete", "new_results"}
    left_out = computed | {"began", "ended"}
    known = [running.cell.record(number) for number in range(1, running.cell.migrations + 1)]
    return [
        {"is_over": record.is_over} | {name: value for name, value in vars(record).items() if name not in left_out}
        for record in known
        if record is not None
    ]


@pytest.mark.parametrize(("first", "second"), list(product(WAYS, WAYS)))
def test_migrations_under_way_go_on_elsewhere(first, second):
    """Two overlapped ones, carried elsewhere after every push."""
    here, there, ways = Running(), Running(), cycle(Completion)
    results = []
    for number in range(8):
        if number in (2, 3):
            name, options = WAYS[first if number == 2 else second]
            for running in (here, there):
                running.cell.migrate(QUERY.plan(ORDERS[number - 1]), name, **options)
        expected, actual = here.push(3 * number), there.push(3 * number)
        assert_same_bag(actual, expected)
        results.append(actual)
        there = there.carried(next(ways))
        if "jisc" not in first + second:
            # States that are to be completed are others in a cell made again.
            assert records(there) == [record for record in records(here) if not record["is_over"]]
        assert there.cell.plan == here.cell.plan
        assert there.cell.windows.ends() == here.cell.windows.ends()
    results.append(there.finish())
    assert_same_bag(results[-1], here.finish())
    whole = {name: pa.concat_tables([rows(3 * number)[name] for number in range(8)]) for name in "abcd"}
    assert_same_bag(pa.concat_tables(results), join_intervals(TEXT, STREAMS, whole))
    assert all(record["is_over"] for record in records(there))
    assert not there.cell.has_running_migrations


def under_way(*strategies: str) -> Running:
    running = Running()
    running.push(0)
    for number, strategy in enumerate(strategies, start=1):
        name, options = WAYS[strategy]
        running.cell.migrate(QUERY.plan(ORDERS[number % len(ORDERS)]), name, **options)
        running.push(number)
    return running


@pytest.mark.parametrize("strategy", WAYS)
def test_a_description_is_plain_json_and_the_same_when_it_is_made_again(strategy):
    running = under_way(strategy)
    manifest = running.cell.manifest()
    assert json.loads(json.dumps(manifest)) == manifest
    again = running.carried(Completion.EAGER).cell.manifest()
    if "jisc" in strategy:
        # All states are complete: the migration will be found to be over.
        for part in (manifest, again):
            del part["box"]["completion_budget"], part["running"]
    assert again == manifest


def test_boxes_within_boxes_keep_their_places():
    running = under_way("parallel-track", "coalesce", "reference-point", "positive-negative")
    manifest = running.cell.manifest()
    kinds, box = [], manifest["box"]
    while box["kind"] != "plan":
        assert box["new"]["kind"] == "plan"
        kinds.append((box["kind"], box["record"]))
        box = box["old"]
    assert kinds == [
        ("gen-mig positive-negative", 4), ("gen-mig reference-point", 3), ("gen-mig coalesce", 2), ("parallel-track", 1)
    ]  # fmt: skip
    assert [entry["record"]["number"] for entry in manifest["running"]] == [1, 2, 3, 4]
    # Box 0 is the outermost, that of the latest migration; each holds the one before and then its own plan.
    assert [entry["part"] for entry in manifest["running"]] == [3, 2, 1, 0]
    assert len(manifest["plans"]) == 4
    carried = running.carried(Completion.EAGER)
    assert carried.cell.manifest() == manifest
    for number in range(5, 30):
        assert_same_bag(carried.push(number), running.push(number))
        assert records(carried) == [
            r for r in records(running) if r["number"] in {x["number"] for x in records(carried)}
        ]
    assert [record["is_over"] for record in records(carried)] == [True] * 4


@pytest.mark.parametrize("strategy", ["parallel-track", "coalesce", "reference-point", "positive-negative"])
def test_what_a_migration_has_done_so_far_is_not_forgotten(strategy):
    running = under_way(strategy)
    for number in range(2, 6):
        running.push(number)
        running = running.carried(Completion.LAZY)
    (record,) = records(running)
    name, options = WAYS[strategy]
    assert (record["strategy"], record["options"], record["number"], record["began_at"]) == (name, options, 1, 0)
    assert record["old_results"] > 0
    assert record["rows_buffered"] > 0 or strategy != "parallel-track"
    assert record["old_plan"] == QUERY.plan(ORDERS[0])
    assert record["new_plan"] == QUERY.plan(ORDERS[1])


def test_migrations_are_counted_on_and_those_that_are_over_are_left_out():
    running = under_way("moving-state", "moving-state")
    manifest = running.cell.manifest()
    assert (manifest["migrations"], manifest["running"]) == (2, [])
    carried = running.carried(Completion.LAZY)
    carried.cell.migrate(QUERY.plan(ORDERS[3]), "gen-mig")
    carried.push(9)
    assert [record["number"] for record in records(carried)] == [3]
    assert carried.cell.has_running_migrations


def test_results_that_were_buffered_and_released_are_not_emitted_again():
    """A gen-mig on top lets go what a parallel track holds; made again, the track must not hold it once more."""
    running = under_way("parallel-track")
    running.push(2)
    assert running.cell.counts().buffered > 0
    running.cell.migrate(QUERY.plan(ORDERS[2]), "gen-mig")
    running.push(3)
    manifest = running.cell.manifest()
    assert manifest["box"]["old"]["buffers"] is False
    carried = running.carried(Completion.LAZY)
    assert carried.cell.counts().buffered == running.cell.counts().buffered == 0
    for number in range(4, 20):
        assert_same_bag(carried.push(number), running.push(number))


def test_a_plan_emits_from_where_it_did_after_it_is_made_again():
    """What came before was emitted by its predecessor: without that instant it would be emitted twice."""
    text = "SELECT a.k, COUNT(*) AS n FROM a [RANGE 10], b [RANGE 10] WHERE a.k = b.k GROUP BY a.k"
    running = Running(text)
    plans = list(running.query.plans())
    for number in range(4):
        running.push(3 * number)
    other = next(plan for plan in plans if plan != running.cell.plan)
    running.cell.migrate(other, "moving-state")
    running.push(12)
    assert all(instant > 0 for instant in running.cell.manifest()["box"]["emits_from"])
    carried = running.carried(Completion.EAGER)
    assert carried.cell.manifest() == running.cell.manifest()
    for number in range(5, 9):
        assert_same_bag(carried.push(3 * number), running.push(3 * number))
    assert_same_bag(carried.finish(), running.finish())


def test_a_description_does_not_grow_with_the_rows():
    running = under_way("parallel-track")
    before = len(json.dumps(running.cell.manifest()))
    for _ in range(20):
        running.push(2)
    assert len(json.dumps(running.cell.manifest())) <= before + 50


def test_each_plan_is_named_once():
    plans: list[Plan] = [QUERY.plan(order) for order in (*ORDERS, ORDERS[0])]
    listed = PlanList()
    assert [listed.number_of(plan) for plan in plans] == [0, 1, 2, 3, 0]
    assert len(listed.as_json()) == 4
