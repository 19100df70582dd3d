"""What midstream asks of Spark's Python workers, which outlive the tasks they work on."""

from __future__ import annotations

import gc

__all__ = ["freeze_loaded"]


def freeze_loaded() -> None:
    """Tell Python that what is loaded by now stays; only the first call in a process does anything.

    After each task, a worker looks through all its objects for garbage, and most of them belong to libraries. To be
    called before a cell is made, whose objects are garbage one day.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
