"""A query in this process that adapts: it finds the better plan, says why, and leaves alone what a person chose."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from midstream.adaptation import Adaptation
from midstream.errors import BadOption
from midstream.planning.cost import CostCoefficients
from tests.adaptation.test_sampling import chain

POLICY = Adaptation(coefficients=CostCoefficients())


def tables(generator: np.random.Generator, push: int, few: str) -> dict[str, pa.Table]:
    """Rows of which the key ``few`` has few values, so that its join explodes."""
    query = chain()
    return {
        stream.name: pa.table(
            {"ts": np.sort(generator.integers(100 * push, 100 * push + 100, 1000))}
            | {c: generator.integers(0, 100 if c == few else 20_000, 1000) for c in stream.schema.names[1:]}
        )
        for stream in query.streams
    }


def played(adapt, pushes: int = 24, order: str | None = None):
    run = chain(window=400).run_locally(order, adapt=adapt)
    generator = np.random.default_rng(3)
    results = [run.push(tables(generator, push, "x" if push < pushes // 2 else "z")) for push in range(pushes)]
    return run, pa.concat_tables([*results, run.finish()])


def test_the_plan_follows_the_streams():
    run, results = played(POLICY)
    changed = [decision for decision in run.decisions() if decision.outcome == "changed"]
    assert len(changed) >= 2
    assert changed[0].push <= 4
    assert 12 < changed[-1].push <= 20
    assert len(run.history()) == len(changed)
    assert all(migration.state == "completed" for migration in run.history())
    _, expected = played("off")
    names = results.schema.names
    in_order = [(name, "ascending") for name in names]
    assert results.sort_by(in_order).equals(expected.sort_by(in_order))


def test_the_same_pushes_give_the_same_decisions():
    assert played(POLICY)[0].decisions() == played(POLICY)[0].decisions()


def test_advice_changes_nothing():
    run, _ = played(Adaptation(mode="advise", coefficients=CostCoefficients()))
    assert run.history() == []
    advised = [decision for decision in run.decisions() if decision.outcome == "advised"]
    assert advised and all("instead of" in decision.reason for decision in advised)


def test_a_plan_that_a_person_chose_is_not_touched():
    run = chain(window=400).run_locally(adapt=POLICY)
    generator = np.random.default_rng(3)
    run.push(tables(generator, 0, "x"))
    run.migrate("a b c d")
    for push in range(1, 12):
        run.push(tables(generator, push, "x"))
    assert [migration.new_plan for migration in run.history()] == [run.plan]
    run.adapt(POLICY)
    for push in range(12, 20):
        run.push(tables(generator, push, "x"))
    assert len(run.history()) > 1


def test_decisions_are_kept_when_adaptation_is_switched():
    run = chain(window=400).run_locally(adapt=POLICY)
    generator = np.random.default_rng(3)
    for push in range(8):
        run.push(tables(generator, push, "x"))
    before = run.decisions()
    assert any(decision.outcome == "changed" for decision in before)
    run.adapt("off")
    run.push(tables(generator, 8, "z"))
    assert run.decisions() == before
    run.adapt(POLICY)
    for push in range(9, 20):
        run.push(tables(generator, push, "z"))
    decisions = run.decisions()
    assert decisions[: len(before)] == before
    assert [decision.number for decision in decisions] == list(range(1, len(decisions) + 1))
    # So a migration names one decision only.
    by_number = {decision.number: decision for decision in decisions}
    assert all(by_number[migration.decision].outcome == "changed" for migration in run.history())


def test_a_plan_that_a_person_chose_while_adaptation_was_off_counts_as_a_change():
    advising = Adaptation(mode="advise", coefficients=CostCoefficients())
    run = chain(window=400).run_locally("a b c d", adapt=advising)
    generator = np.random.default_rng(3)
    for push in range(8):
        run.push(tables(generator, push, "x"))
    *_, before = run.decisions()
    run.adapt("off")
    run.migrate("b a c d", "moving-state")
    run.adapt(advising)
    for push in range(8, 12):
        run.push(tables(generator, push, "x"))
    after = run.decisions()[before.number]
    # What was lost with the plan before does not count for this one.
    assert (before.plan, after.plan) == ("a b c d", "b a c d")
    assert after.regret < before.regret


def test_rows_that_arrived_while_adaptation_was_off_do_not_count():
    run = chain(window=400).run_locally("a b c d")
    generator = np.random.default_rng(3)
    for push in range(8):
        run.push(tables(generator, push, "x"))
    run.adapt(Adaptation(mode="advise", least_rows=12_000, coefficients=CostCoefficients()))
    for push in range(8, 12):
        run.push(tables(generator, push, "x"))
    # Each push brings 4,000 rows: the third one is the first that has enough.
    assert run.decisions()[0].push == 11


def test_a_steady_stream_gives_no_migration_after_the_first_windows():
    run = chain(window=400).run_locally("a b c d", adapt=POLICY)
    generator = np.random.default_rng(4)
    for push in range(40):
        run.push(tables(generator, push, "none"))
    assert all(decision.push < 10 for decision in run.decisions() if decision.outcome == "changed")


def test_a_query_without_a_join_is_left_alone():
    query = chain()
    from midstream import ContinuousQuery

    run = ContinuousQuery("SELECT a.x FROM a [RANGE 10]", query.streams[:1]).run_locally(adapt=POLICY)
    for push in range(4):
        run.push({"a": pa.table({"ts": [push], "x": [1]})})
    assert run.decisions() == []


def test_statistics_sort_the_plans_and_explain_them():
    query = chain(window=400)
    run, _ = played(Adaptation(mode="advise", coefficients=CostCoefficients()), pushes=10, order="d c b a")
    statistics = run.statistics()
    assert statistics is not None
    plans = list(query.plans(statistics=statistics))
    trees = [plan for plan in plans if "MultiJoin" not in str(plan)]
    assert sorted(map(str, trees)) == sorted(map(str, query.plans()))
    assert len(plans) == len(trees) + 1
    assert plans[0] != query.plan("d c b a")
    explained = query.explain("d c b a", statistics=statistics)
    assert "q-error" in explained and "of the cost" in explained
    unknown = query.explain(plans[0], statistics=statistics)
    assert "per 1,000" in unknown


def test_statistics_of_other_kinds_are_refused():
    query = chain(window=400)
    run = query.run_locally(adapt=POLICY)
    for statistics in ("o", {}, 0, run, run.statistics):
        with pytest.raises(BadOption, match="statistics cannot be") as refused:
            query.explain(statistics=statistics)
        assert "statistics()" in str(refused.value.hint)
        with pytest.raises(BadOption, match="statistics cannot be"):
            query.plans(statistics=statistics)
    for ask in (query.explain, query.plans):
        with pytest.raises(BadOption, match="coefficients must be CostCoefficients"):
            ask(statistics=run.statistics(), coefficients={})
