"""The order in which rows of one input of a multi-way join visit the other inputs.

A row that has visited some inputs goes on to one that a condition links with them, if there is one, also where a probe
order names another one first: by an equality, if possible, because partners are then looked up. Of several, the first
in the order of the text is next. Whoever knows the sizes of joins chooses better (``planning/cost/probe_search``); any
order gives the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from midstream.errors import BadJoinOrder, did_you_mean, quoted
from midstream.planning.join_order.join_order import JoinOrder

if TYPE_CHECKING:
    from midstream.planning.join_order.join_graph import JoinGraph

__all__ = ["default_probe_order", "greedy_probe_order", "probe_orders"]


def probe_orders(graph: JoinGraph, order: JoinOrder, masks: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """For each input of a multi-way join, which is a set of leaves: the places of the others in their order.

    As the join order names them, linked ones before others; where it does not name them, by what is linked.
    """
    assert order.parts is not None
    place_of = {alias: place for place, part in enumerate(order.parts) for alias in part.aliases}
    named = {place_of[alias]: _named(alias, others, place_of) for alias, others in order.probe_orders}

    def probe_order(first: int) -> tuple[int, ...]:
        if first not in named:
            return greedy_probe_order(masks, first, lambda visited, one: _preference(graph, visited, one))
        rank = {masks[place]: number for number, place in enumerate(named[first])}
        # False comes before True: what is linked, then what is not.
        return greedy_probe_order(masks, first, lambda visited, one: (not graph.are_linked(visited, one), rank[one]))

    return tuple(probe_order(place) for place in range(len(masks)))


def default_probe_order(graph: JoinGraph, first: int) -> tuple[int, ...]:
    """The order for rows of one leaf of a graph, if nothing is known of sizes."""
    masks = [1 << place for place in range(len(graph.names))]
    return greedy_probe_order(masks, first, lambda visited, one: _preference(graph, visited, one))


def greedy_probe_order(
    masks: Sequence[int], first: int, preference: Callable[[int, int], float | tuple[bool, int]]
) -> tuple[int, ...]:
    """Visits next what the preference, given what was visited, is smallest for; of equals, the first."""
    order: list[int] = []
    visited = masks[first]
    while len(order) < len(masks) - 1:
        left = [place for place in range(len(masks)) if place != first and place not in order]
        order.append(min(left, key=lambda place: preference(visited, masks[place])))
        visited |= masks[order[-1]]
    return tuple(order)


def _preference(graph: JoinGraph, visited: int, one: int) -> int:
    if graph.are_linked_by_equality(visited, one):
        return 0
    return 1 if graph.are_linked(visited, one) else 2


def _named(alias: str, others: Sequence[str], place_of: dict[str, int]) -> tuple[int, ...]:
    unknown = [name for name in (alias, *others) if name not in place_of]
    places = tuple(place_of[name] for name in others if name in place_of)
    expected = sorted(set(place_of.values()) - {place_of.get(alias)})
    if unknown or sorted(places) != expected:
        raise BadJoinOrder(
            f'the probe order of "{alias}" does not name each other input of its braces once',
            detail=f"It names {quoted(others)}; the braces have {quoted(sorted(place_of))}.",
            hint="Name an input that is itself a join by one of its aliases."
            if len(place_of) > len(expected) + 1
            else did_you_mean(unknown[0], sorted(place_of))
            if unknown
            else None,
        )
    return places
