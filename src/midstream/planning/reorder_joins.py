"""Joining the blocks of a plan in another order.

A plan has one block of joins per SELECT with more than one input: the query's own, those of subqueries in FROM, those
of the sides of UNION and EXCEPT. An order in text speaks of **every block over exactly the aliases it names**; all
other blocks stay as they are. So ``(a b) c`` finds its SELECT wherever it stands in the query, the name of a subquery
is an alias like any other, and both sides of ``SELECT … FROM a, b, c … UNION SELECT … FROM a, b, c …`` follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from midstream.algebra.plan import Aggregate, Item, Join, Plan, Project
from midstream.errors import BadJoinOrder
from midstream.planning.join_graph import JoinGraph, is_join_block
from midstream.planning.join_order import JoinOrder, parse_join_order
from midstream.planning.rewrite import fold, over

__all__ = ["join_graphs", "map_join_blocks", "plan_with_join_order", "with_schema_of"]


def join_graphs(plan: Plan) -> Iterator[JoinGraph]:
    """The graphs of all blocks of joins, the outermost first, then left to right."""
    pending = [plan]
    while pending:
        node = pending.pop()
        if is_join_block(node):
            graph = JoinGraph.of(node)
            yield graph
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
    return with_schema_of(old, new) if isinstance(new, Join) else new


def with_schema_of(plan: Plan, other: Plan) -> Plan:
    """The other plan with its columns in the order of the first plan's."""
    if plan.schema == other.schema:
        return other
    return Project(other, tuple(Item(field.relation, field.name, field.column) for field in plan.schema))


def plan_with_join_order(plan: Plan, text: str) -> Plan:
    """The plan with the order that the text names; a :class:`BadJoinOrder` if no SELECT joins just these aliases."""
    graphs = list(join_graphs(plan))
    if not graphs:
        if text.strip().lower() in {window.alias.lower() for window in plan.windows()}:
            return plan
        raise BadJoinOrder(f'join order "{text}" finds no join in the query')
    matching = {names for graph in graphs if (names := frozenset(graph.names)) and _parses(text, graph.names)}
    if not matching:
        parse_join_order(text, _closest(text, graphs).names)
        raise AssertionError("an order that parses was not found")

    def choose(graph: JoinGraph) -> JoinOrder:
        return parse_join_order(text, graph.names) if frozenset(graph.names) in matching else graph.order

    return map_join_blocks(plan, choose)


def _parses(text: str, names: Sequence[str]) -> bool:
    try:
        parse_join_order(text, names)
    except BadJoinOrder:
        return False
    return True


def _closest(text: str, graphs: Sequence[JoinGraph]) -> JoinGraph:
    """The block that the text most likely means: it shares the most names, the outermost first."""
    words = {word.strip('"').lower() for word in text.replace("(", " ").replace(")", " ").split()}
    return max(graphs, key=lambda graph: len(words & {name.lower() for name in graph.names}))
