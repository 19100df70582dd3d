"""Plans: immutable trees of operators that cannot be wrong once built.

Each node knows its schema (fields with alias, name and type) and checks its parts when it is constructed; a
:class:`BadPlan` is a bug of whoever built it, since query text is checked with better messages in ``cql``.
Nodes say what is computed; ``engine`` says how. Two nodes with the same ``identity`` compute the same thing,
whatever the order of the joins inside: see ``algebra/identity``.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal as OneOf
from typing import get_args

import pyarrow as pa

from midstream.algebra.aggregates import AggregateCall
from midstream.algebra.expressions import Column, Expression, conjuncts
from midstream.algebra.stream import Stream, TimeDomain
from midstream.algebra.types import is_comparable
from midstream.algebra.window_spec import WindowSpec
from midstream.errors import BadPlan

__all__ = [
    "Aggregate",
    "Alias",
    "Difference",
    "Distinct",
    "Field",
    "Item",
    "Join",
    "Leaf",
    "MultiJoin",
    "NamedAggregate",
    "Plan",
    "Project",
    "RemoteSource",
    "Routing",
    "Select",
    "Union",
    "Window",
]

Routing = OneOf["fixed", "eddy", "stairs", "eager-stairs"]
"""Who decides in which order a row visits the inputs of a multi-way join: see :class:`MultiJoin`."""


@dataclass(frozen=True)
class Field:
    """One column of a node's output. The alias is empty above a projection or aggregation."""

    relation: str
    name: str
    type: pa.DataType

    @cached_property
    def column(self) -> Column:
        return Column(self.relation, self.name, self.type)


@dataclass(frozen=True)
class Plan:
    """Base of the nodes."""

    @property
    def inputs(self) -> tuple[Plan, ...]:
        raise NotImplementedError

    def with_inputs(self, *inputs: Plan) -> Plan:
        """The same operator over other inputs (checked anew)."""
        raise NotImplementedError

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        raise NotImplementedError

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The expressions that the operator evaluates over its inputs' columns."""
        return ()

    @property
    def is_stateful(self) -> bool:
        """Whether the operator keeps rows from one batch for the next."""
        return True

    @property
    def kind(self) -> str:
        """The operator in one word, as ``plan_json`` and the figures of running operators have it: "join", say."""
        return type(self).__name__.lower()

    @property
    def label(self) -> str:
        """The operator and its parameters in one line, as ``explain`` shows it."""
        raise NotImplementedError

    @cached_property
    def longest(self) -> int:
        """No validity of the output is longer: operators only intersect and cut those of the inputs."""
        return max(child.longest for child in self.inputs)

    @property
    def derived_from(self) -> str | None:
        """The identity of the query that the plan was derived from: equal columns alone do not make two equivalent."""
        return self.__dict__.get("_derived_from")

    def mark_as_derived_from(self, query_identity: str | None) -> None:
        """Note whose plan this is; only who has derived it by equivalent steps may say so."""
        self.__dict__["_derived_from"] = query_identity

    @cached_property
    def identity(self) -> str:
        from midstream.algebra.identity import identity

        return identity(self)

    @cached_property
    def fingerprint(self) -> str:
        """A short form of the identity, for counters and figures that are kept by subplan."""
        return hashlib.blake2b(self.identity.encode(), digest_size=8).hexdigest()

    @cached_property
    def gives_pieces(self) -> bool:
        """Whether a distinct cuts the output into pieces: where, depends on the order in which rows arrive.

        What aggregates and differences make of pieces does not depend on that any more.
        """
        if isinstance(self, Distinct):
            return True
        if isinstance(self, Aggregate | Difference):
            return False
        return any(child.gives_pieces for child in self.inputs)

    @cached_property
    def equal_expressions(self) -> tuple[frozenset[Expression], ...]:
        """Classes of expressions that the node's joins make equal in every row."""
        from midstream.algebra.identity import equality_classes, join_block

        return tuple(equality_classes(join_block(self)[1])[0])

    @property
    def time_domain(self) -> TimeDomain:
        domains = {leaf.time_domain for leaf in self.leaves()}
        if len(domains) == 1:
            return domains.pop()
        return TimeDomain(pa.timestamp("us", "UTC"))

    def walk(self) -> Iterator[Plan]:
        """The node and all below it, parents first, left before right."""
        pending: list[Plan] = [self]
        while pending:
            node = pending.pop()
            yield node
            pending.extend(reversed(node.inputs))

    def leaves(self) -> Iterator[Leaf]:
        """Where rows enter, left to right."""
        return (node for node in self.walk() if isinstance(node, Leaf))

    def windows(self) -> Iterator[Window]:
        """The windows among the leaves, left to right."""
        return (leaf for leaf in self.leaves() if isinstance(leaf, Window))

    def explain(self) -> str:
        """The plan as a tree."""
        from midstream.algebra.explain import explain

        return explain(self)

    def __str__(self) -> str:
        return self.explain()

    @cached_property
    def columns(self) -> frozenset[Column]:
        """The columns of the schema, as a set."""
        return frozenset(field.column for field in self.schema)

    def _check_columns(self, *inputs: Plan) -> None:
        for expression in self.expressions:
            missing = sorted(str(c) for c in expression.columns if not any(c in child.columns for child in inputs))
            if missing:
                raise BadPlan(
                    f"{type(self).__name__.lower()} reads {', '.join(missing)}, which its input does not have",
                    detail="The input has " + ", ".join(str(c) for child in inputs for c in _columns(child)) + ".",
                )


def _columns(plan: Plan) -> list[Column]:
    return [field.column for field in plan.schema]


@dataclass(frozen=True)
class Leaf(Plan):
    """Where rows enter a plan: they are stored as long as they count, and everything else is derived from them."""

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return ()

    def with_inputs(self, *inputs: Plan) -> Plan:
        assert not inputs
        return self

    @property
    def is_stateful(self) -> bool:
        return False

    @property
    def relations(self) -> frozenset[str]:
        """The FROM items whose rows these are."""
        raise NotImplementedError

    def frontier(self, watermark: int) -> int:
        """No row that comes after this watermark begins to be valid earlier."""
        raise NotImplementedError


@dataclass(frozen=True)
class Window(Leaf):
    """The rows of a stream, each valid as the window says. ``alias`` names them in the query."""

    stream: Stream
    alias: str
    window: WindowSpec

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        return tuple(Field(self.alias, name, self.stream.column_type(name)) for name in self.stream.schema.names)

    @property
    def relations(self) -> frozenset[str]:
        return frozenset([self.alias])

    @property
    def time_domain(self) -> TimeDomain:
        return self.stream.time_domain

    def frontier(self, watermark: int) -> int:
        return self.window.frontier(watermark)

    @cached_property
    def label(self) -> str:
        text = self.window.text(self.stream.time_domain.length)
        name = self.stream.name if self.alias == self.stream.name else f"{self.stream.name} AS {self.alias}"
        return f"Window {name} {text}".rstrip()

    @cached_property
    def longest(self) -> int:
        return self.window.longest


@dataclass(frozen=True)
class RemoteSource(Leaf):
    """The output of a subplan that is computed elsewhere: its rows come with their validities.

    The subplan is no input: whoever walks the plan stops here. It says what the rows are, and how long they may last.
    """

    subplan: Plan

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        return self.subplan.schema

    @property
    def relations(self) -> frozenset[str]:
        return frozenset(field.relation for field in self.schema)

    @property
    def time_domain(self) -> TimeDomain:
        return self.subplan.time_domain

    @cached_property
    def gives_pieces(self) -> bool:
        return self.subplan.gives_pieces

    @cached_property
    def longest(self) -> int:
        return self.subplan.longest

    def frontier(self, watermark: int) -> int:
        return watermark

    @cached_property
    def label(self) -> str:
        return f"Remote source {self.subplan.fingerprint}"


@dataclass(frozen=True)
class _Unary(Plan):
    input: Plan

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return (self.input,)

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        return self.input.schema


@dataclass(frozen=True)
class Select(_Unary):
    """The input's rows for which the predicate is true (not false, not NULL)."""

    predicate: Expression

    def __post_init__(self) -> None:
        self._check_columns(self.input)
        if not pa.types.is_boolean(self.predicate.type):
            raise BadPlan(f"the predicate {self.predicate} is of type {self.predicate.type}, not bool")

    def with_inputs(self, *inputs: Plan) -> Plan:
        (child,) = inputs
        return Select(child, self.predicate)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return (self.predicate,)

    @property
    def is_stateful(self) -> bool:
        return False

    @cached_property
    def columns(self) -> frozenset[Column]:
        return self.input.columns

    @property
    def label(self) -> str:
        return f"Select {self.predicate}"


@dataclass(frozen=True)
class Item:
    """One output column of a projection or grouping: its expression and the name it gets."""

    relation: str
    name: str
    expression: Expression

    @property
    def field(self) -> Field:
        return Field(self.relation, self.name, self.expression.type)

    @property
    def is_plain(self) -> bool:
        """Whether the item passes a column on, perhaps under another name."""
        return isinstance(self.expression, Column)

    def __str__(self) -> str:
        target = Column(self.relation, self.name, self.expression.type).text
        return target if self.expression.text == target else f"{self.expression} AS {self.name}"


@dataclass(frozen=True)
class Project(_Unary):
    """One output row per input row, with the items' values (bag semantics: nothing is removed)."""

    items: tuple[Item, ...]

    def __post_init__(self) -> None:
        self._check_columns(self.input)
        _check_unique(self)

    def with_inputs(self, *inputs: Plan) -> Plan:
        (child,) = inputs
        return Project(child, self.items)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return tuple(item.expression for item in self.items)

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        return tuple(item.field for item in self.items)

    @property
    def is_stateful(self) -> bool:
        return False

    @cached_property
    def label(self) -> str:
        return "Project " + ", ".join(str(item) for item in self.items)


@dataclass(frozen=True)
class Alias(_Unary):
    """The input under a name: a subquery in FROM."""

    name: str

    def __post_init__(self) -> None:
        _check_unique(self)

    def with_inputs(self, *inputs: Plan) -> Plan:
        (child,) = inputs
        return Alias(child, self.name)

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        return tuple(Field(self.name, field.name, field.type) for field in self.input.schema)

    @property
    def is_stateful(self) -> bool:
        return False

    @property
    def label(self) -> str:
        return f"Alias {self.name}"


@dataclass(frozen=True)
class Join(Plan):
    """Pairs of rows for which all predicates hold and whose validities intersect, valid on the intersection.

    ``predicates`` are conjuncts over columns of both sides; none makes a cross product.
    """

    left: Plan
    right: Plan
    predicates: tuple[Expression, ...]

    def __post_init__(self) -> None:
        self._check_columns(*self.inputs)
        _settle_predicates(self)

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return (self.left, self.right)

    def with_inputs(self, *inputs: Plan) -> Plan:
        left, right = inputs
        return Join(left, right, self.predicates)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return self.predicates

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        return self.left.schema + self.right.schema

    @property
    def label(self) -> str:
        return f"Join {_predicates_text(self.predicates)}"

    @cached_property
    def longest(self) -> int:
        return min(self.left.longest, self.right.longest)


@dataclass(frozen=True)
class MultiJoin(Plan):
    """Combinations of a row of each part for which all predicates hold and whose validities intersect.

    It computes what a tree of joins over the parts computes, but keeps no intermediate results: a new row of one part
    looks up partners in the others, one after the other. ``routing`` says who decides on that order:

    - "fixed": the plan. ``probe_orders`` has for each part the other parts, by their places, in the order in which its
      rows visit them.
    - "eddy": an eddy, group of rows by group of rows, by what it has seen so far.
    - "stairs": an eddy that keeps intermediate results after all, and completes those of a new order on demand;
      "eager-stairs" computes them at once.
    """

    parts: tuple[Plan, ...]
    predicates: tuple[Expression, ...]
    routing: Routing = "fixed"
    probe_orders: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        count = len(self.parts)
        if count < 2:
            raise BadPlan(f"a multi-way join needs at least two inputs, not {count}")
        self._check_columns(*self.parts)
        _settle_predicates(self)
        if self.routing not in get_args(Routing):
            raise BadPlan(f"a multi-way join cannot be routed by {self.routing!r}")
        wanted = count if self.routing == "fixed" else 0
        if len(self.probe_orders) != wanted:
            raise BadPlan(f"a multi-way join by {self.routing} routing has {wanted} probe orders")
        for place, order in enumerate(self.probe_orders):
            if sorted(order) != [other for other in range(count) if other != place]:
                raise BadPlan(f"the probe order {list(order)} of input {place} does not name each other input once")

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return self.parts

    def with_inputs(self, *inputs: Plan) -> Plan:
        return MultiJoin(inputs, self.predicates, self.routing, self.probe_orders)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return self.predicates

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        return tuple(field for part in self.parts for field in part.schema)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What the parts are called in ``label``: by their relations."""
        return tuple("+".join(dict.fromkeys(field.relation for field in part.schema)) for part in self.parts)

    @property
    def label(self) -> str:
        predicates = _predicates_text(self.predicates)
        if self.routing != "fixed":
            return f"MultiJoin by {self.routing} {predicates}"
        orders = (
            f"{name} probes {' '.join(self.names[place] for place in order)}"
            for name, order in zip(self.names, self.probe_orders, strict=True)
        )
        return f"MultiJoin {predicates}; {', '.join(orders)}"

    @cached_property
    def longest(self) -> int:
        return min(part.longest for part in self.parts)


def _settle_predicates(join: Join | MultiJoin) -> None:
    """Check the parts of a join, and put its predicates in order."""
    seen: set[str] = set()
    for part in join.inputs:
        relations = {field.relation for field in part.schema}
        if clash := relations & seen:
            inputs = "both sides" if isinstance(join, Join) else "two inputs"
            raise BadPlan(f"{inputs} of a join are called {', '.join(sorted(clash))}")
        seen |= relations
    for predicate in join.predicates:
        if not pa.types.is_boolean(predicate.type) or len(list(conjuncts(predicate))) != 1:
            raise BadPlan(f"{predicate} is not a single condition")
    ordered = tuple(sorted(set(join.predicates), key=lambda predicate: predicate.text))
    object.__setattr__(join, "predicates", ordered)


def _predicates_text(predicates: tuple[Expression, ...]) -> str:
    return " AND ".join(predicate._text(3) for predicate in predicates) or "(cross product)"


@dataclass(frozen=True)
class Distinct(_Unary):
    """Each different row once per instant; NULLs count as equal."""

    def __post_init__(self) -> None:
        _check_comparable(self, self.input.schema)

    def with_inputs(self, *inputs: Plan) -> Plan:
        (child,) = inputs
        return Distinct(child)

    @property
    def label(self) -> str:
        return "Distinct"


@dataclass(frozen=True)
class NamedAggregate:
    """An aggregate and the name of the output column it fills."""

    name: str
    call: AggregateCall

    @property
    def field(self) -> Field:
        return Field("", self.name, self.call.type)

    def __str__(self) -> str:
        return self.call.text if self.call.text == self.name else f"{self.call} AS {self.name}"


@dataclass(frozen=True)
class Aggregate(_Unary):
    """One row per group and segment of time in which the group's rows stay the same.

    A snapshot without rows has no group and gives no row, also when there are no keys. A result is final, and
    emitted, once the watermark has passed its end; it may therefore begin up to ``input.longest`` before.
    """

    keys: tuple[Item, ...]
    aggregates: tuple[NamedAggregate, ...]

    def __post_init__(self) -> None:
        self._check_columns(self.input)
        _check_unique(self)
        _check_comparable(self, tuple(key.field for key in self.keys))

    def with_inputs(self, *inputs: Plan) -> Plan:
        (child,) = inputs
        return Aggregate(child, self.keys, self.aggregates)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        arguments = (aggregate.call.argument for aggregate in self.aggregates)
        return (*(key.expression for key in self.keys), *(argument for argument in arguments if argument is not None))

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        return tuple(key.field for key in self.keys) + tuple(a.field for a in self.aggregates)

    @property
    def label(self) -> str:
        parts = "Aggregate " + ", ".join(str(aggregate) for aggregate in self.aggregates)
        return f"{parts} BY {', '.join(str(key) for key in self.keys)}" if self.keys else parts


@dataclass(frozen=True)
class _Binary(Plan):
    left: Plan
    right: Plan

    def __post_init__(self) -> None:
        left, right = ([field.type for field in side.schema] for side in (self.left, self.right))
        if left != right:
            raise BadPlan(
                f"the sides of a {type(self).__name__.lower()} have different types",
                detail=f"Left: {', '.join(map(str, left))}. Right: {', '.join(map(str, right))}.",
            )

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return (self.left, self.right)

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        return self.left.schema


@dataclass(frozen=True)
class Difference(_Binary):
    """EXCEPT: at each instant the left rows without the right ones.

    ``keep`` "all" subtracts multiplicities (EXCEPT ALL); "distinct" gives each left row that the right side lacks once.
    """

    keep: OneOf["all", "distinct"]

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_comparable(self, self.left.schema)

    def with_inputs(self, *inputs: Plan) -> Plan:
        left, right = inputs
        return Difference(left, right, self.keep)

    @property
    def label(self) -> str:
        return "Difference ALL" if self.keep == "all" else "Difference"

    @cached_property
    def longest(self) -> int:
        return self.left.longest


@dataclass(frozen=True)
class Union(_Binary):
    """UNION ALL: the rows of both sides. (UNION is a Distinct over it.)"""

    def with_inputs(self, *inputs: Plan) -> Plan:
        left, right = inputs
        return Union(left, right)

    @property
    def is_stateful(self) -> bool:
        return False

    @property
    def label(self) -> str:
        return "Union ALL"


def _check_unique(plan: Plan) -> None:
    counts = Counter((field.relation, field.name) for field in plan.schema)
    repeated = sorted(name for (_, name), count in counts.items() if count > 1)
    if repeated:
        raise BadPlan(f"{type(plan).__name__.lower()} has more than one column called {', '.join(repeated)}")


def _check_comparable(plan: Plan, fields: tuple[Field, ...]) -> None:
    for field in fields:
        if not is_comparable(field.type):
            raise BadPlan(
                f"{type(plan).__name__.lower()} compares {field.column}, which is of the nested type {field.type}"
            )
