"""Walking a plan from the leaves up: the loop that all rewrites share.

A node whose inputs come back unchanged is kept as it is, so a rewrite costs only where it changes something. The walk
uses its own stack: a 100-way join is 100 levels deep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from midstream.algebra.plan import Plan

__all__ = ["fold", "over", "rewrite"]


def fold(
    plan: Plan,
    inputs: Callable[[Plan], Sequence[Plan]],
    rebuild: Callable[[Plan, tuple[Plan, ...]], Plan],
) -> Plan:
    """Rebuild the plan bottom-up: ``inputs`` says what lies below a node, ``rebuild`` makes the node anew."""
    done: list[Plan] = []
    pending: list[tuple[Plan, int]] = [(plan, -1)]
    while pending:
        node, arity = pending.pop()
        if arity < 0:
            below = inputs(node)
            pending.append((node, len(below)))
            pending.extend((child, -1) for child in reversed(below))
            continue
        cut = len(done) - arity
        children = tuple(done[cut:])
        done[cut:] = [rebuild(node, children)]
    (result,) = done
    return result


def over(node: Plan, inputs: Sequence[Plan]) -> Plan:
    """The operator over these inputs; the same object if they are the ones it has."""
    if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        return node
    return node.with_inputs(*inputs)


def rewrite(plan: Plan, rule: Callable[[Plan], Plan]) -> Plan:
    """Apply ``rule`` to every node, inputs before the nodes above them."""
    return fold(plan, lambda node: node.inputs, lambda node, inputs: rule(over(node, inputs)))
