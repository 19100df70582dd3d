"""The durable storage of a cell, and what a cell stores there.

    progress          how far the cell has come; written with every micro-batch
    manifest          the plans in use, running migrations, what became of commands; written when these change
    segment 000…      rows in their windows (see ``segment_log``)

:class:`StoredCell` is all of it, read back and checked: state of another format or of another query is refused before
any of it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from midstream.errors import CheckpointMismatch
from midstream.runtime.messages import STATE_FORMAT, CellManifest, CellProgress, decode
from midstream.runtime.query_fingerprint import QueryFingerprint

__all__ = ["MANIFEST", "PROGRESS", "SEGMENT", "StateBackend", "StoredCell", "stored_version"]

PROGRESS, MANIFEST, SEGMENT = "progress", "manifest", "segment "


class StateBackend(Protocol):
    """Durable storage of one cell: all changes of a micro-batch become durable together, or none."""

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, value: bytes) -> None: ...

    def remove(self, key: str) -> None: ...

    def items(self) -> Iterable[tuple[str, bytes]]: ...


class _Versioned(msgspec.Struct):
    """The progress of any format, as far as its version: a cell is read, and its format checked, only if needed."""

    version: str = ""


def stored_version(backend: StateBackend) -> str:
    """The version of the cell that the state backend belongs to; empty if there is none yet."""
    progress = backend.get(PROGRESS)
    return "" if progress is None else msgspec.json.decode(progress, type=_Versioned).version


@dataclass(frozen=True)
class StoredCell:
    """All that a state backend holds of a cell."""

    progress: CellProgress
    manifest: CellManifest
    segments: Mapping[str, bytes]
    """By key, in the order of their rows."""

    @classmethod
    def read(cls, kept: Mapping[str, bytes], query: QueryFingerprint) -> StoredCell:
        """What was kept of a cell of this query. Raises if another query, or another version of midstream, kept it."""
        manifest = decode(kept.get(MANIFEST, b"{}"), CellManifest, "the checkpoint", STATE_FORMAT)
        query.check_same(manifest.query, "the checkpoint", "another checkpoint directory")
        progress = decode(kept.get(PROGRESS, b"{}"), CellProgress, "the checkpoint", STATE_FORMAT)
        return cls(progress, manifest, {key: kept[key] for key in sorted(kept) if key.startswith(SEGMENT)})

    def check_columns(self, columns: Mapping[str, list[str]]) -> None:
        """Refuse rows with other columns than the query reads: another version may plan the same query otherwise."""
        if self.manifest.columns != columns:
            raise CheckpointMismatch(
                "the checkpoint keeps other columns of the streams' rows than the query reads",
                detail=f"There: {self.manifest.columns}. Now: {columns}.",
                hint="Continue with the version of midstream that wrote it, or use another checkpoint directory.",
            )
