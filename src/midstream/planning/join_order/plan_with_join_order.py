"""The plan with a join order that the user names.

An order in text speaks of **every block of joins over exactly the aliases it names**; all other blocks have their
default order. So ``(a b) c`` finds its SELECT wherever it stands in the query, the name of a subquery is an alias like
any other, and both sides of ``SELECT … FROM a, b, c … UNION SELECT … FROM a, b, c …`` follow it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import get_args

from midstream.algebra.plan import Plan, Routing
from midstream.errors import BadJoinOrder, BadOption, did_you_mean, quoted
from midstream.planning.default_plan import default_join_order, simplified_plan
from midstream.planning.join_order.join_graph import JoinGraph
from midstream.planning.join_order.join_order import JoinOrder, known_alias, named_aliases, parse_join_order
from midstream.planning.join_order.reorder_joins import join_graphs, map_join_blocks

__all__ = ["plan_with_join_order"]


def plan_with_join_order(
    plan: Plan, text: str, routing: Routing | None = None, probe_orders: Mapping[str, str] | None = None
) -> Plan:
    """The default plan, but with the order that the text names.

    ``routing`` and ``probe_orders`` (by alias: the other inputs, separated by spaces) are those of all braces in it.
    Raises :class:`BadJoinOrder` if no SELECT of the query joins just these aliases.
    """
    if not isinstance(text, str):
        raise BadJoinOrder(
            f"a join order is text, not of type {type(text).__name__}", hint='Write aliases and parentheses: "(a b) c".'
        )
    given = _checked_routing(text, routing, probe_orders)
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
        if frozenset(graph.names) not in matching:
            return default_join_order(graph)
        order = parse_join_order(text, graph.names)
        probes = tuple(_probe_order(alias, others, graph.names) for alias, others in given.items())
        outside = [alias for alias, _ in probes if alias not in order.aliases_in_braces]
        if outside:
            raise BadJoinOrder(f'there are no braces around "{outside[0]}" in join order "{text}"')
        return order.routed(routing, probes)

    return map_join_blocks(plan, choose)


def _probe_order(alias: str, others: str, names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The probe order of one input, with all names as the query has them."""
    return known_alias(alias, "probe_orders", names), named_aliases(others, f'the probe order of "{alias}"', names)


def _checked_routing(text: str, routing: object, probe_orders: object) -> Mapping[str, str]:
    """The probe orders, if both options can be meant."""
    if routing is not None and routing not in get_args(Routing):
        raise BadOption(
            f"routing cannot be {routing!r}",
            detail=f"There are {quoted(get_args(Routing))}.",
            hint=did_you_mean(str(routing), get_args(Routing)),
        )
    if (routing is not None or probe_orders is not None) and "{" not in text:
        raise BadOption(
            f'routing and probe orders are for multi-way joins, and join order "{text}" has none',
            hint='Put the inputs of a multi-way join in braces: "{a b c} d".',
        )
    if probe_orders is None:
        return {}
    if not isinstance(probe_orders, Mapping) or not all(isinstance(t, str) for i in probe_orders.items() for t in i):
        raise BadOption(
            "probe orders must be a dict of texts, by alias",
            hint='For example: probe_orders={"a": "c b"}.',
        )
    return probe_orders


def _parses(text: str, names: Sequence[str]) -> bool:
    try:
        parse_join_order(text, names)
    except BadJoinOrder:
        return False
    return True


def _closest(text: str, graphs: Sequence[JoinGraph]) -> JoinGraph:
    """The block that the text most likely means: it shares the most names, the outermost first."""
    words = {word.strip('"').lower() for word in re.sub(r"[({]|\)|}(:\S*)?", " ", text).split()}
    return max(graphs, key=lambda graph: len(words & {name.lower() for name in graph.names}))
