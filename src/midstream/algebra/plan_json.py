"""Plans and stream declarations as JSON and back, so that a plan can be sent in a command or stored in a checkpoint.

Each class of operator and expression has a message with the same fields; msgspec encodes and decodes them. Reading
executes nothing: nodes are constructed, and therefore checked, as anywhere else. Anything that is not a plan of this
format version raises a :class:`BadPlan`.

Operators are listed in post-order: each takes its inputs from the end of the list of those before it that are not yet
taken. So a plan of any depth is flat JSON, and neither cycles nor shared inputs can be written, with which a short text
could stand for an exponentially large plan. Expressions are nested, and streams are listed once.

The JSON does not say which query a plan belongs to; the caller passes that as ``derived_from``. Extension types must
be registered with pyarrow on both sides.

>>> bids = Stream("bids", pa.schema({"ts": pa.int64(), "price": pa.int64()}), event_time="ts")
>>> data = plan_to_json(Distinct(Window(bids, "b", WindowSpec(10))))
>>> data["streams"]
[{'name': 'bids', 'schema': [['ts', 'int64'], ['price', 'int64']], 'event_time': 'ts', 'lateness': 0}]
>>> for operator in data["operators"]:
...     print(operator)
{'kind': 'window', 'stream': 0, 'alias': 'b', 'window': {'width': 10, 'slide': None, 'declared': True}}
{'kind': 'distinct'}
>>> print(plan_from_json(data))
Distinct
└─ Window bids AS b [RANGE 10]
"""

from __future__ import annotations

import datetime
import math
import reprlib
import types
import typing
from collections.abc import Sequence
from dataclasses import fields
from decimal import Decimal
from typing import Annotated, Any, NoReturn
from typing import Literal as OneOf

import msgspec
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
    MultiJoin,
    NamedAggregate,
    Plan,
    Project,
    RemoteSource,
    Select,
    Union,
    Window,
)
from midstream.algebra.stream import Stream
from midstream.algebra.type_text import schema_from_text, schema_to_text, type_from_text, type_to_text
from midstream.algebra.window_spec import WindowSpec
from midstream.errors import BadPlan, MidstreamError

__all__ = ["plan_from_json", "plan_to_json", "stream_from_json", "stream_to_json"]

VERSION = 2

MOST_LEVELS = 500
"""Operators on the longest path from the plan to a leaf. Plans are walked recursively in many places: a deeper one
would exhaust the stack of whoever uses it. A join of 128 streams has about 130."""

_HINT = "Give what plan_to_json or stream_to_json gave, unchanged."

_EXPRESSIONS = (Call, Cast, Column, Literal)
_OPERATORS = (Aggregate, Alias, Difference, Distinct, Join, MultiJoin, Project, RemoteSource, Select, Union, Window)
_PARTS = (AggregateCall, Item, NamedAggregate, Stream, WindowSpec)


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all messages: msgspec refuses fields that are missing, unknown or of another type, and says where."""


def _message_class(name: str, parts: list[tuple[str, Any]], tag_field: str | None = None) -> Any:
    return msgspec.defstruct(
        name, parts, bases=(Message,), module=__name__, tag_field=tag_field, tag=name.lower() if tag_field else None
    )


_STORED_AS: dict[type, Any] = {
    # Only numbers that are not finite: JSON has the others.
    float: OneOf["nan", "inf", "-inf"],
    # As ISO text, since msgspec drops the seconds of a UTC offset.
    datetime.datetime: str,
    **{kind: kind for kind in (bytes, Decimal, datetime.date, datetime.time, datetime.timedelta)},
}
_CONSTANTS = {kind: _message_class(kind.__name__, [("value", stored)], "type") for kind, stored in _STORED_AS.items()}
"""The messages for values that JSON has no form for, by the class of the value."""

_FIELD_TYPES: dict[Any, Any] = {
    Any: typing.Union[None, bool, int, float, str, *_CONSTANTS.values()],
    int | str | datetime.timedelta: int | str | _CONSTANTS[datetime.timedelta],
    # A stream is named by its place in the list.
    Stream: Annotated[int, msgspec.Meta(ge=0)],
    # As text where there is more to it than names and types.
    pa.Schema: list[tuple[str, pa.DataType]] | str,
    Expression: "AnyExpression",
    Expression | None: "AnyExpression | None",
    **{part: f"_MESSAGES[{part.__name__}]" for part in _PARTS if part is not Stream},
}


def _list_of(item: Any) -> Any:
    return types.GenericAlias(list, (item,))


def _field_type(hint: Any) -> Any:
    if typing.get_origin(hint) is tuple:
        return _list_of(_field_type(typing.get_args(hint)[0]))
    return _FIELD_TYPES.get(hint, hint)


_INPUTS = (Plan, tuple[Plan, ...])
_FIELDS: dict[type, dict[str, Any]] = {
    kind: {field.name: typing.get_type_hints(kind)[field.name] for field in fields(kind) if field.init}
    for kind in (*_EXPRESSIONS, *_OPERATORS, *_PARTS)
}
"""Names and types of each class's fields. The inputs of an operator come first, and are no part of its message: where
their number may vary, it is there instead (``parts`` of a multi-way join)."""

_MESSAGES: dict[type, Any] = {
    kind: _message_class(
        kind.__name__,
        [(name, int if hint in _INPUTS else _field_type(hint)) for name, hint in parts.items() if hint is not Plan],
        None if kind in _PARTS else "kind",
    )
    for kind, parts in _FIELDS.items()
}
_CLASSES: dict[type, type] = {message: kind for kind, message in (_MESSAGES | _CONSTANTS).items()}
AnyExpression: Any = typing.Union[tuple(_MESSAGES[kind] for kind in _EXPRESSIONS)]  # noqa: UP007
AnyOperator: Any = typing.Union[tuple(_MESSAGES[kind] for kind in _OPERATORS)]  # noqa: UP007
_PlanDocument = _message_class(
    "PlanDocument", [("version", int), ("streams", _list_of(_MESSAGES[Stream])), ("operators", _list_of(AnyOperator))]
)
_StreamDocument = _message_class("StreamDocument", [("version", int), ("stream", _MESSAGES[Stream])])


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """The plan as a value for ``json.dumps``; a :class:`BadPlan` if it holds a constant or type of unknown kind."""
    streams: dict[bytes, Any] = {}
    # Parents first and the last input before the first: backwards, that is post-order.
    order: list[Plan] = []
    pending: list[Plan] = [plan]
    while pending:
        order.append(pending.pop())
        pending.extend(_subplans(order[-1]))
    try:
        operators = [_message(node, streams) for node in reversed(order)]
    except RecursionError:
        raise BadPlan("cannot write the plan as JSON: it is nested too deeply") from None
    return _builtins(_PlanDocument(VERSION, [stream for _, stream in streams.values()], operators))


def plan_from_json(data: Any, derived_from: str | None = None) -> Plan:
    """The plan that :func:`plan_to_json` gave this for, as one of the query of that identity, if it is given."""
    try:
        document = _decoded(data, _PlanDocument, "plan")
        streams = [_built(stream, f"streams[{number}]") for number, stream in enumerate(document.streams)]
        plan = _plan(document.operators, streams)
        # Every reader needs it, and a plan too deep for it is of no use.
        _ = plan.identity
    except RecursionError:
        _refuse("the plan", "it is nested too deeply")
    if derived_from is not None:
        plan.mark_as_derived_from(derived_from)
    return plan


def stream_to_json(stream: Stream) -> dict[str, Any]:
    """The declaration as a value for ``json.dumps``."""
    return _builtins(_StreamDocument(VERSION, _message(stream)))


def stream_from_json(data: Any) -> Stream:
    """The declaration that :func:`stream_to_json` gave this for."""
    stream: Stream = _built(_decoded(data, _StreamDocument, "stream").stream, "the stream")
    return stream


def _builtins(document: Message) -> dict[str, Any]:
    _encoded(document, "cannot write a plan or stream as JSON")
    written: dict[str, Any] = msgspec.to_builtins(document, enc_hook=type_to_text)
    return written


def _decoded(data: Any, kind: type[Message], name: str) -> Any:
    if not isinstance(data, dict) or "version" not in data:
        _refuse(f"the {name}", "it is not an object with a format version")
    if type(data["version"]) is not int or data["version"] != VERSION:
        raise BadPlan(
            f"cannot read a {name} of format version {_shown(data['version'])}",
            detail=f"This midstream reads format version {VERSION}.",
            hint="Use the midstream that wrote it, or start the query with a new checkpoint and control directory.",
        )
    try:
        document = msgspec.convert(data, kind, dec_hook=_type)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `")
        _refuse(place.removeprefix("$.").removesuffix("`") or f"the {name}", problem[:1].lower() + problem[1:])
    except ValueError as error:
        # msgspec looks words up as UTF-8, and Python does not convert numbers of thousands of digits.
        _refuse(f"the {name}", "it holds a text or number that is not valid", f"{error}.")
    _encoded(document, f"cannot read the {name} from JSON")
    return document


def _type(_: type, text: Any) -> pa.DataType:
    if not isinstance(text, str):
        raise ValueError(f"{_shown(text)} is not the name of a type")
    return type_from_text(text)


def _encoded(message: Message, problem: str) -> bytes:
    """The message as bytes. Half a surrogate pair is refused: JSON would make one character of two halves."""
    try:
        return msgspec.json.encode(message, enc_hook=type_to_text)
    except ValueError as error:
        raise BadPlan(f"{problem}: it holds a text or number that is not valid", detail=f"{error}.") from None


def _subplans(plan: Plan) -> tuple[Plan, ...]:
    """The plans that a node is constructed with: its inputs, or what a remote source stands for."""
    return (plan.subplan,) if isinstance(plan, RemoteSource) else plan.inputs


def _message(value: Any, streams: dict[bytes, Any] | None = None) -> Any:
    """The message for an operator, expression, part or value. The streams of windows are collected and numbered."""
    kind = type(value)
    if kind is tuple:
        return [_message(part, streams) for part in value]
    if kind is Stream and streams is not None:
        stream = _message(value)
        return streams.setdefault(_encoded(stream, "cannot write a plan or stream as JSON"), (len(streams), stream))[0]
    if kind is pa.Schema:
        plain = value.metadata is None and all(column.nullable and not column.metadata for column in value)
        return [[column.name, column.type] for column in value] if plain else schema_to_text(value)
    if kind in _CONSTANTS and not (kind is float and math.isfinite(value)):
        stored = repr(value) if kind is float else value.isoformat() if kind is datetime.datetime else value
        return _CONSTANTS[kind](stored)
    if kind not in _MESSAGES:
        if isinstance(value, Plan | Expression):
            raise BadPlan(f"cannot write a {kind.__name__} as JSON, which is neither operator nor expression")
        return value
    try:
        _check(value)
    except MidstreamError as error:
        raise BadPlan(f"cannot write a plan as JSON: {error.message}", detail=error.detail) from None
    message = _MESSAGES[kind]
    parts = [
        len(value.inputs) if _FIELDS[kind][name] in _INPUTS else _message(getattr(value, name), streams)
        for name in message.__struct_fields__
    ]
    return message(*parts)


def _plan(operators: list[Message], streams: list[Stream]) -> Plan:
    stack: list[tuple[Plan, int]] = []
    for number, message in enumerate(operators):
        place = f"operators[{number}]"
        count = _inputs_of(message)
        if not 0 <= count <= len(stack):
            _refuse(place, f"it has {len(stack)} of its {count} inputs")
        inputs = [stack.pop() for _ in range(count)][::-1]
        level = max((level for _, level in inputs), default=0) + 1
        if level > MOST_LEVELS:
            _refuse(place, f"it is nested more than {MOST_LEVELS} levels deep")
        stack.append((_built(message, place, streams, [plan for plan, _ in inputs]), level))
    if len(stack) != 1:
        _refuse("the plan", f"its operators make {len(stack)} plans, not one")
    return stack[0][0]


def _inputs_of(message: Any) -> int:
    """How many inputs an operator has."""
    if isinstance(message, _MESSAGES[MultiJoin]):
        parts: int = message.parts
        return parts
    return sum(hint is Plan for hint in _FIELDS[_CLASSES[type(message)]].values())


def _built(message: Any, place: str, streams: Sequence[Stream] = (), inputs: Sequence[Plan] = ()) -> Any:
    """The operator, expression, part or value that the message is for, checked as it is constructed."""
    kind = _CLASSES.get(type(message))
    if type(message) is list:
        return tuple([_built(part, place, streams) for part in message])
    if kind is None:
        return message
    parts = message.__struct_fields__
    values = [] if kind in _CONSTANTS else [_built(getattr(message, name), place, streams) for name in parts]
    try:
        if kind is float:
            # Always the same NaN object, so that two plans with it are equal.
            return math.nan if message.value == "nan" else float(message.value)
        if kind is datetime.datetime:
            return datetime.datetime.fromisoformat(message.value)
        if kind in _CONSTANTS:
            return message.value
        if kind is Window:
            if message.stream >= len(streams):
                raise BadPlan(f"there is no stream {_shown(message.stream)}")
            values[parts.index("stream")] = streams[message.stream]
        if kind is Stream:
            schema = message.schema
            values[parts.index("schema")] = schema_from_text(schema) if isinstance(schema, str) else pa.schema(schema)
        if kind is MultiJoin:
            values[parts.index("parts")], inputs = tuple(inputs), ()
        built = kind(*inputs, *values)
        _check(built)
    except MidstreamError as error:
        _refuse(place, error.message, error.detail)
    except ValueError as error:
        _refuse(place, "its values are not valid", f"{error}.")
    return built


def _check(value: Any) -> None:
    """What the constructors of expressions leave to ``call``, ``cast`` and ``aggregate_call``."""
    if isinstance(value, Literal):
        if type(value.value) not in (types.NoneType, bool, int, float, str, *_CONSTANTS):
            raise BadPlan(f"a constant cannot be {_shown(value.value)} of type {type(value.value).__name__}")
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
    if isinstance(value, Decimal):
        # pyarrow reads beyond its tables, and may crash, where it has to shift the point far.
        if not (pat.is_decimal128(data_type) or pat.is_decimal256(data_type)):
            return False
        exponent = value.as_tuple().exponent
        if isinstance(exponent, int) and abs(exponent + data_type.scale) > (38 if data_type.bit_width == 128 else 76):
            return False
    try:
        # NULL has every type, also those that pyarrow has no scalars of.
        _ = value is None or pa.scalar(value, data_type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return False
    return True


def _refuse(place: str, problem: str, detail: str | None = None) -> NoReturn:
    raise BadPlan(f"cannot read {place} from JSON: {problem}", detail=detail, hint=_HINT) from None


def _shown(value: Any) -> str:
    """The value for a message: not all of it, however long or deep it is."""
    try:
        text = reprlib.repr(value)
    except ValueError:
        return "a very long number"
    return text if len(text) <= 80 else text[:77] + "..."
