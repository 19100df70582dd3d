"""The plan check that refuses state which would grow without bound unless the query asks for it.

Every operator that keeps rows drops them when their validity ends. A stream without a window never ends: its rows may
pass through selections and projections, but must not enter a join, distinct, aggregation or difference, unless the
query says ``[RANGE UNBOUNDED]``.
"""

from __future__ import annotations

from midstream.algebra.plan import Plan
from midstream.errors import UnboundedState

__all__ = ["check_bounded_state"]


def check_bounded_state(plan: Plan) -> None:
    """Raise :class:`UnboundedState` if the plan would keep rows of an undeclared unbounded window."""
    for node in plan.walk():
        if not node.is_stateful:
            continue
        for window in node.windows():
            if not window.window.is_bounded and not window.window.declared:
                raise UnboundedState(
                    f'stream "{window.stream.name}" has no window, and its rows would be kept for ever',
                    detail=f"The {type(node).__name__.lower()} above it keeps the rows it may need again.",
                    hint=f'Give "{window.alias}" a window, or say [RANGE UNBOUNDED] if you mean it.',
                )
