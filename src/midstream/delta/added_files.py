"""The files of a Delta table in the order in which they became part of it, for streams that read the table.

A stream begins with the files of the version that the table has then, in the order of their modification times, those
with equal times by name. From there it follows the table's log: the files that each version adds, in the log's order.
Files that no version names are not read, and neither are those of versions that only rewrite files (OPTIMIZE).

A version that deletes or changes rows ends the query, since rows that were read cannot be taken back. So does one that
uses what plain parquet files do not have: partition columns (their values are in the log alone), column mapping,
deletion vectors.
"""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import unquote

from midstream.delta.log_entries import last_version, log_entry
from midstream.errors import PackageMissing, TableMismatch
from midstream.installation import install_command

__all__ = ["added_since", "files_now"]

_PLAIN_FEATURES = {"timestampNtz"}
"""What a table may ask of its readers that every reader of parquet does."""


def files_now(path: str) -> tuple[int, list[str]]:
    """The table's version, and the files of its rows."""
    import pyarrow as pa

    try:
        from midstream.delta.location import TableLocation
        from midstream.delta.table import open_table
    except ModuleNotFoundError as missing:
        raise PackageMissing(
            f"the package for Delta tables is not installed: {missing}",
            hint=f"Install it with {install_command('delta')}.",
        ) from None

    table = open_table(TableLocation.of(path))
    if table is None:
        raise TableMismatch(f"there is no table in {path}", hint="Write to it first, or give its columns.")
    protocol = table.protocol()
    _check_columns(path, table.metadata().partition_columns)
    _check_protocol(path, protocol.min_reader_version, protocol.reader_features)
    adds = pa.table(table.get_add_actions()).select(["modification_time", "path"]).to_pylist()
    dated = sorted((add["modification_time"], add["path"]) for add in adds)
    return table.version(), [_file(path, name) for _, name in dated]


def added_since(path: str, version: int, is_first_look: bool) -> tuple[int, list[str]]:
    """The table's latest version, and the files that were added after a version.

    At the ``first look`` of a process, versions that are missing in between are noticed, too.
    """
    files: list[str] = []
    while (entry := log_entry(path, version + 1)).exists():
        version += 1
        for line in entry.read_text().splitlines():
            files += _added(path, version, json.loads(line))
    if is_first_look and (last := last_version(path)) > version:
        raise TableMismatch(
            f"the log of the table {path} no longer has version {version + 1}",
            detail=f"The query has read the table up to version {version}; its log has version {last}.",
            hint="Start the query with a new checkpoint; it reads the whole table again.",
        )
    return version, files


def _added(path: str, version: int, action: dict[str, Any]) -> list[str]:
    """The file that an action of the log adds, if it adds one with new rows."""
    if "add" in action:
        add = action["add"]
        if add.get("deletionVector"):
            raise _not_plain(path, "deletion vectors")
        return [_file(path, unquote(add["path"]))] if add["dataChange"] else []
    if "remove" in action and action["remove"]["dataChange"]:
        raise TableMismatch(
            f"rows of the table {path} were deleted or changed, by version {version}",
            detail="A stream cannot take back rows that were read.",
            hint="Start the query with a new checkpoint; it reads what the table has now.",
        )
    if "metaData" in action:
        _check_columns(path, action["metaData"].get("partitionColumns") or [])
    if "protocol" in action:
        _check_protocol(path, action["protocol"]["minReaderVersion"], action["protocol"].get("readerFeatures"))
    return []


def _check_columns(path: str, partition_columns: list[str]) -> None:
    if partition_columns:
        raise _not_plain(path, f'the partition column "{partition_columns[0]}"')


def _check_protocol(path: str, reader_version: int, features: list[str] | None) -> None:
    others = sorted(set(features or []) - _PLAIN_FEATURES)
    if others or reader_version == 2:
        raise _not_plain(path, others[0] if others else "column mapping")


def _not_plain(path: str, what: str) -> TableMismatch:
    return TableMismatch(
        f"the table {path} has {what}, which midstream does not read",
        hint='Let Spark read it, with its Delta package: spark.readStream.format("delta").',
    )


def _file(path: str, name: str) -> str:
    if "://" in name or name.startswith("/"):
        raise _not_plain(path, "files in other places")
    return os.path.join(path, name)
