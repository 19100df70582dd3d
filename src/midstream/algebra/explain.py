"""The plan as a tree of text, one operator per line."""

from __future__ import annotations

from collections.abc import Callable

from midstream.algebra.plan import Plan

__all__ = ["explain"]


def explain(plan: Plan, describe: Callable[[Plan], str] = lambda node: node.label) -> str:
    """The plan as a tree, the output on top; ``describe`` gives the line of an operator."""
    lines: list[str] = []
    # An explicit stack: a 100-way join is 100 levels deep.
    pending = [(plan, "", "")]
    while pending:
        node, lead, rest = pending.pop()
        lines.append(lead + describe(node))
        for position, child in reversed(list(enumerate(node.inputs))):
            last = position == len(node.inputs) - 1
            pending.append((child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")))
    return "\n".join(lines)
