"""A query that migrates again and again while its processes are killed; then its result is compared with DuckDB's.

``make chaos`` runs it on a standalone cluster (a master and two workers of one core on this machine) and on one machine
with several cells. A *conductor* writes input, kills at random moments and starts the driver again when it is dead; the
*driver* runs the query into a parquet sink and asks for another plan all the time. Killed with ``kill -9``: Python
workers, hosts of cells, executors, the driver with its JVM. At the end no row may be missing and none repeated.

There are two queries: ``joins``, a join of four streams, whose results are compared row by row; and ``aggregates``,
aggregates and differences over sliding windows united with other rows, which are final up to different instants. Their
results are compared at every instant, and missing and repeated rows are counted once for each.

With ``--sink delta`` results go to a Delta table. Then drivers are also killed between the writing of a micro-batch's
files and its commit, and between this and Spark's own (``chaos_delta``). A second driver on the table, with another
checkpoint, must stop with a message; at the end no file may be left that the table does not name.

With ``--source files`` midstream reads the input itself, not Spark; with ``--cells 1`` the cell does.

With ``--just-in-time`` the query starts with just-in-time processing, which is switched off and on again now and then.
With ``--adapt auto`` it changes its plan by itself, for any gain, however uncertain; now and then a person changes it,
and asks it to adapt again. At the end every decision must be there, once.

    python -m tests.spark.chaos --kills 20 --where cluster --query aggregates
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from midstream import ContinuousQuery, JustInTime, Stream
from midstream.adaptation import Adaptation
from midstream.algebra.plan import Plan
from midstream.planning.cost import CostCoefficients
from midstream.testing import STRATEGIES, snapshots
from tests.spark import chaos_delta

ROOT = Path(__file__).parent.parent.parent

STREAMS = "abcd"
TICKS = 300
"""Of each stream and file; a file is a micro-batch's worth."""
WIDTH = 400
ORDERS = ["((a b) c) d", "a (b (c d))", "(a c) (b d)", "((d c) b) a", "(a d) (b c)"]
TAKEOVERS = ["jisc", "moving-state"]
SPLITS = ["coalesce", "positive-negative, shortened"]
SWITCHES = [True, True, False, JustInTime(detection="exact", least_share=0.0, trial_rows=50)]
NERVOUS = Adaptation(
    sample_rows=64,
    measure_every=0,
    measure_share=1e6,
    least_rows=1,
    deviations=0,
    least_gain=1,
    least_saving=0,
    regret=0,
    longest_pause=1e6,
    coefficients=CostCoefficients(),
)
"""Changes the plan as often as it can."""


@dataclass(frozen=True)
class Workload:
    """A query, its input and the migrations that it goes through."""

    text: str
    columns: tuple[str, str]
    rows: int
    """Per stream and file."""
    keys: int
    strategies: list[str]
    """By their labels in ``STRATEGIES``."""
    orders: tuple[str, ...] = ()
    """Join orders to change between; else all plans are."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema({name: pa.int64() for name in ("ts", *self.columns)})

    @property
    def streams(self) -> list[Stream]:
        return [Stream(name, self.schema, event_time="ts") for name in STREAMS]

    def query(self) -> ContinuousQuery:
        return ContinuousQuery(self.text, self.streams)

    def plans(self) -> list[Plan]:
        query = self.query()
        return [query.plan(order) for order in self.orders] or list(islice(query.plans(), 12))


WORKLOADS = {
    "joins": Workload(
        "SELECT a.id AS a, b.id AS b, c.id AS c, d.id AS d "
        f"FROM a [RANGE {WIDTH}], b [RANGE {WIDTH}], c [RANGE {WIDTH}], d [RANGE {WIDTH}] "
        "WHERE a.k = b.k AND b.k = c.k AND c.k = d.k",
        ("k", "id"),
        rows=300,
        keys=300,
        strategies=[*TAKEOVERS, "parallel-track", *SPLITS, "reference-point"],
        orders=tuple(ORDERS),
    ),
    "aggregates": Workload(
        "SELECT b.k, SUM(a.v) AS n FROM a [RANGE 400 SLIDE 40], b [RANGE 500] WHERE a.k = b.k GROUP BY b.k "
        "UNION SELECT c.k, x.n FROM c [RANGE 450], d [RANGE 300], "
        "(SELECT k, COUNT(*) AS n FROM a [RANGE 350 SLIDE 70] GROUP BY k "
        "EXCEPT ALL SELECT DISTINCT k, v FROM b [RANGE 200 SLIDE 50]) x WHERE c.k = x.k AND c.k = d.k",
        ("k", "v"),
        rows=60,
        keys=12,
        strategies=[*TAKEOVERS, *SPLITS, "jisc as published", "coalesce, shortened"],
    ),
}


# The driver


def drive(
    directory: Path,
    master: str,
    cells: int,
    seed: int,
    workload: Workload,
    just_in_time: bool = False,
    adapts: bool = False,
    sink: str = "parquet",
    source: str = "spark",
    rival: str = "",
) -> None:
    """Run the query until the conductor says that the input is complete, with a new plan for every other batch."""
    from midstream.spark import FileStream, session

    spark = session(
        master,
        cells,
        {
            "spark.task.maxFailures": "20",
            "spark.executor.cores": "1",
            "spark.executor.memory": "1g",
            "spark.deploy.maxExecutorRetries": "-1",
            "spark.excludeOnFailure.enabled": "false",
        },
    )
    columns = ", ".join(f"{column} long" for column in workload.schema.names)
    frames: dict[str, Any] = {}
    for name in STREAMS:
        folder = str(directory / "in" / name)
        if source == "files":
            frames[name] = FileStream(spark, folder, columns, files_per_batch=1)
        else:
            frames[name] = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(folder)
    plans = workload.plans()
    live = workload.query().run_on_spark(
        frames,
        plan=plans[0],
        control_dir=directory / f"{rival}control",
        cells=cells,
        just_in_time=just_in_time,
        adapt=NERVOUS if adapts else None,
    )
    out, checkpoint = str(directory / "out"), str(directory / f"{rival}checkpoint")
    if sink == "delta":
        chaos_delta.stop_where_asked(directory)
        running = live.write_delta(out, checkpoint)
        assert running is not None
    else:
        running = live.results.writeStream.format(sink).option("checkpointLocation", checkpoint).start(out)
    chance = random.Random(seed)
    while not (directory / "complete").exists():
        if not running.isActive:
            running.awaitTermination()
        if just_in_time and chance.random() < 0.2:
            live.switch_just_in_time(chance.choice(SWITCHES))
        elif not adapts or chance.random() < 0.03:
            strategy, options = STRATEGIES[chance.choice(workload.strategies)]
            live.migrate(chance.choice(plans), strategy, **options)
        elif chance.random() < 0.1:
            live.adapt(NERVOUS)
        time.sleep(chance.uniform(0.1, 1.5))
    running.processAllAvailable()
    live.finish()
    running.processAllAvailable()
    running.stop()
    if sink == "delta":
        table = chaos_delta.results(directory / "out")
    else:
        table = pa.Table.from_pandas(spark.read.parquet(out).toPandas(), preserve_index=False)
    pq.write_table(table, directory / "result.parquet")
    (directory / "history.json").write_text(json.dumps([migration.state for migration in live.history()]))
    numbers = [decision.number for decision in live.decisions()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else not adapts, numbers
    own = [migration.decision for migration in live.history() if migration.decision is not None]
    assert sorted(set(own)) == own, "a decision was carried out twice"
    (directory / "decisions.json").write_text(json.dumps({"decisions": len(numbers), "changes": len(own)}))
    spark.stop()


# The conductor


class Conductor:
    """Writes input, kills, starts the driver again, compares."""

    def __init__(
        self,
        directory: Path,
        where: str,
        kills: int,
        seed: int,
        victims: list[str] | None = None,
        query: str = "joins",
        just_in_time: bool = False,
        adapts: bool = False,
        sink: str = "parquet",
        rivals: bool = False,
        source: str = "spark",
        cells: int = 2,
    ) -> None:
        self.directory = directory
        self.sink, self.source, self.cells = sink, source, cells
        self.adapts = adapts
        self.query, self.workload, self.just_in_time = query, WORKLOADS[query], just_in_time
        self.where = where
        self.kills = kills
        # A cell that is alone on a machine has no host: it lives in a worker.
        others = ["executor"] if where == "cluster" else ["host"] if cells > 1 else []
        moments = chaos_delta.MOMENTS if sink == "delta" else ()
        self.victims = victims or ["worker", *others, "driver", *moments]
        self.chance = random.Random(seed)
        self.random = np.random.default_rng(seed)
        self.seed = seed
        self.files = 0
        self.killed: dict[str, int] = dict.fromkeys(self.victims, 0)
        self.drivers = 0
        self.driver: subprocess.Popen[bytes] | None = None
        self.servers: list[subprocess.Popen[bytes]] = []
        self.rivals = rivals
        self.master = "local[2,20]"
        for name in STREAMS:
            (directory / "in" / name).mkdir(parents=True)

    def run(self) -> dict[str, object]:
        """Everything, from the first file to the comparison."""
        try:
            if self.where == "cluster":
                self._start_cluster()
            self._write_files(4)
            while sum(self.killed.values()) < self.kills:
                self._keep_going()
                self._wait(self.chance.uniform(0.5, 4.0))
                self._kill(self.victims[sum(self.killed.values()) % len(self.victims)])
            self._keep_going()
            if self.rivals:
                self._wait(0)
                self._start_rival()
            self._write_files(2)
            (self.directory / "complete").touch()
            for _ in range(20):
                self._keep_going()
                assert self.driver is not None
                if self.driver.wait(timeout=600) == 0:
                    break
            return self._compare()
        finally:
            self._end()

    def _wait(self, seconds: float) -> None:
        """Let the query work for a while; it is never without input."""
        progress = self._batches()
        until = time.monotonic() + 90
        # A kill is of use only if something happens between two.
        while self._batches() <= progress and time.monotonic() < until:
            self._keep_going()
            time.sleep(0.2)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.files - self._batches() < 6:
                self._write_files(1)
            time.sleep(0.3)

    def _batches(self) -> int:
        commits = self.directory / "checkpoint" / "commits"
        return max((int(path.name) for path in commits.glob("[0-9]*")), default=-1) if commits.exists() else -1

    def _write_files(self, count: int) -> None:
        for _ in range(count):
            for name in STREAMS:
                hidden = self.directory / "in" / name / f"_{self.files:06d}"
                pq.write_table(self._rows(), hidden)
                os.utime(hidden, (10**9 + self.files, 10**9 + self.files))
                hidden.rename(hidden.with_name(f"{self.files:06d}.parquet"))
            self.files += 1

    def _rows(self) -> pa.Table:
        """Rows of one stream and file: in "joins" each has a number, in "aggregates" a small value."""
        rows = self.workload.rows
        times = np.sort(self.random.integers(0, TICKS, rows)) + self.files * TICKS
        keys = self.random.integers(0, self.workload.keys, rows)
        numbers = np.arange(rows) + self.files * rows
        values = numbers if self.query == "joins" else self.random.integers(1, 9, rows)
        return pa.table([times, keys, values], schema=self.workload.schema)

    def _keep_going(self) -> None:
        if self.driver is not None and self.driver.poll() in (None, 0):
            return
        if self.driver is not None:
            self._kill_tree(self.driver.pid)
        self.drivers += 1
        self.driver = self._start_driver(f"driver-{self.drivers}.log")

    def _start_driver(self, log: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.spark.chaos", "--drive", str(self.directory), "--master", self.master]
        command += ["--cells", str(self.cells), "--seed", str(self.seed + self.drivers), "--query", self.query]
        command += ["--sink", self.sink, "--source", self.source, *options]
        command += ["--just-in-time"] if self.just_in_time else []
        command += ["--adapt", "auto"] if self.adapts else []
        with open(self.directory / log, "wb") as file:
            return subprocess.Popen(command, stdout=file, stderr=file, env=_environment())

    def _start_rival(self) -> None:
        """A second driver on the table, with a checkpoint of its own: it must stop, and the first one go on."""
        rival = self._start_driver("rival.log", "--rival", "rival-")
        try:
            assert chaos_delta.is_refused(rival, self.directory / "rival.log"), "a second driver was not refused"
        finally:
            self._kill_tree(rival.pid)
            rival.wait()

    def _kill(self, what: str) -> None:
        assert self.driver is not None
        if what in chaos_delta.MOMENTS and not chaos_delta.ask_to_stop(self.directory, what, self.driver):
            return
        if what in ("driver", *chaos_delta.MOMENTS):
            self._kill_tree(self.driver.pid)
            self.driver.wait()
        else:
            found = list(self._processes(what))
            if not found:
                return
            self.chance.choice(found).kill()
        self.killed[what] += 1
        how = f"driver {what}" if what in chaos_delta.MOMENTS else what
        print(f"killed a {how}: {sum(self.killed.values())} of {self.kills}, {self._batches() + 1} batches", flush=True)

    def _processes(self, what: str) -> list[psutil.Process]:
        """Our own processes of a kind that are at work."""
        assert self.driver is not None
        roots = [self.driver.pid, *(server.pid for server in self.servers)]
        below = []
        for root in roots:
            try:
                below += psutil.Process(root).children(recursive=True)
            except psutil.NoSuchProcess:
                continue
        if what == "host":
            # Hosts are sessions of their own; they name the directory of their query's Spark as parent.
            daemons = {str(process.pid) for process in below}
            return [p for p in _python_processes() if _is_host(p) and p.cmdline()[-1] in daemons]
        marks = {"worker": "pyspark.daemon", "executor": "CoarseGrainedExecutorBackend"}
        found = []
        for process in below:
            try:
                if any(marks[what] in part for part in process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        # The first daemon is the one that others are forked from.
        if what == "worker":
            found = [p for p in found if p.parent() is not None and p.parent() in found]
        return found

    def _kill_tree(self, pid: int) -> None:
        try:
            process = psutil.Process(pid)
        except psutil.NoSuchProcess:
            return
        for each in [process, *process.children(recursive=True)]:
            try:
                each.kill()
            except psutil.NoSuchProcess:
                continue

    def _start_cluster(self) -> None:
        from midstream.spark.java import provide_java

        provide_java()
        port = _free_port()
        self.master = f"spark://127.0.0.1:{port}"
        environment = {**_environment(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        import pyspark

        home = Path(pyspark.__file__).parent
        launch = [str(home / "bin" / "spark-class")]
        kinds = [["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]]
        for number in range(2):
            work = self.directory / f"work-{number}"
            kinds.append(
                [
                    "org.apache.spark.deploy.worker.Worker",
                    "--host",
                    "127.0.0.1",
                    "--cores",
                    "1",
                    "--memory",
                    "2g",
                    "--work-dir",
                    str(work),
                    self.master,
                ]
            )
        for kind in kinds:
            options = ["--webui-port", str(_free_port())]
            with open(self.directory / f"server-{len(self.servers)}.log", "wb") as log:
                self.servers.append(
                    subprocess.Popen([*launch, kind[0], *options, *kind[1:]], stdout=log, stderr=log, env=environment)
                )
            # Workers look for the master; the driver waits for workers by itself.
            if len(self.servers) == 1:
                _wait_for_port(port)

    def _end(self) -> None:
        for process in [self.driver, *self.servers]:
            if process is not None:
                self._kill_tree(process.pid)
                process.wait()

    def _compare(self) -> dict[str, object]:
        assert self.driver is not None and self.driver.returncode == 0, "the driver did not come to an end"
        database = duckdb.connect()
        database.execute(f"CREATE TABLE results AS SELECT * FROM '{self.directory}/result.parquet'")
        if self.query == "joins":
            self._compare_rows(database)
        else:
            self._compare_instants(database)

        def count(text: str) -> int:
            return int(database.execute(f"SELECT count(*) FROM ({text})").fetchall()[0][0])

        states = json.loads((self.directory / "history.json").read_text())
        return {
            "query": self.query,
            "source": self.source,
            "cells": self.cells,
            "just-in-time": self.just_in_time,
            "results": count("FROM results"),
            "missing": count("FROM expected EXCEPT ALL FROM found"),
            "repeated": count("FROM found EXCEPT ALL FROM expected"),
            "killed": self.killed,
            "drivers": self.drivers,
            "batches": self._batches() + 1,
            "migrations": {state: states.count(state) for state in sorted(set(states))},
            "adaptation": json.loads((self.directory / "decisions.json").read_text()),
            "table": chaos_delta.check_files(self.directory / "out") if self.sink == "delta" else None,
        }

    def _compare_rows(self, database: duckdb.DuckDBPyConnection) -> None:
        """Tables of the rows that are expected, and of those that were found."""
        for name in STREAMS:
            database.execute(f"CREATE TABLE {name} AS SELECT * FROM '{self.directory}/in/{name}/*.parquet'")
        pairs = [(x, y) for place, x in enumerate(STREAMS) for y in STREAMS[place + 1 :]]
        within = " AND ".join(f"abs({x}.ts - {y}.ts) <= {WIDTH}" for x, y in pairs)
        database.execute(
            "CREATE TABLE expected AS SELECT a.id AS a, b.id AS b, c.id AS c, d.id AS d FROM a, b, c, d "
            f"WHERE a.k = b.k AND b.k = c.k AND c.k = d.k AND {within}"
        )
        database.execute("CREATE TABLE found AS SELECT a, b, c, d FROM results")

    def _compare_instants(self, database: duckdb.DuckDBPyConnection) -> None:
        """The same at every instant: each row with all instants at which it is valid."""
        tables = {name: pq.read_table(self.directory / "in" / name) for name in STREAMS}
        last = database.execute("SELECT coalesce(max(valid_to), 0) FROM results").fetchall()[0][0]
        instants = range(max(int(last), (self.files + 3) * TICKS) + 1)
        series = snapshots(self.workload.text, self.workload.streams, tables, instants).table
        database.register("series", series)
        database.execute("CREATE TABLE expected AS SELECT __t AS instant, k, n FROM series")
        database.execute(
            "CREATE TABLE found AS SELECT unnest(range(valid_from, valid_to)) AS instant, k, n FROM results"
        )


def _environment() -> dict[str, str]:
    """Of processes that find this clone, wherever they run."""
    places = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


def _python_processes() -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if process.name().startswith("python")]


def _is_host(process: psutil.Process) -> bool:
    try:
        return any("midstream.runtime.cell_host" in part for part in process.cmdline())
    except psutil.Error:
        return False


def _wait_for_port(port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    raise TimeoutError("the master of the cluster does not answer")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=21)
    parser.add_argument("--where", choices=["cluster", "local"], default="cluster")
    parser.add_argument("--query", choices=list(WORKLOADS), default="joins")
    parser.add_argument("--just-in-time", action="store_true")
    parser.add_argument("--adapt", choices=["off", "auto"], default="off")
    parser.add_argument("--sink", choices=["parquet", "delta"], default="parquet")
    parser.add_argument("--source", choices=["spark", "files"], default="spark", help="who reads the input")
    parser.add_argument("--cells", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rival", default="", help=argparse.SUPPRESS)
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--master", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.drive is not None:
        workload = WORKLOADS[chosen.query]
        adapts = chosen.adapt == "auto"
        drive(
            chosen.drive,
            chosen.master,
            chosen.cells,
            chosen.seed,
            workload,
            chosen.just_in_time,
            adapts,
            chosen.sink,
            chosen.source,
            chosen.rival,
        )
        return
    directory = Path(tempfile.mkdtemp(prefix="midstream-chaos-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    conductor = Conductor(
        directory,
        chosen.where,
        chosen.kills,
        chosen.seed,
        query=chosen.query,
        just_in_time=chosen.just_in_time,
        adapts=chosen.adapt == "auto",
        sink=chosen.sink,
        rivals=chosen.sink == "delta",
        source=chosen.source,
        cells=chosen.cells,
    )
    report = conductor.run()
    print(json.dumps(report, indent=2))
    table = report["table"]
    is_clean = not isinstance(table, dict) or not (table["orphans left"] or table["files lost"])
    if report["missing"] or report["repeated"] or not is_clean:
        sys.exit(f"the result is wrong; everything is kept in {directory}")
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
