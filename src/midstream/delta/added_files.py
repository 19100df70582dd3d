"""The files of a Delta table in the order in which they were added, for streams that read the table.

A stream begins with the files of the table's current version, in the order of their modification times, those with
equal times by name. From there it follows the table's log: the files that each version adds, in the log's order. Files
that no version names are not read, and neither are those of versions that only rewrite files (OPTIMIZE).

A version that deletes or changes rows ends the query, since rows that were read cannot be taken back. So does a version
with features that plain parquet files lack: partition columns (their values are only in the log), column mapping,
deletion vectors.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from midstream.delta.log_entries import is_table, last_version, log_entry
from midstream.errors import TableMismatch
from midstream.installation import needs_extra

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

__all__ = ["TableFiles", "added_since", "files_now", "table_schema"]

_PLAIN_FEATURES = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""Reader features that require nothing of a reader that follows the log and reads parquet."""
_ELSEWHERE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
"""The beginning of a path that is not relative to the table."""
_ANEW = "Start the query with a new checkpoint: it reads what the table has now."


class TableFiles(NamedTuple):
    """Files of a table, up to a version."""

    version: int
    table_id: str
    """Changes if the table is removed and created again."""
    files: list[str]


def files_now(path: str) -> TableFiles:
    """The files of all rows that the table has."""
    import pyarrow as pa

    table = _opened(path)
    adds = pa.table(table.get_add_actions()).select(["modification_time", "path"]).to_pylist()
    dated = sorted((add["modification_time"], add["path"]) for add in adds)
    return TableFiles(table.version(), _id(table), [_file(path, name) for _, name in dated])


def table_schema(path: str) -> pa.Schema:
    """The columns of a table, according to its log."""
    import pyarrow as pa

    return pa.schema(_opened(path).schema().to_arrow())


def added_since(path: str, known: TableFiles, is_thorough: bool) -> TableFiles:
    """The files that were added after those that are known.

    If ``is_thorough``, missing versions in between and a replaced table are detected.
    """
    version = known.version
    files: list[str] = []
    while (entry := log_entry(path, version + 1)).exists():
        version += 1
        # As bytes: text has further line separators, which JSON may contain unescaped.
        for line in entry.read_bytes().splitlines():
            try:
                action = json.loads(line)
            except ValueError:
                raise TableMismatch(f"cannot read {entry}", hint="Repair the table's log.") from None
            files += _added(path, version, action)
    if is_thorough:
        _check_continuity(path, known, version)
    return TableFiles(version, known.table_id, files)


def _check_continuity(path: str, known: TableFiles, version: int) -> None:
    last = last_version(path) if is_table(path) else -1
    if last > version and not log_entry(path, version + 1).exists():
        raise TableMismatch(
            f"the log of the table {path} no longer has version {version + 1}",
            detail=f"The query has read the table up to version {version}; its log has version {last}.",
            hint=_ANEW,
        )
    if last < version or _id(_opened(path)) != known.table_id:
        raise TableMismatch(f"the table {path} was removed or replaced by another one", hint=_ANEW)


def _id(table: DeltaTable) -> str:
    return str(table.metadata().id)


def _opened(path: str) -> DeltaTable:
    """The table; refused unless its files are plain parquet files."""
    with needs_extra("delta", "the package for Delta tables"):
        from midstream.delta.location import TableLocation
        from midstream.delta.table import open_table

    table = open_table(TableLocation.of(path))
    if table is None:
        raise TableMismatch(
            f"there is no Delta table in {path}", hint="Give the directory that has the table's _delta_log."
        )
    protocol = table.protocol()
    _check_columns(path, table.metadata().partition_columns)
    _check_protocol(path, protocol.min_reader_version, protocol.reader_features)
    return table


def _added(path: str, version: int, action: dict[str, Any]) -> list[str]:
    """The file that an action of the log adds, if it adds one with new rows."""
    if "add" in action:
        add = action["add"]
        if add.get("deletionVector"):
            raise _not_plain(path, "deletion vectors")
        return [_file(path, add["path"])] if add["dataChange"] else []
    if "remove" in action and action["remove"]["dataChange"]:
        raise TableMismatch(
            f"rows of the table {path} were deleted or changed, by version {version}",
            detail="A stream cannot take back rows that were read.",
            hint=_ANEW,
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
    """The path of a file, given its name in the log, which is percent-encoded."""
    if _ELSEWHERE.match(name):
        raise _not_plain(path, "files in other places")
    return os.path.join(path, unquote(name))
