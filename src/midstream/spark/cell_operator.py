"""The stateful operator: Spark calls it once per cell and micro-batch.

When a query starts, Spark asks the operator which state it keeps, in a process that it starts for this purpose alone.
So the operator's work (``cell_work``) and its libraries are loaded only where the first rows arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructType

if TYPE_CHECKING:
    import pandas as pd

    from midstream.spark.cell_work import CellWork

__all__ = ["CellOperator"]

# Not as strings, which Spark would have to parse in Java for every micro-batch.
_NAME = StructType().add("name", StringType())
_VALUE = StructType().add("value", BinaryType())


class CellOperator(StatefulProcessor):
    """Keeps the state of cells, and passes their rows to ``work``."""

    def __init__(self, work: CellWork) -> None:
        self._work = cloudpickle.dumps(work)  # type: ignore[no-untyped-call]

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getMapState("kept", _NAME, _VALUE)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        from midstream.spark.cell_work import SparkStateBackend

        # Not kept between tasks: it holds the task's accumulator.
        work: CellWork = cloudpickle.loads(self._work)
        yield from work(int(key[0]), rows, SparkStateBackend(self._state))

    def close(self) -> None:
        pass
