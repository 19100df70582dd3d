"""What midstream asks of Spark's Python workers, which outlive the tasks they work on."""

from __future__ import annotations

import gc

__all__ = ["freeze_loaded"]


_IS_FROZEN = False


def freeze_loaded() -> None:
    """Tell Python that what is loaded by now stays; only the first call in a process does anything.

    After each task, a worker looks through all its objects for garbage, and most of them belong to libraries. To be
    called before a cell is made, whose objects are garbage one day.
    """
    global _IS_FROZEN
    # Python could be asked, but counts every frozen object for that: about 20 ms.
    if not _IS_FROZEN:
        _IS_FROZEN = True
        gc.collect()
        gc.freeze()
