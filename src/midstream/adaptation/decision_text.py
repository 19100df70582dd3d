"""A decision in words: what was decided, why, and which joins made the difference.

A decision's own ``reason`` compares times. What a data engineer looks for is the join that grew: it is named here with
its rows per 1,000 arriving rows, and how many there were at the previous decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from midstream.adaptation.decisions import ConsideredJoin, Decision

__all__ = ["decision_text", "decisions_with_text", "seconds_text"]


def decision_text(decision: Decision, before: Decision | None = None) -> str:
    """What was decided and why, in a few sentences. ``before`` is an earlier decision, to compare sizes with."""
    sentences = [_outcome(decision), decision.reason]
    if decision.outcome != "kept":
        sentences += _sizes(decision, before)
    return " ".join(sentences)


def decisions_with_text(decisions: Iterable[Decision]) -> Iterator[tuple[Decision, str]]:
    """Each decision with its text; sizes are compared with the decision before it."""
    before: Decision | None = None
    for decision in decisions:
        yield decision, decision_text(decision, before)
        before = decision


def seconds_text(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> seconds_text(0.00345), seconds_text(12.5), seconds_text(4e-7)
    ('3.45 ms', '12.5 s', '0.4 µs')
    """
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 100 else f"{seconds * factor:,.0f} {unit}"
    raise AssertionError


def _outcome(decision: Decision) -> str:
    if decision.outcome == "kept":
        return f'The plan "{decision.plan}" was kept.'
    by = "" if decision.strategy is None else f" by {decision.strategy}"
    if decision.outcome == "changed":
        return f'The plan was changed from "{decision.plan}" to "{decision.best}"{by}.'
    return f'The plan "{decision.plan}" should be changed to "{decision.best}"{by}.'


def _sizes(decision: Decision, before: Decision | None) -> Iterator[str]:
    """The largest join that the change avoids, and the largest one that comes instead.

    The same inputs may be joined in both plans, from other parts: that join has the same size, and is neither.
    """
    in_force = {frozenset(join.inputs): join for join in decision.joins if join.in_force}
    in_best = {frozenset(join.inputs): join for join in decision.joins if join.in_best}
    avoided = [join for inputs, join in in_force.items() if inputs not in in_best]
    instead = [join for inputs, join in in_best.items() if inputs not in in_force]
    if avoided and instead:
        old, new = (max(joins, key=lambda join: join.rows) for joins in (avoided, instead))
        earlier = None if before is None else _rows_then(before, old)
        then = "" if earlier is None else f" ({_count(earlier)} at the previous decision)"
        yield (
            f"Of 1,000 arriving rows the join of {_names(old)} makes {_count(old.rows)} rows{then}; "
            f"the join of {_names(new)}, which comes instead, {_count(new.rows)}."
        )
    elif avoided and not instead:
        old = max(avoided, key=lambda join: join.rows)
        yield (
            f"Of 1,000 arriving rows the join of {_names(old)} makes {_count(old.rows)} rows, which are no longer "
            "computed and kept."
        )
    elif instead:
        new = max(instead, key=lambda join: join.rows)
        yield (
            f"Of 1,000 arriving rows the join of {_names(new)} makes {_count(new.rows)} rows, which are computed once "
            "and kept from now on."
        )
    else:
        # The same joins, of fewer rows: a distinct or a partial aggregate stands elsewhere.
        pairs = [(join, in_best[inputs]) for inputs, join in in_force.items() if join.rows > in_best[inputs].rows]
        if pairs:
            old, new = max(pairs, key=lambda pair: pair[0].rows)
            yield (
                f"Of 1,000 arriving rows the join of {_names(old)} makes {_count(old.rows)} rows; "
                f"in the other plan, {_count(new.rows)}."
            )


def _rows_then(before: Decision, join: ConsideredJoin) -> float | None:
    return next((other.rows for other in before.joins if set(other.inputs) == set(join.inputs)), None)


def _names(join: ConsideredJoin) -> str:
    """
    >>> _names(ConsideredJoin(inputs=("o", "p", "s"), rows=1, error=0, seconds=0, in_force=True, in_best=False,
    ...                       is_measured=True))
    'o, p and s'
    """
    *others, last = join.inputs
    return f"{', '.join(others)} and {last}" if others else last


def _count(rows: float) -> str:
    """
    >>> _count(15236.4), _count(0.0421)
    ('15,236', '0.042')
    """
    return f"{rows:,.0f}" if rows >= 100 else f"{rows:.2g}"
