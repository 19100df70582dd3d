"""Rows as bytes come back as they were."""

import msgspec
import pyarrow as pa
import pytest

from midstream.runtime.transport import from_bytes, to_bytes
from tests.runtime.test_pack import rows


class Seen(msgspec.Struct):
    stream: str = ""
    windows: list[str] = []
    latest: int | None = None


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_header_and_any_tables_come_back(compression):
    tables = [
        rows(5),
        rows(0),
        pa.record_batch({"v": [None, {"a": [1]}]}),
        pa.RecordBatch.from_pylist([], pa.schema([])),
    ]
    header = Seen("é\n", [], -(2**63))
    found, batches = from_bytes(to_bytes(header, tables, compression), Seen)
    assert found == header
    assert all(one.equals(other) for one, other in zip(batches, tables, strict=True))
    assert from_bytes(to_bytes(Seen(), []), Seen) == (Seen(), [])


def test_bytes_may_come_as_a_buffer_or_a_view():
    data = to_bytes(Seen("a"), [rows(3)])
    for form in (memoryview(data), pa.py_buffer(data), bytearray(data)):
        header, (batch,) = from_bytes(form, Seen)
        assert header == Seen("a")
        assert batch.equals(rows(3))
