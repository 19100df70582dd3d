"""Rows are spread so that the cells' results together are the query's, each found in one cell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream import ContinuousQuery, Stream
from midstream.algebra.expressions import Call, Column, Expression
from midstream.algebra.functions import call, cast
from midstream.algebra.plan import Aggregate, Alias, Difference, Distinct, Item, Join, Plan, Project, Union, Window
from midstream.algebra.window_spec import NEVER, WindowSpec
from midstream.engine.output import output_schema, to_record_batches
from midstream.engine.state.window_store import Rows
from midstream.errors import BadPlan
from midstream.planning import default_plan
from midstream.planning.partitioning import MOST_CELLS, Dimension, Partitioning, _analysed, partition
from midstream.runtime.cell import Cell
from midstream.runtime.cell_routing import cells_of, rows_by_cell
from midstream.runtime.ingest import Ingest
from midstream.testing import (
    JOIN_OPERATORS,
    Push,
    Scenario,
    assert_same_bag,
    assert_snapshot_equivalent,
    scenarios,
)
from tests.examples import random_examples
from tests.planning.plans import (
    chain_equalities,
    condition,
    cross,
    equal,
    group,
    joined,
    project,
    value,
    where,
    window,
)

ROOT = Path(__file__).parent.parent.parent
COUNT = {"n": ("count", None)}


def keys(partitioning: Partitioning) -> list[tuple[list[str], int]]:
    """The dimensions as texts of their keys, with their shares."""
    return [(sorted(key.text for key in d.keys.values()), d.share) for d in partitioning.dimensions]


def splits(plan: Plan) -> set[tuple[str, ...]]:
    """All dimensions that are legal, the dominated ones among them."""
    return {tuple(sorted(key.text for key in split.keys.values())) for split in _analysed(plan).splits}


def copies(partitioning: Partitioning) -> dict[str, int]:
    return {w.alias: partitioning.replication(w.identity) for w in partitioning.windows}


# Joins


def test_a_shared_key_splits_all_windows() -> None:
    found = partition(joined("a b c", *equal("a.k=b.k", "b.k=c.k")), 8)
    assert keys(found) == [(["a.k", "b.k", "c.k"], 8)]
    assert copies(found) == {"a": 1, "b": 1, "c": 1}


def test_equality_is_transitive_whatever_the_order() -> None:
    a, b, c = (window(alias) for alias in "abc")
    orders = [
        Join(Join(a, b, tuple(equal("a.k=b.k"))), c, tuple(equal("b.k=c.k"))),
        Join(Join(a, c, tuple(equal("a.k=c.k"))), b, tuple(equal("a.k=b.k"))),
        Join(Join(a, c, ()), b, tuple(equal("a.k=b.k", "b.k=c.k"))),
        Join(c, project_plain(Join(b, a, tuple(equal("a.k=b.k"))), "b.k"), tuple(equal("b.k=c.k"))),
    ]
    assert {str(partition(plan, 4).dimensions) for plan in orders} == {str(partition(orders[0], 4).dimensions)}


def project_plain(plan: Plan, *texts: str) -> Plan:
    return Project(plan, tuple(Item(*text.split("."), value(text)) for text in texts))


def test_a_chain_makes_a_grid_and_replicates_the_ends() -> None:
    found = partition(joined("a b c", *equal("a.k=b.k", "b.x=c.x")), 4)
    assert keys(found) == [(["a.k", "b.k"], 2), (["b.x", "c.x"], 2)]
    assert copies(found) == {"a": 2, "b": 1, "c": 2}


def test_a_triangle_makes_a_cube() -> None:
    triangle = joined("a b c", *equal("a.k=b.k", "b.x=c.x", "c.ts=a.ts"))
    found = partition(triangle, 8)
    assert [share for _, share in keys(found)] == [2, 2, 2]
    assert copies(found) == {"a": 2, "b": 2, "c": 2}


def test_a_theta_join_splits_one_side_and_replicates_the_other() -> None:
    plan = joined("a b", condition("a.x", "<", "b.x"))
    assert copies(partition(plan, 4)) == {"a": 2, "b": 2}
    assert copies(partition(plan, 4, {"a": 100, "b": 1})) == {"a": 1, "b": 4}


def test_a_cross_product_is_a_grid() -> None:
    assert keys(partition(cross(window("a"), window("b")), 6)) == [(["a.ts"], 3), (["b.ts"], 2)]


def test_an_equality_under_or_merges_nothing() -> None:
    either = call("or", *equal("a.k=b.k"), condition("a.x", "=", 1))
    assert splits(joined("a b", either)) == {("a.ts",), ("b.ts",)}


def test_a_constant_merges_nothing() -> None:
    assert splits(joined("a b", condition("a.k", "=", 1), condition("b.k", "=", 1))) == {("a.ts",), ("b.ts",)}


def test_keys_are_the_expressions_that_are_compared() -> None:
    a = Window(Stream("a", pa.schema({"ts": pa.int64(), "v": pa.int64()}), "ts"), "a", WindowSpec(9))
    b = Window(Stream("b", pa.schema({"ts": pa.int64(), "v": pa.float64()}), "ts"), "b", WindowSpec(9))
    v = [Column(alias, "v", data_type) for alias, data_type in (("a", pa.int64()), ("b", pa.float64()))]
    assert keys(partition(Join(a, b, (call("=", *v),)), 2)) == [(["CAST(a.v AS double)", "b.v"], 2)]


def test_comparison_across_types_is_not_transitive() -> None:
    """2**53 and 2**53 + 1 equal the same double: a and c must not be split by what equals b."""

    def of(alias: str, data_type: pa.DataType) -> tuple[Plan, Column]:
        stream = Stream(alias, pa.schema({"ts": pa.int64(), "v": data_type}), "ts")
        return Window(stream, alias, WindowSpec(9)), Column(alias, "v", data_type)

    (a, a_v), (b, b_v), (c, c_v) = of("a", pa.int64()), of("b", pa.float64()), of("c", pa.int64())
    plan = Join(Join(a, b, (call("=", a_v, b_v),)), c, (call("=", a_v, c_v),))
    assert {("a.v", "c.v"), ("CAST(a.v AS double)", "b.v")} <= splits(plan)
    assert not any(len(found) == 3 for found in splits(plan))


def test_values_of_different_types_are_not_taken_to_hash_alike() -> None:
    wrong = Call("=", (Column("a", "k", pa.int64()), Column("b", "s", pa.string())), pa.bool_())
    assert splits(Join(window("a"), window("b"), (wrong,))) == {("a.ts",), ("b.ts",)}


def test_an_expression_of_two_windows_is_the_key_of_neither() -> None:
    plan = joined("a b c", condition(call("+", value("a.x"), value("b.x")), "=", "c.x"))
    assert splits(plan) == {("a.ts",), ("b.ts",), ("c.ts",), ("c.x",)}


def test_two_columns_of_a_window_in_one_class_give_one_key() -> None:
    found = partition(default_plan(joined("a b c", *equal("a.x=b.k", "a.k=b.k", "b.k=c.k"))), 4)
    assert keys(found) == [(["a.k", "b.k", "c.k"], 4)]


def test_booleans_are_no_keys() -> None:
    schema = pa.schema({"ts": pa.int64(), "flag": pa.bool_()})
    a, b = (Window(Stream(alias, schema, "ts"), alias, WindowSpec(9)) for alias in "ab")
    flags = [Column(alias, "flag", pa.bool_()) for alias in "ab"]
    assert splits(Join(a, b, (call("=", *flags),))) == {("a.ts",), ("b.ts",)}
    assert partition(Aggregate(a, (Item("", "flag", flags[0]),), ()), 4).cells == 1


def test_nested_columns_are_no_keys() -> None:
    a = Window(Stream("a", pa.schema({"ts": pa.int64(), "v": pa.list_(pa.int64())}), "ts"), "a", WindowSpec(9))
    assert splits(Union(a, a)) == {("a.ts",)}


# Distinct and aggregation


def test_groups_meet_by_a_grouping_key() -> None:
    plan = joined("a b", *equal("a.k=b.k"))
    assert keys(partition(group(plan, "b.k", **COUNT), 4)) == [(["a.k", "b.k"], 4)]
    assert keys(partition(group(plan, "a.x", **COUNT), 4)) == [(["a.x"], 4)]
    assert splits(group(plan, "a.x b.x", **COUNT)) == {("a.x",), ("b.x",)}


def test_groups_by_an_expression_meet_by_it() -> None:
    plan = Aggregate(window("a"), (Item("", "h", call("%", value("a.x"), value(10))),), ())
    assert splits(plan) == {("a.x % 10",)}


def test_a_key_may_be_computed_from_grouping_keys() -> None:
    a = Window(Stream("a", pa.schema({"ts": pa.int64(), "v": pa.int64()}), "ts"), "a", WindowSpec(9))
    b = Window(Stream("b", pa.schema({"ts": pa.int64(), "v": pa.float64()}), "ts"), "b", WindowSpec(9))
    v = Column("a", "v", pa.int64())
    plan = Aggregate(Join(a, b, (call("=", v, Column("b", "v", pa.float64())),)), (Item("", "v", v),), ())
    assert splits(plan) == {("CAST(a.v AS double)", "b.v"), ("a.v",)}


def test_a_key_that_tells_equal_values_apart_is_not_exposed_by_them() -> None:
    """0.0 and -0.0 are one group, though as text they are two."""
    schema = pa.schema({"ts": pa.int64(), "v": pa.float64(), "s": pa.string()})
    a, b = (Window(Stream(alias, schema, "ts"), alias, WindowSpec(9)) for alias in "ab")
    v = Column("a", "v", pa.float64())
    plan = Join(a, b, (call("=", cast(v, pa.string()), Column("b", "s", pa.string())),))
    assert splits(Aggregate(plan, (Item("", "v", v),), ())) == {("a.v",)}
    text = Item("", "t", cast(v, pa.string()))
    assert splits(Aggregate(plan, (text,), ())) == {("CAST(a.v AS string)", "b.s")}
    assert splits(Distinct(project_of(plan, ("v", v)))) == {("a.v",)}


def project_of(plan: Plan, *named: tuple[str, Expression]) -> Plan:
    return Project(plan, tuple(Item("", name, expression) for name, expression in named))


def test_without_grouping_keys_there_is_one_cell() -> None:
    found = partition(group(joined("a b", *equal("a.k=b.k")), "", **COUNT), 4)
    assert (found.cells, found.dimensions) == (1, ())
    assert found.reason == "an aggregate without GROUP BY needs all rows"
    assert found.explain() == "1 cell: an aggregate without GROUP BY needs all rows"


def test_an_aggregate_in_the_grouping_keys_place_exposes_nothing() -> None:
    inner = Alias(group(window("a"), "a.k a.x", m=("max", "a.ts")), "i")
    assert splits(group(inner, "i.m", **COUNT)) == set()
    assert splits(group(inner, "i.a_x", **COUNT)) == {("a.x",)}


def test_distinct_keeps_what_its_rows_expose() -> None:
    plan = joined("a b", *equal("a.k=b.k"))
    assert splits(Distinct(project(plan, "a.x", "b.k"))) == {("a.k", "b.k"), ("a.x",)}
    assert splits(Distinct(project(plan, "b.s"))) == {("b.s",)}
    computed = Project(plan, (Item("", "v", call("+", value("a.x"), value("b.x"))),))
    found = partition(Distinct(computed), 4)
    assert (found.cells, found.reason) == (1, "no column of the distinct rows determines the cell of a row")


def test_a_split_outside_of_an_inner_aggregate_replicates_it() -> None:
    inner = Alias(group(window("a"), "", m=("max", "a.x")), "i")
    found = partition(Join(inner, window("b"), tuple(equal("i.m=b.x"))), 4)
    assert keys(found) == [(["b.x"], 4)]
    assert copies(found) == {"a": 4, "b": 1}


def test_an_inner_aggregate_is_split_by_what_it_exposes() -> None:
    inner = Alias(group(window("a"), "a.k", m=("max", "a.x")), "i")
    assert splits(Join(inner, window("b"), tuple(equal("i.a_k=b.x")))) == {("a.k", "b.x"), ("b.ts",)}
    assert splits(Join(inner, window("b"), tuple(equal("i.m=b.x")))) == {("a.k",), ("b.ts",), ("b.x",)}


def test_an_aggregate_of_an_aggregate_needs_a_key_of_both() -> None:
    inner = Alias(group(window("a"), "a.k a.x", m=("max", "a.ts")), "i")
    assert splits(group(inner, "i.a_k", **COUNT)) == {("a.k",)}
    assert splits(group(inner, "", **COUNT)) == set()


# Difference and union


def test_the_sides_of_a_difference_are_split_alike() -> None:
    plan = Difference(project(window("a"), "a.k", "a.x"), project(window("b"), "b.x", "b.k"), "all")
    assert splits(plan) == {("a.k", "b.x"), ("a.x", "b.k")}


def test_the_right_side_of_a_difference_may_be_replicated_the_left_may_not() -> None:
    whole, keyed = group(window("a"), "", m=("max", "a.x")), project(window("b"), "b.x")
    assert splits(Difference(keyed, whole, "distinct")) == {("b.x",)}
    found = partition(Difference(whole, keyed, "distinct"), 4)
    assert (found.cells, found.reason) == (1, "an aggregate without GROUP BY needs all rows")


def test_a_window_inside_a_side_may_be_replicated() -> None:
    left = project(joined("a b", condition("a.x", "<", "b.x")), "a.k")
    found = partition(Difference(left, project(window("c"), "c.k"), "distinct"), 4)
    assert keys(found) == [(["a.k", "c.k"], 4)]
    assert copies(found) == {"a": 1, "b": 4, "c": 1}


def test_a_union_is_split_by_anything_that_splits_both_sides() -> None:
    plan = Union(project(joined("a b", *equal("a.k=b.k")), "a.x"), project(window("c"), "c.x"))
    assert keys(partition(plan, 4)) == [(["a.k", "b.k", "c.ts"], 4)]
    assert all(
        ("c." in "".join(found)) and ("a." in "".join(found) or "b." in "".join(found)) for found in splits(plan)
    )


def test_a_union_is_not_split_if_a_side_is_not() -> None:
    plan = Union(project(window("a"), "a.x"), group(window("b"), "", m=("max", "b.x")))
    assert partition(plan, 4).cells == 1


def test_a_distinct_over_a_union_needs_the_same_place() -> None:
    sides = project(window("a"), "a.k", "a.x"), project(window("b"), "b.k", "b.x")
    assert splits(Distinct(Union(*sides))) == {("a.k", "b.k"), ("a.x", "b.x")}
    constant = Project(window("b"), (Item("", "k", value(1)), Item("", "x", value("b.x"))))
    assert splits(Distinct(Union(sides[0], constant))) == {("a.x", "b.x")}


def test_a_union_keeps_every_place_at_which_its_sides_agree() -> None:
    twice = Project(window("a"), (Item("", "k", value("a.k")), Item("", "x", value("a.k"))))
    both = Alias(Union(twice, project_of(window("b"), ("k", value("b.k")), ("x", value("b.x")))), "u")
    assert splits(group(both, "u.k u.x", **COUNT)) == {("a.k", "b.k"), ("a.k", "b.x")}
    assert splits(group(Alias(Distinct(both), "d"), "d.x", **COUNT)) == {("a.k", "b.x")}


# Windows that are read more than once


def test_a_repeated_window_has_one_key() -> None:
    k, x = project(window("a"), "a.k"), project(window("a"), "a.x")
    assert splits(Difference(k, k, "distinct")) == {("a.k",)}
    found = partition(Difference(k, x, "distinct"), 4)
    assert (found.cells, found.reason) == (1, "the sides of a difference cannot be split alike")
    assert partition(Distinct(Union(k, x)), 4).cells == 1
    assert splits(Union(k, x)) == {("a.ts",)}


def test_a_key_through_one_reading_splits_the_other_too() -> None:
    """The aggregate needs all rows of a, so nothing may split a, here or anywhere."""
    everything = Alias(group(window("a"), "", m=("max", "a.x")), "i")
    assert splits(Join(window("a"), everything, ())) == set()
    assert splits(Join(everything, window("a"), ())) == set()
    assert splits(cross(window("a"), everything, window("b"))) == {("b.ts",)}


def test_a_repeated_window_is_replicated_where_no_key_suits_all_readings() -> None:
    left = project(joined("a b", *equal("a.k=b.k")), "a.k")
    right = project(joined("a b", *equal("a.x=b.x")), "a.k")
    assert splits(Difference(left, right, "distinct")) == {("a.k",)}


def test_a_repeated_window_may_take_the_key_that_another_reading_needs() -> None:
    either = project(where(window("a"), *equal("a.k=a.x")), "a.k")
    assert splits(Difference(either, project(window("a"), "a.x"), "distinct")) == {("a.x",)}
    assert splits(Union(project(window("a"), "a.x"), Distinct(project(window("a"), "a.k")))) == {("a.k",)}


def test_other_windows_of_a_stream_are_split_apart() -> None:
    plan = Difference(project(window("a", 10, "s"), "a.k"), project(window("b", 10, "s"), "b.k"), "distinct")
    assert keys(partition(plan, 2)) == [(["a.k", "b.k"], 2)]
    plan = Difference(project(window("a", 10), "a.k"), project(window("a", 20), "a.x"), "distinct")
    assert keys(partition(plan, 2)) == [(["a.k", "a.x"], 2)]


# The choice of shares


def test_rates_decide_what_is_replicated() -> None:
    plan = joined("a b c", *equal("a.k=b.k", "b.x=c.x"))
    assert keys(partition(plan, 4, {"a": 1000})) == [(["a.k", "b.k"], 4)]
    assert keys(partition(plan, 4, {"c": 1000})) == [(["b.x", "c.x"], 4)]


def test_many_keys_of_one_window_do_not_crowd_out_another() -> None:
    names = [f"c{number}" for number in range(12)]
    schema = pa.schema({"ts": pa.int64(), **dict.fromkeys(names, pa.int64())})
    a, b = (Window(Stream(alias, schema, "ts"), alias, WindowSpec(9)) for alias in "ab")
    columns = [Column("a", name, pa.int64()) for name in names] + [Column("b", "c0", pa.int64())]
    plan = Aggregate(Join(a, b, ()), tuple(Item("", c.text, c) for c in columns), ())
    assert copies(partition(plan, 4)) == {"a": 2, "b": 2}


def sent(partitioning: Partitioning) -> int:
    return sum(copies(partitioning).values())


def test_no_grid_of_the_legal_dimensions_sends_less() -> None:
    plan = joined("a b c d", *equal("a.k=b.k", "b.x=c.x", "c.ts=d.ts"))
    legal = [split.keys for split in _analysed(plan).splits]
    for cells in (2, 6, 8, 12, 30):
        tried = [
            sent(Partitioning((Dimension(one, share), Dimension(other, cells // share)), None, tuple(plan.windows())))
            for one in legal
            for other in legal
            for share in range(1, cells + 1)
            if cells % share == 0
        ]
        found = partition(plan, cells)
        assert found.cells == cells
        assert sent(found) <= min(tried)


def test_all_cells_are_used_whatever_their_number() -> None:
    plan = joined("a b c", *equal("a.k=b.k", "b.x=c.x"))
    assert [partition(plan, cells).cells for cells in range(1, 40)] == list(range(1, 40))
    assert partition(plan, 1).explain() == "1 cell"


@pytest.mark.parametrize("cells", [0, -1, MOST_CELLS + 1, True, 2.0, "2", None])
def test_a_bad_number_of_cells_is_refused(cells: object) -> None:
    with pytest.raises(BadPlan, match=r"\[M2001\] a query cannot run in .* cells"):
        partition(window("a"), cells)  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [-1, float("nan"), float("inf"), "fast", True])
def test_a_bad_rate_is_refused(rate: object) -> None:
    with pytest.raises(BadPlan, match='the rate of stream "a" is'):
        partition(window("a"), 2, {"a": rate})  # type: ignore[dict-item]


def test_rates_that_name_no_streams_are_refused() -> None:
    with pytest.raises(BadPlan, match="rates is 'fast'"):
        partition(window("a"), 2, "fast")  # type: ignore[arg-type]


def test_a_rate_of_another_stream_is_refused() -> None:
    with pytest.raises(BadPlan, match='"order", which the query does not read'):
        partition(window("orders"), 2, {"order": 1.0})


def test_explanation_names_keys_copies_and_what_meets() -> None:
    plan = Distinct(project(group(joined("a b", *equal("a.k=b.k")), "a.k b.x", **COUNT), "a_k"))
    assert partition(plan, 4).explain().splitlines() == [
        "4 cells: 4 by a.k = b.k",
        "each row once: a [RANGE 10], b [RANGE 10]",
        "rows of a group and equal rows meet in one cell",
    ]


def test_large_queries_are_quick() -> None:
    names = [f"w{number}" for number in range(128)]
    plans = [
        default_plan(joined(" ".join(names), *chain_equalities(names))),
        default_plan(joined(" ".join(names), *(equal(f"{a}.k={b}.x")[0] for a, b in pairwise(names)))),
        cross(*(window(name) for name in names)),
    ]
    for plan in plans:
        plan.identity  # noqa: B018 - cached, and not what is measured
        for cells in (1024, 960, 7):
            begin = time.process_time()
            assert partition(plan, cells).cells == cells
            assert time.process_time() - begin < 1  # measured: 15 to 40 ms


def test_join_orders_do_not_change_the_grid() -> None:
    schema = pa.schema({"ts": pa.int64(), "k": pa.int64(), "x": pa.int64(), "s": pa.string()})
    streams = [Stream(name, schema, "ts") for name in "abcd"]
    for text in (
        "SELECT a.x FROM a [RANGE 9], b [RANGE 9], c [RANGE 9], d [NOW] WHERE a.k = b.k AND b.x = c.x AND c.k = d.k",
        "SELECT c.x, COUNT(*) FROM a [RANGE 9], b [RANGE 9], c [RANGE 9] WHERE a.k = b.k AND b.k = c.k GROUP BY c.x",
        "SELECT DISTINCT a.k FROM a [RANGE 9], b [RANGE 9], c [RANGE 9] WHERE a.k = b.k AND a.x = b.x AND b.k = c.k",
    ):
        found = {str(partition(plan, 12)) for plan in islice(ContinuousQuery(text, streams).plans(), 60)}
        assert len(found) == 1


# Routing


def test_equal_keys_of_both_sides_go_to_the_same_coordinate() -> None:
    found = partition(joined("a b c", *equal("a.s=b.s", "b.x=c.x")), 24)
    (first, second), (times, more) = found.dimensions, found.strides
    columns = {"s": pa.array(["x", "y", None, "x"]), "x": pa.array([1, 2, None, 1]), "ts": pa.array([5, 6, 7, 8])}
    at = {w.alias: cells_of(found, w, lambda column: columns[column.name], 4) for w in found.windows}
    for alias, matrix in at.items():
        assert matrix.shape == (copies(found)[alias], 4)
        assert matrix.dtype == np.int64
        assert all(len(set(cells)) == len(cells) for cells in matrix.T.tolist())
    assert {str(first), str(second)} == {"a.s = b.s", "b.x = c.x"}
    for row in range(4):
        assert len(set(at["a"][:, row]) & set(at["b"][:, row])) == 1
        assert len(set(at["b"][:, row]) & set(at["c"][:, row])) == 1
        assert set(at["a"][:, row]) & set(at["c"][:, row]) == set(at["b"][:, row])
    assert times * more > 0


def test_rows_keep_their_order_and_reach_every_cell_they_must() -> None:
    found = partition(cross(window("a"), window("b")), 6)
    numbers = np.arange(100)
    columns = {name: pa.array(numbers) for name in ("ts", "k", "x")} | {"s": pa.array(map(str, numbers))}
    for w in found.windows:
        routed = rows_by_cell(found, w, Rows(numbers, columns))
        assert sorted(routed) == list(range(6))
        assert sum(map(len, routed.values())) == 100 * found.replication(w.identity)
        for rows in routed.values():
            assert (np.diff(rows.times) > 0).all()
            assert rows.columns["s"].to_pylist() == [str(number) for number in rows.times]
    assert rows_by_cell(found, w, Rows(numbers[:0], {n: c.slice(0, 0) for n, c in columns.items()})) == {}


def test_cells_get_about_as_many_rows_each() -> None:
    found = partition(joined("a b c", *equal("a.k=b.k", "b.x=c.x")), 16)
    numbers = pa.array(np.arange(16_000))
    b = next(w for w in found.windows if w.alias == "b")
    counts = np.bincount(cells_of(found, b, lambda column: numbers, 16_000)[0], minlength=16)
    assert counts.min() > 850
    assert counts.max() < 1150


_VALUES = {
    "int64": "pa.array([1, 2, None, -7])",
    "text": "pa.array(['a', '', None, 'é' * 9])",
    "binary": "pa.array([b'a', None, b'\\x00'])",
    "float": "pa.array([0.0, -0.0, float('nan'), None, 1.5])",
    "decimal": "pa.array([None, 1, 2]).cast(pa.decimal256(50, 2))",
    "moment": "pa.array([1, None, 3], pa.timestamp('ms', 'UTC'))",
}


def test_routing_is_the_same_in_every_process() -> None:
    program = "\n".join(
        [
            "import json, pyarrow as pa",
            "from midstream.algebra.plan import *",
            "from midstream import Stream",
            "from midstream.algebra.window_spec import WindowSpec",
            "from midstream.algebra.expressions import Column",
            "from midstream.runtime.cell_routing import cells_of",
            "from midstream.planning.partitioning import partition",
            "from tests.planning.plans import equal, joined",
            "print(json.dumps(partition(joined('a b c', *equal('a.k=b.k', 'b.x=c.x', 'a.s=c.s')), 60).explain()))",
            f"for name, values in {{{', '.join(f'{name!r}: {code}' for name, code in _VALUES.items())}}}.items():",
            "    schema = pa.schema({'ts': pa.int64(), 'v': values.type})",
            "    w = Window(Stream('s', schema, 'ts'), 's', WindowSpec(1))",
            "    grid = partition(Aggregate(w, (Item('', 'v', Column('s', 'v', values.type)),), ()), 1000)",
            "    print(name, cells_of(grid, w, lambda column: values, len(values)).tolist())",
        ]
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "77")
    }
    assert len(outputs) == 1
    lines = outputs.pop().splitlines()
    routed = {
        name: json.loads(rest) for name, rest in (line.split(" ", 1) for line in lines if not line.startswith('"'))
    }
    assert routed.keys() == _VALUES.keys()
    zero, negative_zero, *_ = routed["float"][0]
    assert zero == negative_zero


def test_a_slice_is_routed_like_the_whole() -> None:
    for values in (
        pa.array(["a", None, "bc"]),
        pa.array([1.5, None, 2.5]),
        pa.array([None, 1, 2]).cast(pa.decimal128(20, 0)),
    ):
        w = Window(Stream("s", pa.schema({"ts": pa.int64(), "v": values.type}), "ts"), "s", WindowSpec(1))
        grid = partition(Aggregate(w, (Item("", "v", Column("s", "v", values.type)),), ()), 1000)
        whole = cells_of(grid, w, lambda column, values=values: values, 3)
        part = cells_of(grid, w, lambda column, values=values: values.slice(1), 2)
        assert part.tolist() == whole[:, 1:].tolist()


# Cells together give the query's result


class CellGrid:
    """All cells of a query in this process; each may run a plan of its own."""

    def __init__(self, query: ContinuousQuery, partitioning: Partitioning, plans: Sequence[Plan]) -> None:
        self.partitioning = partitioning
        self.schema = output_schema(query.plan())
        self.ingest = Ingest({w.stream.name: w.stream for w in partitioning.windows})
        self.cells = [Cell(plans[cell % len(plans)], query.plan()) for cell in range(partitioning.cells)]

    def play(self, pushes: Sequence[Push]) -> pa.Table:
        batches: list[pa.RecordBatch] = []
        for push in pushes:
            rows = self.ingest.accept(self.ingest.check(push.rows))
            batches += self._push(rows, self.ingest.advance(push.watermark))
        return pa.Table.from_batches([*batches, *self._push({}, NEVER)], self.schema)

    def _push(self, rows: dict[str, Rows], watermark: int) -> list[pa.RecordBatch]:
        shares: list[dict[str, Rows]] = [{} for _ in self.cells]
        for w in self.partitioning.windows:
            if w.stream.name in rows:
                for cell, share in rows_by_cell(self.partitioning, w, rows[w.stream.name]).items():
                    shares[cell][w.identity] = share
        return [
            piece
            for cell, share in zip(self.cells, shares, strict=True)
            for batch in cell.push(share, watermark)
            for piece in to_record_batches(batch, self.schema)
        ]


CELLS = st.sampled_from([2, 3, 4, 6, 8, 12])
RATES = st.lists(st.sampled_from([1, 1, 0, 10]), min_size=6, max_size=6)


def in_cells(scenario: Scenario, cells: int, rates: Sequence[int], plans: int) -> pa.Table:
    query = ContinuousQuery(scenario.query_text, scenario.streams)
    read = {w.stream.name for w in query.plan().windows()}
    grid = partition(query.plan(), cells, dict(zip(sorted(read), rates, strict=False)))
    return CellGrid(query, grid, list(islice(query.plans(), plans))).play(scenario.pushes)


@random_examples()
@given(scenarios(), CELLS, RATES, st.integers(1, 6))
def test_cells_together_equal_the_oracle_whichever_plan_each_runs(scenario, cells, rates, plans):
    assert_snapshot_equivalent(in_cells(scenario, cells, rates, plans), scenario.expected())


@random_examples()
@given(scenarios(operators=JOIN_OPERATORS, min_streams=2), CELLS, RATES, st.integers(1, 6))
def test_cells_together_give_each_join_result_once(scenario, cells, rates, plans):
    assert_same_bag(in_cells(scenario, cells, rates, plans), scenario.expected_intervals())


@random_examples()
@given(scenarios(), st.integers(2, 5))
def test_every_legal_dimension_is_exact(scenario, cells):
    """Not only those that are chosen."""
    check_legal_dimensions(scenario, cells)


def check_legal_dimensions(scenario: Scenario, cells: int) -> None:
    query = ContinuousQuery(scenario.query_text, scenario.streams)
    plan = query.plan()
    windows = tuple({w.identity: w for w in plan.windows()}.values())
    legal = _analysed(plan).splits
    expected = scenario.expected() if legal else None
    for split in [*legal[:3], *legal[3:][-1:]]:
        grid = Partitioning((Dimension(split.keys, cells),), None, windows)
        assert_snapshot_equivalent(CellGrid(query, grid, [plan]).play(scenario.pushes), expected)


REPEATED = [Stream(name, pa.schema({"ts": pa.int64(), "k": pa.int64(), "x": pa.int64()}), "ts") for name in "ab"]


@st.composite
def queries_that_read_windows_again(draw, depth=2):
    """Two columns each; aliases are always the streams' names, and widths are few."""

    def pick(*options):
        return draw(st.sampled_from(options))

    if depth and pick(True, True, False):
        sides = [draw(queries_that_read_windows_again(depth - 1)) for _ in range(2)]
        operator = pick("EXCEPT", "EXCEPT ALL", "UNION", "UNION ALL", "join", "join")
        if operator != "join":
            return f"({sides[0]}) {operator} ({sides[1]})"
        source, columns = f"({sides[0]}) v, ({sides[1]}) w", ["v.p", "v.q", "w.p", "w.q"]
        conditions = [f"v.{pick('p', 'q')} = w.{pick('p', 'q')}"]
    else:
        streams = pick(["a"], ["b"], ["a", "b"])
        source = ", ".join(f"{name} [RANGE {pick(6, 6, 9)}]" for name in streams)
        columns = [f"{name}.{column}" for name in streams for column in ("k", "x")]
        conditions = [f"a.{pick('k', 'x')} = b.{pick('k', 'x')}"] if len(streams) == 2 else []
    where_text = f" WHERE {conditions[0]}" if conditions and pick(True, True, False) else ""
    p, q = pick(*columns), pick(*columns)
    grouped, whole = "SELECT {p} AS p, COUNT(*) AS q", "SELECT MAX({p}) AS p, COUNT(*) AS q"
    form = pick(*["SELECT {p} AS p, {q} AS q", "SELECT DISTINCT {p} AS p, {q} AS q", grouped] * 3, whole)
    tail = f" GROUP BY {p}" if form == grouped else ""
    return f"{form.format(p=p, q=q)} FROM {source}{where_text}{tail}"


NUMBERS = st.one_of(st.none(), st.integers(0, 3))
ROWS = st.lists(st.tuples(st.integers(0, 12), NUMBERS, NUMBERS), min_size=3, max_size=9)


@random_examples()
@given(queries_that_read_windows_again(), ROWS, ROWS, st.integers(2, 5))
def test_windows_that_are_read_again_stay_exact(text, a, b, cells):
    scenario = Scenario.from_rows(
        text, REPEATED, [{"a": sorted(a, key=lambda r: r[0]), "b": sorted(b, key=lambda r: r[0])}]
    )
    read = {w.stream.name for w in ContinuousQuery(text, REPEATED).plan().windows()}
    pushes = tuple(Push({n: t for n, t in push.rows.items() if n in read}, None) for push in scenario.pushes)
    check_legal_dimensions(Scenario(text, scenario.streams, pushes), cells)
