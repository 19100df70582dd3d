"""The plan a query runs with unless it is given another: from simple rules, nothing measured.

Selections go to the streams they read, columns nobody reads are dropped at the windows, and each block of joins gets
the order that :func:`default_join_order` chooses. Its policy:

- *Connected first.* A join without a condition is made only where no condition links the inputs, and last.
- *Small first.* The inputs with shorter windows and more selective conditions come first, in text order where nothing
  tells them apart; a partner found by an equality is preferred to one that has to be compared.
- *Left-deep below* :data:`BALANCED_FROM` *inputs, balanced from there on.* A combined row refers to one row per input:
  the states of a left-deep join of n inputs hold about n²/2 references per result where a balanced tree holds
  n·log n, and a row passes n − 1 joins instead of log n. For 100 inputs on one key this is 5,000 against 700; the
  four of the benchmark J4 gain already. Inputs are paired with their smallest linked
  partner, round by round; a star around one input therefore stays left-deep, since only one pair is linked.
"""

from __future__ import annotations

from collections.abc import Sequence

from midstream.algebra.plan import Plan
from midstream.planning.join_order.join_graph import JoinGraph, bits
from midstream.planning.join_order.join_order import JoinOrder
from midstream.planning.join_order.reorder_joins import map_join_blocks
from midstream.planning.rules import ALWAYS
from midstream.planning.size_estimate import estimated_rows

__all__ = ["BALANCED_FROM", "default_join_order", "default_plan", "simplified_plan"]

BALANCED_FROM = 4
"""Blocks with at least this many inputs are joined in a balanced tree."""


def default_plan(plan: Plan) -> Plan:
    """The equivalent plan that the heuristics prefer."""
    return map_join_blocks(simplified_plan(plan), default_join_order)


def simplified_plan(plan: Plan) -> Plan:
    """The plan after the rules that always help; join orders stay as they are."""
    for rule in ALWAYS:
        plan = rule(plan)
    return plan


def default_join_order(graph: JoinGraph) -> JoinOrder:
    """The order of one block; the policy is in the module."""
    sizes = [estimated_rows(leaf) for leaf in graph.leaves]
    parts = [_order_linked(graph, part, sizes) for part in graph.components(graph.everything)]
    parts.sort(key=lambda order: max(sizes[position] for position in bits(graph.mask_of(order))))
    return JoinOrder.left_deep(parts)


def _order_linked(graph: JoinGraph, part: int, sizes: Sequence[float]) -> JoinOrder:
    if part.bit_count() < BALANCED_FROM:
        order = _left_deep(graph, part, sizes)
        if order is not None:
            return order
    return _paired(graph, part, sizes)


def _left_deep(graph: JoinGraph, part: int, sizes: Sequence[float]) -> JoinOrder | None:
    """The smallest input first, then always the best linked one; None if conditions of many inputs block the way."""
    waiting = sorted(bits(part), key=lambda position: sizes[position])
    chosen = [waiting.pop(0)]
    joined = 1 << chosen[0]
    while waiting:
        linked = [position for position in waiting if graph.are_linked(joined, 1 << position)]
        if not linked:
            return None
        # Stable: among equals the order of sizes, and of the text, decides.
        best = min(linked, key=lambda position: not graph.are_linked_by_equality(joined, 1 << position))
        waiting.remove(best)
        chosen.append(best)
        joined |= 1 << best
    return JoinOrder.left_deep(graph.names[position] for position in chosen)


def _paired(graph: JoinGraph, part: int, sizes: Sequence[float]) -> JoinOrder:
    """Pairs of linked inputs, then pairs of pairs, until one is left; the part is connected."""
    groups = {1 << position: (JoinOrder.leaf(graph.names[position]), sizes[position]) for position in bits(part)}
    while len(groups) > 1:
        waiting = sorted(groups, key=lambda group: (group.bit_count(), groups[group][1], group & -group))
        merged: dict[int, tuple[JoinOrder, float]] = {}
        while waiting:
            group = waiting.pop(0)
            linked = [other for other in waiting if graph.are_linked(group, other)]
            if not linked:
                merged[group] = groups[group]
                continue
            partner = min(linked, key=lambda other: not graph.are_linked_by_equality(group, other))
            waiting.remove(partner)
            left, right = sorted((group, partner), key=lambda side: (-side.bit_count(), side & -side))
            order = JoinOrder.join(groups[left][0], groups[right][0])
            merged[left | right] = (order, max(groups[left][1], groups[right][1]))
        assert len(merged) < len(groups), "a connected part has no linked pair"
        groups = merged
    ((order, _),) = groups.values()
    return order
