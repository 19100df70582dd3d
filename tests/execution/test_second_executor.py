"""Any executor can be migrated to and from: shown with one that has nothing in common with a plan box but the contract.

The recomputing executor keeps the rows it was given, joins all of them anew at each push, and emits the results with a
new row in them. It has one operator with one state, the rows, which no other plan has: whoever replaces it, or is
replaced by it, finds nothing to share.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan import Plan
from midstream.engine.batch import concatenate
from midstream.engine.operators.operator import StatefulOperator
from midstream.engine.operators.window_source import WindowOperator
from midstream.engine.output import output_schema, to_record_batches
from midstream.errors import MigrationRefused
from midstream.execution.executor import Executor
from midstream.execution.plan_box import PlanBox
from midstream.execution.plan_executor import PlanExecutor
from midstream.migration.state_matching import Completion
from midstream.runtime.cell import Cell
from midstream.runtime.ingest import Ingest
from midstream.testing import STRATEGIES, assert_same_bag, join_intervals

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
QUERY = ContinuousQuery(
    "SELECT a.ts AS a, b.ts AS b, c.ts AS c FROM a [RANGE 20] a, b [RANGE 12] b, c [RANGE 9 SLIDE 3] c "
    "WHERE a.k = b.k AND b.k = c.k",
    [Stream(name, SCHEMA, "ts", lateness=4) for name in "abc"],
)
TREE, RECOMPUTED, OTHER = (QUERY.plan(order) for order in ("(a b) c", "a (b c)", "(a c) b"))
ON_JOINS = {label: known for label, known in STRATEGIES.items() if known[0] != "pause-drain-resume"}


class Recompute(StatefulOperator):
    """All rows seen, and the plan's results over them, computed from nothing at each push."""

    def __init__(self, plan: Plan, windows, chunk_rows: int) -> None:
        self._fresh = lambda: PlanBox(plan, windows, chunk_rows)
        leaves = tuple(WindowOperator(window, windows.layout(window)) for window in plan.windows())
        super().__init__("Recompute", self._fresh().root.layout, leaves)
        self._rows = [[] for _ in leaves]

    @property
    def state_key(self):
        return ("recomputed", *(str(leaf.source) for leaf in self.inputs))

    def needed_below(self, retention: int) -> int:
        return min(retention, self.frontier)

    def adopt(self, donor) -> None:
        self._rows = donor._rows

    def rebuild(self, *histories):
        for rows, history in zip(self._rows, histories, strict=True):
            rows += history
        return self._results({})

    def push(self, *inputs):
        new = {}
        for rows, leaf, batches in zip(self._rows, self.inputs, inputs, strict=True):
            arrived = list(batches)
            rows += arrived
            new[leaf.source] = np.concatenate([[-1], *(batch.references[0] for batch in arrived)])
        yield from self._results(new)

    def _results(self, new):
        """The results; of those, the ones with a new row in them (all, if nothing is said about rows)."""
        box = self._fresh()
        everything = {
            leaf.source: concatenate(leaf.layout, rows) for rows, leaf in zip(self._rows, self.inputs, strict=True)
        }
        windows = {leaf.layout.stores[0]: leaf.source for leaf in self.inputs}
        for batch in list(box.push(everything, self.frontier)):
            origins = zip(batch.layout.origin_stores, batch.origins(), strict=True)
            is_new = [np.isin(numbers, new[windows[store]]) for store, numbers in origins if new]
            yield batch.filtered(np.logical_or.reduce(is_new)) if new else batch

    def expire(self, retention: int) -> None:
        for rows in self._rows:
            rows[:] = [batch.filtered(batch.valid_to > self.frontier) for batch in rows]


class RecomputingExecutor(PlanExecutor):
    def __init__(self, plan, windows, chunk_rows, stores=None) -> None:
        super().__init__(plan, windows, chunk_rows, Recompute(plan, windows, chunk_rows))

    def empty(self):
        return RecomputingExecutor(self.plan, self.windows, self.chunk_rows)

    def push(self, arrived, watermark) -> Iterator:
        self.advance(watermark)
        inputs = [[arrived[leaf.source]] if leaf.source in arrived else [] for leaf in self.root.inputs]
        yield concatenate(self.root.layout, list(self.root.push(*inputs))).in_order()
        self.expire()


def make_executor(plan, windows, chunk_rows, stores, just_in_time) -> PlanExecutor:
    kind = RecomputingExecutor if plan == RECOMPUTED else PlanBox
    return kind(plan, windows, chunk_rows, stores)


class Run:
    """What ``LocalRun`` does, over a cell that makes a recomputing executor for one of the plans."""

    def __init__(self, plan) -> None:
        self.cell = Cell(plan, QUERY.plan(), make_executor=make_executor)
        self._ingest = Ingest({stream.name: stream for stream in QUERY.streams})
        self._schema = output_schema(plan)
        self.results = []

    def push(self, tables) -> None:
        rows = self._ingest.accept(self._ingest.check(tables))
        self._work(rows, self._ingest.advance(None))

    def finish(self) -> pa.Table:
        self._work({}, self._ingest.advance(2**63 - 1))
        return pa.Table.from_batches(self.results, self._schema)

    def _work(self, rows, watermark) -> None:
        for batch in self.cell.push(self.cell.windows.of_streams(rows), watermark):
            self.results += to_record_batches(batch, self._schema)


def rows_of(pairs) -> pa.Table:
    times, keys = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table({"ts": pa.array(times, pa.int64()), "k": pa.array(keys, pa.int64())}, schema=SCHEMA)


@st.composite
def inputs(draw):
    """Pushes whose rows are at most four ticks late."""
    pushes = []
    for number in range(draw(st.integers(2, 7))):
        row = st.tuples(st.integers(4 * number, 4 * number + 4), st.integers(0, 2))
        pushes.append({name: rows_of(draw(st.lists(row, max_size=4))) for name in "abc"})
    return pushes


changes = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from([TREE, RECOMPUTED, OTHER]), st.sampled_from(sorted(ON_JOINS))),
    min_size=1,
    max_size=4,
)
rebuilds = st.dictionaries(st.integers(0, 6), st.sampled_from(list(Completion)), max_size=2)


def expected(pushes) -> pa.Table:
    tables = {name: pa.concat_tables([push[name] for push in pushes]) for name in "abc"}
    return join_intervals(QUERY.text, QUERY.streams, tables)


def test_the_two_executors_have_nothing_in_common_but_the_contract() -> None:
    assert not issubclass(RecomputingExecutor, PlanBox)
    assert issubclass(RecomputingExecutor, Executor)


@pytest.mark.parametrize("label", ON_JOINS)
@pytest.mark.parametrize("plans", [(TREE, RECOMPUTED), (RECOMPUTED, TREE)], ids=["to it", "from it"])
def test_every_strategy_changes_to_it_and_from_it(label, plans) -> None:
    pushes = [{name: rows_of([(4 * n + i, (n + i) % 2) for i in range(3)]) for name in "abc"} for n in range(20)]
    run = Run(plans[0])
    for number, push in enumerate(pushes):
        if number == 3:
            run.cell.migrate(plans[1], ON_JOINS[label][0], **ON_JOINS[label][1])
            assert run.cell.plan == plans[1]
        run.push(push)
    assert not run.cell.is_migrating
    assert [type(box) for box in run.cell._executor.boxes()] == [
        RecomputingExecutor if plans[1] == RECOMPUTED else PlanBox
    ]
    assert_same_bag(run.finish(), expected(pushes))


@settings(max_examples=60, deadline=None)
@given(inputs(), st.sampled_from([TREE, RECOMPUTED]), changes, rebuilds)
def test_any_changes_give_each_result_once(pushes, first_plan, changes, rebuilds) -> None:
    run = Run(first_plan)
    for number, push in enumerate(pushes):
        for before, plan, label in changes:
            if before == number:
                run.cell.migrate(plan, ON_JOINS[label][0], **ON_JOINS[label][1])
        if number in rebuilds:
            run.cell.rebuild(rebuilds[number])
        run.push(push)
    assert_same_bag(run.finish(), expected(pushes))


def test_what_a_strategy_refuses_it_refuses_here_too() -> None:
    run = Run(RECOMPUTED)
    with pytest.raises(MigrationRefused, match="state"):
        run.cell.migrate(TREE, "pause-drain-resume")
