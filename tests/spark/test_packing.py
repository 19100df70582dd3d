"""The map task: rows of all streams, which come as one table, leave as packs for the cells."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from pyspark import TaskContext

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan import Window
from midstream.planning.partitioning import partition
from midstream.runtime.pack import Pack, StreamPacker
from midstream.spark import packing
from midstream.spark.packed import PACKED
from midstream.spark.packing import STREAM, Packer, shared_columns
from tests.runtime.test_pack import CHAIN, SCHEMA, packer, rows


def map_task(cells: int) -> Packer:
    """Of the query ``CHAIN``."""
    packers = [packer(CHAIN, name, cells) for name in "abc"]
    names = {name: name for name in SCHEMA.names}
    return Packer(packers, [names] * 3, [100 + cell for cell in range(cells)])


def of_stream(place: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column(STREAM, pa.array([place] * batch.num_rows, pa.int32()))


def packed(made: Packer, batches: list[pa.RecordBatch], partition_id: int = 0) -> list[pa.RecordBatch]:
    with mock.patch.object(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: partition_id)):
        return list(made(iter(batches)))


def test_a_task_sends_one_pack_of_a_stream_to_each_cell():
    batches = [of_stream(1, batch) for batch in (rows(10), rows(10, 10), rows(0), rows(5, 20))]
    (batch,) = packed(map_task(4), batches)
    assert ", ".join(f"{field.name} {field.type}" for field in batch.schema) == (PACKED.replace("long", "int64"))
    assert batch.column("cell").to_pylist() == [100, 101, 102, 103]
    assert batch.column("kind").to_pylist() == ["rows"] * 4
    made = [Pack.of(blob) for blob in batch.column("blob").to_pylist()]
    assert {(pack.header.stream, pack.header.rows) for pack in made} == {("b", 25)}
    sent = [int(s) for pack in made for s in pack.rows.column("s").to_pylist()]
    assert sorted(sent) == [n for n in range(25) if n % 10 != 9]
    for pack in made:
        assert np.all(np.diff(pack.rows.column("__time").to_numpy()) > 0)


@pytest.mark.parametrize("is_mixed", [False, True])
def test_rows_of_several_streams_are_packed_apart_in_the_order_they_came(is_mixed):
    batches = [of_stream(2, rows(4)), of_stream(0, rows(9)), of_stream(2 if is_mixed else 1, rows(8, 10))]
    (batch,) = packed(map_task(1), batches)
    made = [Pack.of(blob) for blob in batch.column("blob").to_pylist()]
    found = {pack.header.stream: [int(s) for s in pack.rows.column("s").to_pylist()] for pack in made}
    first, last = [0, 1, 2, 3], [n for n in range(10, 18)]
    assert found == {"a": [*range(9)]} | ({"c": [*first, *last]} if is_mixed else {"c": first, "b": last})
    assert len(made) == len(found)
    assert [place >> 40 for place in batch.column("place").to_pylist()] == ["abc".index(p.header.stream) for p in made]


def test_large_tasks_send_in_pieces_and_places_tell_their_order():
    batches = [of_stream(2, rows(10, start)) for start in (100, 110, 120, 130, 140)]
    with mock.patch.object(packing, "PACK_BYTES", batches[0].nbytes + 1):
        pieces = packed(map_task(2), batches, partition_id=7)
    assert [Pack.of(piece.column("blob")[0].as_py()).header.rows for piece in pieces] == [20, 20, 10]
    places = [piece.column("place").to_pylist() for piece in pieces]
    assert places == [[(2 << 40) + (7 << 20) + number] * 2 for number in range(3)]


def test_places_order_streams_then_tasks_then_pieces():
    made = [
        batch.column("place")[0].as_py()
        for stream in (0, 1)
        for task in (0, 1, 1000)
        for batch in packed(map_task(2), [of_stream(stream, rows(1))], partition_id=task)
    ]
    assert made == sorted(made)
    assert len(set(made)) == 6


def test_a_task_without_rows_sends_nothing():
    assert packed(map_task(2), []) == []
    assert [batch.num_rows for batch in packed(map_task(2), [of_stream(0, rows(0))])] == [0]


def test_outside_a_task_packs_are_made_as_in_the_first():
    assert next(map_task(2)([of_stream(1, rows(3))])).column("place").to_pylist() == [1 << 40] * 2


def test_columns_of_one_type_share_a_place():
    shared = shared_columns([{"t": "long", "v": "double", "w": "double"}, {"w": "double", "s": "string"}, {}])
    assert shared == [{"t": "0_0", "v": "1_0", "w": "1_1"}, {"w": "1_0", "s": "2_0"}, {}]


@pytest.mark.parametrize(
    ("declared", "given", "ticks"),
    [
        (pa.int32(), pa.array([3, -1], pa.int32()), [3, -1]),
        (pa.timestamp("us", "UTC"), pa.array([5, 7], pa.timestamp("us", "Europe/Berlin")), [5, 7]),
        (pa.timestamp("us"), pa.array([5, -7], pa.timestamp("us")), [5, -7]),
    ],
)
def test_event_times_become_ticks_whatever_their_zone(declared, given, ticks):
    stream = Stream("a", pa.schema({"ts": declared, "v": pa.int64()}), "ts")
    plan = ContinuousQuery("SELECT DISTINCT v FROM a [NOW]", [stream]).plan()
    made = StreamPacker([w for w in plan.walk() if isinstance(w, Window)], ["ts", "v"], partition(plan, 1))
    task = Packer([made], [{"ts": "0_0", "v": "1_0"}], [7])
    (batch,) = packed(task, [of_stream(0, pa.record_batch({"0_0": given, "1_0": [1, 2]}))])
    pack = Pack.of(batch.column("blob")[0].as_py())
    assert pack.rows.column("__time").to_pylist() == ticks
    assert pack.rows.column("ts").type == declared
    assert pack.header.latest == max(ticks)
