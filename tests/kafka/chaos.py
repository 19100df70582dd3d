"""Two topics are joined into a third while the broker and the driver are killed and the plan migrates all the time.

A *conductor* runs a broker, sends messages (some of them bad), kills, and starts again what it killed; the *driver* is
``midstream run`` with a Kafka source for each topic and a Kafka sink, and resumes by its control directory. Killed with
``kill -9``: the broker, which is started again a few seconds later; the driver with its JVM, at any moment, and when it
has sent half of a micro-batch (*amid*) or all of it (*after*), but Spark has not committed it. Meanwhile the conductor
submits another plan again and again, as ``midstream migrate`` does.

At the end every result that DuckDB finds in the input topics must be in the output topic at least once, and exactly
once after repeats were dropped by their headers; and every bad message must have been counted.

    python -m tests.kafka.chaos --kills 12
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from midstream import Stream
from midstream.errors import MidstreamError
from midstream.kafka import RepeatFilter
from midstream.runtime.remote import RemoteQuery
from midstream.testing import compare_bags, join_intervals
from tests.kafka.broker import Broker
from tests.kafka.packages import connector_jars

ROOT = Path(__file__).parent.parent.parent
TEXT = (
    "SELECT o.id AS o, p.id AS p, q.id AS q FROM orders [RANGE 60] o, payments [RANGE 60] p, payments [RANGE 40] q "
    "WHERE o.k = p.k AND p.k = q.k"
)
SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "id": pa.int64()})
PARTITIONS = {"orders": 3, "payments": 2, "results": 3}
ORDERS = ("(o p) q", "o (p q)", "(o q) p")
STRATEGIES = ("jisc", "moving-state", "gen-mig")
MOMENTS = ("amid", "after")
VICTIMS = ("broker", "amid", "driver", "broker", "after")
BAD = b'{"ts": 1, "k": "'
"""A message that cannot be decoded."""
ROWS, TICKS, KEYS = 60, 50, 40
"""Of each topic and round, and how many ticks a round takes."""


def drive(directory: Path, arguments: list[str]) -> None:
    """``midstream run``, but it waits for its death where the conductor asks for it."""
    from midstream.cli.app import main
    from midstream.spark.kafka_sink import KafkaSink

    send = KafkaSink._send

    def stopping(self, messages):  # type: ignore[no-untyped-def]
        asked = [moment for moment in MOMENTS if (directory / f"stop {moment}").exists()]
        send(self, messages.where("crc32(value) % 2 = 0") if "amid" in asked else messages)
        for moment in asked:
            (directory / f"stopped {moment}").touch()
            time.sleep(3600)

    KafkaSink._send = stopping  # type: ignore[method-assign]
    sys.argv = ["midstream", *arguments]
    main()


class Conductor:
    """Sends, kills, starts again, migrates, compares."""

    def __init__(self, directory: Path, victims: list[str], seed: int = 1, cells: int = 1) -> None:
        self.directory = directory
        self.victims = victims
        self.cells = cells
        self.chance, self.random = random.Random(seed), np.random.default_rng(seed)
        self.broker = Broker(directory / "broker")
        self.control = directory / "run.control"
        self.driver: subprocess.Popen[bytes] | None = None
        self.drivers = self.rounds = self.bad = 0
        self.killed = dict.fromkeys(victims, 0)
        self._is_over = threading.Event()
        self._began = time.monotonic()

    def run(self) -> dict[str, object]:
        """Everything, from the first message to the comparison."""
        try:
            with self.broker:
                for name, partitions in PARTITIONS.items():
                    self.broker.create(name, partitions)
                migrating = threading.Thread(target=self._migrate_all_the_time, daemon=True)
                self._send(4)
                migrating.start()
                for victim in self.victims:
                    self._go_on()
                    self._kill(victim)
                self._go_on()
                self._is_over.set()
                migrating.join()
                self._end_streams()
                return self._compare()
        finally:
            self._is_over.set()
            self._kill_driver()

    def _send(self, rounds: int) -> None:
        """Messages of both topics, spread over their partitions but one of orders, which stays idle; some bad ones."""
        for _ in range(rounds):
            for name in ("orders", "payments"):
                partitions = PARTITIONS[name] - (name == "orders")
                times = np.sort(self.random.integers(0, TICKS, ROWS)) + self.rounds * TICKS
                keys = self.random.integers(0, KEYS, ROWS)
                rows = [
                    {"ts": int(ts), "k": int(k), "id": self.rounds * ROWS + place}
                    for place, (ts, k) in enumerate(zip(times, keys, strict=True))
                ]
                for partition in range(partitions):
                    self.broker.send(name, [*rows[partition::partitions], BAD], partition)
                    self.bad += 1
            self.rounds += 1

    def _go_on(self) -> None:
        """Let the query complete some micro-batches with rows, whatever has to be started again for that."""
        begun = self._batches()
        until = time.monotonic() + 240
        sent_at = None
        while self._batches() < begun + 2:
            assert time.monotonic() < until, self._log()
            if self.driver is None or self.driver.poll() is not None:
                self._start_driver()
            if sent_at != self._batches():
                sent_at = self._batches()
                self._send(2)
            time.sleep(0.3)
        time.sleep(self.chance.uniform(0, 1.5))

    def _batches(self) -> int:
        commits = self.directory / "run.checkpoint" / "commits"
        return max((int(path.name) for path in commits.glob("[0-9]*")), default=-1) if commits.exists() else -1

    def _start_driver(self, *options: str) -> None:
        self.drivers += 1
        asked = ["run", "-q", TEXT, "--control", str(self.control), "--cells", str(self.cells), "--lateness", "1000"]
        for name in ("orders", "payments"):
            asked += ["-s", f"{name}=kafka:{self.broker.topic(name)}", "--schema", f"{name}=ts long, k long, id long"]
        asked += [
            "--sink",
            f"kafka:{self.broker.topic('results')}",
            "--conf",
            f"spark.jars={','.join(connector_jars())}",
        ]
        command = [sys.executable, "-m", "tests.kafka.chaos", "--drive", str(self.directory), "--", *asked, *options]
        places = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
        with open(self.directory / f"driver-{self.drivers}.log", "wb") as log:
            self.driver = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def _kill(self, victim: str) -> None:
        if victim == "broker":
            self.broker.kill()
            time.sleep(self.chance.uniform(0.5, 4))
            self.broker.start()
        else:
            if victim in MOMENTS and not self._stopped(victim):
                return
            self._kill_driver()
        self.killed[victim] += 1
        seconds = time.monotonic() - self._began
        print(f"{seconds:.0f} s, {self._batches() + 1} micro-batches: killed, {victim}", flush=True)

    def _stopped(self, moment: str) -> bool:
        """Have the driver stop at a moment of a micro-batch; false if it died of something else."""
        asked, stopped = self.directory / f"stop {moment}", self.directory / f"stopped {moment}"
        stopped.unlink(missing_ok=True)
        asked.touch()
        until = time.monotonic() + 120
        while not stopped.exists() and self.driver.poll() is None and time.monotonic() < until:
            self._send(1)
            time.sleep(1)
        asked.unlink()
        return stopped.exists()

    def _kill_driver(self) -> None:
        if self.driver is None or self.driver.poll() is not None:
            return
        process = psutil.Process(self.driver.pid)
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self.driver.wait()

    def _migrate_all_the_time(self) -> None:
        while not self._is_over.wait(self.chance.uniform(0.3, 1.5)):
            # There may be no query yet.
            is_running = self.driver is not None and self.driver.poll() is None
            with contextlib.suppress(MidstreamError, OSError):
                if is_running:
                    RemoteQuery(self.control).migrate(self.chance.choice(ORDERS), self.chance.choice(STRATEGIES))

    def _end_streams(self) -> None:
        """Stop the query, and let it come to its end."""
        assert self.driver is not None
        self.driver.send_signal(signal.SIGTERM)
        self.driver.wait(120)
        for _ in range(3):
            self._start_driver("--until-end")
            if self.driver.wait(300) == 0:
                return
        raise AssertionError(self._log())

    def _log(self) -> str:
        return (self.directory / f"driver-{self.drivers}.log").read_text()[-3000:]

    def _compare(self) -> dict[str, object]:
        tables = {name: pa.Table.from_pylist(list(self._rows(name)), SCHEMA) for name in ("orders", "payments")}
        expected = join_intervals(TEXT, [Stream(name, SCHEMA, "ts") for name in tables], tables)
        messages = self.broker.messages("results")
        repeats = RepeatFilter()
        kept = [json.loads(one.value) for one in messages if repeats.is_new(one.partition, one.headers)]
        found = pa.Table.from_pylist(kept, expected.schema)
        difference = compare_bags(found, expected)
        everything = pa.Table.from_pylist([json.loads(one.value) for one in messages], expected.schema)
        status = RemoteQuery(self.control).status()
        assert status is not None
        states = [entry.outcome.state for entry in status.history]
        # The report lists the latest, and of others only which there were.
        states += [state for state, numbers in status.earlier.items() for _ in numbers]
        return {
            "input messages": sum(map(len, tables.values())),
            "expected": len(expected),
            "messages": len(messages),
            "missing among messages": compare_bags(everything, expected).missing,
            "missing": difference.missing,
            "repeated": difference.repeated,
            "unexpected": difference.unexpected,
            "bad messages sent": self.bad,
            "bad messages counted": sum(counts.bad_messages for counts in status.metrics.streams.values()),
            "late": sum(counts.late for counts in status.metrics.streams.values()),
            "killed": self.killed,
            "drivers": self.drivers,
            "batches": self._batches() + 1,
            "migrations": {state: states.count(state) for state in sorted(set(states))},
        }

    def _rows(self, topic: str):  # type: ignore[no-untyped-def]
        return (json.loads(one.value) for one in self.broker.messages(topic) if one.value != BAD)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--cells", type=int, default=2)
    parser.add_argument("--drive", type=Path)
    parser.add_argument("arguments", nargs="*")
    asked = parser.parse_args()
    if asked.drive is not None:
        drive(asked.drive, asked.arguments)
        return
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(asked.kills)]
    with tempfile.TemporaryDirectory(prefix="midstream-kafka-chaos-") as directory:
        began = time.monotonic()
        report = Conductor(Path(directory), victims, asked.seed, asked.cells).run()
    report |= {"seed": asked.seed, "seconds": round(time.monotonic() - began)}
    print(json.dumps(report, indent=1))
    counts = [report[name] for name in ("missing among messages", "missing", "repeated", "unexpected", "late")]
    is_exact = not any(counts) and report["bad messages sent"] == report["bad messages counted"]
    sys.exit(0 if is_exact else "the results differ")


if __name__ == "__main__":
    main()
