"""Several cells that measure: which of them decides, what they report together, and what happens if measuring fails."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from midstream.adaptation.statistics import QueryStatistics
from midstream.planning.cost import HotKey, JoinKeys
from midstream.runtime import plan_adaptation
from midstream.runtime.stream_counters import StreamCounters
from tests.cli.commanding import call
from tests.runtime.test_plan_adaptation import EAGER, PATIENT, POLICY, Driver, batch, lone, sizes
from tests.runtime.test_reporting import QUERY


def test_the_slowest_cell_decides_and_is_named(tmp_path):
    """Three cells are content, the fourth has most rows and a plan that is bad for it; the sum would not show it."""
    driver = Driver(tmp_path, POLICY, cells=4)
    for cell in (0, 1, 3):
        driver.takes(cell, 1, sizes=sizes("op"), received={"w": 3_000})
    driver.takes(2, 1, sizes=sizes("ps"), received={"w": 9_000})
    (decision,) = driver.adaptation.decisions()
    assert (decision.outcome, decision.cell) == ("changed", 2)
    assert decision.best.replace("(s p)", "(p s)") == "o (p s)"
    # Its own time per row, not that of the others.
    alone = Driver(tmp_path / "alone", POLICY)
    alone.takes(sizes=sizes("ps"))
    assert decision.seconds_now == pytest.approx(alone.adaptation.decisions()[0].seconds_now)
    assert 3 < decision.imbalance <= 4
    assert Driver(tmp_path).adaptation.decisions() == [decision]
    for view in ("advise", "status"):
        assert "slowest cell 2" in call(view, tmp_path).out


def test_cells_that_have_the_same_work_are_not_called_uneven(tmp_path):
    driver = Driver(tmp_path, replace(PATIENT, regret=1e9), cells=2)
    for cell in (0, 1):
        driver.takes(cell, 1, sizes=sizes("ps"))
    (decision,) = driver.adaptation.decisions()
    assert (decision.cell, decision.imbalance) == (0, pytest.approx(1.0))
    assert "times the work" not in call("advise", tmp_path).out


def test_a_failing_decision_keeps_the_plan_and_pauses(tmp_path, monkeypatch, caplog):
    driver = Driver(tmp_path, POLICY)
    with monkeypatch.context() as broken:
        broken.setattr(plan_adaptation.Controller, "_compared", lambda *_: [][1])
        driver.takes(batches=1, sizes=sizes("ps"))
    (decision,) = driver.adaptation.decisions()
    assert (decision.outcome, decision.failure, decision.number) == ("kept", decision.reason, 1)
    assert "pauses for 16 micro-batches" in decision.reason
    assert "IndexError" in caplog.text
    for batches in range(2, 17):
        driver.takes(batches=batches, sizes=sizes("ps"))
    assert driver.outcomes == ["kept"]
    assert "failures: 1" in call("status", tmp_path).out
    assert "pauses for 16 micro-batches" in " ".join(call("advise", tmp_path).out.split())
    driver.takes(batches=17, sizes=sizes("ps"))
    assert driver.outcomes == ["kept", "changed"]
    assert call("advise", tmp_path, "--json").document["failures"] == 1


def test_the_driver_keeps_the_plan_while_a_cell_cannot_measure(tmp_path, caplog):
    driver = Driver(tmp_path, POLICY, cells=2)
    driver.takes(0, 1, sizes=sizes("ps"))
    driver.takes(1, 1, measuring_failure="Adaptation failed (ValueError: no).")
    (decision,) = driver.adaptation.decisions()
    assert (decision.outcome, decision.cell) == ("kept", 1)
    assert decision.reason == "In cell 1: Adaptation failed (ValueError: no)."
    assert decision.reason in caplog.text
    assert Driver(tmp_path).adaptation.decisions() == [decision]
    for batches in range(2, 18):
        driver.takes(0, batches, sizes=sizes("ps"))
        driver.takes(1, batches, sizes=sizes("ps"))
    assert driver.outcomes == ["kept", "changed"]


def test_the_sizes_of_all_cells_are_put_together(tmp_path):
    driver = Driver(tmp_path, replace(PATIENT, regret=1e9), cells=3)
    assert driver.report.statistics().sizes is None
    driver.takes(0, 1, sizes=sizes("ps", 3_000))
    alone = driver.report.statistics().sizes
    assert alone.rows == 3_000
    # The second cell has as many rows in its windows as all that arrived; the third as well, in twice as long a span.
    other = sizes("os", 3_000)
    longer = sizes("os", 6_000)
    longer = replace(longer, blocks=(replace(longer.blocks[0], held=(1_000.0,) * 3),))
    driver.takes(1, 1, sizes=other)
    driver.takes(2, 1, sizes=longer)
    together = driver.report.statistics().sizes
    assert together.rows == 12_000
    (block,), (first,), (second,) = (each.blocks.values() for each in (together, sizes("ps").sizes(), other.sizes()))
    assert block.held == (3_000.0,) * 3
    for inputs, found in block.increments.items():
        # As if the span of all were four thirds of what it was in the first two.
        expected = 4 / 3 * (first.increments[inputs] + 2 * second.increments[inputs])
        assert found == pytest.approx(expected), inputs
    by_cost = set(QUERY.plans(statistics=driver.report.statistics()))
    trees = {plan for plan in by_cost if "MultiJoin" not in plan.explain()}
    # The cheapest plan with braces is among those that are sorted by cost.
    assert trees == set(QUERY.plans()) and len(by_cost) == len(trees) + 1


def test_hot_keys_of_all_cells_are_reported(tmp_path):
    key = HotKey(value="17", left=30, right=40, pairs=0.75)
    keys = JoinKeys(
        inputs=(("o",), ("p",)), key=(("o.k",), ("p.k",)), tuples=(90, 90), pairs=1_600, left=(key,), right=(key,)
    )
    driver = Driver(tmp_path, replace(PATIENT, regret=1e9), cells=2)
    driver.takes(0, 1, sizes=replace(sizes("ps"), hot_keys=(keys,)))
    driver.takes(1, 1, sizes=replace(sizes("ps"), hot_keys=()))
    # They were not counted this time: the earlier ones hold.
    driver.takes(0, 2, sizes=sizes("ps"))
    assert driver.report.statistics().hot_keys == (keys,)
    assert driver.control.status().hot_keys == (keys,)
    assert "17 (75%)" in call("advise", tmp_path).out
    # Those of another plan say nothing about its joins.
    driver.takes(0, 3, plan="o (p s)")
    assert driver.report.statistics().hot_keys == ()


def test_a_cell_counts_hot_keys():
    cell = lone(EAGER)
    cell.run(batch(0, keys=(2, 2, 2)))
    keys = cell.durable.figures().sizes.hot_keys
    assert [join.inputs for join in keys] == [(("a",), ("b",)), (("a", "b"), ("c",))]
    assert {key.value for key in keys[0].left} == {"0", "1"}
    assert sum(key.left for key in keys[0].left) == keys[0].tuples[0] == 50
    assert sum(key.pairs for key in keys[0].left) == pytest.approx(1)


def test_a_cell_whose_measuring_fails_goes_on(monkeypatch, caplog):
    results = []
    for is_broken in (False, True):
        with monkeypatch.context() as broken:
            cell = lone(EAGER)
            if is_broken:
                broken.setattr(QueryStatistics, "measure", lambda *_, **__: [][1])
            results.append([cell.run(batch(number)).sort_by("k") for number in range(5)])
            found = cell.durable.figures()
    assert results[0] == results[1]
    assert (found.sizes, found.measuring_failure) == (None, None)
    assert caplog.text.count("pauses for 16 micro-batches") == 1


def test_a_cell_reports_why_measuring_failed_once(monkeypatch):
    cell = lone(EAGER)
    monkeypatch.setattr(QueryStatistics, "follow", lambda *_, **__: [][1])
    failures = []
    for number in range(20):
        cell.run(batch(number))
        failures.append(cell.durable.figures().measuring_failure)
    assert [place for place, failure in enumerate(failures) if failure is not None] == [0, 15]
    assert "IndexError" in failures[0] and "for 32 micro-batches" in failures[15]


def test_status_and_advice_show_the_streams_in_a_few_words(tmp_path):
    driver = Driver(tmp_path, replace(PATIENT, regret=1e9))
    windows = {window.stream.name: window.fingerprint for window in QUERY.plan().windows()}
    for batches in (1, 2, 3):
        counted = {name: StreamCounters(rows=1_000 * batches, late=100 * batches) for name in windows}
        received = {fingerprint: 450 * batches for fingerprint in windows.values()}
        latest = dict.fromkeys(windows, 200 * batches)
        driver.takes(batches=batches, streams=counted, received=received, latest=latest, sizes=sizes("ps"))
    for one in driver.report.statistics().streams:
        assert (one.rows, one.late_share, one.selectivity) == (2_000, pytest.approx(0.1), pytest.approx(0.5))
    for view in ("status", "advise"):
        out = call(view, tmp_path).out
        assert "orders o" in out and "10.0% late, 50% selected" in out
        assert "of event time" in out
