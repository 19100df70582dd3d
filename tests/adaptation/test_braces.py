"""Adaptation with multi-way joins: measured like trees, chosen where memory is short or changes are frequent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from midstream.adaptation import Adaptation, decision_text
from midstream.adaptation.controller import Controller
from midstream.adaptation.migration_cost import cheapest_migration
from midstream.adaptation.recent_changes import LEAST_CHANGES, RecentChanges
from midstream.adaptation.statistics import QueryStatistics
from midstream.errors import BadOption
from midstream.planning.cost import CostCoefficients, plan_cost
from tests.adaptation.test_controller import QUERY, sizes
from tests.adaptation.test_sampling import ALL, chain, measured, rows

COSTS = CostCoefficients()
BRACES = "{a b c d}"


def followed(plan, pushes: int = 4):
    query = chain()
    run, statistics = query.run_locally(plan), QueryStatistics()
    generator = np.random.default_rng(1)
    for push in range(pushes):
        run.push(rows(query, generator, 100 * push, 60, 20))
        assert statistics.follow(run._cell.executor) == (push > 0)
    return run, statistics


@pytest.mark.parametrize("routing", ["fixed", "eddy"])
@pytest.mark.parametrize("order", [BRACES, "{a b c} d", "a {b c d}", "{(a b) c d}", "{d b a c}"])
def test_statistics_with_braces_in_force_are_those_with_a_tree_in_force(order, routing):
    expected, by_tree = measured(*followed("a b c d"), ALL)
    found, by_braces = measured(*followed(chain().plan(order, routing=routing)), ALL)
    assert found.rows == expected.rows
    assert by_braces.keys() == by_tree.keys()
    for names in by_tree:
        assert float(by_braces[names].mean()) == pytest.approx(float(by_tree[names].mean())), names
    (block,), (other,) = found.blocks.values(), expected.blocks.values()
    assert block.held == pytest.approx([other.held[other.names.index(name)] for name in block.names])
    # What both plans have is counted in both.
    assert block.counted[0b1111] == other.counted[0b1111] > 0


def test_hot_keys_of_braces_are_those_of_their_pairs_of_inputs():
    trees = [keys for order in ("(a b) (c d)", "b c a d") for keys in followed(order)[0].statistics().hot_keys]
    expected = {keys.key: keys for keys in trees if all(len(side) == 1 for side in keys.inputs)}
    found = followed(BRACES)[0].statistics().hot_keys
    assert [keys.inputs for keys in found] == [(("a",), ("b",)), (("b",), ("c",)), (("c",), ("d",))]
    for keys in found:
        assert keys == expected[keys.key]


def migration(old, new, measured_sizes, strategies=("jisc", "moving-state", "gen-mig")):
    costs = tuple(plan_cost(plan, measured_sizes, COSTS) for plan in (old, new))
    return cheapest_migration(old, new, costs, measured_sizes, COSTS, strategies, longest_pause=10.0)


def test_other_probe_orders_cost_nothing_but_the_new_operator():
    old = QUERY.plan("{a b c}", probe_orders={"b": "a c"})
    new = QUERY.plan("{a b c}", probe_orders={"b": "c a"})
    found = migration(old, new, sizes(ab=1e6, bc=10))
    assert found is not None
    assert found.strategy == "moving-state"
    # Five lookups and four indexes, half an operator each.
    assert found.seconds == pytest.approx(COSTS.replacement * 4.5)


def test_a_change_to_braces_sorts_indexes_at_most_and_one_to_a_tree_computes_its_states():
    tree, braces, measured_sizes = QUERY.plan("a b c"), QUERY.plan("{a b c}"), sizes(ab=1e6, bc=1e6)
    there, back = migration(tree, braces, measured_sizes), migration(braces, tree, measured_sizes)
    assert there is not None and back is not None
    # The tree has b by x; the braces need b by y as well, which has 90,000 rows.
    indexing = 90_000 * COSTS.per_tuple_in(1)
    assert there.seconds == pytest.approx(indexing + COSTS.replacement * 4.5)
    assert there.strategy == "moving-state"
    computing = migration(braces, tree, measured_sizes, ("moving-state",))
    assert computing is not None and computing.seconds > 1e6 * COSTS.per_tuple_in(2)


def controller(**options) -> Controller:
    return Controller(Adaptation(**options), COSTS)


def consider(deciding: Controller, measured_sizes, plan, rows: int = 30_000):
    chosen = QUERY.plan(plan) if isinstance(plan, str) else plan
    proposal = deciding.consider(chosen, [measured_sizes], [rows], push=1, watermark=7)
    if proposal is not None:
        deciding.plan_changed()
    return proposal


def test_short_memory_changes_the_plan_at_once():
    """Both pairs are many, so that every tree keeps many; braces keep rows only, though that takes longer."""
    many = sizes(ab=300_000, bc=300_000)
    needed = plan_cost(QUERY.plan("{a b c}"), many, COSTS)
    assert needed is not None
    assert consider(controller(), many, "a b c") is None
    deciding = controller(most_state_bytes=1.5 * needed.state_bytes)
    proposal = consider(deciding, many, "a b c")
    assert proposal is not None and "MultiJoin" in str(proposal.plan)
    decision = deciding.decisions[-1]
    assert decision.state_bytes_now > 1.5 * needed.state_bytes >= decision.state_bytes_best
    assert "may take" in decision.reason
    assert 'from "a b c" to "{a b c}"' in decision_text(decision)
    assert "no longer computed and kept" in decision_text(decision)
    # It stays there as long as memory is short.
    for _ in range(20):
        assert consider(deciding, many, proposal.plan) is None


def test_frequent_changes_lead_to_braces_and_rare_ones_back_to_a_tree():
    deciding = controller(longest_pause=10.0)
    plan, chosen = QUERY.plan("a b c"), []
    for consideration in range(100):
        # Every fourth time the other pair becomes the larger one; the windows have 270,000 rows.
        ab, bc = (200_000, 80_000) if consideration // 4 % 2 == 0 else (80_000, 200_000)
        proposal = consider(deciding, sizes(ab=ab, bc=bc), plan)
        if proposal is not None:
            plan = proposal.plan
            chosen.append((consideration, "MultiJoin" in str(plan)))
    changes_of_trees = [place for place, is_braces in chosen if not is_braces]
    to_braces = [place for place, is_braces in chosen if is_braces]
    assert len(changes_of_trees) >= LEAST_CHANGES and to_braces
    assert to_braces[0] > changes_of_trees[LEAST_CHANGES - 1]
    decision = next(d for d in deciding.decisions if d.outcome == "changed" and "{" in d.best)
    assert "Changes of plan have recently cost" in decision.reason and decision.changing > 0
    # Then only probe orders are changed, by moving state.
    assert max(changes_of_trees) < to_braces[0] and len(to_braces) > 3
    assert {d.strategy for d in deciding.decisions if d.outcome == "changed" and "probes" in d.best} == {"moving-state"}
    # And when the streams are quiet for a while:
    for _ in range(120):
        proposal = consider(deciding, sizes(ab=80_000, bc=200_000), plan)
        plan = plan if proposal is None else proposal.plan
    assert "MultiJoin" not in str(plan)


def test_sizes_of_whole_windows_need_no_braces_for_frequent_changes():
    """They are those of a mixture: the tree that is the best for it need not be changed."""
    deciding = controller(regret=0, longest_pause=10.0)
    for _ in range(4):
        for plan, ab, bc in (("a b c", 200_000, 80_000), ("a (b c)", 80_000, 200_000)):
            consider(deciding, sizes(ab=ab, bc=bc), plan)
    mixture = sizes(ab=120_000, bc=100_000)
    proposal = consider(deciding, mixture, "a b c")
    assert proposal is not None and "MultiJoin" in str(proposal.plan)
    proposal = consider(deciding, replace(mixture, are_of_windows=True), "a b c")
    assert proposal is None or "MultiJoin" not in str(proposal.plan)
    assert deciding.decisions[-1].changing == 0


def test_recent_changes_survive_a_restart_and_a_withdrawn_one_does_not_count():
    deciding = controller(regret=0)
    for _ in range(4):
        for plan, ab, bc in (("a b c", 1e6, 10), ("a (b c)", 10, 1e6)):
            consider(deciding, sizes(ab=ab, bc=bc), plan)
    assert len(deciding.state.changes) >= LEAST_CHANGES
    other = controller()
    other.restore(deciding.state, deciding.decisions)
    assert other.state == deciding.state
    deciding = controller(regret=0)
    assert deciding.consider(QUERY.plan("a b c"), [sizes(ab=1e6, bc=10)], [0], push=1, watermark=7) is not None
    deciding.withdraw("refused")
    deciding.plan_changed()
    assert deciding.state.changes == ()
    assert consider(deciding, sizes(ab=1e6, bc=10), "a b c") is not None
    assert len(deciding.state.changes) == 1


def test_few_changes_do_not_count():
    changes = RecentChanges()
    for _ in range(LEAST_CHANGES - 1):
        changes.note(1.0)
    assert changes.seconds_per_row == 0
    changes.note_spared()
    changes.advance(1_000, 1_000)
    assert changes.seconds_per_row == pytest.approx(LEAST_CHANGES / 1_000)


def played(plan, policy: Adaptation, pushes: int = 24):
    """All joins make several pairs per row, and first those of x the most, then those of z."""
    query = chain(window=400)
    run, generator, results = query.run_locally(plan, adapt=policy), np.random.default_rng(3), []
    for push in range(pushes):
        values = {"x": 500, "y": 1_500, "z": 3_000} if push < pushes // 2 else {"x": 3_000, "y": 1_500, "z": 500}
        times = np.sort(generator.integers(100 * push, 100 * push + 100, 1_000))
        tables = {
            s.name: pa.table({"ts": times, **{c: generator.integers(0, values[c], 1_000) for c in s.schema.names[1:]}})
            for s in query.streams
        }
        results.append(run.push(tables))
    return run, pa.concat_tables([*results, run.finish()])


def test_a_run_that_is_short_of_memory_changes_its_probe_orders_only():
    policy = Adaptation(coefficients=COSTS, most_state_bytes=1_200_000.0, least_gain=1.05, measure_share=0.5)
    run, results = played(None, policy)
    changed = [decision for decision in run.decisions() if decision.outcome == "changed"]
    first = next(place for place, decision in enumerate(changed) if decision.best == BRACES)
    afterwards = changed[first + 1 :]
    assert afterwards and all("probes" in decision.best for decision in afterwards)
    assert {decision.strategy for decision in afterwards} == {"moving-state"}
    assert {migration.rows_recomputed for migration in run.history()[first + 1 :]} == {0}
    _, expected = played(None, Adaptation(mode="advise", coefficients=COSTS))
    in_order = [(name, "ascending") for name in results.schema.names]
    assert results.sort_by(in_order).equals(expected.sort_by(in_order))


def test_adaptation_leaves_an_eddy_alone():
    run, _ = played(chain(window=400).plan(BRACES, routing="eddy"), Adaptation(coefficients=COSTS, least_gain=1.0))
    assert run.history() == []
    assert run.decisions() and all(decision.outcome == "kept" for decision in run.decisions())
    assert run.decisions()[-1].plan == f"{BRACES}:eddy"
    assert all(decision.failure is None for decision in run.decisions())


def test_a_bad_limit_is_refused():
    with pytest.raises(BadOption, match="most_state_bytes must be a number of at least 0"):
        Adaptation(most_state_bytes=-1)
