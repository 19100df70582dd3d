"""All join orders, each once, lazily."""

from __future__ import annotations

import time
import tracemalloc
from itertools import islice
from math import comb, factorial, prod

import pytest

from midstream.algebra.expressions import Expression
from midstream.algebra.functions import call
from midstream.planning.join_order.join_enumeration import enumerate_join_orders
from midstream.planning.join_order.join_graph import JoinGraph
from midstream.planning.join_order.join_order import JoinOrder
from tests.planning.plans import chain_equalities, condition, equal, joined, value


def names(count: int) -> list[str]:
    return [f"r{number:02}" for number in range(count)]


def clique(count: int) -> JoinGraph:
    return JoinGraph.of(joined(" ".join(names(count)), *chain_equalities(names(count))))


def path(count: int) -> JoinGraph:
    pairs = zip(names(count), names(count)[1:], strict=False)
    return JoinGraph.of(joined(" ".join(names(count)), *equal(*(f"{a}.k={b}.x" for a, b in pairs))))


def star(count: int) -> JoinGraph:
    hub, *rays = names(count)
    return JoinGraph.of(joined(" ".join(names(count)), *(condition(f"{hub}.k", "<", f"{ray}.k") for ray in rays)))


def unlinked(count: int) -> JoinGraph:
    return JoinGraph.of(joined(" ".join(names(count))))


def wide(count: int) -> JoinGraph:
    """Two pairs that one condition over all four links, and the rest on their own."""
    four = condition(call("+", value("r00.x"), value("r01.x")), "<", call("+", value("r02.x"), value("r03.x")))
    conditions: list[Expression] = [four, *equal("r00.k=r01.k", "r02.k=r03.k")]
    return JoinGraph.of(joined(" ".join(names(count)), *conditions))


def cross_products(graph: JoinGraph, order: JoinOrder) -> int:
    if order.sides is None:
        return 0
    left, right = order.sides
    here = not graph.predicates(graph.mask_of(left), graph.mask_of(right))
    return here + cross_products(graph, left) + cross_products(graph, right)


def all_orders(count: int) -> int:
    return prod(range(1, 2 * count - 2, 2))


@pytest.mark.parametrize("make", [clique, path, star, unlinked, wide])
@pytest.mark.parametrize("count", [4, 5, 6])
def test_every_tree_comes_once(make: object, count: int) -> None:
    graph = make(count)  # type: ignore[operator]
    orders = list(enumerate_join_orders(graph))
    assert len(orders) == all_orders(count)
    assert len({order.without_sides() for order in orders}) == len(orders)
    assert all(sorted(order.aliases) == names(count) for order in orders)


@pytest.mark.parametrize("make", [clique, path, star, unlinked, wide])
@pytest.mark.parametrize("count", [4, 5])
def test_every_tree_with_sides_comes_once(make: object, count: int) -> None:
    orders = list(enumerate_join_orders(make(count), sided=True))  # type: ignore[operator]
    assert len(set(orders)) == len(orders) == factorial(2 * count - 2) // factorial(count - 1)
    assert sum(order.is_left_deep for order in orders) == factorial(count)
    assert sum(order.is_right_deep for order in orders) == factorial(count)


@pytest.mark.parametrize(
    ("make", "count", "without_cross_products"),
    [
        (clique, 5, all_orders(5)),
        (path, 5, comb(8, 4) // 5),
        (path, 6, comb(10, 5) // 6),
        (star, 5, factorial(4)),
        (wide, 4, 1),
        (unlinked, 4, 0),
    ],
)
def test_orders_without_cross_products_come_first(make: object, count: int, without_cross_products: int) -> None:
    graph = make(count)  # type: ignore[operator]
    crossings = [cross_products(graph, order) > 0 for order in enumerate_join_orders(graph)]
    assert crossings.count(False) == without_cross_products
    assert crossings == sorted(crossings)


def test_unlinked_parts_are_crossed_last() -> None:
    graph = JoinGraph.of(joined("a b c d", *equal("a.k=c.k", "b.k=d.k")))
    first, second, *_ = enumerate_join_orders(graph)
    assert str(first) == "a c (b d)"
    assert cross_products(graph, second) >= 1


@pytest.mark.parametrize("make", [clique, path, star, unlinked])
def test_first_order_is_left_deep_along_the_priority(make: object) -> None:
    graph = make(6)  # type: ignore[operator]
    assert str(next(enumerate_join_orders(graph))) == " ".join(names(6))
    if make in (clique, unlinked):
        backwards = names(6)[::-1]
        assert str(next(enumerate_join_orders(graph, priority=backwards))) == " ".join(backwards)


@pytest.mark.parametrize("make", [clique, path, star, unlinked, wide])
def test_hundred_inputs_are_enumerated_at_once_and_in_little_memory(make: object) -> None:
    graph = make(100)  # type: ignore[operator]
    began = time.perf_counter()
    tracemalloc.start()
    try:
        first = list(islice(enumerate_join_orders(graph), 20))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(set(first)) == 20
    assert peak_bytes < 20_000_000
    assert time.perf_counter() - began < 10
