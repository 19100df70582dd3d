"""Results as Arrow: all of them, in order, also where one array cannot hold them."""

import numpy as np
import pyarrow as pa
import pytest

from midstream.algebra.plan import Field
from midstream.algebra.window_spec import NEVER
from midstream.engine.batch import Batch, Layout
from midstream.engine.output import to_record_batches

SCHEMA = pa.schema(
    [pa.field("v", pa.string()), pa.field("valid_from", pa.int64(), nullable=False), pa.field("valid_to", pa.int64())]
)


def batch(count: int) -> Batch:
    times = np.arange(count)
    values = pa.array([str(number) for number in range(count)])
    return Batch.of_arrays(Layout((Field("", "v", pa.string()),)), times, np.full(count, NEVER), [values])


def test_a_validity_that_never_ends_has_no_end():
    (made,) = to_record_batches(batch(2), SCHEMA)
    assert made.to_pydict() == {"v": ["0", "1"], "valid_from": [0, 1], "valid_to": [None, None]}


def test_text_that_one_array_cannot_hold_leaves_in_pieces(monkeypatch):
    columns = Batch.columns
    limit = 3

    def limited(self: Batch) -> list[pa.Array]:
        if len(self) > limit:
            raise pa.ArrowInvalid("offset overflow")
        return columns(self)

    monkeypatch.setattr(Batch, "columns", limited)
    made = list(to_record_batches(batch(10), SCHEMA))
    assert [value for piece in made for value in piece.column("v").to_pylist()] == [str(n) for n in range(10)]
    # A single row that is too large is nobody's to divide.
    limit = 0
    with pytest.raises(pa.ArrowInvalid):
        list(to_record_batches(batch(4), SCHEMA))
