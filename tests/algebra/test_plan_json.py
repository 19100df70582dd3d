"""Plans and stream declarations come back from JSON as they were; what is not a plan is refused, whatever it is."""

from __future__ import annotations

import base64
import copy
import datetime
import json
import math
import time
import zoneinfo
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice, pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from midstream import ContinuousQuery
from midstream.algebra import plan_json
from midstream.algebra.aggregates import AggregateCall, aggregate_call
from midstream.algebra.expressions import Call, Cast, Column, Expression, Literal
from midstream.algebra.functions import call
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
from midstream.algebra.plan_json import MOST_LEVELS, plan_from_json, plan_to_json, stream_from_json, stream_to_json
from midstream.algebra.stream import Stream
from midstream.algebra.type_text import schema_to_text
from midstream.algebra.window_spec import WindowSpec
from midstream.errors import BadPlan
from midstream.planning.default_plan import default_plan
from midstream.planning.join_order.plan_with_join_order import plan_with_join_order
from midstream.planning.rules import RULES, Rule
from midstream.testing import scenarios
from tests.planning.plans import (
    chain_equalities,
    column,
    condition,
    equal,
    group,
    items,
    joined,
    project,
    value,
    where,
    window,
)
from tests.planning.strategies import plans
from tests.planning.test_rules import CASES, NAMED, rule_called

EXAMPLES = settings(
    max_examples=40, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
MANY = settings(EXAMPLES, max_examples=250)


def through_json(data: Any) -> Any:
    return json.loads(json.dumps(data))


def read_again(plan: Plan) -> Plan:
    return plan_from_json(through_json(plan_to_json(plan)))


def assert_same_after_json(plan: Plan) -> None:
    read = read_again(plan)
    assert read == plan
    assert read.identity == plan.identity
    # Equality does not tell 0.0 from -0.0, or 1.0 from 1.00.
    assert repr(read) == repr(plan)
    assert plan_to_json(read) == plan_to_json(plan)


def arrow_text(raw: bytes) -> str:
    return "arrow:" + base64.b64encode(raw).decode("ascii")


def refused(data: Any) -> str:
    with pytest.raises(BadPlan) as raised:
        plan_from_json(data)
    return str(raised.value)


# Round trips


@pytest.mark.parametrize(("rule", "case"), NAMED)
def test_plans_of_the_golden_files_come_back(rule: str, case: str) -> None:
    plan = CASES[rule][case]()
    for one in (plan, rule_called(rule)(plan), default_plan(plan)):
        assert_same_after_json(one)


@EXAMPLES
@given(scenarios(max_rows=0), st.integers(0, 12))
def test_every_plan_of_every_query_comes_back(scenario: Any, number: int) -> None:
    query = ContinuousQuery(scenario.query_text, scenario.streams)
    for plan in [*islice(query.plans(), number, number + 2), query.plan()]:
        assert_same_after_json(plan)
    for stream in scenario.streams:
        assert stream_from_json(through_json(stream_to_json(stream))) == stream


@settings(EXAMPLES, max_examples=20)
@given(plans(), st.sampled_from(RULES))
def test_random_plans_and_what_the_rules_make_of_them_come_back(plan: Plan, rule: Rule) -> None:
    assert_same_after_json(plan)
    assert_same_after_json(rule(plan))


def test_every_operator_and_expression_can_be_written() -> None:
    def below(base: type) -> Iterator[type]:
        for kind in base.__subclasses__():
            yield kind
            yield from below(kind)

    known = {kind for base in (Plan, Expression) for kind in below(base) if kind.__module__.startswith("midstream")}
    written = {*plan_json._OPERATORS, *plan_json._EXPRESSIONS}
    assert {kind for kind in known if not kind.__subclasses__()} == written


def test_a_remote_source_comes_back_with_its_subplan() -> None:
    remote = RemoteSource(Join(window("a"), window("c", 20), tuple(equal("a.k=c.k"))))
    assert_same_after_json(Distinct(project(remote, "a.x")))
    assert list(read_again(remote).leaves()) == [remote]
    assert [operator["kind"] for operator in plan_to_json(remote)["operators"]] == [
        "window",
        "window",
        "join",
        "remotesource",
    ]


EVERY_KIND = Union(
    Difference(
        Project(Select(window("a"), condition("a.x", "<", 3)), items("a.x")),
        Distinct(Project(Alias(project(window("b"), "b.x"), "s"), (Item("", "a_x", column("s.b_x")),))),
        "all",
    ),
    Aggregate(
        Join(window("a"), window("c", 20), tuple(equal("a.k=c.k"))),
        (),
        (NamedAggregate("a_x", aggregate_call("sum", Cast(column("c.s"), pa.int64()), distinct=True)),),
    ),
)

STORED = """
{"version": 2,
 "streams": [{"name": "a", "event_time": "ts", "lateness": 0,
              "schema": [["ts", "int64"], ["k", "int64"], ["x", "int64"], ["s", "string"]]},
             {"name": "b", "event_time": "ts", "lateness": 0,
              "schema": [["ts", "int64"], ["k", "int64"], ["x", "int64"], ["s", "string"]]},
             {"name": "c", "event_time": "ts", "lateness": 0,
              "schema": [["ts", "int64"], ["k", "int64"], ["x", "int64"], ["s", "string"]]}],
 "operators": [
   {"kind": "window", "stream": 0, "alias": "a", "window": {"width": 10, "slide": null, "declared": true}},
   {"kind": "select", "predicate":
     {"kind": "call", "function": "<", "data_type": "bool", "operands": [
       {"kind": "column", "relation": "a", "name": "x", "data_type": "int64"},
       {"kind": "literal", "value": 3, "data_type": "int64"}]}},
   {"kind": "project", "items": [{"relation": "", "name": "a_x", "expression":
     {"kind": "column", "relation": "a", "name": "x", "data_type": "int64"}}]},
   {"kind": "window", "stream": 1, "alias": "b", "window": {"width": 10, "slide": null, "declared": true}},
   {"kind": "project", "items": [{"relation": "", "name": "b_x", "expression":
     {"kind": "column", "relation": "b", "name": "x", "data_type": "int64"}}]},
   {"kind": "alias", "name": "s"},
   {"kind": "project", "items": [{"relation": "", "name": "a_x", "expression":
     {"kind": "column", "relation": "s", "name": "b_x", "data_type": "int64"}}]},
   {"kind": "distinct"},
   {"kind": "difference", "keep": "all"},
   {"kind": "window", "stream": 0, "alias": "a", "window": {"width": 10, "slide": null, "declared": true}},
   {"kind": "window", "stream": 2, "alias": "c", "window": {"width": 20, "slide": null, "declared": true}},
   {"kind": "join", "predicates": [
     {"kind": "call", "function": "=", "data_type": "bool", "operands": [
       {"kind": "column", "relation": "a", "name": "k", "data_type": "int64"},
       {"kind": "column", "relation": "c", "name": "k", "data_type": "int64"}]}]},
   {"kind": "aggregate", "keys": [], "aggregates": [{"name": "a_x", "call":
     {"function": "sum", "distinct": true, "data_type": "int64", "argument":
       {"kind": "cast", "data_type": "int64", "argument":
         {"kind": "column", "relation": "c", "name": "s", "data_type": "string"}}}}]},
   {"kind": "union"}]}
"""


def test_this_version_is_written_and_stays_readable() -> None:
    # A remote source stands for a whole plan: see test_a_remote_source_comes_back_with_its_subplan. For multi-way joins
    # see test_a_multi_way_join_says_how_many_inputs_it_has.
    assert {type(node) for node in EVERY_KIND.walk()} == {*plan_json._OPERATORS} - {RemoteSource, MultiJoin}
    assert plan_to_json(EVERY_KIND) == json.loads(STORED)
    assert plan_from_json(json.loads(STORED)) == EVERY_KIND


def test_a_multi_way_join_says_how_many_inputs_it_has() -> None:
    parts = (window("a"), window("b"), window("c"))
    plan = MultiJoin(parts, tuple(equal("a.k=b.k")), probe_orders=((1, 2), (0, 2), (1, 0)))
    data = plan_to_json(plan)
    assert data["operators"][3] == {
        "kind": "multijoin",
        "parts": 3,
        "predicates": [
            {
                "kind": "call",
                "function": "=",
                "operands": [
                    {"kind": "column", "relation": "a", "name": "k", "data_type": "int64"},
                    {"kind": "column", "relation": "b", "name": "k", "data_type": "int64"},
                ],
                "data_type": "bool",
            }
        ],
        "routing": "fixed",
        "probe_orders": [[1, 2], [0, 2], [1, 0]],
    }
    assert plan_from_json(json.loads(json.dumps(data))) == plan


def test_streams_are_written_once_and_operators_as_often_as_they_are_read() -> None:
    plan = project(where(window("a"), condition("a.x", ">", 7), condition("a.x", "<>", 7)), "a.x")
    data = plan_to_json(Union(plan, plan))
    assert len(data["streams"]) == 1
    assert [operator["kind"] for operator in data["operators"]].count("window") == 2
    read = plan_from_json(data)
    assert isinstance(read, Union) and read.left == read.right and read.left is not read.right


def test_streams_that_differ_in_metadata_only_stay_two() -> None:
    schema = pa.schema({"ts": pa.int64()})
    one, other = (Stream("a", s, "ts") for s in (schema, schema.with_metadata({"a": "b"})))
    assert one == other
    read = read_again(Union(Window(one, "a", WindowSpec(1)), Window(other, "a", WindowSpec(1))))
    assert [w.stream.schema.metadata for w in read.windows()] == [None, {b"a": b"b"}]


def test_whose_plan_it_is_is_not_written() -> None:
    plan = ContinuousQuery("SELECT x FROM a [NOW]", [Stream("a", pa.schema({"ts": pa.int64(), "x": pa.int64()}), "ts")])
    assert set(read_again(plan.plan()).__dict__) - {"input", "items"} <= {"identity", "label", "schema"}


# Types

TYPES = [
    pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
    pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.string_view(),
    pa.binary(), pa.binary(3), pa.large_binary(), pa.binary_view(), pa.date32(), pa.date64(),
    *(pa.time32(unit) for unit in ("s", "ms")), *(pa.time64(unit) for unit in ("us", "ns")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "+05:30", "a]\n, tz=é")),
    pa.month_day_nano_interval(),
    pa.decimal32(5, 2), pa.decimal64(15, 3), pa.decimal128(38, 38), pa.decimal128(5, -2), pa.decimal256(76, 0),
    pa.list_(pa.int64()), pa.list_(pa.field("element", pa.int8(), nullable=False)), pa.list_(pa.string(), 3),
    pa.large_list(pa.date32()), pa.list_view(pa.int8()), pa.large_list_view(pa.int8()),
    pa.struct({}), pa.struct({"a": pa.list_(pa.decimal128(4, 1)), "b c": pa.struct({"d": pa.timestamp("ns", "UTC")})}),
    pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.list_(pa.binary()), keys_sorted=True),
    pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.uint32(), pa.decimal128(9, 2), ordered=True),
    pa.run_end_encoded(pa.int32(), pa.string()),
    pa.dense_union([pa.field("x", pa.int8()), pa.field("y", pa.string())]),
    pa.sparse_union([pa.field("x", pa.int8())], type_codes=[7]),
    pa.uuid(), pa.json_(), pa.bool8(), pa.opaque(pa.binary(), "thing", "vendor"), pa.fixed_shape_tensor(pa.int8(), [2]),
]  # fmt: skip


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_columns_of_every_type_come_back(data_type: pa.DataType) -> None:
    schema = pa.schema({"ts": pa.int64(), "c": data_type})
    stream = Stream("a", schema, "ts")
    assert stream_from_json(through_json(stream_to_json(stream))) == stream
    leaf = Window(stream, "a", WindowSpec(10))
    read = Column("a", "c", stream.column_type("c"))
    assert_same_after_json(Project(leaf, (Item("", "c", read), Item("", "none", Literal(None, data_type)))))
    assert_same_after_json(Select(leaf, call("is_null", Cast(Literal(None, pa.null()), data_type))))


def test_common_types_are_readable() -> None:
    names = ["int64", "double", "string", "bool", "date32[day]", "timestamp[us]", "timestamp[us, tz=Europe/Berlin]"]
    names += ["decimal128(10, 2)", "decimal256(76, 3)", "duration[us]", "binary", "large_string"]
    types = [pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us")]
    types += [pa.timestamp("us", "Europe/Berlin"), pa.decimal128(10, 2), pa.decimal256(76, 3), pa.duration("us")]
    types += [pa.binary(), pa.large_string()]
    schema = pa.schema([(f"c{place}", data_type) for place, data_type in enumerate(types)])
    assert [name for _, name in stream_to_json(Stream("a", schema, "c0"))["stream"]["schema"]] == names


def test_nullability_and_metadata_survive() -> None:
    nested = pa.struct([pa.field("x", pa.int8(), nullable=False, metadata={"deep": "er"})])
    schema = pa.schema(
        [
            pa.field("ts", pa.int64(), nullable=False),
            pa.field("a", pa.string(), metadata={b"\xff\x00": b"\xfe", "k": "v"}),
            pa.field("b", nested),
            pa.field("c", pa.list_(pa.field("element", pa.int8(), metadata={"m": "n"}))),
            pa.field("plain", pa.int64()),
        ]
    )
    for declared in (schema, schema.with_metadata({"pandas": "{}", b"\xff": b""})):
        stream = Stream("a", declared, "ts")
        read = stream_from_json(through_json(stream_to_json(stream))).schema
        assert read.equals(declared, check_metadata=True)
        within = read_again(Window(stream, "a", WindowSpec(1)))
        assert isinstance(within, Window)
        assert within.stream.schema.equals(declared, check_metadata=True)


@pytest.mark.parametrize("lateness", [0, "30 seconds", " 5  Minutes ", datetime.timedelta(days=-1, hours=30)])
def test_lateness_comes_back_as_it_was_declared(lateness: Any) -> None:
    stream = Stream("a", pa.schema({"ts": pa.timestamp("ms", "UTC")}), "ts", lateness)
    read = stream_from_json(through_json(stream_to_json(stream)))
    assert read == stream
    assert (repr(read.lateness), read.lateness_ticks) == (repr(lateness), stream.lateness_ticks)


class Celsius(pa.ExtensionType):
    """An extension type of a user's own."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(pa.float64(), "midstream.test.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return self.place.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Celsius:
        return cls({b"in": "in", b"out": "out"}[serialized])


def test_extension_types_come_back_where_they_are_registered() -> None:
    stream = Stream("a", pa.schema({"ts": pa.int64(), "c": Celsius("in"), "d": pa.list_(Celsius("out"))}), "ts")
    with pytest.raises(BadPlan) as raised:
        stream_to_json(stream)
    assert str(raised.value) == (
        "[M2001] cannot write the type extension<midstream.test.celsius<Celsius>> as JSON\n"
        "  detail: It is not the same when it is read again.\n  hint: Register an extension type with pyarrow."
    )
    pa.register_extension_type(Celsius("in"))
    try:
        assert_same_after_json(Window(stream, "a", WindowSpec(1)))
        raw = pa.schema([("c", Celsius("in"))]).serialize().to_pybytes()
        assert raw.count(b"\0in\0") == 1
        text = arrow_text(raw.replace(b"\0in\0", b"\0no\0"))
        assert "is not an Arrow schema (KeyError: b'no')" in refused(changed(2, *COLUMN, data_type=text))
    finally:
        pa.unregister_extension_type("midstream.test.celsius")


def test_a_type_is_not_what_it_calls_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Celsius, "__str__", lambda self: "double")
    pa.register_extension_type(Celsius("in"))
    try:
        stream = Stream("a", pa.schema({"ts": pa.int64(), "c": Celsius("in")}), "ts")
        assert stream_from_json(through_json(stream_to_json(stream))) == stream
    finally:
        pa.unregister_extension_type("midstream.test.celsius")


# Literals

MOMENT = datetime.datetime(2020, 2, 29, 23, 59, 59, 999999)
LITERALS: list[tuple[Any, pa.DataType]] = [
    (None, pa.null()), (None, pa.list_(pa.int8())), (True, pa.bool_()), (False, pa.bool_()),
    (0, pa.int64()), (1, pa.int8()), (-(2**63), pa.int64()), (2**64 - 1, pa.uint64()), (7, pa.float64()),
    (7, pa.decimal128(3, 0)),
    (0.0, pa.float64()), (-0.0, pa.float64()), (0.1, pa.float64()), (1.0, pa.float32()), (5e-324, pa.float64()),
    (1.7976931348623157e308, pa.float64()),
    (math.inf, pa.float64()), (-math.inf, pa.float64()), (math.nan, pa.float64()),
    (Decimal(10**75), pa.decimal256(76, 0)), (Decimal("1E+3"), pa.decimal128(10, 2)),
    *((Decimal(text), pa.decimal128(10, 2)) for text in ("-1.50", "1.5", "1.500", "-0.00")),
    (Decimal("1"), pa.decimal256(76, 60)), (Decimal(200), pa.decimal128(5, -2)),
    ("", pa.string()), ("it's \"é\" \\ \x00\u2028 😀", pa.large_string()), ("arrow:", pa.string()),
    (b"", pa.binary()), (b"\x00\xff", pa.large_binary()), (b"abc", pa.binary(3)),
    (MOMENT.date(), pa.date32()), (datetime.date.min, pa.date32()), (datetime.date.max, pa.date64()),
    *((moment, pa.timestamp("us")) for moment in (MOMENT, datetime.datetime.min, datetime.datetime.max)),
    (MOMENT.replace(tzinfo=datetime.UTC), pa.timestamp("us", "UTC")), (MOMENT, pa.timestamp("ns")),
    (MOMENT.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-3, seconds=-7, microseconds=9))),
     pa.timestamp("us", "Europe/Berlin")),
    (MOMENT.replace(tzinfo=datetime.UTC), pa.timestamp("us", "no such zone")),
    (MOMENT.time(), pa.time64("us")), (datetime.time(), pa.time32("s")),
    (datetime.timedelta(0), pa.duration("us")), (datetime.timedelta(microseconds=-1), pa.duration("us")),
    (datetime.timedelta.max, pa.duration("s")), (datetime.timedelta.min, pa.duration("s")),
]  # fmt: skip


@pytest.mark.parametrize(("constant", "data_type"), LITERALS, ids=ascii)
def test_literals_come_back(constant: Any, data_type: pa.DataType) -> None:
    assert_same_after_json(Project(window("a"), (Item("", "c", Literal(constant, data_type)),)))


def test_literals_that_are_equal_but_not_the_same_stay_apart() -> None:
    pairs = [(0.0, -0.0, pa.float64()), (Decimal("1.0"), Decimal("1.00"), pa.decimal128(9, 2)), (1, 1.0, pa.float64())]
    for one, other, data_type in pairs:
        assert Literal(one, data_type) == Literal(other, data_type)
        plan = Project(window("a"), (Item("", "a", Literal(one, data_type)), Item("", "b", Literal(other, data_type))))
        assert_same_after_json(plan)


def test_a_moment_in_a_named_zone_comes_back_as_the_same_instant_and_text() -> None:
    moment = datetime.datetime(2020, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
    plan = Project(window("a"), (Item("", "c", Literal(moment, pa.timestamp("us", "UTC"))),))
    assert read_again(plan) == plan
    assert read_again(plan).identity == plan.identity


@EXAMPLES
@given(
    st.one_of(
        st.text().map(lambda text: (text, pa.string())),
        st.floats().map(lambda number: (number, pa.float64())),
        st.integers(-(2**63), 2**63 - 1).map(lambda number: (number, pa.int64())),
        st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**20), max_value=10**20).map(
            lambda number: (number, pa.decimal128(38, 9))
        ),
        st.datetimes().map(lambda moment: (moment.replace(fold=0), pa.timestamp("us"))),
        st.timedeltas(datetime.timedelta(-(10**6)), datetime.timedelta(10**6)).map(lambda d: (d, pa.duration("us"))),
        st.binary().map(lambda data: (data, pa.binary())),
    )
)
def test_random_literals_come_back(constant: tuple[Any, pa.DataType]) -> None:
    plan = Project(window("a"), (Item("", "c", Literal(*constant)),))
    read = read_again(plan)
    assert repr(read) == repr(plan)
    assert read.identity == plan.identity


@pytest.mark.parametrize("name", ["", 'a"b', "\x00", "😀"], ids=ascii)
def test_names_come_back(name: str) -> None:
    stream = Stream(name, pa.schema({"ts": pa.int64()}), "ts")
    leaf = Window(stream, name, WindowSpec(3, 2))
    assert_same_after_json(Project(leaf, (Item(name, name, Column(name, "ts", pa.int64())),)))


UNWRITABLE = {
    "a value of another library": (lambda: Literal(pa.scalar(1), pa.int64()), "<pyarrow.Int64Scalar: 1> of type"),
    "a list": (lambda: Literal([1], pa.list_(pa.int64())), r"\[1\] of type list"),
    "half a character": (lambda: Literal("\ud800", pa.string()), r"a constant of type string cannot be '\\ud800'"),
    "a text as number": (lambda: Literal("x", pa.int64()), "a constant of type int64 cannot be 'x'"),
    "a number as condition": (lambda: Literal(1, pa.bool_()), "a constant of type bool cannot be 1"),
    "a call of another type": (lambda: Call("-", (value(1), value(1)), pa.int8()), "- does not take int64, int64 and"),
    "a call without casts": (
        lambda: Call("=", (value(1), Literal(1.5, pa.float64())), pa.bool_()), "= does not take int64, double and give"
    ),
    "a call of nothing": (lambda: Call("in", (), pa.bool_()), "function IN takes at least 2 arguments, not 0"),
    "an impossible cast": (lambda: Cast(Literal(b"", pa.binary()), pa.date32()), r"cannot cast b'' \(binary\) to"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNWRITABLE)
def test_what_could_not_be_read_is_not_written(case: str) -> None:
    make, message = UNWRITABLE[case]
    with pytest.raises(BadPlan, match=message):
        plan_to_json(Project(window("a"), (Item("", "c", make()),)))


@pytest.mark.parametrize("name", ["\ud800", "\ud83d\ude00"], ids=ascii)
def test_names_of_half_characters_are_neither_written_nor_read(name: str) -> None:
    stream = Stream(name, pa.schema({"ts": pa.int64()}), "ts")
    leaf = Window(Stream("a", stream.schema, "ts"), name, WindowSpec(3, 2))
    for write in (lambda: stream_to_json(stream), lambda: plan_to_json(leaf)):
        with pytest.raises(BadPlan, match="cannot write a plan or stream as JSON: it holds a text"):
            write()
    with pytest.raises(BadPlan, match="cannot read the stream from JSON: it holds a text"):
        stream_from_json(STREAM | {"stream": STREAM["stream"] | {"name": name}})
    assert "it holds a text or number that is not valid" in refused(changed(5, name=name))


def test_an_aggregate_that_no_query_has_is_not_written() -> None:
    made = AggregateCall("min", value("a.x"), True, pa.int64())
    with pytest.raises(BadPlan, match=r"MIN\(DISTINCT a.x\) does not give"):
        plan_to_json(Aggregate(window("a"), (), (NamedAggregate("n", made),)))


def test_an_unknown_operator_is_not_written() -> None:
    class Limit(Distinct):
        pass

    with pytest.raises(BadPlan, match="cannot write a Limit as JSON"):
        plan_to_json(Project(Limit(window("a")), items("a.x")))


# Large plans

NAMES = [f"r{number}" for number in range(128)]


@pytest.mark.parametrize(
    "order", [" ".join(NAMES), " ".join(reversed(NAMES)), None], ids=["left", "reversed", "default"]
)
def test_a_join_of_128_streams_comes_back_in_a_fifth_of_a_second(order: str | None) -> None:
    bound = project(joined(" ".join(NAMES), *chain_equalities(NAMES)), "r0.x", "r127.s")
    plan = default_plan(bound) if order is None else plan_with_join_order(bound, order)
    assert_same_after_json(plan)
    took = []
    for _ in range(5):
        begin = time.process_time()
        read_again(plan)
        took.append(time.process_time() - begin)
    assert min(took) < 0.2


def test_a_right_deep_join_of_128_streams_comes_back() -> None:
    plan: Plan = window(NAMES[-1])
    for left, right in reversed(list(pairwise(NAMES))):
        plan = Join(window(left), plan, tuple(equal(f"{left}.k={right}.k")))
    assert_same_after_json(plan)


def test_expressions_of_a_hundred_levels_come_back() -> None:
    left = right = value("a.x")
    for number in range(100):
        left, right = call("-", left, value(number)), call("abs", right)
    assert_same_after_json(Select(window("a"), call("<", left, right)))


def test_a_thousand_conditions_come_back() -> None:
    assert_same_after_json(where(window("a"), *(condition("a.x", "<>", number) for number in range(1000))))


# What is not a plan


def damaged(**changes: Any) -> dict[str, Any]:
    return json.loads(STORED) | changes


def changed(number: int, *path: Any, **changes: Any) -> dict[str, Any]:
    """The stored plan with other fields in an operator, or in what the path leads to from there."""
    data: dict[str, Any] = json.loads(STORED)
    at(data["operators"][number], path).update(changes)
    return data


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


UNCHANGED = "\n  hint: Give what plan_to_json or stream_to_json gave, unchanged."
COLUMN = ("items", 0, "expression")
LITERAL = ("predicate", "operands", 1)
SUM = ("aggregates", 0, "call")
LOST = changed(1)
del LOST["operators"][1]["predicate"]
LEAF = json.loads(STORED)["operators"][0]
BAD: dict[str, tuple[Any, str]] = {
    "nothing": (None, "the plan from JSON: it is not an object with a format version"),
    "no version": ({"operators": []}, "the plan from JSON: it is not an object with a format version"),
    "no operators": ({"version": 2, "streams": []}, "the plan from JSON: object missing required field `operators`"),
    "no plan": (damaged(operators=[]), "the plan from JSON: its operators make 0 plans, not one"),
    "two plans": (damaged(operators=[LEAF, LEAF]), "the plan from JSON: its operators make 2 plans, not one"),
    "an operator without its inputs": (
        damaged(operators=[LEAF, {"kind": "union"}]), "operators[1] from JSON: it has 1 of its 2 inputs"
    ),
    "an expression as operator": (
        damaged(operators=[{"kind": "column", "relation": "", "name": "x", "data_type": "int64"}]),
        "operators[0].kind from JSON: invalid value 'column'",
    ),
    "an operator as expression": (
        changed(1, predicate=LEAF), "operators[1].predicate.kind from JSON: invalid value 'window'"
    ),
    "something more": (damaged(author="me"), "the plan from JSON: object contains unknown field `author`"),
    "unknown kind": (changed(7, kind="limit"), "operators[7].kind from JSON: invalid value 'limit'"),
    "a class that is no operator": (changed(7, kind="stream"), "operators[7].kind from JSON: invalid value 'stream'"),
    "a missing field": (LOST, "operators[1] from JSON: object missing required field `predicate`"),
    "a field too many": (changed(7, all=True), "operators[7] from JSON: object contains unknown field `all`"),
    "an input by its number": (changed(7, input=6), "operators[7] from JSON: object contains unknown field `input`"),
    "a field too many in a part": (
        changed(0, "window", unit="s"), "operators[0].window from JSON: object contains unknown field `unit`"
    ),
    "a negative number": (changed(0, stream=-1), "operators[0].stream from JSON: expected `int` >= 0"),
    "true for one": (changed(3, stream=True), "operators[3].stream from JSON: expected `int`, got `bool`"),
    "an unknown stream": (changed(3, stream=3), "operators[3] from JSON: there is no stream 3"),
    "an unknown type": (
        changed(2, *COLUMN, data_type="int65"),
        "operators[2].items[0].expression.data_type from JSON: 'int65' is not the name of a type",
    ),
    "an impossible type": (
        changed(2, *COLUMN, data_type="decimal128(39, 0)"),
        "operators[2].items[0].expression.data_type from JSON: 'decimal128(39, 0)' is not the name of a type",
    ),
    "a number for a type": (
        changed(2, *COLUMN, data_type=7),
        "operators[2].items[0].expression.data_type from JSON: 7 is not the name of a type"
    ),
    "another word": (changed(8, keep="some"), "operators[8].keep from JSON: invalid enum value 'some'"),
    "a name that is none": (changed(5, name=5), "operators[5].name from JSON: expected `str`, got `int`"),
    "an unknown form of constant": (
        changed(1, *LITERAL, value={"type": "pickle", "value": "gASVA"}),
        "operators[1].predicate.operands[1].value.type from JSON: invalid value 'pickle'",
    ),
    "a constant with something in between": (
        changed(1, *LITERAL, value={"type": "bytes", "value": "YQ!=="}),
        "operators[1].predicate.operands[1].value.value from JSON: invalid base64 encoded string",
    ),
    "a date that is none": (
        changed(1, *LITERAL, value={"type": "date", "value": "2020-13-01"}),
        "operators[1].predicate.operands[1].value.value from JSON: invalid RFC3339 encoded date",
    ),
    "a moment that is none": (
        changed(1, *LITERAL, value={"type": "datetime", "value": "2020-13-01"}),
        "operators[1] from JSON: its values are not valid\n  detail: month must be in 1..12.",
    ),
    "a float that JSON has a form for": (
        changed(1, *LITERAL, value={"type": "float", "value": "1.5"}),
        "operators[1].predicate.operands[1].value.value from JSON: invalid enum value '1.5'",
    ),
    "a constant of another type": (
        changed(1, *LITERAL, value="3"), "operators[1] from JSON: a constant of type int64 cannot be '3'"
    ),
    "NaN as a whole number": (
        changed(1, *LITERAL, value=math.nan), "operators[1] from JSON: a constant of type int64 cannot be nan"
    ),
    "a number that pyarrow crashes on": (
        changed(1, *LITERAL, value={"type": "decimal", "value": "1E-99999999"}, data_type="decimal128(38, 0)"),
        "operators[1] from JSON: a constant of type decimal128(38, 0) cannot be Decimal('1E-99999999')",
    ),
    "an unknown function": (
        changed(1, "predicate", function="exec"), "operators[1] from JSON: function EXEC does not exist"
    ),
    "too many arguments": (
        changed(1, "predicate", operands=[{"kind": "literal", "value": 3, "data_type": "int64"}] * 3),
        "operators[1] from JSON: function < takes 2 arguments, not 3",
    ),
    "a result of another type": (
        changed(1, "predicate", data_type="int64"),
        "operators[1] from JSON: < does not take int64, int64 and give int64"
    ),
    "an impossible cast": (
        changed(12, *SUM, "argument", data_type="binary"), "operators[12] from JSON: cannot cast c.s (string) to binary"
    ),
    "a plan that cannot be": (
        changed(2, *COLUMN, name="y"),
        "operators[2] from JSON: project reads a.y, which its input does not have\n"
        "  detail: The input has a.ts, a.k, a.x, a.s.",
    ),
    "a window that cannot be": (
        changed(0, window={"width": -1, "slide": None, "declared": True}),
        "operators[0] from JSON: a window cannot be -1 ticks wide",
    ),
    "an aggregate that does not exist": (
        changed(12, *SUM, function="median"),
        "operators[12] from JSON: there is no aggregate 'median' of CAST(c.s AS int64)",
    ),
    "an aggregate of nothing": (
        changed(12, *SUM, argument=None), "operators[12] from JSON: there is no aggregate 'sum' of all rows"
    ),
    "an aggregate of another type": (
        changed(12, *SUM, data_type="double"),
        "operators[12] from JSON: SUM(DISTINCT CAST(c.s AS int64)) does not give double",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_said(case: str) -> None:
    data, message = BAD[case]
    assert refused(data) == f"[M2001] cannot read {message}{UNCHANGED}"


@pytest.mark.parametrize("version", [0, 1, 3, "2", None, True, 2.0, [2]])
def test_other_versions_are_refused(version: Any) -> None:
    for kind, read, data in (("plan", plan_from_json, damaged()), ("stream", stream_from_json, dict(STREAM))):
        with pytest.raises(BadPlan) as raised:
            read(data | {"version": version})
        assert str(raised.value) == (
            f"[M2001] cannot read a {kind} of format version {version!r}\n"
            "  detail: This midstream reads format version 2.\n"
            "  hint: Use the midstream that wrote it, or start the query with a new checkpoint and control directory."
        )


STREAM: dict[str, Any] = {
    "version": 2,
    "stream": {"name": "a", "schema": [["ts", "int64"], ["x", "string"]], "event_time": "ts", "lateness": 0},
}


def stream_with(**changes: Any) -> dict[str, Any]:
    return STREAM | {"stream": STREAM["stream"] | changes}


BAD_STREAMS: dict[str, tuple[Any, str]] = {
    "nothing": (None, "the stream from JSON: it is not an object with a format version"),
    "an earlier format": (
        STREAM["stream"],
        "the stream from JSON: it is not an object with a format version",
    ),
    "no name": (STREAM | {"stream": {"schema": []}}, "stream from JSON: object missing required field `name`"),
    "no time": (
        stream_with(event_time="tx"),
        'the stream from JSON: event time column "tx" does not exist in stream "a"\n'
        '  detail: The stream has the columns "ts", "x".',
    ),
    "late by a bool": (
        stream_with(lateness=True), "stream.lateness from JSON: expected `int | str | object`, got `bool`"
    ),
    "late by too many digits": (
        stream_with(lateness="9" * 5000 + " seconds"),
        "the stream from JSON: its values are not valid\n  detail: Exceeds the limit (4300 digits) for integer string "
        "conversion: value has 5000 digits; use sys.set_int_max_str_digits() to increase the limit.",
    ),
    "a column without a type": (
        stream_with(schema=[["ts"]]), "stream.schema[0] from JSON: expected `array` of length 2, got 1"
    ),
    "a schema of half an alphabet": (
        stream_with(schema="arrow:é"),
        "the stream from JSON: its values are not valid\n  detail: 'arrow:é' is not an Arrow schema "
        "(ValueError: string argument should contain only ASCII characters).",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_STREAMS)
def test_what_is_wrong_with_a_stream_is_said(case: str) -> None:
    data, message = BAD_STREAMS[case]
    with pytest.raises(BadPlan) as raised:
        stream_from_json(data)
    assert str(raised.value) == f"[M2001] cannot read {message}{UNCHANGED}"


@pytest.mark.parametrize("columns", [0, 2])
def test_a_type_is_a_schema_of_one_column(columns: int) -> None:
    text = schema_to_text(pa.schema([(f"c{place}", pa.int64()) for place in range(columns)]))
    assert f"it is a schema of {columns} columns, not of one" in refused(changed(2, *COLUMN, data_type=text))


def test_a_pickled_type_is_not_read() -> None:
    metadata = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": b"cos\nsystem\n."}
    column = pa.schema([pa.field("c", pa.int64(), metadata=metadata)])
    with pytest.raises(BadPlan, match="cannot write the type int64 as JSON"):
        schema_to_text(column)
    text = arrow_text(column.serialize().to_pybytes())
    assert "(ValueError: a pickled type is not read)" in refused(changed(2, *COLUMN, data_type=text))


def test_names_that_are_not_text_are_refused() -> None:
    raw = pa.schema([("name", pa.int64())]).serialize().to_pybytes().replace(b"name", b"\xff\xfe\xfd\xfc")
    for schema in (arrow_text(raw), "arrow:", [["ts", "arrow:"]]):
        with pytest.raises(BadPlan, match="is not an Arrow schema"):
            stream_from_json(stream_with(schema=schema))


def test_a_plan_of_a_hundred_thousand_levels_is_refused() -> None:
    true = {"kind": "literal", "value": True, "data_type": "bool"}
    for operator in ({"kind": "select", "predicate": true}, {"kind": "distinct"}):
        message = refused(damaged(operators=[LEAF, *[operator] * 100_000]))
        assert f"it is nested more than {MOST_LEVELS} levels deep" in message
    predicate: dict[str, Any] = true
    for _ in range(100_000):
        predicate = {"kind": "call", "function": "not", "operands": [predicate], "data_type": "bool"}
    assert refused(damaged(operators=[LEAF, {"kind": "select", "predicate": predicate}])) == TOO_DEEP


def test_a_plan_too_deep_for_the_stack_is_refused() -> None:
    assert refused(damaged(operators=[LEAF, *[{"kind": "distinct"}] * (MOST_LEVELS - 1)])) == TOO_DEEP


TOO_DEEP = f"[M2001] cannot read the plan from JSON: it is nested too deeply{UNCHANGED}"


def nested(levels: int, inner: Any, key: str | None) -> Any:
    for _ in range(levels):
        inner = [inner] if key is None else {key: inner}
    return inner


DEEP = [nested(100_000, [], None), nested(100_000, {}, "utf8")]
REPLACEMENTS = [
    None, True, -1, 0, 1, 10**30, 10**5000, 1.5, math.nan, "", "x", "\ud800", "int64", "bool", "string", "null",
    "decimal128(38, 37)", "timestamp[us, tz=X]", "arrow:AAAA", "in", "case", [], {}, [0], {1: 2}, *(
        {"type": kind, "value": value}
        for kind, value in [
            ("float", "nan"), ("decimal", "1E-99999999"), ("decimal", "sNaN"), ("decimal", "x"), ("datetime", "x"),
            ("timedelta", "9" * 30), ("timedelta", "P1D"), ("date", "2020-13-01"), ("bytes", "é"), ("\ud800", "x"),
        ]
    ),
    "1" * 5000 + " seconds", b"bytes", *DEEP,
]  # fmt: skip


def paths(data: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place below the top of a JSON value."""
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, part in parts:
        yield (*above, key)
        yield from paths(part, (*above, key))


def read_or_refused(data: Any) -> Plan | None:
    """The plan, which must be of use, or None; anything but a BadPlan is a failure."""
    try:
        plan = plan_from_json(data)
    except BadPlan as error:
        assert error.message.startswith("cannot read ")
        return None
    assert isinstance(plan, Plan)
    assert plan.explain() and isinstance(plan.schema, tuple) and isinstance(hash(plan), int) and plan.longest
    assert read_again(plan).identity == plan.identity
    return plan


def test_every_place_can_be_damaged() -> None:
    whole = json.loads(STORED)
    refusals = 0
    for path in paths(whole):
        data = copy.deepcopy(whole)
        holder, key = at(data, path[:-1]), path[-1]
        for replacement in REPLACEMENTS:
            holder[key] = replacement
            refusals += read_or_refused(data) is None
        del holder[key]
        refusals += read_or_refused(data) is None
    assert refusals > 0.9 * len(REPLACEMENTS) * len(list(paths(whole)))


DOCUMENTS = [
    json.loads(STORED),
    *(through_json(plan_to_json(CASES[rule][case]())) for rule, case in NAMED),
    through_json(
        plan_to_json(Project(window("a"), tuple(Item("", f"c{n}", Literal(*pair)) for n, pair in enumerate(LITERALS))))
    ),
    through_json(
        plan_to_json(
            Window(
                Stream("a", pa.schema([("ts", pa.int64()), *((f"c{n}", kind) for n, kind in enumerate(TYPES))]), "ts"),
                "a",
                WindowSpec(None),
            )
        )
    ),
    through_json(plan_to_json(group(window("a"), "a.k a.s", n=("count", None), low=("min", "a.s")))),
]
MATERIAL = [at(data, path) for data in DOCUMENTS for path in paths(data)]


@MANY
@given(st.data())
def test_damaged_plans_are_refused_or_plans(source: st.DataObject) -> None:
    data = copy.deepcopy(source.draw(st.sampled_from(DOCUMENTS)))
    for _ in range(source.draw(st.integers(1, 3))):
        places = list(paths(data))
        if not places:
            break
        path = source.draw(st.sampled_from(places))
        holder, key = at(data, path[:-1]), path[-1]
        way = source.draw(st.sampled_from(["drop", "replace", "exchange", "add", "shift", "garble"]))
        if way == "drop":
            del holder[key]
        elif way == "exchange":
            holder[key] = copy.deepcopy(source.draw(st.sampled_from(MATERIAL)))
        elif way == "add" and isinstance(holder, dict):
            holder[source.draw(st.sampled_from(["kind", "name", "value", "type", "extra"]))] = holder[key]
        elif way == "add":
            holder.insert(key, copy.deepcopy(source.draw(st.sampled_from(holder))))
        elif way == "shift" and isinstance(holder[key], int):
            holder[key] += source.draw(st.sampled_from([-2, -1, 1, 2]))
        elif way == "garble" and isinstance(holder[key], str) and holder[key]:
            place = source.draw(st.integers(0, len(holder[key]) - 1))
            holder[key] = holder[key][:place] + source.draw(st.sampled_from("aZ0=é\x00")) + holder[key][place + 1 :]
        else:
            holder[key] = source.draw(st.sampled_from(REPLACEMENTS[: -len(DEEP)]))
    read_or_refused(data)


@MANY
@given(st.sampled_from([t for t in TYPES if t.num_fields or isinstance(t, pa.BaseExtensionType)]), st.data())
def test_damaged_arrow_schemas_are_refused_or_schemas(data_type: pa.DataType, source: st.DataObject) -> None:
    raw = bytearray(pa.schema([pa.field("ts", data_type, metadata={"a": "b"})]).serialize().to_pybytes())
    for _ in range(source.draw(st.integers(1, 3))):
        raw[source.draw(st.integers(0, len(raw) - 1))] = source.draw(st.integers(0, 255))
    text = arrow_text(bytes(raw))
    try:
        assert isinstance(stream_from_json(stream_with(schema=[["ts", "int64"], ["c", text]])), Stream)
        assert isinstance(stream_from_json(stream_with(schema=text)), Stream)
    except BadPlan:
        pass


def test_anything_else_is_refused() -> None:
    for data in (*REPLACEMENTS, object(), {"version": DEEP[0]}, {"version": 10**5000}):
        for read in (plan_from_json, stream_from_json):
            with pytest.raises(BadPlan):
                read(data)
