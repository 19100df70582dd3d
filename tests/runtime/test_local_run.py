"""A local run: what goes in, what comes out, what is refused, and that refusals change nothing."""

import datetime

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.errors import (
    BadPlan,
    BadStreamDeclaration,
    DecreasingWatermark,
    FinishedRun,
    MissingColumn,
    PushedTypeMismatch,
    UnknownStreamPushed,
)

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "v": pa.string()})
A, B = Stream("a", SCHEMA, "ts", lateness=5), Stream("b", SCHEMA, "ts")
JOIN = "SELECT a.v AS left_v, b.v AS right_v FROM a [RANGE 10], b [RANGE 10] WHERE a.k = b.k"


def rows(*values):
    columns = list(zip(*values, strict=True)) or [[], [], []]
    return pa.table([pa.array(c, t) for c, t in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def start(text=JOIN, **options):
    return ContinuousQuery(text, [A, B]).run_locally(**options)


def test_rows_meet_up_to_the_window_and_no_further():
    run = start()
    result = run.push({"a": rows((0, 1, "x")), "b": rows((10, 1, "in"), (11, 1, "out"))})
    assert result.to_pylist() == [{"left_v": "x", "right_v": "in", "valid_from": 10, "valid_to": 11}]


def test_unbounded_results_have_no_end():
    run = start("SELECT a.v FROM a [RANGE UNBOUNDED], b [RANGE UNBOUNDED] WHERE a.k = b.k")
    result = run.push({"a": rows((0, 1, "x")), "b": rows((1000, 1, "y"))})
    assert result.to_pylist() == [{"v": "x", "valid_from": 1000, "valid_to": None}]


def test_a_stream_feeds_both_sides_of_a_self_join():
    run = start("SELECT x.v AS v, y.v AS w FROM a [RANGE 10] x, a [NOW] y WHERE x.k = y.k AND x.v <> y.v")
    result = run.push({"a": rows((0, 1, "old"), (5, 1, "new"))})
    assert result.to_pylist() == [{"v": "old", "w": "new", "valid_from": 5, "valid_to": 6}]


def test_rows_without_event_time_are_dropped_and_counted():
    run = start()
    run.push({"a": rows((None, 1, "x"), (1, 1, "y")), "b": rows((1, 1, "z"))})
    assert run.metrics()["streams"]["a"] == {
        "rows": 2, "late": 0, "without_event_time": 1, "event_time_out_of_range": 0, "bad_messages": 0,
    }  # fmt: skip
    assert run.metrics()["results"] == 1


@pytest.mark.parametrize(
    "window", ["[RANGE 10]", "[NOW]", "[RANGE UNBOUNDED]", "[RANGE 10 SLIDE 7]", f"[RANGE {2**62}]"]
)
def test_event_times_out_of_range_are_dropped_and_counted_apart(window):
    run = start(f"SELECT COUNT(*) AS n FROM a {window}")
    far = 2**62
    result = run.push(
        {"a": rows((None, 1, "x"), (far, 1, "y"), (-far, 1, "y"), (2**63 - 1, 1, "z"), (-far - 1, 1, "z"))}
    )
    assert run.metrics()["streams"]["a"] == {
        "rows": 5, "late": 0, "without_event_time": 1, "event_time_out_of_range": 2, "bad_messages": 0,
    }  # fmt: skip
    found = [*result.to_pylist(), *run.finish().to_pylist()]
    assert {row["n"] for row in found} <= {1, 2}
    assert all(-far <= row["valid_from"] and (row["valid_to"] or 2**63) > row["valid_from"] for row in found)
    assert any(row["valid_from"] >= far for row in found)


def test_late_rows_are_dropped_and_counted():
    run = start()
    run.push({"a": rows((100, 1, "x")), "b": rows((100, 1, "y"))})
    assert run.watermark == 95
    result = run.push({"a": rows((94, 1, "late"), (95, 1, "just in time"))})
    assert result["left_v"].to_pylist() == ["just in time"]
    assert run.metrics()["streams"]["a"]["late"] == 1


def test_a_row_is_not_late_by_rows_of_its_own_push():
    run = start()
    result = run.push({"a": rows((100, 1, "x"), (0, 1, "old")), "b": rows((100, 1, "y"), (0, 1, "old too"))})
    assert result.num_rows == 2
    assert run.metrics()["streams"]["b"]["late"] == 0


def test_the_watermark_is_that_of_the_slowest_stream_less_its_lateness():
    run = start()
    run.push({"a": rows((100, 1, "x"))})
    assert run.watermark is None
    run.push({"b": rows((50, 1, "y"))})
    assert run.watermark == 50
    run.push({"b": rows((500, 1, "y"))})
    assert run.watermark == 95


def test_a_heartbeat_moves_the_watermark():
    run = start("SELECT COUNT(*) AS n FROM a [RANGE 10]")
    assert run.push({"a": rows((0, 1, "x"))}).num_rows == 0
    assert run.push({}, watermark=11).to_pylist() == [{"n": 1, "valid_from": 0, "valid_to": 11}]


def test_a_decreasing_watermark_is_refused_and_changes_nothing():
    run = start()
    run.push({}, watermark=100)
    with pytest.raises(DecreasingWatermark, match=r"\[M3001\] the watermark cannot move back from 100 to 99"):
        run.push({"a": rows((200, 1, "x"))}, watermark=99)
    assert run.watermark == 100
    assert run.metrics()["streams"]["a"]["rows"] == 0


def test_a_heartbeat_may_be_a_datetime_for_timestamps():
    stream = Stream("s", pa.schema({"ts": pa.timestamp("ms", "UTC")}), "ts")
    run = ContinuousQuery("SELECT COUNT(*) AS n FROM s [RANGE 1 SECOND]", [stream]).run_locally()
    moment = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    run.push({"s": pa.table({"ts": pa.array([moment], pa.timestamp("ms", "UTC"))})})
    result = run.push({}, watermark=moment + datetime.timedelta(seconds=2))
    assert result["valid_from"].to_pylist() == [moment]
    assert result.schema.field("valid_to").type == pa.timestamp("us", "UTC")
    with pytest.raises(PushedTypeMismatch):
        run.push({}, watermark=datetime.datetime(2020, 1, 1))


def test_an_unknown_stream_is_refused():
    with pytest.raises(UnknownStreamPushed, match=r'\[M4003\] stream "c" is not one') as caught:
        start().push({"c": rows()})
    assert caught.value.detail == 'The query reads "a", "b".'


def test_a_missing_column_is_refused_and_changes_nothing():
    run = start()
    table = pa.table({"ts": pa.array([1]), "key": pa.array([1]), "v": pa.array(["x"])})
    with pytest.raises(MissingColumn, match=r'\[M4001\] column "k" of stream "b" is missing'):
        run.push({"a": rows((1, 1, "x")), "b": table})
    assert run.metrics()["streams"]["a"]["rows"] == 0
    assert run.push({"b": rows((1, 1, "y"))}).num_rows == 0


def test_a_wrongly_typed_column_is_refused():
    table = pa.table({"ts": pa.array([1]), "k": pa.array(["1"]), "v": pa.array(["x"])})
    with pytest.raises(PushedTypeMismatch, match=r'\[M4002\] column "k" of stream "a" is of type string') as caught:
        start().push({"a": table})
    assert caught.value.hint == "Cast the column, or change the declaration."


@pytest.mark.parametrize("table", [[1, 2], {"ts": [1]}, None, "rows"])
def test_what_is_no_table_is_refused(table):
    with pytest.raises(PushedTypeMismatch):
        start().push({"a": table})


@pytest.mark.parametrize("tables", [[], "a", 3, rows()])
def test_what_is_no_mapping_of_tables_is_refused(tables):
    with pytest.raises(PushedTypeMismatch):
        start().push(tables)


def test_record_batches_extra_columns_and_encodings_are_taken():
    batch = rows((1, 1, "x")).append_column("more", pa.array([1])).to_batches()[0]
    encoded = rows((1, 1, "y"))
    encoded = encoded.set_column(2, "v", encoded["v"].dictionary_encode())
    assert start().push({"a": batch, "b": encoded}).num_rows == 1


@pytest.mark.parametrize("streams", [A, {"a": A}, "a", ["a"], [A, None]])
def test_what_is_no_list_of_streams_is_refused(streams):
    with pytest.raises(BadStreamDeclaration, match="a list of Stream declarations"):
        ContinuousQuery("SELECT k FROM a [NOW]", streams)


def test_nothing_can_be_pushed_after_the_end():
    run = start()
    run.finish()
    with pytest.raises(FinishedRun):
        run.push({})
    with pytest.raises(FinishedRun):
        run.finish()


@pytest.mark.parametrize(
    "other",
    ["SELECT a.k FROM a [RANGE 10], b [RANGE 10] WHERE a.k = b.k", JOIN.replace("10", "11"), JOIN + " AND a.k > 5"],
)
def test_a_plan_of_another_query_is_refused(other):
    with pytest.raises(BadPlan, match="the plan is not one of this query's"):
        ContinuousQuery(JOIN, [A, B]).run_locally(ContinuousQuery(other, [A, B]).plan())


def test_a_plan_of_the_same_query_written_again_is_taken():
    assert ContinuousQuery(JOIN, [A, B]).run_locally(ContinuousQuery(JOIN, [A, B]).plan("b a")).finish().num_rows == 0


def test_results_in_chunks_are_bounded_and_the_same():
    text = "SELECT a.ts AS x, b.ts AS y FROM a [RANGE 1000], b [RANGE 1000]"
    left, right = rows(*((i, 0, "x") for i in range(300))), rows(*((i, 0, "y") for i in range(300)))
    chunks = list(start(text, chunk_rows=500).push_in_chunks({"a": left, "b": right}))
    assert max(chunk.num_rows for chunk in chunks) <= 1000
    assert sum(chunk.num_rows for chunk in chunks) == 90_000
    begins = [begin for chunk in chunks for begin in chunk["valid_from"].to_pylist()]
    assert begins == sorted(begins)


def test_chunks_that_are_not_fetched_do_not_harm_the_state():
    run = start()
    run.push_in_chunks({"a": rows((1, 1, "x"))})
    chunks = run.push_in_chunks({"b": rows((1, 1, "y"), (2, 1, "z"))})
    del chunks
    assert run.push({"a": rows((3, 1, "w"))}).num_rows == 2
    assert run.metrics()["results"] == 4


def test_a_new_push_does_not_lose_its_results_to_one_abandoned_half_way():
    run = start(chunk_rows=1)
    run.push({"a": rows((1, 1, "x"), (1, 1, "y"))})
    chunks = run.push_in_chunks({"b": rows((1, 1, "z"))})
    next(chunks)
    chunks = run.push_in_chunks({"b": rows((2, 1, "w"))})
    assert sum(chunk.num_rows for chunk in chunks) == 2
    assert run.metrics()["results"] == 4


@pytest.mark.parametrize("chunk_rows", [0, -1, 1.5, True, "many"])
def test_chunks_without_room_are_refused(chunk_rows):
    with pytest.raises(BadPlan):
        start(chunk_rows=chunk_rows)


@pytest.mark.parametrize("watermark", [2**63, -(2**63), 2**70, 1.5, True, "now"])
def test_a_watermark_outside_time_is_refused_and_changes_nothing(watermark):
    run = start()
    with pytest.raises(PushedTypeMismatch):
        run.push({"a": rows((1, 1, "x"))}, watermark=watermark)
    assert run.watermark is None and run.metrics()["streams"]["a"]["rows"] == 0


def test_a_thousand_conditions_are_planned_and_run():
    conditions = " AND ".join(f"a.k <> {number}" for number in range(2, 1002))
    run = start(f"{JOIN} AND {conditions}")
    assert run.push({"a": rows((1, 1, "x"), (1, 7, "y")), "b": rows((1, 1, "z"), (1, 7, "w"))}).num_rows == 1


def test_operators_count_what_they_did():
    run = start()
    run.push({"a": rows((1, 1, "x"), (2, 2, "y")), "b": rows((3, 1, "z"))})
    (join,) = [o for o in run.metrics()["operators"] if o["kind"] == "join"]
    assert (join["rows_in"], join["rows_out"], join["probes"], join["compared"]) == (3, 1, 3, 1)
    assert join["state_rows"] == 3


def test_state_is_dropped_when_windows_pass():
    run = start()
    for now in range(0, 20_000, 100):
        run.push({"a": rows((now, now % 7, "x")), "b": rows((now, now % 7, "y"))})
    assert run.metrics()["state_rows"] < 50
