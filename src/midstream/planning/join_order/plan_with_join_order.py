"""The plan with a join order that the user names.

An order in text speaks of **every block of joins over exactly the aliases it names**; all other blocks have their
default order. So ``(a b) c`` finds its SELECT wherever it stands in the query, the name of a subquery is an alias like
any other, and both sides of ``SELECT … FROM a, b, c … UNION SELECT … FROM a, b, c …`` follow it.
"""

from __future__ import annotations

from collections.abc import Sequence

from midstream.algebra.plan import Plan
from midstream.errors import BadJoinOrder
from midstream.planning.default_plan import default_join_order, simplified_plan
from midstream.planning.join_order.join_graph import JoinGraph
from midstream.planning.join_order.join_order import JoinOrder, parse_join_order
from midstream.planning.join_order.reorder_joins import join_graphs, map_join_blocks

__all__ = ["plan_with_join_order"]


def plan_with_join_order(plan: Plan, text: str) -> Plan:
    """The default plan, but with the order that the text names.

    Raises :class:`BadJoinOrder` if no SELECT of the query joins just these aliases.
    """
    if not isinstance(text, str):
        raise BadJoinOrder(
            f"a join order is text, not of type {type(text).__name__}", hint='Write aliases and parentheses: "(a b) c".'
        )
    plan = simplified_plan(plan)
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
        return parse_join_order(text, graph.names) if frozenset(graph.names) in matching else default_join_order(graph)

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
