"""The table that results are written to: created with their schema, or checked before anything is written.

An existing table must match what cells write: the same columns with the same types in any order, the same partition
columns, and no feature that a writer of files would have to support (column mapping, constraints, generated columns,
identity columns). It may have further columns, which are NULL in the rows of the results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from midstream.delta.delta_types import check_partition_columns
from midstream.delta.location import TableLocation
from midstream.delta.log_entries import is_table
from midstream.errors import BadOption, TableMismatch, quoted

__all__ = ["check_fits", "create_table", "open_table", "prepare_table", "sentence"]

_EXPIRY = "delta.setTransactionRetentionDuration"
_HARMLESS_FEATURES = frozenset(
    {
        "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors", "domainMetadata",
        "generatedColumns", "identityColumns", "invariants", "timestampNtz",
        "v2Checkpoint", "vacuumProtocolCheck",
    }
)  # fmt: skip
"""Features that require nothing of a writer that only adds files, or only if they are in use (checked separately)."""


def open_table(location: TableLocation) -> DeltaTable | None:
    """The current table; None if there is none."""
    try:
        return DeltaTable(location.address, storage_options=location.storage_options or None)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as problem:
        raise TableMismatch(f"cannot open the table {location.address}", detail=sentence(problem)) from None


def prepare_table(
    location: TableLocation,
    schema: pa.Schema,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    has_begun: bool = False,
) -> DeltaTable:
    """The table for results of this schema, created unless it exists; raises if one exists that does not fit.

    ``has_begun``: the query has a checkpoint with micro-batches, so the table must exist.
    """
    check_partition_columns(schema, partition_by)
    check_properties(properties or {})
    table = open_table(location)
    if table is not None:
        check_fits(table, location, schema, partition_by, properties or {})
        return table
    if has_begun:
        raise TableMismatch(
            f"there is no table {location.address}, but the query has begun to write to it",
            detail="Its checkpoint continues after the results that were there.",
            hint="Restore the table, or start with a new checkpoint.",
        )
    return create_table(location, schema, partition_by, properties)


def create_table(
    location: TableLocation,
    schema: pa.Schema,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> DeltaTable:
    """Create a table. If another process creates it at the same time, that one is returned, if it fits."""
    directory = location.directory
    if directory is not None and directory.is_dir() and any(directory.iterdir()) and not is_table(directory):
        raise TableMismatch(
            f"the directory {directory} has files, but is no Delta table",
            hint="Use another directory, or an empty one.",
        )
    try:
        return DeltaTable.create(
            location.address,
            Schema.from_arrow(schema),
            mode="error",
            partition_by=list(partition_by),
            configuration=dict(properties or {}),
            storage_options=location.storage_options or None,
        )
    except (DeltaError, OSError, ValueError) as problem:
        table = open_table(location)
        if table is None:
            raise TableMismatch(f"cannot create the table {location.address}", detail=sentence(problem)) from None
        check_fits(table, location, schema, partition_by, properties or {})
        return table


def check_properties(properties: Mapping[str, str]) -> None:
    """Refuse table properties that would make commits unsafe, or that cells do not support."""
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise BadOption(f"the table property {name!r} is {value!r}", hint="Names and values are texts.")
        if "." not in name:
            raise BadOption(
                f'"{name}" is not a table property',
                hint=f'Names of Delta\'s properties begin with "delta.", as in delta.{name}.',
            )
        if name == _EXPIRY:
            raise BadOption(
                f"the table property {_EXPIRY} cannot be used",
                detail="The table would forget which micro-batches it has.",
                hint="Leave it out.",
            )
        if (name == "delta.columnMapping.mode" and value != "none") or name.startswith("delta.constraints."):
            raise BadOption(f"the table property {name} cannot be used", detail="Cells write files that ignore it.")


def check_fits(
    table: DeltaTable,
    location: TableLocation,
    schema: pa.Schema,
    partition_by: Sequence[str],
    properties: Mapping[str, str] = {},
) -> None:
    """Refuse a table that cells cannot write to."""
    metadata = table.metadata()
    where = f"the table {location.address}"
    wanted = {field["name"]: field for field in json.loads(Schema.from_arrow(schema).to_json())["fields"]}
    there = {field["name"]: field for field in json.loads(table.schema().to_json())["fields"]}
    for name, field in wanted.items():
        if name not in there:
            raise TableMismatch(
                f'{where} has no column "{name}"',
                detail=f"It has the columns {quoted(there)}; the result has {quoted(wanted)}.",
                hint="Use another table, or rename the column in the select list.",
            )
        if _comparable(there[name]["type"]) != _comparable(field["type"]):
            raise TableMismatch(
                f'column "{name}" is {_shown(there[name]["type"])} in {where}',
                detail=f"In the result it is {_shown(field['type'])}.",
                hint="Use another table, or CAST in the select list.",
            )
        if field["nullable"] and not there[name]["nullable"]:
            raise TableMismatch(
                f'column "{name}" of {where} must not be NULL, but it may be in the result',
                hint="Use another table, or drop the constraint.",
            )
    lacking = [name for name, field in there.items() if name not in wanted and not field["nullable"]]
    if lacking:
        raise TableMismatch(
            f'column "{lacking[0]}" of {where} must not be NULL, but the result has no such column',
            detail=f"The result has {quoted(wanted)}.",
        )
    if list(metadata.partition_columns) != list(partition_by):
        raise TableMismatch(
            f"{where} is partitioned by {quoted(metadata.partition_columns) or 'no column'}",
            detail=f"The query is to write a table partitioned by {quoted(partition_by) or 'no column'}.",
            hint=f"Partition the results by {quoted(metadata.partition_columns) or 'no column'}, or use another table.",
        )
    configuration = metadata.configuration
    different = [name for name, value in properties.items() if configuration.get(name) != value]
    if different:
        raise TableMismatch(
            f"{where} does not have the property {different[0]}={properties[different[0]]}",
            hint="Set the property on the table, or leave it out here.",
        )
    _check_features(table, where, list(there.values()))


def _check_features(table: DeltaTable, where: str, fields: list[dict[str, object]]) -> None:
    """Refuse features that a writer of plain files does not support."""
    configuration = table.metadata().configuration
    asked = [name for name in configuration if name.startswith("delta.constraints.") or name == _EXPIRY]
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        asked.append("delta.columnMapping.mode")
    for field in fields:
        marks = field.get("metadata")
        names = marks if isinstance(marks, dict) else {}
        rules = ("delta.invariants", "delta.generationExpression", "delta.identity.")
        asked += [name for name in names if name.startswith(rules)]
    asked += [name for name in table.protocol().writer_features or [] if name not in _HARMLESS_FEATURES]
    if asked:
        raise TableMismatch(
            f"{where} uses {asked[0]}, which midstream does not support",
            detail="Cells write plain parquet files; the table asks more of its writers.",
            hint="Use another table.",
        )


def _comparable(data_type: object) -> object:
    """A type without its nullability and metadata: results allow NULLs everywhere."""
    if isinstance(data_type, dict):
        ignored = ("nullable", "containsNull", "valueContainsNull", "metadata")
        return {key: _comparable(value) for key, value in data_type.items() if key not in ignored}
    return [_comparable(part) for part in data_type] if isinstance(data_type, list) else data_type


def _shown(data_type: object) -> str:
    return data_type if isinstance(data_type, str) else json.dumps(_comparable(data_type))


def sentence(problem: Exception | None) -> str:
    """The error message of delta-rs, as the detail of a midstream error."""
    return f"{str(problem).strip().splitlines()[0].rstrip('.')}." if str(problem).strip() else f"{problem!r}."
