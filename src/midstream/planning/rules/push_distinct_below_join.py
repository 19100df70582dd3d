"""Duplicates are removed before a join multiplies them.

    δ                        δ   (dropped where nothing can repeat)
    │                        │
    π a.x, b.y               π a.x, b.y
    │               ⟶        │
    ⋈ a.k = b.k              ⋈ a.k = b.k
   ╱ ╲                      ╱ ╲
  a   b                    δ   δ
                           │   │
                 π a.k, a.x    π b.k, b.y
                           │   │
                           a   b

Intuitively: of two rows of ``a`` that agree in all columns anybody reads, one is enough, since the distinct above
removes the copies anyway. The upper distinct becomes superfluous when the projected columns determine all columns of
all inputs: they are projected themselves, or follow by equalities (with ``a.k`` projected, ``b.k`` is known).

It does not apply where an input cannot be compared (nested types) or already has no duplicates; nor where an
expression can tell apart values that count as equal (``planning/equal_values``), because then it matters which of the
copies is kept.
"""

from __future__ import annotations

from midstream.algebra.expressions import Column
from midstream.algebra.plan import Distinct, Plan, Project
from midstream.algebra.types import is_comparable
from midstream.planning.columns import closure, narrow, unique_columns
from midstream.planning.equal_values import separates_equal_values
from midstream.planning.join_order.join_graph import JoinGraph, is_join_block
from midstream.planning.rewrite import rewrite

__all__ = ["push_distinct_below_join"]


def push_distinct_below_join(plan: Plan) -> Plan:
    """Remove duplicates from the inputs of joins below a distinct."""
    return rewrite(plan, _push)


def _push(node: Plan) -> Plan:
    if not isinstance(node, Distinct):
        return node
    project = node.input if isinstance(node.input, Project) else None
    below = node.input if project is None else project.input
    if not is_join_block(below):
        return node
    graph = JoinGraph.of(below)
    conditions = [part.expression for parts in (*graph.classes, graph.residuals) for part in parts]
    expressions = [] if project is None else [item.expression for item in project.items]
    if any(separates_equal_values(expression) for expression in [*conditions, *expressions]):
        return node
    output = below.columns if project is None else frozenset().union(*(e.columns for e in expressions))
    read = output.union(*(condition.columns for condition in conditions))
    leaves = [_distinct(leaf, read) for leaf in graph.leaves]
    kept = below.columns if project is None else {e for e in expressions if isinstance(e, Column)}
    unique = [unique_columns(leaf) for leaf in leaves]
    determined = closure(kept, graph)
    is_unique = all(columns is not None and columns <= determined for columns in unique)
    if not is_unique and all(new is old for new, old in zip(leaves, graph.leaves, strict=True)):
        return node
    result = graph.with_leaves(leaves).build(graph.order)
    if project is not None:
        result = Project(result, project.items)
    return result if is_unique else Distinct(result)


def _distinct(leaf: Plan, read: frozenset[Column]) -> Plan:
    """The leaf's columns that are read, without duplicates, if it can have any."""
    if unique_columns(leaf) is not None:
        return leaf
    narrowed = narrow(leaf, read)
    if unique_columns(narrowed) is not None or not all(is_comparable(field.type) for field in narrowed.schema):
        return leaf
    return Distinct(narrowed)
