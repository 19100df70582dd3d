"""Hot keys: the most frequent keys of the joins in force, counted exactly.

Join states are sorted by key, so that one pass over a state counts all its keys (``engine/state/join_state``). In this
process that is done when somebody asks. A cell on Spark cannot be asked: it counts with a measurement, as often as that
takes no more than a tenth of the time of the measurements.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np
import pyarrow as pa

from midstream.algebra.plan import Join
from midstream.engine.kernels import Ints
from midstream.engine.operators.join import JoinOperator
from midstream.engine.operators.join_side import JoinSide
from midstream.engine.operators.multi_join import MultiJoinOperator
from midstream.engine.operators.relation import Relation
from midstream.execution.executor import Executor
from midstream.planning.cost.statistics import HotKey, JoinKeys
from midstream.planning.join_order.join_graph import JoinGraph

__all__ = ["MOST_HOT_KEYS", "HotKeyCounter", "hot_keys", "hot_keys_over_cells"]

MOST_HOT_KEYS = 10
"""Keys of each side of a join that are named."""
_LONGEST_TEXT = 200
"""Characters of a key that are shown."""
_SECONDS_PER_TUPLE = 18e-9
_SECONDS_PER_JOIN = 400e-6
_SHARE = 0.1
"""The share of the measurements' time that counting may take."""


class HotKeyCounter:
    """Counts the hot keys of one cell together with its measurements, when their time allows it."""

    def __init__(self) -> None:
        self._budget = 0.0
        """Seconds that may be spent."""
        self._counted: weakref.ref[Executor] | None = None
        """The executor of the plan whose keys were counted last."""

    def after_measurement(self, executor: Executor, seconds: float) -> tuple[JoinKeys, ...] | None:
        """The hot keys, after a measurement that takes so long by the cost model; None if it is not time yet."""
        pairs = _pairs(executor)
        cost = sum(_SECONDS_PER_JOIN + _SECONDS_PER_TUPLE * sum(s.state_rows for s in pair) for pair in pairs)
        self._budget += _SHARE * seconds
        # Those of a new plan are counted at once, and on credit.
        is_known = self._counted is not None and self._counted() is executor
        if is_known and self._budget < cost:
            return None
        self._budget = min(self._budget, cost) - cost
        self._counted = weakref.ref(executor)
        return hot_keys(executor)


def hot_keys(executor: Executor) -> tuple[JoinKeys, ...]:
    """The hot keys of all joins in force that have equality keys and complete states; none during a migration.

    Of a multi-way join, those of each two inputs that are indexed by keys which are compared with each other.
    """
    return tuple(_counted(*pair) for pair in _pairs(executor))


def hot_keys_over_cells(cells: Sequence[Iterable[JoinKeys]]) -> tuple[JoinKeys, ...]:
    """The hot keys of a whole query, from those of each cell.

    Every pair is made in one cell, so pairs add up to those of the query. So do tuples, if a row that was sent to
    several cells counts in each.
    """
    by_join: dict[tuple[object, object], list[JoinKeys]] = {}
    for cell in cells:
        for keys in cell:
            by_join.setdefault((keys.inputs, keys.key), []).append(keys)
    return tuple(_together(found) for found in by_join.values())


def _together(cells: list[JoinKeys]) -> JoinKeys:
    pairs = sum(keys.pairs for keys in cells)
    counts: dict[str, tuple[int, int, float]] = {}
    for keys in cells:
        for key in {key.value: key for key in (*keys.left, *keys.right)}.values():
            left, right, made = counts.get(key.value, (0, 0, 0.0))
            counts[key.value] = (left + key.left, right + key.right, made + key.pairs * keys.pairs)
    together = [
        HotKey(value=value, left=left, right=right, pairs=made / pairs if pairs else 0.0)
        for value, (left, right, made) in counts.items()
    ]
    by_left, by_right = (
        tuple(sorted((key for key in together if getattr(key, side)), key=lambda key: -getattr(key, side)))
        for side in ("left", "right")
    )
    return JoinKeys(
        inputs=cells[0].inputs,
        key=cells[0].key,
        tuples=(sum(keys.tuples[0] for keys in cells), sum(keys.tuples[1] for keys in cells)),
        pairs=pairs,
        left=by_left[:MOST_HOT_KEYS],
        right=by_right[:MOST_HOT_KEYS],
    )


_Pair = tuple[JoinSide, JoinSide]
"""Two states whose keys are compared with each other."""


def _pairs(executor: Executor) -> list[_Pair]:
    boxes = list(executor.boxes())
    if len(boxes) > 1 or executor.is_migrating:
        return []
    pairs: list[_Pair] = []
    for operator in boxes[0].operators:
        if isinstance(operator, JoinOperator):
            left, right = operator.sides
            pairs.append((left, right))
        elif isinstance(operator, MultiJoinOperator):
            pairs += _indexed_pairs(operator)
    return [pair for pair in pairs if all(side.keys and side.is_complete and not side.is_partial for side in pair)]


def _indexed_pairs(operator: MultiJoinOperator) -> Iterator[_Pair]:
    """The indexes of each two inputs that conditions link, as far as both have one by the key that links them."""
    parts = operator.plan.parts
    graph = JoinGraph.of_parts(parts, operator.plan.predicates)
    for one, other in combinations(range(len(parts)), 2):
        if not graph.linking_classes(1 << one, 1 << other):
            continue
        join = Join(parts[one], parts[other], tuple(graph.predicates(1 << one, 1 << other)))
        left, right = (Relation(operator.inputs[place].layout) for place in (one, other))
        wanted = JoinOperator(join, left, right, operator.chunk_rows).sides
        found = [
            next((index for index in operator.indexes_of(place) if index.key == side.key), None)
            for place, side in zip((one, other), wanted, strict=True)
        ]
        if found[0] is not None and found[1] is not None:
            yield found[0], found[1]


def _counted(one: JoinSide, other: JoinSide) -> JoinKeys:
    left, right = one.key_counts(), other.key_counts()
    _, left_places, right_places = np.intersect1d(left[0], right[0], assume_unique=True, return_indices=True)
    pairs = int(left[1][left_places] @ right[1][right_places])
    return JoinKeys(
        inputs=(_aliases(one), _aliases(other)),
        key=(_texts(one), _texts(other)),
        tuples=(int(left[1].sum()), int(right[1].sum())),
        pairs=pairs,
        left=_hot(one, left, left, right, pairs),
        right=_hot(other, right, left, right, pairs),
    )


def _hot(
    side: JoinSide, own: tuple[Ints, Ints], left: tuple[Ints, Ints], right: tuple[Ints, Ints], pairs: int
) -> tuple[HotKey, ...]:
    codes, counts = own
    hottest = np.lexsort((codes, -counts))[:MOST_HOT_KEYS]
    found = []
    for code, values in zip(codes[hottest].tolist(), side.key_values(codes[hottest]), strict=True):
        lefts, rights = _count_of(left, code), _count_of(right, code)
        share = lefts * rights / pairs if pairs else 0.0
        found.append(HotKey(value=_text(values), left=lefts, right=rights, pairs=share))
    return tuple(found)


def _count_of(counted: tuple[Ints, Ints], code: int) -> int:
    codes, counts = counted
    place = int(np.searchsorted(codes, code))
    return int(counts[place]) if place < len(codes) and codes[place] == code else 0


def _aliases(side: JoinSide) -> tuple[str, ...]:
    return tuple(dict.fromkeys(field.relation for field in side.layout.fields))


def _texts(side: JoinSide) -> tuple[str, ...]:
    return tuple(key.text for key in side.keys)


def _text(values: Sequence[pa.Scalar]) -> str:
    text = ", ".join(str(value.as_py()) for value in values)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
