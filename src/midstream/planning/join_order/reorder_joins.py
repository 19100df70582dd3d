"""Joining the blocks of a plan in another order.

A plan has one block of joins per SELECT with more than one input: the query's own, those of subqueries in FROM, those
of the sides of UNION and EXCEPT. Each has its own graph and order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from midstream.algebra.plan import Aggregate, Item, Join, MultiJoin, Plan, Project
from midstream.planning.join_order.join_graph import JoinGraph, is_join_block
from midstream.planning.join_order.join_order import JoinOrder
from midstream.planning.rewrite import fold, over

__all__ = ["join_blocks", "join_graphs", "map_join_blocks", "with_schema_of"]


def join_blocks(plan: Plan) -> Iterator[Plan]:
    """The topmost node of each block of joins, the outermost block first, then left to right."""
    return (block for block, _ in _blocks(plan))


def join_graphs(plan: Plan) -> Iterator[JoinGraph]:
    """The graphs of all blocks of joins, in the order of :func:`join_blocks`."""
    return (graph for _, graph in _blocks(plan))


def _blocks(plan: Plan) -> Iterator[tuple[Plan, JoinGraph]]:
    pending = [plan]
    while pending:
        node = pending.pop()
        if is_join_block(node):
            graph = JoinGraph.of(node)
            yield node, graph
            pending.extend(reversed(graph.leaves))
        else:
            pending.extend(reversed(node.inputs))


def map_join_blocks(plan: Plan, choose: Callable[[JoinGraph], JoinOrder]) -> Plan:
    """The plan with each block joined in the order chosen for it; the schema stays the same.

    ``choose`` is asked in the order of :func:`join_graphs`.
    """
    chosen: dict[int, tuple[JoinGraph, JoinOrder]] = {}

    def inputs(node: Plan) -> Sequence[Plan]:
        if not is_join_block(node):
            return node.inputs
        graph = JoinGraph.of(node)
        chosen[id(node)] = graph, choose(graph)
        return graph.leaves

    def rebuild(node: Plan, new: tuple[Plan, ...]) -> Plan:
        if id(node) in chosen:
            graph, order = chosen[id(node)]
            return graph.with_leaves(new).build(order)
        reads_by_name = isinstance(node, Project | Aggregate)
        return over(node, new if reads_by_name else [_settled(n, o) for n, o in zip(new, node.inputs, strict=True)])

    return with_schema_of(plan, fold(plan, inputs, rebuild))


def _settled(new: Plan, old: Plan) -> Plan:
    return with_schema_of(old, new) if isinstance(new, Join | MultiJoin) else new


def with_schema_of(plan: Plan, other: Plan) -> Plan:
    """The other plan with its columns in the order of the first plan's."""
    if plan.schema == other.schema:
        return other
    return Project(other, tuple(Item(field.relation, field.name, field.column) for field in plan.schema))
