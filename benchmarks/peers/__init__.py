"""J4 through midstream on Spark and through what else there is: one command, one table.

``python -m benchmarks.peers`` makes the environments it needs, runs every competitor in a process of its own, one
after the other, and writes ``results/peers.json`` and the table of the README. All read the same parquet files (four
streams, twelve files each, one per batch) and produce all twelve columns of every result. What the columns mean:

- *steady rows/s*: input rows per second once windows are full. Where the engine runs micro-batches: the rows of a batch
  by the median duration of the batches after the fourth. Where it does not: the rows of the last eight batches by the
  time that a run over twelve takes longer than a run over the first four, so that starting up counts for nobody.
- *rows/s*, *results/s*: of the whole run, from the moment the engine is up to the last result; reading is within.
- *seconds*: of the query as above, and of the whole process from its start to its end.
- *memory*: the peak of all the competitor's processes together (proportional set size, sampled). A JVM takes what it is
  allowed: all of them may take 6 GB of heap.
- *missing, repeated, wrong*: results compared with DuckDB's row by row, from a second run that writes them to files. On
  the large size Spark's own joins would take too long for that: there their results are only counted.

``python -m benchmarks.peers --durable`` is the same with sinks that keep every result exactly once (``contest``): the
results of the timed run itself are compared, row by row, of everybody.
"""
