"""From an event in a file to its result in the sink: how long it takes at a given rate, here and elsewhere.

``python -m benchmarks latency`` feeds three streams to midstream on Spark, to Spark's own stream-stream joins and to
Flink, one after the other, each in a process of its own, at 1,000 and 50,000 rows per second (of all streams together);
about 35 minutes. ``python -m benchmarks.latency --only flink --rate 1000`` runs a part, and only prints.

- *The input*: another process writes a file of each stream every 240 ms and renames it when it is complete. Event
  times come from the wall clock. Spark gets parquet, Flink CSV, because its Python package reads no parquet.
- *The query*: rows of three streams with equal keys, at most 10 s apart, all nine columns; one result for four input
  rows, so that sinks have little to do.
- *The sink* is durable, and has each result exactly once: a Delta table by the cells, parquet by Spark, CSV files by
  Flink.
- *Latency* of a result: from the moment its last row's file was renamed to the moment the result became visible to a
  reader: the entry of the table's log, the entry of Spark's log of the sink, the file that Flink renamed when a
  checkpoint was complete. Both are taken from one clock, that of the file system and the machine.
- The first minute is not counted: windows fill, Java compiles. Percentiles are over the results of the next minute,
  the load goes on for a little longer. Then every result is compared with DuckDB's.
- An engine *does not keep up* if its backlog grows: if the median latency of the last quarter of that minute is 1.5
  times that of the first, and a second longer, or if results are missing in the end. It has no percentiles then.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> bool:
    """Measure all; whether all bars are met."""
    from benchmarks.latency.comparison import compare

    return compare()
