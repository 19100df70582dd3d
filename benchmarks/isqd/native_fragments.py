"""A baseline without midstream: a streaming query of Spark per fragment, with files in between.

Each device has a query that passes its rows on to the directory of its edge node, each query of the evaluation a
stream-stream join that reads what its devices passed on. All run in one Spark application. When a device moves, the
fragments that the change touches (the device's and the one that takes its rows, as in our deployment contexts) are
stopped and started again from their checkpoints.

    python -m benchmarks.isqd.native_fragments FOLDER QUERIES CHANGES QUIET_S EVERY_S ROUND_S

prints an ``Outcome`` as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.isqd.moving_devices import WINDOW_MS, Feeder, Latencies, MovingDevices, Outcome
from midstream.deployment.sites.durable_files import write_whole
from midstream.spark.session import session

SCHEMA = "ts long, k long"
SETTINGS = {
    "spark.sql.streaming.pollingDelay": "50ms",
    # With its usual stack, Java's regular expressions overflow it after some minutes, in threads of Spark's queries.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -Xss16m",
}


def write_parquet(path: Path, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    write_whole(path, sink.getvalue().to_pybytes())


class NativeFragments:
    """All streaming queries of a run."""

    def __init__(self, folder: Path, devices: MovingDevices) -> None:
        self.folder = folder
        self.devices = devices
        self.spark = session("local[2,4]", 1, SETTINGS)
        self.running: dict[str, StreamingQuery] = {}
        self.edges = {child: parent for child, parent in self._links()}
        self.calls = 0
        for query, own in devices.devices.items():
            for stream, sources in devices.sources(query).items():
                for device in sources:
                    self.feed(device, stream).mkdir(parents=True)
                self.passed_on(query, stream, "x").mkdir(parents=True)
            for device in own:
                self.start_source(query, device)
            self.start_join(query)

    def _links(self) -> list[tuple[str, str]]:
        return [(link.child, link.parent) for link in self.devices.topology.links()]

    def feed(self, device: str, stream: str) -> Path:
        return self.folder / "feeds" / device / stream

    def passed_on(self, query: str, stream: str, edge: str) -> Path:
        return self.folder / "edges" / query / stream / edge

    def results(self, query: str) -> Path:
        return self.folder / "results" / query

    def _start(self, name: str, rows: DataFrame, target: Path, prefix: str) -> None:
        def write(output: DataFrame, batch: int) -> None:
            table = output.toArrow()
            if table.num_rows:
                write_parquet(target / f"{prefix}-{batch:08d}.parquet", table)

        checkpoint = f"file://{self.folder}/checkpoints/{name}"
        self.running[name] = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()
        self.calls += 1

    def start_source(self, query: str, device: str) -> None:
        stream = next(stream for stream, own in self.devices.sources(query).items() if device in own)
        rows = self.spark.readStream.schema(SCHEMA).parquet(f"file://{self.feed(device, stream)}")
        self._start(device, rows, self.passed_on(query, stream, self.edges[device]), device)

    def start_join(self, query: str) -> None:
        sides = []
        for stream in "ab":
            rows = self.spark.readStream.schema(SCHEMA).parquet(f"file://{self.folder}/edges/{query}/{stream}/*")
            time_of = F.timestamp_millis("ts").alias(f"{stream}_time")
            side = rows.select(F.col("k").alias(f"{stream}_k"), time_of)
            sides.append(side.withWatermark(f"{stream}_time", "10 seconds"))
        span = F.expr(f"interval {WINDOW_MS} milliseconds")
        near = (F.col("a_time") <= F.col("b_time") + span) & (F.col("b_time") <= F.col("a_time") + span)
        joined = sides[0].join(sides[1], (F.col("a_k") == F.col("b_k")) & near).select(F.col("a_k").alias("k"))
        self._start(query, joined, self.results(query), "result")

    def change(self, number: int) -> None:
        """Stop and start what a change touches; returns when all of it has done a micro-batch."""
        moved = self.devices.moved(number)
        for event in self.devices.changes[number]:
            link = getattr(event, "link", None)
            if link is not None:
                self.edges[link.child] = link.parent
        touched = {query: [d for d in own if d in moved] for query, own in self.devices.devices.items()}
        names = [name for query, own in touched.items() if own for name in (*own, query)]
        for name in names:
            self.running[name].stop()
            self.calls += 1
        for query, own in touched.items():
            for device in own:
                self.start_source(query, device)
            if own:
                self.start_join(query)
        while any(self.running[name].lastProgress is None for name in names):
            self.check()
            time.sleep(0.02)

    def end(self) -> None:
        for query in self.running.values():
            query.stop()
        self.spark.stop()

    def check(self) -> None:
        for name, query in self.running.items():
            if query.exception() is not None:
                raise RuntimeError(f"{name}: {query.exception()}")

    def found(self, query: str) -> list[tuple[float, pa.Table]]:
        paths = sorted(self.results(query).glob("[!_]*.parquet"))
        return [(path.stat().st_mtime, pq.read_table(path)) for path in paths]


def run(folder: Path, queries: int, changes: int, quiet_s: float, every_s: float, round_s: float) -> Outcome:
    devices = MovingDevices(queries)
    native = NativeFragments(folder, devices)
    feeder = Feeder(
        devices, lambda d, s, n, table: write_parquet(native.feed(d, s) / f"{n:08d}.parquet", table), round_s
    )
    feeder.start()

    def latencies_so_far() -> Latencies:
        return Latencies.of(dict(feeder.arose), {query: native.found(query) for query in devices.devices})

    while not latencies_so_far().are_settled(time.time()):
        native.check()
        time.sleep(0.5)
    begun, calls, done = time.time(), native.calls, []
    time.sleep(quiet_s)
    quiet = begun, time.time()
    for number in range(changes):
        asked = time.time()
        native.change(number)
        done.append((asked, time.time()))
        time.sleep(max(0.0, asked + every_s - time.time()))
    feeder.end()
    calls = native.calls - calls
    until = time.time() + 90
    while (latencies := latencies_so_far()).missing and time.time() < until:
        native.check()
        time.sleep(0.5)
    native.end()
    # A fragment is stopped and started: two calls, one fragment.
    return Outcome.of(latencies, quiet, done, (calls / 2, calls))


if __name__ == "__main__":
    numbers = sys.argv[2:]
    outcome = run(Path(sys.argv[1]), int(numbers[0]), int(numbers[1]), *(float(number) for number in numbers[2:]))
    print(json.dumps(asdict(outcome)))
