"""The process that writes the input: a file of each stream every 240 ms, once the competitor has started.

A file is written under a hidden name before its time, and renamed when it has come. Its rows have event times of the
240 ms before, in order. When each file was renamed is kept, with the files themselves, for the arithmetic afterwards.
With Kafka the same rows are sent then; the time kept is the one before sending.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from benchmarks.latency.load import (
    COOL_DOWN_SECONDS,
    EVERY_MS,
    LONGEST_WARM_UP_SECONDS,
    STREAMS,
    WARM_UP_COMMITS,
    Load,
)
from benchmarks.latency.stages import has_started, tell_written
from benchmarks.latency.visibility import commits, visible_files
from benchmarks.peers.task import Task, serve

HEADSTART_SECONDS = 0.5
LOOK_EVERY_FILES = 20
"""How often to look whether the engine is warm."""


def run(task: Task) -> dict[str, Any]:
    """Write the files of ``options["load"]``; gives when each was renamed, and when the time that counts began.

    With ``options["broker"]`` send their rows to it.
    """
    load = Load(**task.options["load"])
    random = np.random.default_rng(load.rate)
    topics = Topics(task.options["broker"]) if "broker" in task.options else None
    folders = {stream: Path(task.inputs) / stream for stream in STREAMS}
    while not has_started(task):
        time.sleep(0.1)
    began_ms = round((time.time() + HEADSTART_SECONDS) * 1000)
    renamed: dict[str, list[float]] = {stream: [] for stream in STREAMS}
    latest = 0.0
    measured_from = None
    for number in count():
        hidden, messages = {}, {}
        for stream, folder in folders.items():
            hidden[stream] = folder / f".{number:05}.{load.suffix}"
            table = rows(load, number, began_ms, random)
            write(table, hidden[stream])
            if topics is not None:
                messages[stream] = as_messages(table)
        due = (began_ms + (number + 1) * EVERY_MS) / 1000
        time.sleep(max(0.0, due - time.time()))
        latest = max(latest, time.time() - due)
        for stream, path in hidden.items():
            path.rename(path.with_name(path.name[1:]))
            renamed[stream].append(time.time())
        if topics is not None:
            topics.send(messages)
        if measured_from is None:
            if number % LOOK_EVERY_FILES == 0 and is_warm(due - began_ms / 1000, load, Path(str(task.output))):
                measured_from = due
        elif due >= measured_from + load.measured + COOL_DOWN_SECONDS:
            break
    tell_written(task)
    return {"measured from": measured_from, "renamed": renamed, "latest": latest}


def is_warm(seconds: float, load: Load, output: Path) -> bool:
    """Whether what follows counts, so many seconds after the load began."""
    longest = max(load.warm_up, LONGEST_WARM_UP_SECONDS)
    if seconds < load.warm_up:
        return False
    return seconds >= longest or len(commits(visible_files(output))) >= WARM_UP_COMMITS


def rows(load: Load, number: int, began_ms: int, random: np.random.Generator) -> pa.Table:
    """The rows of one file: event times are spread over its interval."""
    places = np.arange(load.rows_per_file)
    times = began_ms + number * EVERY_MS + places * EVERY_MS // load.rows_per_file
    keys = random.integers(0, load.keys, load.rows_per_file)
    return pa.table({"ts": times, "k": keys, "v": (number * load.rows_per_file + places).astype(np.float64)})


def write(table: pa.Table, path: Path) -> None:
    """Write a file of the form that its name ends with."""
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        csv.write_csv(table, path, csv.WriteOptions(include_header=False))


def as_messages(table: pa.Table) -> list[bytes]:
    """The rows as JSON."""
    columns = (table[name].to_pylist() for name in ("ts", "k", "v"))
    return [b'{"ts":%d,"k":%d,"v":%d}' % row for row in zip(*columns, strict=True)]


class Topics:
    """The topics of a broker, one for each stream, of one partition."""

    def __init__(self, broker: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})

    def send(self, messages: Mapping[str, list[bytes]]) -> None:
        """Send them in order, and wait until the broker has them."""
        for topic, values in messages.items():
            for value in values:
                self._producer.produce(topic, value, partition=0)
        self._producer.flush()


if __name__ == "__main__":
    serve({"run": run})
