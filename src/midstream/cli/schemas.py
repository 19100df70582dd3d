"""Columns of a stream without starting Spark: from Spark's DDL, or from the first file.

>>> schema_from_ddl("ts timestamp, id long", "orders").field("id").type
DataType(int64)

Only ``midstream explain`` relies on what is found in CSV and JSON files here: Spark decides for itself when a query
runs (for one, small numbers in CSV are ``int`` to Spark and 64 bits wide here). Names and kinds are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pa_parquet
import pyarrow.types as pat
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from midstream.errors import BadArgument, MissingColumn, UnreadableFile, did_you_mean, quoted

__all__ = ["KAFKA", "RATE", "RAW", "check_columns", "kind_of", "schema_from_ddl", "schema_of_file"]

INSTANT = pa.timestamp("us", "UTC")
RATE = pa.schema({"timestamp": INSTANT, "value": pa.int64()})
"""The schema of Spark's rate source."""
RAW = pa.schema({"value": pa.binary()})
"""What the raw messages of a Kafka topic are, if nothing is made of them."""
KAFKA = pa.schema(
    {
        "kafka_key": pa.binary(),
        "kafka_partition": pa.int32(),
        "kafka_offset": pa.int64(),
        "kafka_timestamp": INSTANT,
    }
)
"""The columns that every stream of a Kafka topic has beside those of its messages."""

_BLOCK_BYTES = 1 << 20
_PLAIN = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "SMALLINT": pa.int16(),
    "TINYINT": pa.int8(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "CHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": INSTANT,
    "TIMESTAMPTZ": INSTANT,
    "TIMESTAMPLTZ": INSTANT,
    "TIMESTAMPNTZ": pa.timestamp("us"),
}


def schema_from_ddl(text: str, stream: str) -> pa.Schema:
    """The columns that Spark's DDL declares: ``ts timestamp, id long, tags array<string>``."""
    try:
        table = parse_one(f"CREATE TABLE t ({text})", read="spark")
        columns = [column for column in table.this.expressions if isinstance(column, exp.ColumnDef)]
        if not columns or len(columns) != len(table.this.expressions) or any(c.kind is None for c in columns):
            raise ValueError("each column needs a name and a type")
        return pa.schema([(column.name, _arrow_type(column.kind)) for column in columns if column.kind is not None])
    except (SqlglotError, ValueError, AttributeError, pa.ArrowException) as problem:
        said = "a name or a type is missing" if isinstance(problem, SqlglotError | AttributeError) else str(problem)
        raise BadArgument(
            f'cannot read the schema "{text}" of stream "{stream}"',
            detail=f"{said[:1].upper()}{said[1:]}.",
            hint='Write column names and Spark SQL types: "ts timestamp, id long, price double".',
        ) from None


def _arrow_type(kind: exp.DataType) -> pa.DataType:
    name = getattr(kind.this, "name", str(kind.this))
    parts = kind.expressions
    if name in _PLAIN:
        return _PLAIN[name]
    if name == "DECIMAL":
        return pa.decimal128(*[int(part.name) for part in parts] or [10, 0])
    if name == "ARRAY" and len(parts) == 1:
        return pa.list_(_arrow_type(parts[0]))
    if name == "MAP" and len(parts) == 2:
        return pa.map_(_arrow_type(parts[0]), _arrow_type(parts[1]))
    if name == "STRUCT":
        return pa.struct([(part.name, _arrow_type(part.kind)) for part in parts])
    if isinstance(kind.this, exp.Interval):
        return pa.duration("us")
    raise ValueError(f"there is no type {kind.sql('spark')}")


def schema_of_file(path: Path, format_: str, separator: str = ",", has_header: bool = True) -> pa.Schema:
    """The columns of a file, inferred from its first rows if it has no schema."""
    readers: dict[str, Callable[[], pa.Schema]] = {
        "parquet": lambda: pa_parquet.read_schema(path),
        "csv": lambda: (
            pa_csv.open_csv(
                path,
                pa_csv.ReadOptions(block_size=_BLOCK_BYTES, autogenerate_column_names=not has_header),
                pa_csv.ParseOptions(delimiter=separator),
            ).schema
        ),
        "json": lambda: pa_json.open_json(path, pa_json.ReadOptions(block_size=_BLOCK_BYTES)).schema,
    }
    if format_ not in readers:
        raise BadArgument(
            f"cannot infer the columns of {path} without Spark",
            hint='Declare them: --schema STREAM="ts timestamp, id long".',
        )
    try:
        found = readers[format_]()
    except (pa.ArrowException, OSError) as problem:
        raise UnreadableFile(
            f"cannot read {path} as {format_}", detail=f"{str(problem).splitlines()[0].rstrip('.')}."
        ) from None
    # Spark has only microseconds, and reads times without a zone in text as instants.
    is_text = format_ != "parquet"
    fields = []
    for field in found:
        kind = field.type
        if pat.is_timestamp(kind):
            kind = INSTANT if is_text or kind.tz is not None else pa.timestamp("us")
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def check_columns(stream: str, schema: pa.Schema, path: Path) -> None:
    """Refuse a declared column that a parquet file does not have: Spark would read it as NULL."""
    there = {name.lower(): name for name in schema_of_file(path, "parquet").names}
    for name in schema.names:
        if name.lower() not in there:
            raise MissingColumn(
                f'column "{name}" of stream "{stream}" is not in its files',
                detail=f"{path} has the columns {quoted(there.values())}.",
                hint=did_you_mean(name, there.values()) or "Remove it from --schema.",
            )


def kind_of(data_type: pa.DataType) -> str:
    """ "timestamp", "integer" or "other": what matters for an event time."""
    if pat.is_timestamp(data_type):
        return "timestamp"
    return "integer" if pat.is_integer(data_type) else "other"
