"""Plans and stream declarations as JSON and back, so that a plan can travel in a control file or lie in a checkpoint.

Nothing is executed when it is read: values have a form of their own for each type, nodes come from a list of known
classes and are built, and therefore checked, as anywhere else. What is not a plan raises a :class:`BadPlan`, whatever
it is.

A plan is a list of nodes, inputs before those that read them, the plan itself last; a node names its inputs by their
number. So no reader ever recurses, cycles cannot be written, and a plan nested too deeply is counted, not walked into.
Columns and literals stand there once. Every other node is used exactly once: a chain of nodes that each name the one
before twice would be a short text with an endless plan. Streams have a list of their own.

Whether a plan is one of a query's own is not in its JSON: who reads it must find out. Nor is an extension type: both
sides must have registered it with pyarrow.

>>> from midstream.algebra.windows import WindowSpec
>>> bids = Stream("bids", pa.schema({"ts": pa.int64(), "price": pa.int64()}), event_time="ts")
>>> data = plan_to_json(Distinct(Window(bids, "b", WindowSpec(10))))
>>> data["streams"]
[{'name': 'bids', 'schema': [['ts', 'int64'], ['price', 'int64']], 'event_time': 'ts', 'lateness': 0}]
>>> for node in data["nodes"]:
...     print(node)
{'kind': 'window', 'stream': 0, 'alias': 'b', 'window': {'width': 10, 'slide': None, 'declared': True}}
{'kind': 'distinct', 'input': 0}
>>> print(plan_from_json(data))
Distinct
└─ Window bids AS b [RANGE 10]
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import re
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.types as pat

from midstream.algebra import functions
from midstream.algebra.aggregates import AGGREGATES, AggregateCall, aggregate_call
from midstream.algebra.expressions import Call, Cast, Column, Expression, Literal
from midstream.algebra.plan import (
    Aggregate,
    Alias,
    Difference,
    Distinct,
    Item,
    Join,
    NamedAggregate,
    Plan,
    Project,
    Select,
    Union,
    Window,
)
from midstream.algebra.stream import Stream
from midstream.algebra.windows import WindowSpec
from midstream.errors import BadPlan, MidstreamError

__all__ = ["plan_from_json", "plan_to_json", "stream_from_json", "stream_to_json"]

VERSION = 1

MOST_LEVELS = 500
"""Nodes on the longest way from the plan to a leaf, operators and expressions together. Plans are walked recursively in
many places: a deeper one would exhaust the stack of whoever uses it. A join of 128 streams has about 130."""

_NODES = (
    Aggregate, Alias, Call, Cast, Column, Difference, Distinct, Join, Literal, Project, Select, Union, Window,
)  # fmt: skip
_PARTS = (AggregateCall, Item, NamedAggregate, Stream, WindowSpec)
_SHARED = (Column, Literal)
_KINDS = {node.__name__.lower(): node for node in _NODES}

_ARROW = "arrow:"
_HINT = "Give what plan_to_json or stream_to_json gave, unchanged."


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """The plan as a value for ``json.dumps``; a :class:`BadPlan` where it holds a constant or type of unknown kind."""
    writer = _Writer()
    writer.plan(plan)
    return {"version": VERSION, "streams": writer.streams, "nodes": writer.nodes}


def plan_from_json(data: Any, derived_from: str | None = None) -> Plan:
    """The plan that :func:`plan_to_json` gave this for, as one of the query of an identity, if that is given."""
    if not isinstance(data, dict) or "version" not in data:
        _refuse("the plan", f"it is {_shown(data)}, not an object with a version, streams and nodes")
    if type(data["version"]) is not int or data["version"] != VERSION:
        raise BadPlan(
            f"cannot read a plan of version {_shown(data['version'])}",
            detail=f"This midstream reads version {VERSION}.",
            hint="Write the plan with the same version of midstream that reads it.",
        )
    try:
        plan = _Reader().plan(data)
    except RecursionError:
        _refuse("the plan", "it is nested too deeply")
    if derived_from is not None:
        plan.mark_as_derived_from(derived_from)
    return plan


def stream_to_json(stream: Stream) -> dict[str, Any]:
    """The declaration as a value for ``json.dumps``."""
    written: dict[str, Any] = _FORMS[Stream].write(stream, _Writer())
    return written


def stream_from_json(data: Any) -> Stream:
    """The declaration that :func:`stream_to_json` gave this for."""
    stream: Stream = _FORMS[Stream].read(data, _Reader(), "the stream")
    return stream


class _Writer:
    """The nodes and streams written so far."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.streams: list[dict[str, Any]] = []
        self.below: Iterator[int] = iter(())
        self._shared: dict[str, int] = {}
        self._shared_streams: dict[str, int] = {}

    def plan(self, plan: Plan) -> None:
        # Parents first and the last input before the first: backwards, that is every node behind its inputs.
        order: list[Any] = []
        pending: list[Any] = [plan]
        while pending:
            node = pending.pop()
            if type(node) not in _NODES:
                raise BadPlan(f"cannot write a {type(node).__name__} as JSON, which is neither operator nor expression")
            order.append(node)
            pending.extend(_FORMS[type(node)].nodes(node))
        numbers: list[int] = []
        for node in reversed(order):
            form = _FORMS[type(node)]
            count = sum(1 for _ in form.nodes(node))
            self.below = iter(numbers[len(numbers) - count :])
            del numbers[len(numbers) - count :]
            row = {"kind": type(node).__name__.lower()} | form.write(node, self)
            numbers.append(_place(row, self.nodes, self._shared if isinstance(node, _SHARED) else None))

    def stream(self, stream: Stream) -> int:
        return _place(stream_to_json(stream), self.streams, self._shared_streams)


def _place(row: dict[str, Any], rows: list[dict[str, Any]], shared: dict[str, int] | None) -> int:
    """The number of the row: a new one, unless it may be shared and is there."""
    # Equal literals may differ (0.0 and -0.0, 1.0 and 1.00): only equal texts are the same.
    number = len(rows) if shared is None else shared.setdefault(json.dumps(row), len(rows))
    if number == len(rows):
        rows.append(row)
    return number


class _Reader:
    """The nodes and streams read so far, how deep each node is, and which are in use."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.streams: list[Stream] = []
        self.deepest = 0
        self._levels: list[int] = []
        self._used: set[int] = set()

    def plan(self, data: dict[Any, Any]) -> Plan:
        _check_keys(data, ["version", "streams", "nodes"], "the plan")
        for number, row in enumerate(_list(data["streams"], "streams")):
            self.streams.append(_FORMS[Stream].read(row, self, f"streams[{number}]"))
        for number, row in enumerate(_list(data["nodes"], "nodes")):
            self._node(row, f"nodes[{number}]")
        unused = set(range(len(self.nodes) - 1)) - self._used
        if unused:
            _refuse(f"nodes[{min(unused)}]", "no other node uses it")
        plan = self.nodes[-1] if self.nodes else None
        if not isinstance(plan, Plan):
            _refuse("the plan", "the last of its nodes is not an operator")
        # Every reader needs it, and a plan too deep for it is of no use.
        _ = plan.identity
        return plan

    def _node(self, row: Any, place: str) -> None:
        if not isinstance(row, dict):
            _refuse(place, f"it is {_shown(row)}, not an object")
        kind = row.get("kind")
        if not isinstance(kind, str) or kind not in _KINDS:
            _refuse(place, f"its kind is {_shown(kind)}, not one of {', '.join(_KINDS)}")
        self.deepest = 0
        members = {key: part for key, part in row.items() if key != "kind"}
        self.nodes.append(_FORMS[_KINDS[kind]].read(members, self, place))
        if self.deepest == MOST_LEVELS:
            _refuse(place, f"it is nested more than {MOST_LEVELS} levels deep")
        self._levels.append(self.deepest + 1)

    def node(self, number: Any, base: type, place: str) -> Any:
        """An earlier node, for the only node that reads it."""
        if type(number) is not int or not 0 <= number < len(self.nodes):
            _refuse(place, f"it is {_shown(number)}, not the number of an earlier node")
        node = self.nodes[number]
        if not isinstance(node, base):
            wanted = "an operator" if base is Plan else "an expression"
            _refuse(place, f"it is {number}, of kind {type(node).__name__.lower()}, not {wanted}")
        if number in self._used and not isinstance(node, _SHARED):
            _refuse(place, f"it is {number}, which another node has for itself")
        self._used.add(number)
        self.deepest = max(self.deepest, self._levels[number])
        return node

    def stream(self, number: Any, place: str) -> Stream:
        if type(number) is not int or not 0 <= number < len(self.streams):
            _refuse(place, f"it is {_shown(number)}, not the number of a stream")
        return self.streams[number]


class _Form:
    """How the values of a field stand in JSON, derived from the field's declared type."""

    def nodes(self, value: Any) -> Iterable[Any]:
        """The nodes the value refers to; ``write`` takes their numbers in this order."""
        return ()

    def write(self, value: Any, writer: _Writer) -> Any:
        raise NotImplementedError

    def read(self, data: Any, reader: _Reader, place: str) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class _Value(_Form):
    """A constant of one of the types; where ``words`` are given, one of them."""

    accepted: tuple[type, ...]
    words: tuple[str, ...] = ()

    def write(self, value: Any, writer: _Writer) -> Any:
        return _value_to_json(value)

    def read(self, data: Any, reader: _Reader, place: str) -> Any:
        value = _value_from_json(data, place)
        if type(value) not in self.accepted or (self.words and value not in self.words):
            names = ("null" if kind is types.NoneType else kind.__name__ for kind in self.accepted)
            _refuse(place, f"it is {_shown(data)}, not {' or '.join(self.words or names)}")
        return value


class _Type(_Form):
    def write(self, value: Any, writer: _Writer) -> Any:
        return _type_to_json(value)

    def read(self, data: Any, reader: _Reader, place: str) -> Any:
        return _type_from_json(data, place)


class _Schema(_Form):
    """Columns as name and type; anything more (not null, metadata) stands in Arrow's own form."""

    def write(self, value: Any, writer: _Writer) -> Any:
        if value.metadata is not None:
            return _arrow_text(value)
        return [self._column(column) for column in value]

    def _column(self, column: pa.Field) -> Any:
        if column.nullable and not column.metadata:
            return [column.name, _type_to_json(column.type)]
        return _arrow_text(pa.schema([column]))

    def read(self, data: Any, reader: _Reader, place: str) -> Any:
        if isinstance(data, str):
            return _arrow_schema(data, place)
        return pa.schema(
            [self._read_column(row, f"{place}[{number}]") for number, row in enumerate(_list(data, place))]
        )

    def _read_column(self, row: Any, place: str) -> pa.Field:
        if isinstance(row, str):
            return _arrow_field(row, place)
        if not (isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and _is_text(row[0])):
            _refuse(place, f"it is {_shown(row)}, not a name and a type")
        return pa.field(row[0], _type_from_json(row[1], place))


class _StreamNumber(_Form):
    def write(self, value: Any, writer: _Writer) -> Any:
        return writer.stream(value)

    def read(self, data: Any, reader: _Reader, place: str) -> Any:
        return reader.stream(data, place)


@dataclass(frozen=True)
class _NodeNumber(_Form):
    base: type
    optional: bool = False

    def nodes(self, value: Any) -> Iterable[Any]:
        return () if value is None else (value,)

    def write(self, value: Any, writer: _Writer) -> Any:
        return None if value is None else next(writer.below)

    def read(self, data: Any, reader: _Reader, place: str) -> Any:
        return None if data is None and self.optional else reader.node(data, self.base, place)


@dataclass(frozen=True)
class _Many(_Form):
    each: _Form

    def nodes(self, value: Any) -> Iterable[Any]:
        return [node for one in value for node in self.each.nodes(one)]

    def write(self, value: Any, writer: _Writer) -> Any:
        return [self.each.write(one, writer) for one in value]

    def read(self, data: Any, reader: _Reader, place: str) -> Any:
        return tuple(self.each.read(one, reader, f"{place}[{number}]") for number, one in enumerate(_list(data, place)))


@dataclass(frozen=True)
class _Object(_Form):
    """A dataclass by the names of its fields, built by its constructor."""

    build: Any
    members: dict[str, _Form]

    def nodes(self, value: Any) -> Iterable[Any]:
        return [node for name, form in self.members.items() for node in form.nodes(getattr(value, name))]

    def write(self, value: Any, writer: _Writer) -> Any:
        try:
            _check(value)
        except MidstreamError as error:
            raise BadPlan(f"cannot write a plan as JSON: {error.message}", detail=error.detail) from None
        return {name: form.write(getattr(value, name), writer) for name, form in self.members.items()}

    def read(self, data: Any, reader: _Reader, place: str) -> Any:
        if not isinstance(data, dict):
            _refuse(place, f"it is {_shown(data)}, not an object")
        _check_keys(data, self.members, place)
        values = {name: form.read(data[name], reader, f"{place}.{name}") for name, form in self.members.items()}
        try:
            built = self.build(**values)
            _check(built)
        except MidstreamError as error:
            _refuse(place, error.message, error.detail)
        except ValueError as error:
            # Python does not read or show whole numbers of thousands of digits.
            _refuse(place, "its values do not fit", f"{error}.")
        return built


def _check(value: Any) -> None:
    """What the constructors of expressions leave to ``call``, ``cast`` and ``aggregate_call``."""
    if isinstance(value, Literal):
        if not _is_constant(value.value, value.data_type):
            raise BadPlan(f"a constant of type {value.data_type} cannot be {_shown(value.value)}")
    elif isinstance(value, Call):
        made = functions.call(value.function, *value.operands)
        if [*map(id, made.operands)] != [*map(id, value.operands)] or made.data_type != value.data_type:
            types_taken = ", ".join(str(operand.type) for operand in value.operands)
            raise BadPlan(f"{value.function.upper()} does not take {types_taken} and give {value.data_type}")
    elif isinstance(value, Cast):
        functions.cast(value.argument, value.data_type)
    elif isinstance(value, AggregateCall):
        if value.function not in AGGREGATES or (value.argument is None and value.function != "count"):
            raise BadPlan(f"there is no aggregate {_shown(value.function)} of {value.argument or 'all rows'}")
        if aggregate_call(value.function, value.argument, value.distinct) != value:
            raise BadPlan(f"{value} does not give {value.data_type}")


def _is_constant(value: Any, data_type: pa.DataType) -> bool:
    """Whether pyarrow accepts the value for the type."""
    if value is None:
        return True
    if isinstance(value, Decimal):
        # pyarrow reads beyond its tables, and may crash, where it has to shift the point far.
        if not (pat.is_decimal128(data_type) or pat.is_decimal256(data_type)):
            return False
        exponent = value.as_tuple().exponent
        if isinstance(exponent, int) and abs(exponent + data_type.scale) > (38 if data_type.bit_width == 128 else 76):
            return False
    if isinstance(value, str):
        # Half a character is no text for pyarrow, but no reason not to store a plan.
        value = value.encode("utf-8", "replace").decode("utf-8")
    try:
        pa.scalar(value, data_type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return False
    return True


_NATIVE = (bool, int, types.NoneType)


def _is_text(value: str) -> bool:
    """Whether the text has whole characters only: JSON may make one character of two halves."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _float(text: str) -> float:
    value = float(text)
    # Always the same object, so that two plans with it are equal.
    return math.nan if math.isnan(value) else value


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


# What JSON lacks: by type, the name it stands under, how it becomes text, and how it is read.
_TAGGED: dict[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    str: (
        "utf8",
        lambda value: _base64(value.encode("utf-8", "surrogatepass")),
        lambda text: _bytes(text).decode("utf-8", "surrogatepass"),
    ),
    bytes: ("bytes", _base64, _bytes),
    float: ("float", repr, _float),
    Decimal: ("decimal", str, Decimal),
    datetime.date: ("date", datetime.date.isoformat, datetime.date.fromisoformat),
    datetime.datetime: ("datetime", datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    datetime.time: ("time", datetime.time.isoformat, datetime.time.fromisoformat),
    datetime.timedelta: (
        "microseconds",
        lambda value: str(value // datetime.timedelta(microseconds=1)),
        lambda text: datetime.timedelta(microseconds=int(text)),
    ),
}
_TAGS = {tag: read for tag, _, read in _TAGGED.values()}


def _value_to_json(value: Any) -> Any:
    kind = type(value)
    if kind in _NATIVE or (kind is str and _is_text(value)) or (kind is float and math.isfinite(value)):
        return value
    if kind not in _TAGGED:
        raise BadPlan(f"cannot write the constant {_shown(value)} of type {kind.__name__} as JSON")
    tag, write, _ = _TAGGED[kind]
    return {tag: write(value)}


def _value_from_json(data: Any, place: str) -> Any:
    if type(data) in (*_NATIVE, str, float):
        return data
    if isinstance(data, dict) and len(data) == 1:
        ((tag, text),) = data.items()
        if isinstance(tag, str) and isinstance(text, str) and tag in _TAGS:
            try:
                return _TAGS[tag](text)
            except (ValueError, ArithmeticError):
                pass
    _refuse(place, f"it is {_shown(data)}, not a constant")


def _type_to_json(data_type: pa.DataType) -> str:
    name = str(data_type)
    return name if _named_type(name) == data_type else _arrow_text(pa.schema([("", data_type)]))


def _type_from_json(data: Any, place: str) -> pa.DataType:
    if not isinstance(data, str):
        _refuse(place, f"it is {_shown(data)}, not the name of a type")
    if data.startswith(_ARROW):
        return _arrow_field(data, place).type
    named = _named_type(data)
    if named is None:
        _refuse(place, f"it is {_shown(data)}, not the name of a type")
    return named


def _named_type(name: str) -> pa.DataType | None:
    """The type that has the name as text, for types without parts: nested ones may have more to them than shows."""
    try:
        if matched := re.fullmatch(r"timestamp\[(s|ms|us|ns), tz=(.+)\]", name):
            return pa.timestamp(matched[1], matched[2])
        if matched := re.fullmatch(r"decimal(128|256)\((\d{1,2}), (-?\d{1,2})\)", name, re.ASCII):
            decimal = pa.decimal128 if matched[1] == "128" else pa.decimal256
            return decimal(int(matched[2]), int(matched[3]))
        return pa.type_for_alias(name)
    except ValueError:
        return None


def _arrow_text(schema: pa.Schema) -> str:
    """A schema in the form of Arrow's own messages."""
    text = _ARROW + _base64(schema.serialize().to_pybytes())
    try:
        unchanged = _arrow_schema(text, "") == schema
    except BadPlan:
        unchanged = False
    if not unchanged:
        raise BadPlan(
            f"cannot write the type {', '.join(str(column.type) for column in schema)} as JSON",
            detail="It is not the same when it is read again.",
            hint="Register an extension type with pyarrow.",
        )
    return text


def _arrow_schema(text: str, place: str) -> pa.Schema:
    try:
        data = _bytes(text.removeprefix(_ARROW))
        if b"arrow.py_extension_type" in data:
            # Older versions of pyarrow can be told to unpickle it.
            raise ValueError("a pickled type is not read")
        schema = pa.ipc.read_schema(pa.py_buffer(data))
        # Names that are not text, and extension types that refuse their parameters, are found when they are asked for.
        _ = [(column.name, column.type) for column in schema]
    # An extension type that is registered here reads its own parameters, and may raise anything.
    except Exception as error:
        _refuse(place, f"{_shown(text)} is not an Arrow schema", f"{type(error).__name__}: {error}.")
    return schema


def _arrow_field(text: str, place: str) -> pa.Field:
    schema = _arrow_schema(text, place)
    if len(schema) != 1:
        _refuse(place, f"it is a schema of {len(schema)} columns, not of one")
    return schema.field(0)


def _list(data: Any, place: str) -> list[Any]:
    if not isinstance(data, list):
        _refuse(place, f"it is {_shown(data)}, not a list")
    return data


def _check_keys(data: dict[Any, Any], names: Iterable[str], place: str) -> None:
    for name in names:
        if name not in data:
            _refuse(place, f'it has no "{name}"')
    for key in data:
        if key not in names:
            _refuse(place, f"it has {_shown(key)}, which does not belong there")


def _refuse(place: str, problem: str, detail: str | None = None) -> NoReturn:
    raise BadPlan(f"cannot read {place} from JSON: {problem}", detail=detail, hint=_HINT) from None


def _shown(value: Any) -> str:
    """The value for a message: not all of it, however long or deep it is."""
    try:
        text = reprlib.repr(value)
    except ValueError:
        return "a very long number"
    return text if len(text) <= 80 else text[:77] + "..."


def _form(hint: Any) -> _Form:
    """The form of a field by its declared type."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return _Many(_form(arguments[0]))
    if typing.get_origin(hint) is typing.Literal:
        return _Value((str,), arguments)
    if hint in (Plan, Expression):
        return _NodeNumber(hint)
    if hint == Expression | None:
        return _NodeNumber(Expression, optional=True)
    if hint is Stream:
        return _StreamNumber()
    if hint in _PARTS:
        return _object_form(hint)
    if hint is pa.DataType:
        return _Type()
    if hint is pa.Schema:
        return _Schema()
    accepted: tuple[Any, ...] = (*_NATIVE, *_TAGGED) if hint is Any else arguments or (hint,)
    assert all(kind in _NATIVE or kind in _TAGGED for kind in accepted), hint
    return _Value(accepted)


def _object_form(build: Any) -> _Object:
    hints = typing.get_type_hints(build)
    return _Object(build, {part.name: _form(hints[part.name]) for part in fields(build) if part.init})


_FORMS = {kind: _object_form(kind) for kind in (*_NODES, Stream)}
