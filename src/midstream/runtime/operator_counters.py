"""What operators did, by the subplan they compute: counted across migrations and rebuilds.

An operator counts from when it was built (``engine/operators/operator.Counters``). When its plan is replaced, or its
cell is restored in another process, what it counted is kept here, and added to the counts of the next operator of the
same kind with the same subplan. So the figures of a subplan mean the same whichever plans it was part of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from operator import add, attrgetter

from midstream.engine.operators.operator import Counters, Operator
from midstream.engine.operators.suspend import SuspendOperator
from midstream.execution.just_in_time import partial_results_avoided
from midstream.runtime.messages import OperatorFigures, SubplanCounts

__all__ = ["OperatorCounters"]

MOST_SUBPLANS = 500
"""Subplans whose earlier counts are kept, the latest ones."""
_NAMES = [field.name for field in fields(Counters)]
_values = attrgetter(*_NAMES)

Key = tuple[str, str]
"""The kind of an operator, and the subplan it computes."""


class OperatorCounters:
    """The counts of operators that are running, and of those that were there before."""

    def __init__(self) -> None:
        self._running: dict[int, Operator] = {}
        self._earlier: dict[Key, Counters] = {}
        self._is_just_in_time = False

    def follow(self, operators: Iterable[Operator]) -> None:
        """Note which operators are running now; what the others counted is kept."""
        running = {id(operator): operator for operator in operators}
        gone = [number for number in self._running if number not in running]
        if gone:
            counted = self._counted()
            for number in gone:
                self._keep(_key(self._running[number]), counted[number])
        self._running = running
        self._is_just_in_time = any(isinstance(operator, SuspendOperator) for operator in running.values())

    def figures(self) -> list[OperatorFigures]:
        """The figures of the running operators, inputs first, with what was counted before they were built."""
        earlier = dict(self._earlier)
        counted = self._counted()
        found = []
        for number, operator in self._running.items():
            # Where two plans run side by side, the first operator of a subplan continues its counts.
            counters = _added(earlier.pop(_key(operator), None), counted[number])
            found.append(
                OperatorFigures(
                    operator=operator.name,
                    kind=operator.kind,
                    subplan=operator.subplan,
                    **vars(counters),
                    **operator.gauges(),
                )
            )
        return found

    def stored(self) -> list[SubplanCounts]:
        """All counts, to be restored in another process."""
        together = dict(self._earlier)
        counted = self._counted()
        for number, operator in self._running.items():
            key = _key(operator)
            together[key] = _added(together.get(key), counted[number])
        return [
            SubplanCounts(kind=kind, subplan=subplan, counts=_values(counters))
            for (kind, subplan), counters in together.items()
        ]

    def restore(self, stored: Iterable[SubplanCounts]) -> None:
        """Continue with what was counted before; the running operators have counted nothing yet."""
        self._earlier = {(counts.kind, counts.subplan): Counters(*counts.counts) for counts in stored}

    def _counted(self) -> dict[int, Counters]:
        """What each running operator counted, by its id."""
        if not self._is_just_in_time:
            return {number: operator.counters for number, operator in self._running.items()}
        avoided = partial_results_avoided(self._running.values())
        return {
            number: replace(operator.counters, avoided=avoided[number]) if number in avoided else operator.counters
            for number, operator in self._running.items()
        }

    def _keep(self, key: Key, counters: Counters) -> None:
        self._earlier[key] = _added(self._earlier.pop(key, Counters()), counters)
        while len(self._earlier) > MOST_SUBPLANS:
            del self._earlier[next(iter(self._earlier))]


def _added(before: Counters | None, counters: Counters) -> Counters:
    return counters if before is None else Counters(*map(add, _values(before), _values(counters)))


def _key(operator: Operator) -> Key:
    # The name of a join depends on the join order, its kind and subplan do not.
    return operator.kind, operator.subplan
