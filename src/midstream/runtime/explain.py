"""The plan of a running query as a tree, with what each operator did: what databases call EXPLAIN ANALYZE."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from midstream.algebra.explain import explain
from midstream.algebra.plan import Plan
from midstream.engine.operators.demand import DemandOperator
from midstream.engine.operators.suspend import SuspendOperator
from midstream.runtime.messages import OperatorFigures

__all__ = ["explain_running", "just_in_time_figures"]


def explain_running(plan: Plan, operators: Iterable[OperatorFigures]) -> str:
    """The plan as a tree; each operator that runs by itself with its figures."""
    found: dict[str, list[OperatorFigures]] = {}
    for figures in operators:
        found.setdefault(figures.subplan, []).append(figures)
    return explain(plan, lambda node: "; ".join([node.label, *_described(node, found.get(node.fingerprint, []))]))


def _described(node: Plan, operators: list[OperatorFigures]) -> Iterator[str]:
    for figures in operators:
        # The same subplan may have other operators, such as a store of its rows.
        if figures.kind == node.kind:
            yield _rows(figures.rows_out)
            if figures.state_rows:
                yield f"{figures.state_rows:,} in state"
    yield from filter(None, map(just_in_time_figures, operators))


def just_in_time_figures(figures: OperatorFigures) -> str:
    """What an operator had to do with just-in-time processing, in words; nothing if it had not."""
    avoided = f"at least about {figures.avoided:,} partial results avoided" if figures.avoided else ""
    match figures.kind:
        case DemandOperator.kind:
            return f"keys of {_rows(figures.state_rows)} known" if figures.state_bytes else "keys not needed"
        case SuspendOperator.kind:
            waiting = f"{figures.state_rows:,} waiting ({figures.suspended_keys:,} keys)"
            off = "" if figures.consumers_asked else "; off, because too few rows were suspended"
            return f"suspended {figures.suspended:,}, resumed {figures.resumed:,}, {waiting}{off}"
    # In a multi-way join nothing waits.
    left_out = f"{_rows(figures.suspended)} left out of visits" if figures.suspended else ""
    return ", ".join(filter(None, [left_out, avoided]))


def _rows(count: int) -> str:
    return f"{count:,} row" + ("" if count == 1 else "s")
