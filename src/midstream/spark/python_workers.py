"""Settings of Spark's Python workers, which outlive the tasks they run."""

from __future__ import annotations

import gc

__all__ = ["freeze_loaded"]


_IS_FROZEN = False


def freeze_loaded() -> None:
    """Exclude all objects loaded so far from garbage collection; only the first call in a process has an effect.

    After each task, a worker searches all its objects for garbage, and most of them belong to libraries. Call this
    before a cell is created, since a cell's objects do become garbage.
    """
    global _IS_FROZEN
    # Python could tell, but counts every frozen object to do so: about 20 ms.
    if not _IS_FROZEN:
        _IS_FROZEN = True
        gc.collect()
        gc.freeze()
