"""What a subplan computes, whatever its shape."""

from __future__ import annotations

import pyarrow as pa

from midstream.algebra.expressions import Column
from midstream.algebra.functions import call
from midstream.algebra.identity import equality_classes
from midstream.algebra.plan import Difference, Distinct, Join, Plan, Union
from tests.planning.plans import condition, cross, equal, group, joined, project, value, where, window


def side(alias: str) -> Plan:
    return project(window(alias), f"{alias}.k")


def same(*plans: Plan) -> bool:
    return len({plan.identity for plan in plans}) == 1


def test_join_order_and_side_do_not_matter() -> None:
    a, b, c = window("a"), window("b"), window("c")
    ab, bc, ac = (tuple(equal(text)) for text in ("a.k=b.k", "b.k=c.k", "a.k=c.k"))
    assert same(
        Join(Join(a, b, ab), c, bc),
        Join(a, Join(c, b, bc), ab),
        Join(Join(c, a, ac), b, ab),
        where(cross(c, b, a), *ab, *bc),
        where(Join(where(cross(a, b), *ab), c, ()), *ac),
    )


def test_place_of_other_conditions_does_not_matter() -> None:
    less = condition("a.x", "<", "b.x")
    a, b = window("a"), window("b")
    mirrored = condition("b.x", ">", "a.x")
    assert same(Join(a, b, (less,)), where(Join(b, a, ()), mirrored))


def test_equalities_with_a_relation_on_both_sides_belong_to_the_class() -> None:
    total = call("+", value("y.x"), value("z.x"))
    a, y, z = window("a"), window("y"), window("z")
    to_a, to_z, a_z = condition(total, "=", "a.k"), condition(total, "=", "z.k"), condition("a.k", "=", "z.k")
    assert same(Join(Join(a, z, (a_z,)), y, (to_a,)), Join(a, Join(z, y, (to_z,)), (a_z,)))


def test_window_alias_stream_and_conditions_matter() -> None:
    plans = [
        joined("a b", *equal("a.k=b.k")),
        joined("a b", *equal("a.k=b.x")),
        joined("a c", *equal("a.k=c.k")),
        joined("a b"),
        joined("a b", *equal("a.k=b.k", "a.x=b.x")),
        joined("a b", *equal("a.k=b.k", "a.k=b.x")),
        Join(window("a", 5), window("b"), tuple(equal("a.k=b.k"))),
        Join(window("a", stream="z"), window("b"), tuple(equal("a.k=b.k"))),
    ]
    assert len({plan.identity for plan in plans}) == len(plans)


def test_comparison_across_types_makes_classes_of_its_own() -> None:
    a, b, c = (Column(name, "v", t) for name, t in (("a", pa.int64()), ("b", pa.float64()), ("c", pa.int64())))
    classes, residual = equality_classes([call("=", a, b), call("=", a, c), call("<", a, c)])
    assert sorted(sorted(member.text for member in members) for members in classes) == [
        ["CAST(a.v AS double)", "b.v"],
        ["a.v", "c.v"],
    ]
    assert [condition.text for condition in residual] == ["a.v < c.v"]


def test_selections_are_sets_of_conditions() -> None:
    one, other = condition("a.x", "<", 3), condition("a.k", "=", 1)
    assert same(where(window("a"), one, other), where(where(window("a"), one), other), where(window("a"), other, one))


def test_order_of_differences_of_one_kind_does_not_matter() -> None:
    a, b, c = side("a"), side("b"), side("c")
    for keep in ("all", "distinct"):
        assert same(Difference(Difference(a, b, keep), c, keep), Difference(Difference(a, c, keep), b, keep))  # type: ignore[arg-type]
    assert not same(Difference(a, b, "all"), Difference(b, a, "all"))
    assert not same(Difference(a, b, "all"), Difference(a, b, "distinct"))
    assert not same(Difference(Difference(a, b, "all"), c, "all"), Difference(a, Difference(b, c, "all"), "all"))
    assert not same(
        Difference(Difference(a, b, "all"), c, "distinct"), Difference(Difference(a, c, "distinct"), b, "all")
    )


def test_subtracting_twice_is_not_subtracting_once() -> None:
    a, b = side("a"), side("b")
    assert not same(Difference(Difference(a, b, "all"), b, "all"), Difference(a, b, "all"))


def test_order_of_unions_does_not_matter() -> None:
    a, b, c = side("a"), side("b"), side("c")
    assert same(Union(Union(a, b), c), Union(c, Union(b, a)))
    assert not same(Union(a, a), a)


def test_operators_above_are_told_apart() -> None:
    plan = joined("a b", *equal("a.k=b.k"))
    plans = [
        plan,
        Distinct(plan),
        project(plan, "a.x"),
        Distinct(project(plan, "a.x")),
        group(plan, "a.x", n=("count", None)),
        group(plan, "a.x", n=("count", "a.k")),
    ]
    assert len({p.identity for p in plans}) == len(plans)


def test_identity_above_does_not_depend_on_the_joins_below() -> None:
    one, other = joined("a b", *equal("a.k=b.k")), joined("b a", *equal("b.k=a.k"))
    assert same(
        group(project(one, "a.x"), "a_x", n=("count", None)), group(project(other, "a.x"), "a_x", n=("count", None))
    )
