"""Figures 11 and 12 of ISQD on real Spark sites."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.isqd.spark_sites import Results, SparkSites
from midstream import ContinuousQuery, Stream
from midstream.deployment.placement.stage_plans import stage_plans
from midstream.deployment.protocol.coordinator_requests import ChangeTopology, DeployQuery
from midstream.deployment.protocol.messages import Data
from midstream.deployment.protocol.stage_instance import StageInstance
from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import AddLink, RemoveLink
from midstream.engine.state.window_store import ReceivedRows

MIB = 1 << 20
PAYLOAD = 100
SCHEMAS = {
    "a": pa.schema({"ts": pa.int64(), "k": pa.int64(), "payload": pa.string()}),
    "b": pa.schema({"ts": pa.int64(), "k": pa.int64()}),
}
QUERY = ContinuousQuery(
    "SELECT b.k AS probe, a.payload AS payload FROM a [RANGE 1000000000], b [RANGE 1000000000] WHERE a.k = b.k",
    streams=[Stream(name, schema, event_time="ts") for name, schema in SCHEMAS.items()],
)
PLANS = stage_plans("q", QUERY.plan(), {"a": ["device a"], "b": ["device b"]}, "cloud")
SITES = {"west": ["old", "device a", "device b"], "middle 1": ["relay"], "middle 2": ["cloud"], "east": ["new"]}
DEVICES = ("device a", "device b")


def topology() -> Topology:
    """The state of a join passes from "old" over "relay" and "cloud" to "new" and back."""
    nodes = [Node("cloud", 1), Node("relay", 0), Node("old", 1), Node("new", 1), *(Node(name, 1) for name in DEVICES)]
    links = [Link("relay", "cloud"), Link("old", "relay"), Link("new", "cloud")]
    return Topology(nodes, [*links, *(Link(device, "old") for device in DEVICES)])


def moved(old: str, new: str) -> ChangeTopology:
    pairs = [(RemoveLink(device, old), AddLink(Link(device, new))) for device in DEVICES]
    return ChangeTopology(tuple(event for pair in pairs for event in pair))


def rows_of_a(first: int, count: int) -> pa.Table:
    """Rows with consecutive keys and a payload that hardly compresses."""
    letters = np.random.default_rng(first).integers(33, 127, count * PAYLOAD, dtype=np.uint8)
    offsets = np.arange(count + 1, dtype=np.int32) * PAYLOAD
    payload = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))
    keys = np.arange(first, first + count)
    return pa.table([keys, keys, payload], schema=SCHEMAS["a"])


def bytes_per_row() -> float:
    """Of a snapshot."""
    (plan,) = (plan for plan in PLANS if plan.stage.is_stateful)
    instance = StageInstance(plan, (), 1)
    edge = next(edge for edge in instance.inputs if edge.endswith("device a"))
    table = rows_of_a(0, 50_000)
    times = np.asarray(table["ts"])
    columns = [table["k"].combine_chunks(), table["payload"].combine_chunks()]
    received = ReceivedRows(times, times + 1_000_000_001, columns)
    instance.inputs[edge].receive(1, 0, Data(received, 0))
    list(instance.work())
    return sum(map(len, instance.save().values())) / len(times)


class Run:
    def __init__(self, running: SparkSites) -> None:
        self.running = running
        self.results = Results(running.directory, "q")
        self.rows = self.files = self.probes = 0
        self.place = "old"

    def fill(self, rows: int, per_file: int = 60_000) -> float:
        began = time.monotonic()
        while self.rows < rows:
            count = min(per_file, rows - self.rows)
            self.running.directory.write_feed("device a", "a", self.files, rows_of_a(self.rows, count))
            self.rows += count
            self.files += 1
            self.probe(self.rows - 1)
        return time.monotonic() - began

    def probe(self, key: int) -> float:
        """Feed a row that meets one of the state; when its result has come."""
        self.running.directory.write_feed("device b", "b", self.probes, pa.table([[key], [key]], schema=SCHEMAS["b"]))
        self.probes += 1
        self.running.wait(lambda: self.results.arrival("probe", key) is not None, 600, "no result")
        arrived = self.results.arrival("probe", key)
        assert arrived is not None
        return arrived

    def move(self) -> float:
        target = "new" if self.place == "old" else "old"
        asked = self.running.ask(moved(self.place, target))
        self.place = target
        arrived = self.probe(self.probes)
        status = self.running.wait_until_idle()
        assert status.stages["q/join-1"] == target, status.stages
        return arrived - asked


def measure(folder: Path, approach: str, sizes: list[int], moves: int = 2) -> None:
    per_row = bytes_per_row()
    print(f"{per_row:.0f} bytes a row", flush=True)
    directory = DeploymentDirectory.create(folder, topology(), SITES)
    with SparkSites(directory, approach, {"spark.driver.memory": "2500m", "spark.driver.maxResultSize": "0"}) as running:
        running.ask(DeployQuery(tuple(PLANS), ("probe", "payload")))
        running.wait_until_idle()
        run = Run(running)
        for size in sizes:
            seconds = run.fill(int(size * MIB / per_row))
            print(f"filled to {size} in {seconds:.1f} s", flush=True)
            for _ in range(moves):
                print(approach, size, f"{run.move():.2f} s", flush=True)


if __name__ == "__main__":
    import shutil
    import sys

    where = Path("/tmp/h1tmp/state")
    shutil.rmtree(where, ignore_errors=True)
    measure(where, sys.argv[1], [int(size) for size in sys.argv[2:]])
