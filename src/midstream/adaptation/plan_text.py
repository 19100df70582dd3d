"""Plans and times in words, for decisions and whoever shows them."""

from __future__ import annotations

from collections.abc import Iterator

from midstream.algebra.plan import MultiJoin, Plan
from midstream.planning.join_order.reorder_joins import join_graphs
from midstream.planning.shapes import shape_text

__all__ = ["compared_texts", "duration_text", "join_orders_text", "plan_text"]


def join_orders_text(plan: Plan) -> str:
    """The join orders of a plan's blocks, the outermost first."""
    return "; ".join(str(graph.order) for graph in join_graphs(plan))


def plan_text(plan: Plan) -> str:
    """A plan in words: its join orders, who routes multi-way joins if not the plan, and what stands below the joins."""
    routers = dict.fromkeys(n.routing for n in plan.walk() if isinstance(n, MultiJoin) and n.routing != "fixed")
    parts = [join_orders_text(plan), *(f"routed by {router}" for router in routers), shape_text(plan)]
    return ", ".join(part for part in parts if part)


def compared_texts(plan: Plan, other: Plan) -> tuple[str, str]:
    """Two plans in words; where these are the same, with the probe orders that differ."""
    text, other_text = plan_text(plan), plan_text(other)
    if text != other_text or plan == other:
        return text, other_text
    orders, others = set(_probe_orders(plan)), set(_probe_orders(other))
    own = [order for order in _probe_orders(plan) if order not in others]
    new = [order for order in _probe_orders(other) if order not in orders]
    return ", ".join([text, *own]), ", ".join([other_text, *new])


def _probe_orders(plan: Plan) -> Iterator[str]:
    for node in plan.walk():
        if isinstance(node, MultiJoin):
            for name, order in zip(node.names, node.probe_orders, strict=False):
                yield f"{name} probes {' '.join(node.names[place] for place in order)}"


def duration_text(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> duration_text(0.00345), duration_text(12.5), duration_text(4e-7)
    ('3.45 ms', '12.5 s', '0.4 µs')
    """
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 100 else f"{seconds * factor:,.0f} {unit}"
    raise AssertionError
