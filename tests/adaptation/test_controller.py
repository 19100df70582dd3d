"""When the plan is changed: regret against the cost of the change, and the gates besides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.adaptation import Adaptation
from midstream.adaptation.controller import Controller
from midstream.errors import BadOption
from midstream.planning.cost import BlockSizes, CostCoefficients, PlanSizes
from midstream.planning.join_order.join_graph import JoinGraph, is_join_block
from midstream.planning.shapes import join_orders_text

QUERY = ContinuousQuery(
    "SELECT a.t AS t FROM a [RANGE 100], b [RANGE 100], c [RANGE 100] WHERE a.x = b.x AND b.y = c.y",
    [
        Stream(n, pa.schema([(c, pa.int64()) for c in ("t", *cs)]), "t")
        for n, cs in (("a", "x"), ("b", "xy"), ("c", "y"))
    ],
)


def sizes(ab: float, bc: float, *, spread: float = 0.0, rows: int = 30_000, silent=()) -> PlanSizes:
    """A block in which a and b have so many pairs per span, b and c so many; all results are few."""
    plan = QUERY.plan()
    top = next(node for node in plan.walk() if is_join_block(node))
    graph = JoinGraph.of(top)
    mask = {name: 1 << place for place, name in enumerate(graph.names)}
    around = np.array([1 - spread, 1 + spread] * 8)
    increments = {one: np.full(16, rows / 3) for one in mask.values()}
    increments[mask["a"] | mask["b"]] = ab * around
    increments[mask["b"] | mask["c"]] = bc * around[::-1]
    increments[graph.everything] = np.full(16, 100.0)
    return PlanSizes(rows, {top.identity: BlockSizes(graph.names, (rows * 3.0,) * 3, increments)}, silent)


def controller(**options) -> Controller:
    return Controller(Adaptation(**options), CostCoefficients())


def consider(deciding: Controller, measured, order: str = "a b c", rows: int = 30_000):
    cells = measured if isinstance(measured, list) else [measured]
    return deciding.consider(QUERY.plan(order), cells, [rows] * len(cells), push=1, watermark=7)


def test_a_plan_is_changed_when_the_time_lost_exceeds_the_cost_of_the_change():
    deciding = controller()
    outcomes = []
    for _ in range(40):
        proposal = consider(deciding, sizes(ab=20_000, bc=1_000))
        outcomes.append(deciding.decisions[-1])
        if proposal is not None:
            break
    assert proposal is not None
    assert join_orders_text(proposal.plan).replace("(", "").replace(")", "") in ("b c a", "a b c")
    assert outcomes[-1].outcome == "changed"
    # What was lost, and what will be until the next decision.
    assert len(outcomes) > 2 and outcomes[-1].regret < outcomes[-1].migration <= outcomes[-1].regret_at_next
    assert all(outcome.outcome == "kept" and "does not yet exceed" in outcome.reason for outcome in outcomes[:-1])
    assert all(outcome.regret_at_next < outcome.migration for outcome in outcomes[:-1])
    assert QUERY.chosen(proposal.plan) == proposal.plan


def growing(measured: PlanSizes, ab: float) -> PlanSizes:
    """The same sizes just after a sudden change: a and b will have so many times as many pairs."""
    ((identity, block),) = measured.blocks.items()
    pair = sum(1 << block.names.index(name) for name in "ab")
    return replace(measured, blocks={identity: replace(block, growth={pair: ab})})


def test_after_a_sudden_change_the_next_rows_are_expected_to_lose_more():
    steady, changed = controller(), controller()
    consider(steady, sizes(ab=20_000, bc=1_000))
    # A ninth of the window is new with every span, so that a ninth of the growth is to come with the next one.
    consider(changed, growing(sizes(ab=20_000, bc=1_000), ab=19.0))
    now, later = steady.decisions[-1], changed.decisions[-1]
    assert later.regret == now.regret > 0
    assert now.expected_loss == pytest.approx(now.regret)
    assert 2.5 * now.expected_loss < later.expected_loss < 3.5 * now.expected_loss


@pytest.mark.parametrize(
    ("options", "is_expected"), [({}, True), ({"least_gain": 1e6}, False), ({"regret": 0, "mode": "advise"}, False)]
)
def test_only_a_change_that_its_cost_delays_is_expected(options, is_expected):
    """Further rows do not change what else stops it, and what was advised need not be found out again."""
    deciding = controller(**options)
    consider(deciding, sizes(ab=20_000, bc=1_000))
    assert deciding.expects_change(10_000_000) == is_expected
    deciding.plan_changed()
    assert not deciding.expects_change(10_000_000)


def test_the_cheapest_plan_is_kept():
    deciding = controller()
    assert consider(deciding, sizes(ab=1_000, bc=100_000)) is None
    assert deciding.decisions[-1].reason == "The plan in force is the cheapest."
    assert deciding.regret == 0


def test_uncertain_sizes_change_nothing():
    deciding = controller()
    for _ in range(20):
        assert consider(deciding, sizes(ab=12_000, bc=10_000, spread=0.9)) is None
    assert "within the uncertainty" in deciding.decisions[-1].reason
    assert deciding.regret == 0


def test_a_small_gain_changes_nothing():
    deciding = controller(regret=0)
    for _ in range(20):
        assert consider(deciding, sizes(ab=11_000, bc=10_000)) is None
    assert deciding.decisions[-1].outcome == "kept"


def test_a_silent_stream_and_few_rows_change_nothing():
    deciding = controller(regret=0)
    assert consider(deciding, sizes(ab=1e6, bc=10, silent=("a",))) is None
    assert "No row of a" in deciding.decisions[-1].reason
    assert consider(deciding, sizes(ab=1e6, bc=10, rows=500)) is None
    assert "Too few rows" in deciding.decisions[-1].reason
    assert consider(deciding, sizes(ab=1e6, bc=10)) is not None


def test_advice_and_a_pinned_plan_change_nothing():
    advising = controller(mode="advise", regret=0)
    assert consider(advising, sizes(ab=1e6, bc=10)) is None
    assert advising.decisions[-1].outcome == "advised"
    pinned = controller(regret=0)
    pinned.pin()
    assert consider(pinned, sizes(ab=1e6, bc=10)) is None
    assert pinned.decisions[-1].outcome == "advised"


def test_the_slowest_cell_decides():
    """Nine cells would rather keep the plan; the tenth has nearly all the work, and a micro-batch waits for it."""
    idle = [sizes(ab=1_000, bc=3_000, rows=3_000) for _ in range(9)]
    deciding = controller(regret=0)
    assert consider(deciding, [*idle, sizes(ab=1e6, bc=10)]) is not None
    assert consider(controller(regret=0), idle) is None


def test_what_migrations_really_computed_corrects_the_next_expectation():
    policy = Adaptation(regret=0, strategies=("moving-state",), longest_pause=100.0)
    deciding = Controller(policy, CostCoefficients(replacement=0.0))
    consider(deciding, sizes(ab=1e6, bc=20_000))
    before = deciding.decisions[-1].migration
    deciding.note_migration(tuples_computed=10**9)
    consider(deciding, sizes(ab=1e6, bc=20_000))
    assert deciding.decisions[-1].migration == pytest.approx(2 * before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "always"}, "adapt cannot be 'always'"),
        ({"sample_rows": 3}, "sample_rows must be a whole number of at least 16"),
        ({"least_gain": 0.5}, "least_gain must be a number of at least 1"),
        ({"regret": float("nan")}, "regret must be a number of at least 0"),
        ({"strategies": ("jizc",)}, "there is no migration strategy 'jizc'"),
        ({"strategies": ()}, "at least one migration strategy"),
        ({"strategies": ["jisc"]}, "as a tuple, not \\['jisc'\\]"),
        ({"strategies": ("jisc", [])}, "there is no migration strategy \\[\\]"),
        ({"regret": 10**400}, "regret must be a number of at least 0, not a number of so many digits"),
        ({"sample_rows": 10**5000}, "sample_rows must be a whole number below 2\\^63"),
        ({"seed": 2**63}, "seed must be a whole number below 2\\^63, not 9223372036854775808"),
        ({"coefficients": 3}, "coefficients must be CostCoefficients"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(BadOption, match=message):
        Adaptation(**options)


def test_a_run_refuses_an_unknown_mode():
    with pytest.raises(BadOption, match="adapt cannot be 'atuo'") as refused:
        QUERY.run_locally(adapt="atuo")
    assert '"auto"' in str(refused.value.hint)


@pytest.mark.parametrize("seconds", [-1.0, "1", True, None, float("inf"), 1e300, 10**400])
def test_bad_cost_coefficients_are_refused(seconds):
    with pytest.raises(BadOption, match="the cost coefficient tuple_in must be a number of seconds"):
        CostCoefficients(tuple_in=seconds)


def test_the_reason_names_the_factor_of_regret():
    deciding = controller(regret=1e6)
    consider(deciding, sizes(ab=1e6, bc=20_000))
    assert "does not yet exceed the cost of the change (1e+06 × " in deciding.decisions[-1].reason
