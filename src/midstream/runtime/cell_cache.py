"""The cells whose derived state is in this process: one micro-batch of one cell, from one version to the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import msgspec
import pyarrow as pa

from midstream.runtime.durable_cell import DurableCell
from midstream.runtime.messages import CellFigures, Command
from midstream.runtime.pack import Pack
from midstream.runtime.state_backend import StateBackend

__all__ = ["CellCache"]

FORGET_SECONDS = 600.0
"""A cell that has not worked here for so long is dropped; the next batch would restore it."""


class CellCache:
    """Cells by a key, each with the version of the progress it belongs to."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, int], DurableCell] = {}
        self._worked: dict[tuple[str, int], float] = {}

    def work(
        self,
        key: tuple[str, int],
        version: str,
        make: Callable[[], DurableCell],
        backend: StateBackend,
        commands: Iterable[Command],
        packs: Iterable[Pack | bytes],
    ) -> Iterator[pa.RecordBatch | CellFigures]:
        """The results of a micro-batch, and last the cell's figures, after what changed was put in the state backend.

        The cell is restored if it is not here with this version. It is taken out while it works: an attempt that fails,
        or is given up, leaves nothing half-done behind.
        """
        began = time.perf_counter()
        self._forget()
        durable = self._cells.pop(key, None)
        if durable is None or durable.version != version:
            # Not two at a time.
            durable = None
            durable = make()
        yield from durable.work(commands, packs)
        durable.save(backend)
        self._cells[key] = durable
        self._worked[key] = time.monotonic()
        yield msgspec.structs.replace(durable.figures(), seconds=time.perf_counter() - began)
        durable.rebuild_seconds = None

    def _forget(self) -> None:
        """Drop cells that work elsewhere now, or whose query has ended."""
        for key in [key for key, worked in self._worked.items() if time.monotonic() - worked > FORGET_SECONDS]:
            del self._worked[key]
            self._cells.pop(key, None)
