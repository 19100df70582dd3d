"""A plan as a tree with what its joins are expected to do: rows, uncertainty, what was counted, share of the cost."""

from __future__ import annotations

from midstream.algebra.explain import explain
from midstream.algebra.plan import Plan
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.plan_cost import NodeCost, plan_cost
from midstream.planning.cost.sizes import PlanSizes, standard_error
from midstream.planning.join_order.join_graph import block_joins
from midstream.planning.join_order.reorder_joins import join_blocks

__all__ = ["bytes_text", "explain_cost", "q_error"]


def explain_cost(plan: Plan, sizes: PlanSizes, coefficients: CostCoefficients) -> str:
    """The plan as a tree; each join with its rows per 1,000 arriving rows and its share of the plan's cost."""
    cost = plan_cost(plan, sizes, coefficients)
    if cost is None:
        return explain(plan)
    total = float(cost.seconds.mean())
    nodes = {(node.block or node.key, frozenset(node.inputs)): node for node in cost.nodes}
    joins = {
        join.fingerprint: (block.fingerprint, frozenset(order.aliases))
        for block in join_blocks(plan)
        for join, order in block_joins(block)
    }

    def describe(node: Plan) -> str:
        found = nodes.get(joins.get(node.fingerprint, (node.fingerprint, frozenset())))
        return node.label if found is None else f"{node.label}; {_described(found, sizes, total)}"

    first = (
        f"{1e6 * total / max(1, sizes.rows):,.3g} µs per row and {bytes_text(cost.state_bytes)} of join states, "
        f"from {sizes.rows:,} rows that arrived lately"
    )
    return f"{first}\n{explain(plan, describe)}"


def q_error(estimated: float, counted: float) -> float:
    """How many times too large or too small an estimate is; numbers below one count as one.

    >>> q_error(50.0, 100.0), q_error(0.0, 0.0)
    (2.0, 1.0)
    """
    estimated, counted = max(1.0, estimated), max(1.0, counted)
    return max(estimated / counted, counted / estimated)


def bytes_text(count: float) -> str:
    """
    >>> bytes_text(512), bytes_text(23_456_789)
    ('512 bytes', '23.5 MB')
    """
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= factor:
            return f"{_number(count / factor)} {unit}"
    return f"{count:.0f} bytes"


def _described(node: NodeCost, sizes: PlanSizes, total: float) -> str:
    per_thousand = 1_000 / max(1, sizes.rows)
    rows = f"{_number(float(node.rows.mean()) * per_thousand)} rows"
    if node.inputs:
        rows += f" ± {_number(standard_error(node.rows) * per_thousand)}" if node.is_measured else " (derived)"
    parts = [f"{rows} per 1,000"]
    if node.counted is not None:
        error = q_error(float(node.rows.mean()), node.counted)
        parts.append(f"counted {_number(node.counted * per_thousand)} (q-error {error:.2f})")
    parts.append(f"{float(node.seconds.mean()) / total if total else 0:.0%} of the cost")
    return ", ".join(parts)


def _number(value: float) -> str:
    """Three digits of a small number, all of a large one.

    >>> _number(0.12345), _number(15249.3)
    ('0.123', '15,249')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
