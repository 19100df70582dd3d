"""Packs: every row reaches the cells that need it, once, and every cell learns how far each stream has come."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.engine.state.window_store import Rows, WindowStore
from midstream.planning.partitioning import partition
from midstream.runtime.cell_routing import rows_by_cell
from midstream.runtime.pack import KEEP, Pack, StreamPacker

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "x": pa.int64(), "s": pa.string()})
STREAMS = [Stream(name, SCHEMA, "ts") for name in "abc"]
CHAIN = "SELECT a.s FROM a [RANGE 9], b [RANGE 9], c [RANGE 9] WHERE a.k = b.k AND b.x = c.x"
SELF = "SELECT p.ts FROM a [RANGE 5] p, b [RANGE 5] q, a [RANGE 5] r WHERE p.k = q.k AND q.x = r.x"


def rows(count: int, start: int = 0) -> pa.RecordBatch:
    numbers = range(start, start + count)
    return pa.record_batch(
        {
            "ts": [None if n % 10 == 9 else n for n in numbers],
            "k": [None if n % 7 == 3 else n % 5 for n in numbers],
            "x": [n % 4 for n in numbers],
            "s": [f"{n}" for n in numbers],
        },
        schema=SCHEMA,
    )


def packer(text: str, stream: str, cells: int, columns: Iterable[str] = SCHEMA.names) -> StreamPacker:
    plan = ContinuousQuery(text, STREAMS).plan()
    windows = list({w.identity: w for w in plan.windows() if w.stream.name == stream}.values())
    return StreamPacker(windows, list(columns), partition(plan, cells))


def packs(packer: StreamPacker, batch: pa.RecordBatch) -> list[tuple[int, Pack]]:
    """As they arrive: from bytes."""
    made = list(packer.packs(batch))
    arrived = [(cell, Pack.of(pack.to_bytes())) for cell, pack in made]
    assert arrived == [(cell, Pack.of(pack)) for cell, pack in made]
    return arrived


@pytest.mark.parametrize("cells", [1, 2, 4, 6])
@pytest.mark.parametrize("stream", ["a", "b", "c"])
def test_rows_go_where_the_partitioning_says_in_the_order_they_came(stream, cells):
    made = packer(CHAIN, stream, cells)
    batch = rows(100)
    timed = batch.filter(batch.column("ts").is_valid())
    (window,) = made._groups[0]
    columns = {name: timed.column(name) for name in SCHEMA.names}
    expected = rows_by_cell(made._partitioning, window, Rows(timed.column("ts").to_numpy(), columns))
    found = packs(made, batch)
    assert [cell for cell, _ in found] == list(range(cells))
    for cell, pack in found:
        own = expected[cell].columns["s"].to_pylist() if cell in expected else []
        assert pack.rows.column("s").to_pylist() == own
        assert pack.rows.column("__time").to_pylist() == [int(value) for value in own]
    copies = made._partitioning.replication(window.identity)
    assert Counter(s for _, pack in found for s in pack.rows.column("s").to_pylist()) == dict.fromkeys(
        timed.column("s").to_pylist(), copies
    )


def test_every_cell_learns_what_the_task_saw_whether_it_gets_rows_or_not():
    for _, pack in packs(packer(CHAIN, "a", 6), rows(10)):
        assert (pack.header.stream, pack.header.rows, pack.header.without_event_time, pack.header.latest) == (
            "a",
            10,
            1,
            8,
        )
        assert pack.header.counts


def test_without_rows_or_without_event_times_nothing_is_said_of_time():
    for batch in (rows(0), rows(1, start=9)):
        found = packs(packer(CHAIN, "a", 2), batch)
        assert len(found) == 2
        for _, pack in found:
            assert (pack.header.rows, pack.header.without_event_time, pack.header.latest) == (
                batch.num_rows,
                batch.num_rows,
                None,
            )
            assert pack.rows.num_rows == 0
            assert pack.rows.schema.names == ["__time", *SCHEMA.names]


def test_windows_of_a_stream_that_are_keyed_alike_share_a_pack():
    text = "SELECT p.ts FROM a [RANGE 5] p, b [RANGE 5] q, a [RANGE 9] r WHERE p.k = q.k AND q.k = r.k"
    found = packs(packer(text, "a", 3), rows(30))
    assert [len(pack.header.windows) for _, pack in found] == [2, 2, 2]
    assert all(pack.header.counts for _, pack in found)


def test_windows_of_a_stream_that_are_keyed_apart_have_packs_of_their_own_of_which_one_counts():
    made = packer(SELF, "a", 4)
    found = packs(made, rows(30))
    assert [cell for cell, _ in found] == [0, 1, 2, 3] * 2
    assert [pack.header.counts for _, pack in found] == [True] * 4 + [False] * 4
    windows = [pack.header.windows for _, pack in found]
    assert windows[:4] == [windows[0]] * 4
    assert windows[4:] == [windows[4]] * 4
    assert windows[0] != windows[4]
    for group in (found[:4], found[4:]):
        # Two of the four cells each.
        assert sum(pack.rows.num_rows for _, pack in group) == 27 * 2


def test_rows_that_no_window_wants_stay_behind_but_are_seen():
    wanted = pa.array([None if n % 3 == 0 else n % 3 == 1 for n in range(20)])
    batch = pa.RecordBatch.from_arrays([*rows(20).columns, wanted], names=[*SCHEMA.names, KEEP])
    found = packs(packer(CHAIN, "b", 2), batch)
    sent = sorted(int(s) for _, pack in found for s in pack.rows.column("s").to_pylist())
    assert sent == [n for n in range(20) if n % 3 == 1 and n % 10 != 9]
    assert [(pack.header.rows, pack.header.without_event_time, pack.header.latest) for _, pack in found] == [
        (20, 2, 18)
    ] * 2
    assert found[0][1].rows.schema.names == ["__time", *SCHEMA.names]


def test_only_the_columns_that_are_read_travel():
    made = packer(CHAIN, "a", 2, columns=["k", "s"])
    for _, pack in packs(made, rows(5)):
        assert pack.rows.schema.names == ["__time", "k", "s"]


TYPES = {
    "text": (pa.string(), ["é", "", None]),
    "large text": (pa.large_string(), ["a", None, "b"]),
    "binary": (pa.binary(), [b"\x00", None, b""]),
    "boolean": (pa.bool_(), [True, False, None]),
    "number": (pa.float64(), [float("inf"), -0.0, None]),
    "unsigned": (pa.uint64(), [2**64 - 1, 0, None]),
    "decimal": (pa.decimal128(38, 4), [Decimal("1.0000"), None, Decimal("-99999999999999999999999999.9999")]),
    "date": (pa.date32(), [datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)]),
    "list": (pa.list_(pa.string()), [["a", None], [], None]),
    "struct": (
        pa.struct({"p": pa.int64(), "q": pa.list_(pa.int8())}),
        [{"p": 1, "q": [1]}, None, {"p": None, "q": None}],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [], None]),
}


@pytest.mark.parametrize("name", TYPES)
def test_values_of_every_type_arrive_unchanged_also_from_a_slice(name):
    data_type, values = TYPES[name]
    stream = Stream("a", pa.schema({"ts": pa.int64(), "k": pa.int64(), "v": data_type}), "ts")
    plan = ContinuousQuery("SELECT p.v FROM a [NOW] p, a [RANGE 3] q WHERE p.k = q.k", [stream]).plan()
    made = StreamPacker(list(plan.windows()), ["ts", "k", "v"], partition(plan, 3))
    column = pa.array([*values, *values], data_type)
    batch = pa.record_batch({"ts": range(6), "k": [1, 2, 3, 1, 2, 3], "v": column}).slice(2, 4)
    found: dict[int, object] = {}
    for _, pack in packs(made, batch):
        assert pack.rows.column("v").type == data_type
        found.update(zip(pack.rows.column("ts").to_pylist(), pack.rows.column("v").to_pylist(), strict=True))
    assert found == dict(zip(range(2, 6), column.to_pylist()[2:], strict=True))


@pytest.mark.parametrize(
    ("conditions", "wanted"),
    [
        ("p.x = 1 AND r.x = 2", {1, 2}),
        ("p.x = 1 AND p.k = 0 AND r.x = 2", {1, 2}),
        # A window without a condition wants all rows.
        ("p.x = 1", {0, 1, 2, 3}),
    ],
)
def test_rows_stay_behind_that_fail_the_conditions_of_all_windows(conditions, wanted):
    plan = ContinuousQuery(f"{SELF} AND {conditions}", STREAMS).plan()
    store = WindowStore([plan])
    windows = [window for window in plan.windows() if window.stream.name == "a"]
    by_window = {window.identity: store.conditions(window) for window in windows}
    made = StreamPacker(windows, SCHEMA.names, partition(plan, 1), by_window)
    batch = rows(40)
    for _, pack in packs(made, batch):
        assert set(pack.rows.column("x").to_pylist()) == wanted
        assert pack.header.rows == 40 and pack.header.latest == 38
    kept = {n for _, pack in packs(made, batch) for n in pack.rows.column("ts").to_pylist()}
    both = [n for n in range(40) if n % 10 != 9 and (n % 4 == 2 or (n % 4 == 1 and n % 5 == 0 and n % 7 != 3))]
    assert "p.k = 0" not in conditions or kept == set(both)
