"""Figure 11 of ISQD on real Spark sites: how long until a join goes on at its new place, by the size of its state.

Four sites. The join's state passes from the first over two others to the last, and back, in turns as

- **ISQD**: the product as it is: a part of the snapshot per micro-batch, which sites on the way pass on at once;
- **ST**: the same with the whole snapshot in one file, which each site on the way receives before it sends it on, in a
  micro-batch, as it receives everything;
- **ST in transit**: as ST, but sites on the way pass the file on without a micro-batch, which is an addition of ours;
- **SR**: the join begins empty, and its sources replay everything over two sites in between. SR-B: no replayed row
  meets another; SR-A: the rows of every second file do, SR-W: those of every file. Measured for one size, and computed
  from that rate for the others.

Measured from the request to the coordinator until the result of a row that arose after the stage had ended at the old
place (the old place goes on until then) has been published: that includes the protocol's rounds (prepare, mark,
connect), each of which waits for micro-batches. Beside it, from when the stage has ended at its old place until it is
installed at the new one, as the coordinator learns it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.figures import PaperFigure, describe, new_figure, save_figure
from benchmarks.isqd.spark_sites import Results, SparkSites
from benchmarks.measuring import Bar
from midstream import ContinuousQuery, Stream
from midstream.deployment.placement.stage_plans import stage_plans
from midstream.deployment.protocol.coordinator_requests import ChangeTopology, DeployQuery
from midstream.deployment.protocol.messages import Data
from midstream.deployment.protocol.stage_instance import StageInstance
from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import AddLink, RemoveLink
from midstream.engine.state.window_store import ReceivedRows

__all__ = ["FIGURES"]

MIB = 1 << 20
SIZES = (16, 64, 256, 512)
MOST_AT_ONCE = 64
"""The largest state that ST is tried with: at 256 MB, four sites on one machine needed more than 24 GiB."""
ROUNDS = 1
REPLAYED = 64
ROWS_PER_FILE = 60_000
PAYLOAD = 100
PROBE_SECONDS = 0.5
JOIN = "q/join-1"
SWITCHES = {"ISQD": None, "ST": "micro-batches", "ST in transit": "transit"}
"""What ``spark_process`` finds in its file."""
SETTINGS = {"spark.driver.memory": "2500m", "spark.driver.maxResultSize": "0"}
"""ST holds a whole snapshot, several times over, in the memory of each site."""
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


def rows_of_b(first: int, count: int) -> pa.Table:
    """Rows that meet those of a with the same keys."""
    keys = np.arange(first, first + count)
    return pa.table([keys, keys], schema=SCHEMAS["b"])


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


@dataclass
class Move:
    """One move; seconds."""

    flow: float
    """From the request until the first result of a row that arose after the stage had ended at the old place."""
    transfer: float
    """From the end at the old place until the stage is installed at the new one."""


class MovingJoin:
    """A deployed join whose state grows and moves."""

    def __init__(self, running: SparkSites) -> None:
        self._running = running
        self._directory = running.directory
        self._results = Results(running.directory, "q")
        self._rows = self._files = self._probes = 0
        self._place = "old"

    def fill(self, rows: int) -> None:
        """Let the state grow to so many rows."""
        while self._rows < rows:
            count = min(4 * ROWS_PER_FILE, rows - self._rows)
            self._directory.write_feed("device a", "a", self._files, rows_of_a(self._rows, count))
            self._rows += count
            self._files += 1
            # Not all at once: Spark would take them in one micro-batch.
            self._probe(self._rows - 1)
            self._wait_for(self._rows - 1)

    def _probe(self, key: int) -> None:
        """Feed a row that meets one of the state."""
        # Probes have keys in any order and times in theirs: none is late.
        probe = pa.table([[self._rows + self._probes], [key]], schema=SCHEMAS["b"])
        self._directory.write_feed("device b", "b", self._probes, probe)
        self._probes += 1

    def _wait_for(self, key: int) -> float:
        """When the result of a probe has come."""
        self._running.wait(lambda: self._results.arrival("probe", key) is not None, 600, "no result")
        arrived = self._results.arrival("probe", key)
        assert arrived is not None
        return arrived

    def move(self) -> Move:
        """Move the join, with a row that meets one of its state twice a second."""
        old, new = self._place, "new" if self._place == "old" else "old"
        asked = self._running.ask(moved(old, new))
        self._place = new
        probes: list[tuple[float, int]] = []

        def probes_until_idle() -> bool:
            if not probes or time.time() - probes[-1][0] > PROBE_SECONDS:
                # Before it is written: its row is not older.
                probes.append((time.time(), self._probes))
                self._probe(self._probes)
            status = self._running.status()
            return status is not None and status.is_idle and status.stages[JOIN] == new

        self._running.wait(probes_until_idle, 900, "a change stays open")
        moments = self._running.counts()["moments"]
        ended = moments[f"Acted {JOIN} {old}"]
        # Rows that arose before may have met the state at the old place.
        first = next(key for arose, key in probes if arose > ended)
        return Move(self._wait_for(first) - asked, moments[f"Installed {JOIN} {new}"] - ended)


def moves(sizes: Sequence[int]) -> dict[str, dict[int, list[Move]]]:
    """Moves of states of so many MiB, in turns there and back by each of the approaches."""
    per_row = bytes_per_row()
    found: dict[str, dict[int, list[Move]]] = {name: {} for name in SWITCHES}
    with tempfile.TemporaryDirectory() as folder:
        directory = DeploymentDirectory.create(Path(folder) / "deployment", topology(), SITES)
        switch = directory.path / "as_a_whole"
        with SparkSites(directory, "ISQD or ST", SETTINGS) as running:
            running.deploy(DeployQuery(tuple(PLANS), ("probe", "payload")))
            join = MovingJoin(running)
            join.fill(1000)
            # Everything has been compiled and loaded on all sites when it has moved once.
            join.move()
            for size in sizes:
                join.fill(int(size * MIB / per_row))
                for name in [*SWITCHES] * ROUNDS if size <= MOST_AT_ONCE else ["ISQD"] * ROUNDS:
                    if (text := SWITCHES[name]) is not None:
                        switch.write_text(text)
                    own = [join.move(), join.move()]
                    switch.unlink(missing_ok=True)
                    found[name].setdefault(size, []).extend(own)
                    print(f"{size} MB, {name}: {own}", flush=True)
    return found


def replays(mebibytes: int) -> dict[str, float]:
    """Seconds to rebuild a state of so many MiB from sources with two sites in between.

    One deployment for all variants: the rows of each have keys of their own.
    """
    rows = int(mebibytes * MIB / bytes_per_row())
    places = {"west": list(DEVICES), "middle 1": ["relay 1"], "middle 2": ["relay 2"], "east": ["cloud"]}
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        directory = DeploymentDirectory.create(Path(folder) / "deployment", _way(), places)
        with SparkSites(directory, "ISQD", SETTINGS) as running:
            running.deploy(DeployQuery(tuple(PLANS), ("probe", "payload")))
            results = Results(directory, "q")
            # One row through all sites: they are awake when the replay begins.
            directory.write_feed("device a", "a", 0, rows_of_a(0, 1))
            directory.write_feed("device b", "b", 0, rows_of_b(0, 1))
            running.wait(partial(_has, results, 0), 300, "no result")
            first = number = 1
            for variant, every in {"SR-B": 0, "SR-A": 2, "SR-W": 1}.items():
                began, end = time.time(), first + rows
                while first < end:
                    count = min(ROWS_PER_FILE, end - first)
                    directory.write_feed("device a", "a", number, rows_of_a(first, count))
                    is_met = bool(every) and number % every == 0
                    met = rows_of_b(first, count) if is_met else rows_of_b(first + count - 1, 1)
                    directory.write_feed("device b", "b", number, met)
                    first, number = first + count, number + 1
                running.wait(partial(_has, results, end - 1), 600, "no result")
                found[variant] = (results.arrival("probe", end - 1) or 0.0) - began
                print(f"{variant}, {mebibytes} MB: {found[variant]:.1f} s", flush=True)
    return found


def _has(results: Results, key: int) -> bool:
    return results.arrival("probe", key) is not None


def _way() -> Topology:
    nodes = [Node("cloud"), Node("relay 1", 0), Node("relay 2", 0), *(Node(name, 1) for name in DEVICES)]
    links = [Link("relay 1", "relay 2"), Link("relay 2", "cloud"), *(Link(device, "relay 1") for device in DEVICES)]
    return Topology(nodes, links)


def figure_11_on_spark() -> bool:
    """The size of the state, two sites in between."""
    found = moves(SIZES)
    replayed = replays(REPLAYED)
    drawing, axes = new_figure("ISQD, figure 11 on Spark: a state moves over 2 sites", 1, 2)
    for panel, what in zip(axes[0], ("flow", "transfer"), strict=True):
        for (name, own), style in zip(found.items(), ("o-", "s-", "^-"), strict=True):
            panel.plot(list(own), [_median(moves, what) for moves in own.values()], style, label=name)
    for variant, seconds in replayed.items():
        axes[0][0].plot(SIZES, [seconds * size / REPLAYED for size in SIZES], "--", label=f"{variant}, computed")
    for panel, title in zip(axes[0], ("until data flow again", "until the state is installed"), strict=True):
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        describe(panel, title, "MB of state", "s")
    figures: dict[str, Any] = {}
    for size in SIZES:
        for what, words in (("flow", "until data flow again"), ("transfer", "transfer")):
            ours = _median(found["ISQD"][size], what)
            figures[f"{size} MB: ISQD, {words}, s"] = ours
            for name in ("ST", "ST in transit") if size <= MOST_AT_ONCE else ():
                figures[f"{size} MB: {name}, {words}, s"] = theirs = _median(found[name][size], what)
                figures[f"{size} MB: {name} / ISQD, {words}"] = theirs / ours
        figures |= {
            f"{size} MB: {name}, {'measured' if size == REPLAYED else 'computed'}, s": seconds * size / REPLAYED
            for name, seconds in replayed.items()
        }
    compared = [size for size in SIZES if size <= MOST_AT_ONCE]
    gains = [figures[f"{size} MB: ST / ISQD, until data flow again"] for size in compared]
    seen = (
        f"ST / ISQD {min(gains):.1f} to {max(gains):.1f} until data flow again,"
        f" {min(figures[f'{size} MB: ST / ISQD, transfer'] for size in compared):.1f} to"
        f" {max(figures[f'{size} MB: ST / ISQD, transfer'] for size in compared):.1f} for the transfer alone; ISQD"
        f" {figures[f'{SIZES[0]} MB: ISQD, until data flow again, s']:.1f} s at {SIZES[0]} MB,"
        f" {figures[f'{SIZES[-1]} MB: ISQD, until data flow again, s']:.1f} s at {SIZES[-1]} MB."
    )
    figure = PaperFigure(
        "isqd_figure_11_on_spark",
        "ISQD, fig. 11 (real, on Spark)",
        "ISQD 2.6 to 6.2 times faster than ST; SR-A and SR-W time out above 32 MB, SR-B above 128 MB",
        f"real; 4 Spark sites on one machine without a network; median of {2 * ROUNDS} moves, in turns; SR measured at"
        f" {REPLAYED} MB and computed for the rest",
    )
    bars = [Bar(f"{size} MB: ST / ISQD, until data flow again", 1.5, at_least=True) for size in compared]
    series = {
        name: {str(size): [(move.flow, move.transfer) for move in own] for size, own in by_size.items()}
        for name, by_size in found.items()
    }
    return save_figure(figure, drawing, figures, min(gains) >= 2.6, seen, series, *bars)


def _median(found: Sequence[Move], what: str) -> float:
    return float(statistics.median(getattr(each, what) for each in found))


FIGURES = {"figure_11_on_spark": figure_11_on_spark}
