"""Results as Arrow: the select list, then ``valid_from`` and ``valid_to``. Here payload is touched, once."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from midstream.algebra.plan import Plan
from midstream.algebra.window_spec import NEVER
from midstream.engine.batch import Batch
from midstream.engine.fixed_width import wrap_values

__all__ = ["output_schema", "to_record_batches"]


def output_schema(plan: Plan) -> pa.Schema:
    """The schema of a plan's results."""
    time_type = plan.time_domain.type
    fields = [pa.field(field.name, field.type) for field in plan.schema]
    return pa.schema([*fields, pa.field("valid_from", time_type, nullable=False), pa.field("valid_to", time_type)])


def to_record_batches(batch: Batch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The tuples' values and validities; in halves where an Arrow array of text cannot hold all of them.

    A validity that never ends has a NULL ``valid_to``.
    """
    try:
        columns = batch.columns()
    except pa.ArrowInvalid:
        if len(batch) < 2:
            raise
        middle = len(batch) // 2
        yield from to_record_batches(batch.sliced(0, middle), schema)
        yield from to_record_batches(batch.sliced(middle, len(batch)), schema)
        return
    time_type = schema.field("valid_from").type
    ends = batch.valid_to != NEVER
    columns.append(wrap_values(batch.valid_from, None, time_type))
    columns.append(wrap_values(batch.valid_to, None if ends.all() else ends, time_type))
    yield pa.RecordBatch.from_arrays(columns, schema=schema)
