"""Names of result files: they state which writer wrote a file, and for which micro-batch.

    midstream-APPLICATION-EPOCH-BATCH-CELL-UNIQUE.parquet

The last part is random, so that each attempt of a task writes different files, also if two run at once. A file of a
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
    """The parts of a file name."""

    application: str
    """32 hexadecimal digits: those of Spark's id of the streaming query, which stays with its checkpoint."""
    epoch: int | None
    """The epoch of the table's writer, see ``commits``; None for a backfill."""
    batch: int
    cell: int

    @classmethod
    def parsed(cls, name: str) -> FileName | None:
        """Parse a name or path; None if it is not that of a midstream file."""
        matched = _NAME.fullmatch(name.rpartition("/")[2])
        if matched is None:
            return None
        epoch = None if matched[2] == "backfill" else int(matched[2])
        return cls(matched[1], epoch, int(matched[3]), int(matched[4]))

    def new(self) -> str:
        """A new, unique name."""
        epoch = "backfill" if self.epoch is None else self.epoch
        return f"midstream-{self.application}-{epoch}-{self.batch}-{self.cell}-{uuid.uuid4().hex}.parquet"


def application_of(query: str | None) -> str:
    """The application id of a streaming query, from Spark's id of the query."""
    assert query is not None, "Spark tells every task which streaming query it is of"
    return query.replace("-", "")


def transaction_id(application: str, is_backfill: bool = False) -> str:
    """The id of an application's transactions in the table's log."""
    return f"midstream-backfill-{application}" if is_backfill else f"midstream-{application}"
