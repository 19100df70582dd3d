"""The durable storage of a cell, and what a cell stores there.

    progress          how far the cell has come; written with every micro-batch
    manifest          the plans in use, running migrations, what became of commands; written when these change
    segment 000…      rows in their windows (see ``segment_log``)

:class:`StoredCell` is all of it, read back and checked: state of another format or of another query is refused before
any of it is used, and so is state that is not complete or not readable. That a cell has no state at all is noticed by
:class:`CellsBegun`.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec
import pyarrow as pa

from midstream.errors import BadPlan, CheckpointMismatch, MalformedMessage
from midstream.runtime.messages import STATE_FORMAT, CellFigures, CellManifest, CellProgress, decode
from midstream.runtime.query_fingerprint import QueryFingerprint

__all__ = [
    "MANIFEST",
    "PROGRESS",
    "SEGMENT",
    "CellsBegun",
    "StateBackend",
    "StoredCell",
    "damaged_checkpoint",
    "refusing_damage",
    "stored_version",
]

PROGRESS, MANIFEST, SEGMENT = "progress", "manifest", "segment "
_REMEDY = "Use an intact copy of the checkpoint, or start the query with another checkpoint directory."


class StateBackend(Protocol):
    """Durable storage of one cell: all changes of a micro-batch become durable together, or none."""

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, value: bytes) -> None: ...

    def remove(self, key: str) -> None: ...

    def items(self) -> Iterable[tuple[str, bytes]]: ...


def damaged_checkpoint(detail: str) -> MalformedMessage:
    """The error for a checkpoint that is not complete, or not what was written."""
    return MalformedMessage("the checkpoint is damaged", detail=detail, hint=_REMEDY)


@contextlib.contextmanager
def refusing_damage(what: str) -> Iterator[None]:
    """While stored state is interpreted: whatever that fails of, the checkpoint is damaged in ``what``."""
    try:
        yield
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        BadPlan,
        EOFError,
        LookupError,
        OSError,
        RecursionError,
        TypeError,
        ValueError,
        msgspec.DecodeError,
        pa.ArrowException,
        struct.error,
    ) as problem:
        raise damaged_checkpoint(f"{what} cannot be read: {type(problem).__name__}: {problem}.") from problem


class _Versioned(msgspec.Struct):
    """The progress of any format, as far as its version: a cell is read, and its format checked, only if needed."""

    version: str = ""


def stored_version(backend: StateBackend) -> str:
    """The version of the cell that the state backend belongs to; empty if there is none yet."""
    progress = backend.get(PROGRESS)
    if progress is None:
        return ""
    with refusing_damage("The progress of a cell"):
        return msgspec.json.decode(progress, type=_Versioned).version


@dataclass(frozen=True)
class CellsBegun:
    """The cells of a query that have durable state, by the query's last report: the state alone does not say that it
    should be there. Without a report nothing is known, and a cell without state begins anew."""

    query: str | None = None
    """The id of the query, as Spark knows it; another one has a checkpoint of its own."""
    cells: frozenset[int] = frozenset()

    @classmethod
    def reported(cls, query: str | None, figures: Iterable[CellFigures]) -> CellsBegun:
        """The cells that have done more than one micro-batch: a cell reports before its micro-batch is committed, but
        the one before it was."""
        return cls(query, frozenset(one.cell for one in figures if one.batches > 1))

    def check(self, query: str | None, cell: int, version: str) -> None:
        """Refuse to begin a cell of this query anew, if it has no state (no version) but should."""
        if not version and query == self.query and cell in self.cells:
            raise damaged_checkpoint(f"The state of cell {cell} is missing, or its progress.")


@dataclass(frozen=True)
class StoredCell:
    """All that a state backend holds of a cell."""

    progress: CellProgress
    manifest: CellManifest
    segments: Mapping[str, bytes]
    """By key, in the order of their rows."""

    @classmethod
    def read(cls, kept: Mapping[str, bytes], query: QueryFingerprint) -> StoredCell:
        """What was kept of a cell of this query.

        Raises if another query, or another version of midstream, kept it, or if a part of it is missing.
        """
        if (MANIFEST in kept) != (PROGRESS in kept):
            raise damaged_checkpoint(f"The {PROGRESS if MANIFEST in kept else MANIFEST} of a cell is missing.")
        manifest = decode(kept.get(MANIFEST, b"{}"), CellManifest, "the checkpoint", STATE_FORMAT, _REMEDY)
        query.check_same(manifest.query, "the checkpoint", "another checkpoint directory")
        progress = decode(kept.get(PROGRESS, b"{}"), CellProgress, "the checkpoint", STATE_FORMAT, _REMEDY)
        return cls(progress, manifest, {key: kept[key] for key in sorted(kept) if key.startswith(SEGMENT)})

    def check_intact(self, streams: Iterable[str], windows: int) -> None:
        """Refuse what is not as it was written, or is about other streams and windows than the query has."""
        stored = self.progress
        for name, message in ((PROGRESS, stored), (MANIFEST, self.manifest)):
            if not message.is_intact:
                raise damaged_checkpoint(f"The {name} of a cell is not what its checksum says.")
        if any(set(found) != set(streams) for found in (stored.streams, stored.time.latest)):
            raise damaged_checkpoint("The progress of a cell has other streams than its query.")
        if len(stored.windows) != windows:
            raise damaged_checkpoint(f"The progress of a cell has {len(stored.windows)} windows, its query {windows}.")

    def check_columns(self, columns: Mapping[str, list[str]]) -> None:
        """Refuse rows with other columns than the query reads: another version may plan the same query otherwise."""
        if self.manifest.columns != columns:
            raise CheckpointMismatch(
                "the checkpoint keeps other columns of the streams' rows than the query reads",
                detail=f"There: {self.manifest.columns}. Now: {columns}.",
                hint="Continue with the version of midstream that wrote it, or use another checkpoint directory.",
            )
