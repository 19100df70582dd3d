"""Names of result files: who wrote a file, and for which micro-batch, so that anybody can see what it is for.

    midstream-APPLICATION-EPOCH-BATCH-CELL-UNIQUE.parquet

The last part is random: a task that is tried again, or twice at once, writes other files each time. A file of a
backfill has ``backfill`` in place of the epoch, and batch 0.

>>> name = FileName("9f" * 16, 3, 41, 0).new()
>>> FileName.parsed(name) == FileName("9f" * 16, 3, 41, 0)
True
>>> FileName.parsed("part-00000.snappy.parquet") is None
True
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

__all__ = ["FileName", "application_of", "transaction_id"]

_NAME = re.compile(r"midstream-([0-9a-f]{32})-(\d+|backfill)-(\d+)-(\d+)-[0-9a-f]{32}\.parquet")


@dataclass(frozen=True)
class FileName:
    """What a file's name says."""

    application: str
    """32 hexadecimal digits: those of Spark's id of the streaming query, which stays with its checkpoint."""
    epoch: int | None
    """Which of the table's writers this was, see ``commits``; None: a backfill."""
    batch: int
    cell: int

    @classmethod
    def parsed(cls, name: str) -> FileName | None:
        """What the name or path says; None if it is not that of one of our files."""
        matched = _NAME.fullmatch(name.rpartition("/")[2])
        if matched is None:
            return None
        epoch = None if matched[2] == "backfill" else int(matched[2])
        return cls(matched[1], epoch, int(matched[3]), int(matched[4]))

    def new(self) -> str:
        """A name that no file has."""
        epoch = "backfill" if self.epoch is None else self.epoch
        return f"midstream-{self.application}-{epoch}-{self.batch}-{self.cell}-{uuid.uuid4().hex}.parquet"


def application_of(query: str | None) -> str:
    """The application that a streaming query is, by Spark's id of the query."""
    assert query is not None, "Spark tells every task which streaming query it is of"
    return query.replace("-", "")


def transaction_id(application: str, is_backfill: bool = False) -> str:
    """The id under which an application's transactions are in the table's log."""
    return f"midstream-backfill-{application}" if is_backfill else f"midstream-{application}"
