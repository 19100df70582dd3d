"""Sizes of join subsets: exact if everything is drawn, unbiased if little is, the same whatever plan is in force."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.adaptation.sampling import GROUPS
from midstream.adaptation.statistics import QueryStatistics
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.explain_cost import explain_cost
from midstream.planning.cost.sizes import BlockSizes, PlanSizes, standard_error
from midstream.planning.join_order.join_graph import bits
from midstream.testing.choices import SeededChoices
from tests.adaptation.skew import q_errors
from tests.property.random_joins import random_joins, random_rows

ALL = 1_000_000
T = TypeVar("T")


def chain(window: int = 1_000_000) -> ContinuousQuery:
    columns = {"a": "x", "b": "xy", "c": "yz", "d": "z"}
    streams = [
        Stream(n, pa.schema({"ts": pa.int64(), **{c: pa.int64() for c in cs}}), "ts") for n, cs in columns.items()
    ]
    windows = ", ".join(f"{name} [RANGE {window}]" for name in columns)
    conditions = "a.x = b.x AND b.y = c.y AND c.z = d.z"
    return ContinuousQuery(f"SELECT a.ts AS first, d.ts AS last FROM {windows} WHERE {conditions}", streams)


def rows(
    query: ContinuousQuery, generator: np.random.Generator, start: int, count: int, keys: int
) -> dict[str, pa.Table]:
    return {
        stream.name: pa.table(
            {"ts": np.sort(generator.integers(start, start + 100, count))}
            | {column: generator.integers(0, keys, count) for column in stream.schema.names[1:]}
        )
        for stream in query.streams
    }


def measured(run, statistics: QueryStatistics, sample_rows: int, seed: int = 0):
    sizes = statistics.measure(sample_rows, np.random.default_rng(seed))
    (block,) = sizes.blocks.values()
    return sizes, by_names(block, block.increments)


def by_names(block: BlockSizes, by_inputs: Mapping[int, T]) -> dict[frozenset[str], T]:
    return {frozenset(block.names[place] for place in bits(inputs)): value for inputs, value in by_inputs.items()}


def counted(sizes: PlanSizes) -> dict[frozenset[str], int]:
    (block,) = sizes.blocks.values()
    return by_names(block, block.counted)


@pytest.mark.parametrize("order", ["a b c d", "a b (c d)", "d c b a", "b c a d"])
def test_all_rows_drawn_give_the_exact_sizes_of_all_subsets(order):
    """Those of the plan in force are counted; the others must not depend on which plan is in force."""
    query = chain()
    run, statistics = query.run_locally(order), QueryStatistics()
    generator = np.random.default_rng(1)
    for push in range(4):
        run.push(rows(query, generator, 100 * push, 60, 20))
        statistics.follow(run._cell.executor)
    sizes, found = measured(run, statistics, ALL)
    assert counted(sizes)
    for names, count in counted(sizes).items():
        assert _uncorrected(found, names, sizes) == pytest.approx(count, rel=1e-9), names
    expected = {"a": 60, "b": 60, "c": 60, "d": 60}
    assert {next(iter(n)): round(r.mean()) for n, r in found.items() if len(n) == 1} == expected
    other = _counts_by_other_orders(query)
    for names, count in other.items():
        assert _uncorrected(found, names, sizes) == pytest.approx(count, rel=1e-9), names


def _counts_by_other_orders(query: ContinuousQuery) -> dict[frozenset[str], int]:
    counts: dict[frozenset[str], int] = {}
    for order in ("a b c d", "a b (c d)", "d c b a", "b c a d"):
        run, statistics = query.run_locally(order), QueryStatistics()
        generator = np.random.default_rng(1)
        for push in range(4):
            run.push(rows(query, generator, 100 * push, 60, 20))
            statistics.follow(run._cell.executor)
        counts |= counted(statistics.measure(16, np.random.default_rng(0)))
    return counts


def _uncorrected(found, names, sizes) -> float:
    """The estimate without the share for partners that may have ended: none has in these tests."""
    (block,) = sizes.blocks.values()
    if len(names) == len(block.names):
        # Counted, not estimated.
        return float(found[names].mean())
    alive = [
        1 - min(1.0, float(block.increments[1 << place].mean()) / block.held[place]) / 2
        for place, name in enumerate(block.names)
        if name in names
    ]
    return float(found[names].mean()) * float(np.prod(alive)) ** (1 - 1 / len(names))


def test_random_joins_are_measured_exactly_if_all_rows_are_drawn():
    """Equalities, ranges, other comparisons, text and NULLs; what the plan in force counts is compared."""
    compared = 0
    for seed in range(60):
        choices = SeededChoices(f"sampling {seed}")
        query = random_joins(choices)
        # Windows without an end in sight: else partners are missing that have ended.
        text = re.sub(r"\[[^]]*\]", "[RANGE 100000]", query.text)
        query = ContinuousQuery(text, query.streams)
        run, statistics = query.run_locally(), QueryStatistics()
        is_measurable = False
        for push in range(4):
            tables = {s.name: random_rows(choices, s, 20 * push, run.watermark or 0, 2) for s in query.streams}
            run.push(tables)
            is_measurable = statistics.follow(run._cell.executor)
        if not is_measurable:
            continue
        sizes, found = measured(run, statistics, ALL, seed)
        for names, count in counted(sizes).items():
            if names in found:
                assert _uncorrected(found, names, sizes) == pytest.approx(count, rel=1e-9), (seed, query.text, names)
                compared += count > 0 and len(names) < len(query.streams)
    assert compared > 20


def test_a_sample_is_unbiased_and_knows_its_error():
    query = chain()
    run, statistics = query.run_locally("a b c d"), QueryStatistics()
    generator = np.random.default_rng(5)
    for push in range(8):
        run.push(rows(query, generator, 100 * push, 200, 150))
        statistics.follow(run._cell.executor)
    _, exact = measured(run, statistics, ALL)
    names = frozenset("abc")
    estimates = [measured(run, statistics, 64, seed)[1][names] for seed in range(40)]
    means = np.array([estimate.mean() for estimate in estimates])
    truth = float(exact[names].mean())
    assert len(estimates[0]) == GROUPS
    assert means.mean() == pytest.approx(truth, rel=0.1)
    errors = np.array([standard_error(estimate) for estimate in estimates])
    # Rather too large than too small: candidates drawn at random are shared out among the groups at random, too.
    assert 0.7 < np.median(errors) / means.std() < 3


def test_a_hot_key_does_not_make_a_sample_large():
    query = chain()
    run, statistics = query.run_locally("a b c d"), QueryStatistics()
    generator = np.random.default_rng(5)
    for push in range(3):
        tables = rows(query, generator, 100 * push, 100, 5)
        # No result, so that the run stays small; the pairs of a and b are many.
        tables["d"] = tables["d"].set_column(1, "z", pa.array([-1] * 100))
        run.push(tables)
        statistics.follow(run._cell.executor)
    sizes, found = measured(run, statistics, 32)
    assert found[frozenset("ab")].mean() == pytest.approx(counted(sizes)[frozenset("ab")], rel=0.5)
    assert found[frozenset("abcd")].mean() == 0


def test_what_has_ended_since_is_allowed_for():
    query = chain(window=200)
    run, statistics = query.run_locally("a b c d"), QueryStatistics()
    generator = np.random.default_rng(5)
    for push in range(12):
        run.push(rows(query, generator, 100 * push, 300, 100))
        statistics.follow(run._cell.executor)
    sizes, found = measured(run, statistics, ALL)
    for names, count in counted(sizes).items():
        assert found[names].mean() == pytest.approx(count, rel=0.35), names


def test_nothing_is_measured_during_a_migration():
    query = chain()
    run, statistics = query.run_locally("a b c d"), QueryStatistics()
    generator = np.random.default_rng(5)
    for push in range(3):
        run.push(rows(query, generator, 100 * push, 30, 10))
        statistics.follow(run._cell.executor)
    assert statistics.follow(run._cell.executor)
    run.migrate("d c b a", "gen-mig")
    assert not statistics.follow(run._cell.executor)


def test_just_in_time_processing_hides_no_row_of_a_window():
    query = chain()
    sizes = []
    for just_in_time in (False, True):
        run, statistics = query.run_locally("a b c d", just_in_time=just_in_time), QueryStatistics()
        generator = np.random.default_rng(1)
        for push in range(4):
            run.push(rows(query, generator, 100 * push, 60, 40))
            assert statistics.follow(run._cell.executor) == (push > 0)
        sizes.append({names: float(r.mean()) for names, r in measured(run, statistics, ALL)[1].items()})
    assert sizes[1] == pytest.approx(sizes[0], rel=0.02)


@pytest.mark.parametrize("order", ["a b c d", "d c b a"])
def test_tuples_held_are_measured_too_also_those_that_no_plan_in_force_holds(order):
    """After a step they have nothing to do with what new rows make."""
    query = chain(window=500)
    run, statistics = query.run_locally(order), QueryStatistics()
    generator = np.random.default_rng(1)
    for push in range(6):
        run.push(rows(query, generator, 100 * push, 60, 20 if push < 4 else 5_000))
        statistics.follow(run._cell.executor)
    sizes, _ = measured(run, statistics, ALL)
    (block,) = sizes.blocks.values()
    held = {
        frozenset(name for place, name in enumerate(block.names) if inputs >> place & 1): count
        for inputs, count in block.held_sets.items()
    }
    box = next(run._cell.executor.boxes())
    for join in box.joins:
        for side in join.sides:
            names = frozenset(field.relation for field in side.layout.fields)
            if len(names) > 1:
                there = sum(len(batch) for batch in side.tuples_held())
                assert held[names] == pytest.approx(there, rel=0.02), names
    assert held[frozenset("bc")] > 10 * float(block.increments[0b0110].mean())


@pytest.mark.parametrize("are_apart", [False, True])
def test_hot_keys_do_not_mislead_a_sample(are_apart):
    """Zipf 1: half of the estimates are at most twice too large or too small, for every number of inputs."""
    errors: dict[int, list[float]] = {2: [], 3: [], 4: []}
    for seed in range(10):
        for names, (error, size) in q_errors(1.0, are_apart, 10_000, seed).items():
            assert size > 100
            errors[len(names)].append(error)
    assert all(np.median(found) <= 2 for found in errors.values()), errors


def test_after_a_sudden_change_the_sizes_to_come_are_foreseen():
    """In one push after the change, a join makes a tenth of what it will make when the window is full of such rows."""
    query, generator = chain(window=1000), np.random.default_rng(7)

    def after(pushes: int) -> tuple[float, float, float]:
        run, statistics = query.run_locally("(c d) b a"), QueryStatistics()
        for push in range(12 + pushes):
            # Many pairs of a and b from the twelfth push on, few before; all others as they are.
            tables = rows(query, generator, 100 * push, 200, 2_000)
            if push >= 12:
                for name in "ab":
                    place = tables[name].schema.get_field_index("x")
                    values = pa.array(generator.integers(0, 40, 200))
                    tables[name] = tables[name].set_column(place, "x", values)
            run.push(tables)
            statistics.follow(run._cell.executor)
        sizes = statistics.measure(ALL, generator, least_span=200)
        names = next(iter(sizes.blocks.values())).names
        pair = 1 << names.index("a") | 1 << names.index("b")
        return tuple(
            float(next(iter(found.blocks.values())).increments[pair].mean())
            for found in (sizes, sizes.later(1.0), sizes.later(math.inf))
        )

    now, soon, to_come = after(pushes=1)
    next_push, *_ = after(pushes=2)
    settled, _, still = after(pushes=12)
    assert now < settled / 5
    assert next_push > 2 * now and soon == pytest.approx(next_push, rel=0.3)
    assert to_come == pytest.approx(settled, rel=0.3)
    assert still == pytest.approx(settled, rel=0.3)


def test_two_blocks_with_the_same_aliases_are_told_apart():
    streams = [Stream(name, pa.schema({"ts": pa.int64(), "k": pa.int64()}), "ts") for name in "pqrs"]
    window = "[RANGE 1000]"
    query = ContinuousQuery(
        f"SELECT x.ts AS ts FROM p {window} x, q {window} y WHERE x.k = y.k"
        f" UNION ALL SELECT x.ts AS ts FROM r {window} x, s {window} y WHERE x.k = y.k",
        streams,
    )
    run, statistics = query.run_locally(), QueryStatistics()
    statistics.follow(run._cell.executor)
    counts = {"p": 10, "q": 10, "r": 3, "s": 2}
    for _ in range(2):
        run.push({name: pa.table({"ts": [1] * count, "k": [7] * count}) for name, count in counts.items()})
        statistics.follow(run._cell.executor)
    sizes = statistics.measure(ALL, np.random.default_rng(0))
    produced = sorted(float(block.increments[3].mean()) for block in sizes.blocks.values())
    # The latest push: 20 x 20 - 10 x 10 pairs, and 6 x 4 - 3 x 2.
    assert produced == [18.0, 300.0]
    assert sorted(block.counted[3] for block in sizes.blocks.values()) == [18, 300]
    explained = explain_cost(run.plan, sizes, CostCoefficients())
    per_thousand = [f"{1_000 * count / sizes.rows:,.0f}" for count in (300, 18)]
    for rows_shown in per_thousand:
        assert f"{rows_shown} rows ± 0 per 1,000, counted {rows_shown} (q-error 1.00)" in explained
    push = statistics.latest_push()
    assert sorted(counts.produced for counts in push.values()) == [18, 300]


def test_a_condition_of_three_inputs_can_be_measured():
    """With ``a.x + b.y = c.z`` only c can be the last input of a, b and c: that set is derived, all others measured."""
    columns = {"a": "kx", "b": "ky", "c": "zu", "d": "u"}
    query = ContinuousQuery(
        "SELECT a.ts AS ts FROM a [RANGE 1000], b [RANGE 1000], c [RANGE 1000], d [RANGE 1000]"
        " WHERE a.k = b.k AND a.x + b.y = c.z AND c.u = d.u",
        [Stream(n, pa.schema({"ts": pa.int64(), **{c: pa.int64() for c in cs}}), "ts") for n, cs in columns.items()],
    )
    run, statistics = query.run_locally("a b (c d)"), QueryStatistics()
    statistics.follow(run._cell.executor)
    generator = np.random.default_rng(1)
    for push in range(4):
        run.push(rows(query, generator, 100 * push, 60, 20))
        assert statistics.follow(run._cell.executor)
    sizes, increments = measured(run, statistics, ALL)
    assert {names for names in increments if len(names) > 1} == {frozenset("ab"), frozenset("cd"), frozenset("abcd")}
    for block in sizes.blocks.values():
        for inputs, counted in block.counted.items():
            names = frozenset(block.names[place] for place in bits(inputs))
            assert float(increments[names].mean()) == pytest.approx(counted, rel=0.2), names
    assert "(derived)" in query.explain("a b c d", statistics=sizes)
