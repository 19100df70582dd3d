"""Two Spark applications and a coordinator as processes: what is deployed on them gives what DuckDB gives.

The short form of ``chaos_sites.py``. What can go wrong between any two steps is tested without Spark
(``tests/deployment/test_sites_without_spark.py``).
"""

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.deployment.placement.stage_plans import stage_plans
from midstream.deployment.protocol.coordinator_requests import ChangeTopology, DeployQuery
from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import AddLink, LoseNode, RemoveLink
from midstream.testing import assert_same_bag, join_intervals
from tests.spark.running_sites import RunningSites

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "id": pa.int64()})
STREAMS = [Stream(name, SCHEMA, event_time="ts") for name in "ab"]
TEXT = "SELECT a.id AS a, b.id AS b FROM a [RANGE 400], b [RANGE 400] WHERE a.k = b.k"
QUERY, JOIN = "a query", "a query/join-1"
SOURCES = {"a": "device 1", "b": "device 2"}
SITES = {"west": ["edge 1"], "east": ["edge 2", "cloud", *SOURCES.values()]}


def topology():
    edges = [Link("edge 1", "cloud"), Link("edge 2", "cloud")]
    nodes = [Node(name) for name in ["cloud", "edge 1", "edge 2"]] + [Node(name, 1) for name in SOURCES.values()]
    return Topology(nodes, [*edges, *(Link(device, "edge 1") for device in SOURCES.values())])


class Feeding:
    """Rows that were fed, and the results that they must have so far."""

    def __init__(self, directory):
        self._directory = directory
        self._numbers = np.random.default_rng(0)
        self._fed = {stream: [] for stream in SOURCES}
        self._files = 0

    def feed(self, files=2):
        for _ in range(files):
            for stream, node in SOURCES.items():
                times = np.sort(self._numbers.integers(self._files * 300, self._files * 300 + 300, 40))
                ids = np.arange(40) + 40 * self._files
                table = pa.table([times, self._numbers.integers(0, 30, 40), ids], schema=SCHEMA)
                self._fed[stream].append(table)
                self._directory.write_feed(node, stream, self._files, table)
            self._files += 1

    def expected(self):
        return join_intervals(TEXT, STREAMS, {stream: pa.concat_tables(fed) for stream, fed in self._fed.items()})


def moved(old, new):
    pairs = [(RemoveLink(device, old), AddLink(Link(device, new))) for device in SOURCES.values()]
    return ChangeTopology(tuple(event for pair in pairs for event in pair))


def test_a_join_on_two_sites_survives_a_restart_moves_and_the_loss_of_a_site(tmp_path, warm_python, java_options):
    directory = DeploymentDirectory.create(tmp_path / "deployment", topology(), SITES)
    feeding = Feeding(directory)
    plans = stage_plans(QUERY, ContinuousQuery(TEXT, STREAMS).plan(), {s: [d] for s, d in SOURCES.items()}, "cloud")
    with RunningSites(directory, tmp_path / "logs", warm_python) as running:
        running.start()
        running.ask(DeployQuery(tuple(plans), ("a", "b")))
        assert running.wait_until_idle().stages[JOIN] == "edge 1"
        feeding.feed()
        running.wait_for_results(QUERY, 1)

        running.kill("west")
        feeding.feed()
        running.start("west")
        # The join moves from one site to the other while rows wait for it.
        running.ask(moved("edge 1", "edge 2"))
        feeding.feed()
        assert running.wait_until_idle().stages[JOIN] == "edge 2"
        feeding.feed()
        running.ask(moved("edge 2", "edge 1"))
        running.kill("coordinator")
        running.start("coordinator")
        assert running.wait_until_idle().stages[JOIN] == "edge 1"
        feeding.feed()

        running.kill("west")
        feeding.feed()
        links = [AddLink(Link(device, "edge 2")) for device in SOURCES.values()]
        running.ask(ChangeTopology((LoseNode("edge 1"), *links)))
        assert running.wait_until_idle().stages[JOIN] == "edge 2"
        feeding.feed()
        for stream, node in SOURCES.items():
            directory.end_feed(node, stream)
        running.wait_for_results(QUERY, feeding.expected().num_rows)
        assert_same_bag(directory.read_results(QUERY), feeding.expected())

        running.start("west")
        with pytest.raises(AssertionError, match='site "west" was given up'):
            running.wait(lambda: False, 60, "a lost site starts again")
