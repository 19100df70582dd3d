"""How a query's rows are spread over cells, each of which runs the whole plan on its share (HyperCube, or Shares).

A *dimension* gives some windows a key, such that all rows that make one result agree on its value. A window with a key
is split: each row goes to the coordinate that its key hashes to. A window without is replicated along the dimension.
Dimensions span a grid, and the results of all its cells together are exactly the query's: each is found in one cell.

>>> import pyarrow as pa
>>> from midstream.algebra.functions import call
>>> from midstream.algebra.stream import Stream
>>> from midstream.algebra.window_spec import WindowSpec
>>> schema = pa.schema({"ts": pa.int64(), "k": pa.int64(), "x": pa.int64()})
>>> a, b, c = (Window(Stream(name, schema, "ts"), name, WindowSpec(9)) for name in "abc")
>>> def equal(*columns):
...     return (call("=", *(Column(*column.split("."), pa.int64()) for column in columns)),)
>>> print(partition(Join(Join(a, b, equal("a.k", "b.k")), c, equal("b.x", "c.x")), cells=4).explain())
4 cells: 2 by a.k = b.k, 2 by b.x = c.x
each row once: b [RANGE 9]
each row 2 times: a [RANGE 9], c [RANGE 9]

Why this is exact. Along one dimension a subplan is *replicated* (none of its windows has a key: every cell computes all
its rows) or *split* (its rows are those of all cells together); what would be neither is refused. A split subplan may
*expose* the coordinate: an expression of its output hashes to the coordinate of the cell a row is in.

- Selections and projections keep a subplan split. A join of a split and a replicated side is split; of two split sides
  only if the equalities around the join make expressions equal that expose both. NULL equals nothing: it may go
  anywhere.
- Distinct and aggregation need equal rows, or the rows of a group, in one cell: the row, or the grouping keys, must
  expose the coordinate. So must the left side of a difference; the right side does so by the same expression, or is
  replicated.
- The sides of a union are both split or both replicated; the coordinate stays exposed where they expose it alike.

A subplan without a key below one of these is computed alike in all cells, which does no harm. A window that is read
more than once has the same key, or none, wherever it is read. All this is about what a plan computes, not how: the
cells may run any join order, each its own. It would not hold for a window that counts rows.

Keys are expressions that the query compares or groups by, casts included; where nothing must meet, the event time.
Booleans are no keys: two values do not fill a row of cells.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product

import numpy as np
import pyarrow.types as pat

from midstream.algebra.expressions import Call, Column, Expression, conjuncts, substitute
from midstream.algebra.identity import equality_classes, join_block
from midstream.algebra.plan import (
    Aggregate,
    Difference,
    Distinct,
    Join,
    MultiJoin,
    Plan,
    Project,
    Select,
    Union,
    Window,
)
from midstream.algebra.types import is_comparable
from midstream.errors import BadPlan, did_you_mean, quoted
from midstream.planning.equal_values import separates_equal_values

__all__ = ["MOST_CELLS", "Dimension", "Partitioning", "partition"]

MOST_CELLS = 1024
"""Every push is worked on in every cell: more of them cost more than they bring."""
_MOST_DIMENSIONS = 8
_MOST_GRIDS = 10_000
"""Grids that are compared: dimensions that split least are left out until there are no more than this."""
_MOST_SPLITS = 512
"""Ways to split a subplan that are kept, those with most keys: only repeated windows or very wide rows have more."""


@dataclass(frozen=True)
class Dimension:
    """One direction of the grid: a key for some windows, by identity and all of one type, and how many coordinates."""

    keys: Mapping[str, Expression] = field(hash=False)
    share: int

    def __str__(self) -> str:
        return " = ".join(sorted({key.text for key in self.keys.values()}))


@dataclass(frozen=True)
class Partitioning:
    """The grid. ``reason`` says why there are fewer cells than wanted; ``meeting``, what must not be torn apart."""

    dimensions: tuple[Dimension, ...]
    reason: str | None
    windows: tuple[Window, ...]
    meeting: tuple[str, ...] = ()

    @property
    def cells(self) -> int:
        return math.prod(dimension.share for dimension in self.dimensions)

    @property
    def strides(self) -> tuple[int, ...]:
        """By how much the number of a cell grows with the coordinate of each dimension."""
        shares = [dimension.share for dimension in self.dimensions]
        return tuple(math.prod(shares[place + 1 :]) for place in range(len(shares)))

    def replicas(self, window_identity: str) -> tuple[int, ...]:
        """What to add to the coordinates of a row's keys, to have the numbers of all cells that the row goes to."""
        pairs = zip(self.dimensions, self.strides, strict=True)
        steps = [range(0, d.share * s, s) for d, s in pairs if window_identity not in d.keys]
        return tuple(sum(choice) for choice in product(*steps))

    def replication(self, window_identity: str) -> int:
        """In how many cells each row of the window is."""
        return math.prod(d.share for d in self.dimensions if window_identity not in d.keys)

    def explain(self) -> str:
        """The grid in a few lines."""
        if self.cells == 1:
            return f"1 cell: {self.reason}" if self.reason else "1 cell"
        lines = [f"{self.cells} cells: " + ", ".join(f"{d.share} by {d}" for d in self.dimensions)]
        copies: dict[int, list[str]] = {}
        for window in self.windows:
            copies.setdefault(self.replication(window.identity), []).append(window.label.removeprefix("Window "))
        for times, labels in sorted(copies.items()):
            lines.append(f"each row {'once' if times == 1 else f'{times} times'}: {', '.join(labels)}")
        if self.meeting:
            lines.append(f"{' and '.join(self.meeting)} meet in one cell")
        return "\n".join(lines)


def partition(plan: Plan, cells: int, rates: Mapping[str, float] | None = None) -> Partitioning:
    """The grid of this many cells that sends the fewest rows; of one cell, if the query cannot be spread.

    A row is sent once to each cell it goes to. ``rates`` are the rows per second of the streams, in any unit; 1 where
    not given. Take the query's default plan: the grid stays when the plan in force changes.
    """
    if isinstance(cells, bool) or not isinstance(cells, int) or not 1 <= cells <= MOST_CELLS:
        raise BadPlan(f"a query cannot run in {cells!r} cells", hint=f"Give a whole number from 1 to {MOST_CELLS}.")
    windows = {window.identity: window for window in sorted(plan.windows(), key=lambda window: window.identity)}
    _check_rates(rates or {}, {window.stream.name for window in windows.values()})
    rate_of = {identity: float((rates or {}).get(w.stream.name, 1)) for identity, w in windows.items()}
    root = _analysed(plan)
    dimensions: tuple[Dimension, ...] = ()
    if cells > 1 and root.splits:
        dimensions = _grid(root.splits, cells, rate_of)
    return Partitioning(
        dimensions, _reason(root) if cells > 1 and not dimensions else None, tuple(windows.values()), _meeting(plan)
    )


def _check_rates(rates: Mapping[str, float], streams: set[str]) -> None:
    if not isinstance(rates, Mapping):
        raise BadPlan(f"rates is {rates!r}", hint="Give rows per second by stream: {'orders': 100, ...}.")
    for name, rate in rates.items():
        if name not in streams:
            raise BadPlan(
                f'a rate is given for stream "{name}", which the query does not read',
                detail=f"The query reads {quoted(sorted(streams))}.",
                hint=did_you_mean(str(name), streams),
            )
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < math.inf:
            raise BadPlan(f'the rate of stream "{name}" is {rate!r}', hint="Give rows per second, 0 or more.")


# Which dimensions are legal


@dataclass(frozen=True)
class _Split:
    """A way to split a subplan: keys by window, and the expressions of the output that expose the coordinate."""

    keys: Mapping[str, Expression]
    exposed: frozenset[Expression]
    unasked: int = 0
    """How many keys are there for want of a better one."""

    @cached_property
    def rank(self) -> tuple[int, int, int, list[tuple[str, str]]]:
        """The best first: more keys, keys that the query compares, plain columns; then by text."""
        computed = sum(not isinstance(key, Column) for key in self.keys.values())
        return -len(self.keys), self.unasked, computed, sorted((w, key.text) for w, key in self.keys.items())


@dataclass
class _Node:
    """A subplan under analysis. A tree of joins and selections is one node: all its equalities hold for its results."""

    plan: Plan
    inputs: list[_Node] = field(default_factory=list)
    equal: list[frozenset[Expression]] = field(default_factory=list)
    windows: frozenset[str] = frozenset()
    asked: set[Expression] = field(default_factory=set)
    """Expressions of the output that something above would like to have exposed."""
    splits: list[_Split] = field(default_factory=list)


def _analysed(plan: Plan) -> _Node:
    """The plan's tree with all ways to split each subplan; loops, because plans may be deeper than Python's stack."""
    root = _Node(plan)
    nodes = [root]
    asked: dict[str, set[Expression]] = {}
    for node in nodes:
        _open(node)
        _ask(node)
        nodes += node.inputs
        if isinstance(node.plan, Window):
            asked.setdefault(node.plan.identity, set()).update(node.asked)
    counts = Counter(node.plan.identity for node in nodes if isinstance(node.plan, Window))
    repeated = {identity for identity, count in counts.items() if count > 1}
    for node in reversed(nodes):
        node.windows = frozenset().union(*(child.windows for child in node.inputs))
        if isinstance(node.plan, Window):
            node.windows = frozenset((node.plan.identity,))
            node.splits = list(_window_splits(node.plan, asked[node.plan.identity]))
        elif isinstance(node.plan, Join | MultiJoin | Select):
            node.splits = _joined(node, repeated)
        elif isinstance(node.plan, Difference | Union):
            left, right = ((_moved(node, child), child.windows) for child in node.inputs)
            node.splits = _combined(node.plan, left, right, repeated)
        else:
            node.splits = _moved(node, node.inputs[0])
        node.splits = _best(node.splits, repeated)
    return root


def _open(node: _Node) -> None:
    """Find the node's inputs: of a tree of joins and selections, those of the tree."""
    leaves = list(node.plan.inputs)
    conditions: list[Expression] = []
    if isinstance(node.plan, Join | MultiJoin | Select):
        leaves, conditions = join_block(node.plan)
    if isinstance(node.plan, Select) and leaves[0] is node.plan:
        leaves, conditions = [node.plan.input], list(conjuncts(node.plan.predicate))
    node.inputs = [_Node(leaf) for leaf in leaves]
    # Only values of one type are sure to hash alike.
    alike = (c for c in conditions if isinstance(c, Call) and c.operands[0].type == c.operands[-1].type)
    node.equal = equality_classes(alike)[0]


def _ask(node: _Node) -> None:
    """Ask the inputs to expose what this node needs, and what others ask of it."""
    plan = node.plan
    if isinstance(plan, Distinct | Difference):
        node.asked |= plan.columns
    elif isinstance(plan, Aggregate):
        node.asked |= {key.field.column for key in plan.keys}
    if isinstance(plan, Join | MultiJoin | Select):
        node.asked = node.asked.union(*node.equal)
        home = {field.relation: child for child in node.inputs for field in child.plan.schema}
        for expression in node.asked:
            first, *others = {id(home[relation]): home[relation] for relation in expression.relations}.values()
            if not others:
                first.asked.add(expression)
        return
    for child in node.inputs:
        origins = _origins(plan, child.plan)
        below = (substitute(e, origins.__getitem__) for e in node.asked if e.columns <= origins.keys())
        child.asked.update(e for e in below if e.columns)


def _origins(plan: Plan, child: Plan) -> dict[Column, Expression]:
    """How columns of the output are computed from those of an input; aggregates are not."""
    if isinstance(plan, Project):
        return {item.field.column: item.expression for item in plan.items}
    if isinstance(plan, Aggregate):
        return {key.field.column: key.expression for key in plan.keys}
    return {upper.column: lower.column for upper, lower in zip(plan.schema, child.schema, strict=True)}


def _window_splits(window: Window, asked: Iterable[Expression]) -> Iterator[_Split]:
    # By their whole, since two literals of different types have one text.
    for key in sorted(asked, key=repr):
        if is_comparable(key.type) and not pat.is_null(key.type) and not pat.is_boolean(key.type):
            yield _Split({window.identity: key}, frozenset((key,)))
    event_time = Column(window.alias, window.stream.event_time, window.stream.column_type(window.stream.event_time))
    if event_time not in asked:
        yield _Split({window.identity: event_time}, frozenset((event_time,)), unasked=1)


def _moved(node: _Node, child: _Node) -> list[_Split]:
    """The splits of an input, exposed as the node's output does; not those that tear apart what must meet there."""
    outputs: dict[Expression, list[Column]] = {}
    for upper, lower in _origins(node.plan, child.plan).items():
        outputs.setdefault(lower, []).append(upper)
    meets = isinstance(node.plan, Distinct | Aggregate | Difference)
    moved = []
    for split in child.splits:
        exposed: set[Expression] = set()
        for expression in split.exposed:
            exposed.update(outputs.get(expression, ()))
            # Rows that are equal, and so must meet, may be distinguished by an expression of theirs.
            if expression.columns <= outputs.keys() and not (meets and separates_equal_values(expression)):
                exposed.add(substitute(expression, lambda column: outputs[column][0]))
        if exposed or not meets:
            moved.append(_Split(split.keys, frozenset(exposed), split.unasked))
    return moved


def _joined(node: _Node, repeated: set[str]) -> list[_Split]:
    class_of = {expression: members for members in node.equal for expression in members}
    splits: list[_Split] = []
    windows: frozenset[str] = frozenset()
    for child in node.inputs:
        # What equals an exposed expression is exposed too.
        widened = [
            _Split(s.keys, s.exposed.union(*(class_of.get(e, ()) for e in s.exposed)), s.unasked) for s in child.splits
        ]
        splits = _combined(node.plan, (splits, windows), (widened, child.windows), repeated)
        windows |= child.windows
    return splits


def _combined(
    plan: Plan,
    left_side: tuple[list[_Split], frozenset[str]],
    right_side: tuple[list[_Split], frozenset[str]],
    repeated: set[str],
) -> list[_Split]:
    """The splits of both sides that fit each other, and those of one side that may go with a replicated other."""
    (left, left_windows), (right, right_windows) = left_side, right_side
    shared = left_windows & right_windows
    made: list[_Split] = []
    surpassed: set[int] = set()

    def fit(one: _Split, other: _Split) -> bool:
        return all(one.keys.get(window) == other.keys.get(window) for window in shared)

    touched = frozenset().union(*(other.exposed for other in right))
    for one in left:
        for other in right if not one.exposed.isdisjoint(touched) else ():
            if one.exposed.isdisjoint(other.exposed) or not fit(one, other):
                continue
            made.append(_merged(plan, one, other))
            # The merged one serves better, unless a key that it adds is in the way where the window is read again.
            if repeated.isdisjoint(other.keys):
                surpassed.add(id(one))
            if repeated.isdisjoint(one.keys):
                surpassed.add(id(other))
            # Partners of one split make it equal, except in a union, where each exposes something else.
            if repeated.isdisjoint([*one.keys, *other.keys]) and not isinstance(plan, Union):
                break
    if isinstance(plan, Union):
        # Whatever splits each side splits the union; the best go together, the second best, and so on.
        for place in range(max(len(left), len(right)) if left and right else 0):
            one, start = left[place % len(left)], place % len(right)
            fitting = (other for other in [*right[start:], *right[:start]] if fit(one, other))
            made += [_merged(plan, one, other) for other in list(fitting)[:1]]
    else:
        made += [one for one in left if id(one) not in surpassed and right_windows.isdisjoint(one.keys)]
    if isinstance(plan, Join | MultiJoin | Select):
        made += [other for other in right if id(other) not in surpassed and left_windows.isdisjoint(other.keys)]
    return _best(made, repeated) if len(made) > _MOST_SPLITS else made


def _merged(plan: Plan, one: _Split, other: _Split) -> _Split:
    exposed = one.exposed
    if isinstance(plan, Union):
        exposed &= other.exposed
    elif not isinstance(plan, Difference):
        exposed |= other.exposed
    return _Split({**one.keys, **other.keys}, exposed, one.unasked + other.unasked)


def _best(splits: Iterable[_Split], repeated: set[str]) -> list[_Split]:
    """The splits, best first, without those that another one can stand for."""
    kept: dict[object, dict[frozenset[Expression], _Split]] = {}
    for split in sorted(splits, key=lambda split: split.rank):
        windows = frozenset(split.keys), *(split.keys.get(window) for window in sorted(repeated))
        kept.setdefault(windows, {}).setdefault(split.exposed, split)
    ordered = [s for alike in kept.values() for s in alike.values() if s.exposed or len(alike) == 1]
    return sorted(ordered, key=lambda split: split.rank)[:_MOST_SPLITS]


# Which of them to use


def _grid(splits: Iterable[_Split], cells: int, rates: Mapping[str, float]) -> tuple[Dimension, ...]:
    """The shares that make the rows sent fewest; among equals, the most of the best dimension."""
    chosen: list[_Split] = []
    for split in sorted(splits, key=lambda split: (-sum(rates[window] for window in split.keys), split.rank)):
        if _grids(cells, len(chosen) + 1) > _MOST_GRIDS or len(chosen) == _MOST_DIMENSIONS:
            break
        # To split more windows is never worse.
        if not any(split.keys.keys() <= better.keys.keys() for better in chosen):
            chosen.append(split)
    grids = _factorisations(cells, len(chosen))
    shares = np.array(grids)
    rate_of: dict[tuple[bool, ...], float] = {}
    for window, rate in rates.items():
        keyed = tuple(window in split.keys for split in chosen)
        rate_of[keyed] = rate_of.get(keyed, 0.0) + rate
    sent = sum(rate * np.prod(np.where(keyed, 1, shares), axis=1) for keyed, rate in rate_of.items())
    # Sums of the same rates may differ in their last bits.
    best = int(np.argmax(sent <= np.min(sent) * (1 + 1e-9)))
    return tuple(
        Dimension(dict(sorted(split.keys.items())), share)
        for split, share in zip(chosen, grids[best], strict=True)
        if share > 1
    )


@lru_cache
def _factorisations(number: int, count: int) -> tuple[tuple[int, ...], ...]:
    """All ways to write the number as a product of so many, large first factors first.

    >>> _factorisations(4, 2)
    ((4, 1), (2, 2), (1, 4))
    """
    if count == 1:
        return ((number,),)
    return tuple((first, *rest) for first in _divisors(number) for rest in _factorisations(number // first, count - 1))


@lru_cache
def _grids(number: int, count: int) -> int:
    """How many factorisations there are.

    >>> _grids(4, 2), _grids(960, 8)
    (3, 109824)
    """
    return 1 if count == 1 else sum(_grids(first, count - 1) for first in _divisors(number))


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(number, 0, -1) if number % divisor == 0]


# What to say


def _reason(root: _Node) -> str:
    """Why nothing splits the plan: the lowest node that nothing splits though its inputs can be."""
    node = root
    while lower := [child for child in node.inputs if not child.splits]:
        node = lower[0]
    if isinstance(node.plan, Aggregate):
        if not node.plan.keys:
            return "an aggregate without GROUP BY needs all rows"
        return "no grouping key determines the cell of a row"
    if isinstance(node.plan, Distinct):
        return "no column of the distinct rows determines the cell of a row"
    kind = "join" if isinstance(node.plan, Join | MultiJoin | Select) else type(node.plan).__name__.lower()
    return f"the sides of a {kind} cannot be split alike"


def _meeting(plan: Plan) -> tuple[str, ...]:
    """What the operators of the plan need in one cell."""
    found = {
        "rows of a group" if isinstance(node, Aggregate) else "equal rows"
        for node in plan.walk()
        if isinstance(node, Aggregate | Distinct | Difference)
    }
    return tuple(sorted(found, reverse=True))
