"""Sites, their files and the coordinator's process: killed between any two steps, nothing is lost or repeated."""

from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.deployment.placement.stage_plans import stage_plans
from midstream.deployment.protocol.coordinator_requests import ChangeTopology, DeployQuery, ReplacePlans
from midstream.deployment.protocol.messages import Commit, DeployStage, Prepare, RescueState
from midstream.deployment.protocol.node_storage import stored_stage
from midstream.deployment.sites import coordinator_process
from midstream.deployment.sites.connectivity import Connectivity
from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.sites.node_group import GroupInput, NodeGroup, stored_by_lost_node
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import AddLink, AddNode, LoseNode, RemoveLink
from midstream.errors import BadTopology, PathProblem
from midstream.testing import assert_same_bag, join_intervals
from tests.deployment.sites_in_this_process import DeploymentInThisProcess

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "id": pa.int64()})
STREAMS = [Stream(name, SCHEMA, event_time="ts") for name in "ab"]
TEXT = "SELECT a.id AS a, b.id AS b FROM a [RANGE 40], b [RANGE 40] WHERE a.k = b.k"
SOURCES = {"a": ["d1", "d3"], "b": ["d2"]}
SITES = {"west": ["e1", "d1"], "east": ["e2", "d2"], "centre": ["cloud", "d3", "e3"]}
EDGES = ["e1", "e2", "e3"]
DEVICES = ["d1", "d2", "d3"]


def topology():
    links = [*(Link(edge, "cloud") for edge in EDGES), *(Link(device, "e1") for device in DEVICES)]
    return Topology([Node(name) for name in ["cloud", *EDGES, *DEVICES]], links)


class Run:
    """A deployed join, and what was fed to it."""

    def __init__(self, path, random=None, groups=1, sites=SITES):
        self.directory = DeploymentDirectory.create(path, topology(), sites, groups)
        self.deployment = DeploymentInThisProcess(self.directory, random)
        self.numbers = np.random.default_rng(0)
        self.fed = {"a": [SCHEMA.empty_table()], "b": [SCHEMA.empty_table()]}
        self.files = 0
        self.at = "e1"
        plans = stage_plans("a query", ContinuousQuery(TEXT, STREAMS).plan(), SOURCES, "cloud")
        self.directory.submit(DeployQuery(tuple(plans), ("a", "b")))
        self.deployment.work_until_quiet()

    def feed(self):
        for stream, nodes in SOURCES.items():
            for node in nodes:
                times = np.sort(self.numbers.integers(self.files * 20, self.files * 20 + 20, 6))
                ids = np.arange(6) + 100 * self.files
                table = pa.table([times, self.numbers.integers(0, 4, 6), ids], schema=SCHEMA)
                self.fed[stream].append(table)
                self.directory.write_feed(node, stream, self.files, table)
        self.files += 1

    def move(self, new):
        events = [e for device in DEVICES for e in (RemoveLink(device, self.at), AddLink(Link(device, new)))]
        self.directory.submit(ChangeTopology(tuple(events)))
        self.at = new

    def finish(self):
        for stream, nodes in SOURCES.items():
            for node in nodes:
                self.directory.end_feed(node, stream)
        self.deployment.work_until_quiet()
        self.deployment.close()

    def check(self):
        expected = join_intervals(TEXT, STREAMS, {stream: pa.concat_tables(fed) for stream, fed in self.fed.items()})
        assert expected.num_rows > 0
        assert_same_bag(self.directory.read_results("a query"), expected)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_join_follows_its_devices_from_site_to_site(tmp_path, groups):
    run = Run(tmp_path, groups=groups)
    for edge in ["e2", "e3", "e1"]:
        for _ in range(3):
            run.feed()
            run.deployment.work()
        run.move(edge)
    run.finish()
    run.check()
    assert run.deployment.coordinator.coordinator.committed == 4


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_or_repeated_when_processes_are_killed(tmp_path, seed):
    random = Random(seed)
    run = Run(tmp_path, random, groups=random.choice([1, 2]))
    for _ in range(12):
        run.feed()
        run.deployment.work(random.randint(1, 4))
        if random.random() < 0.5:
            run.move(random.choice([edge for edge in EDGES if edge != run.at]))
        if random.random() < 0.5:
            # All that is on its way between two sites is lost.
            sender, receiver = random.sample(list(SITES), 2)
            for folder in (run.directory.inbox, run.directory.transit):
                for path in folder(receiver, sender).glob("*.parquet"):
                    path.unlink()
    run.finish()
    run.check()
    assert run.deployment.killed > 10


def test_a_lost_node_of_a_running_site_is_rescued(tmp_path):
    run = Run(tmp_path)
    for _ in range(4):
        run.feed()
        run.deployment.work(3)
    assert run.deployment.coordinator.coordinator.placement.of("a query").nodes["a query/join-1"] == "e1"
    events = [AddLink(Link(device, "e2")) for device in DEVICES]
    run.directory.submit(ChangeTopology((LoseNode("e1"), *events)))
    run.deployment.work_until_quiet()
    run.feed()
    run.finish()
    run.check()


def test_the_nodes_of_a_dead_site_are_rescued(tmp_path):
    run = Run(tmp_path, sites={"west": ["e1"], "east": ["e2", *DEVICES], "centre": ["cloud", "e3"]})
    for _ in range(4):
        run.feed()
        run.deployment.work(3)
    run.deployment.sites["west"].is_lost = True
    run.feed()
    run.deployment.work(3)
    events = [AddLink(Link(device, "e2")) for device in DEVICES]
    run.directory.submit(ChangeTopology((LoseNode("e1"), *events)))
    run.deployment.work_until_quiet()
    run.feed()
    run.finish()
    run.check()


def test_a_move_to_a_dead_site_is_given_up_when_its_nodes_are_lost(tmp_path):
    run = Run(tmp_path, sites={"west": ["e1"], "east": ["e2"], "centre": ["cloud", "e3", *DEVICES]})
    run.feed()
    run.deployment.work_until_quiet()
    run.deployment.sites["east"].is_lost = True
    run.move("e2")
    run.deployment.work(3)
    assert not run.deployment.coordinator.coordinator.is_idle
    events = [AddLink(Link(device, "e3")) for device in DEVICES]
    run.directory.submit(ChangeTopology((LoseNode("e2"), *events)))
    run.deployment.work_until_quiet(100)
    run.feed()
    run.finish()
    run.check()


def test_a_source_that_is_lost_twice_goes_on_from_its_latest_state(tmp_path):
    run = Run(tmp_path)
    for _ in range(2):
        run.feed()
        run.deployment.work_until_quiet()
        run.directory.submit(ChangeTopology((LoseNode("d2"),)))
        run.deployment.work_until_quiet()
        run.directory.submit(ChangeTopology((AddNode(Node("d2")), AddLink(Link("d2", "e1")))))
        run.deployment.work_until_quiet()
    run.feed()
    run.finish()
    run.check()


def test_a_node_that_is_lost_again_before_it_got_its_state_back_still_has_it():
    plans = stage_plans("a query", ContinuousQuery(TEXT, STREAMS).plan(), SOURCES, "cloud")
    source = next(plan for plan in plans if plan.stage.pinned_to == "d1")
    deploy = DeployStage(source, ("d1", "e1"))
    group = NodeGroup(lambda node: True)
    group.step(GroupInput([("d1", Prepare("a query", 1, (deploy,)))], connectivity=Connectivity.of(1, topology())))
    for losses in (1, 2):
        again = Prepare("a query", losses + 1, (replace(deploy, awaits_state=True),))
        there = Connectivity.of(losses + 1, topology(), {"d1": losses})
        group.step(GroupInput([("d1", again)], connectivity=there))
        assert not group.nodes["d1"].running
    stored = {key: data for key, data in group.changes().items() if data is not None}
    group = NodeGroup.restored(lambda node: True, stored)
    group.step(GroupInput([("d1", RescueState(source.stage.id, 3, "d1", 2))]))
    assert source.stage.id in group.nodes["d1"].running


def test_a_group_that_has_not_heard_of_a_second_loss_does_not_answer_with_the_first_snapshot():
    plans = stage_plans("a query", ContinuousQuery(TEXT, STREAMS).plan(), SOURCES, "cloud")
    source = next(plan for plan in plans if plan.stage.pinned_to == "d1")
    group = NodeGroup(lambda node: True)
    there = Connectivity.of(1, topology())
    group.step(GroupInput([("d1", Prepare("a query", 1, (DeployStage(source, ("d1", "e1")),)))], connectivity=there))
    lost = Connectivity.of(2, topology(), {"d1": 1})
    first = RescueState(source.stage.id, 2, "d1", 1)
    second = RescueState(source.stage.id, 4, "d1", 2)
    out = group.step(GroupInput([("cloud", first), ("cloud", second)], connectivity=lost))
    assert out.rescues == [("cloud", second)]


def test_the_plan_of_a_deployed_query_is_replaced(tmp_path):
    text = (
        "SELECT a.id AS a, b.id AS b, c.id AS c FROM a [RANGE 40], b [RANGE 40], a [RANGE 20] c "
        "WHERE a.k = b.k AND b.k = c.k"
    )
    query = ContinuousQuery(text, STREAMS)
    one, other = (
        tuple(stage_plans("three", query.plan(order), SOURCES, "cloud", joins_together=True))
        for order in ("(a b) c", "a (b c)")
    )
    run = Run(tmp_path, Random(1))
    run.directory.submit(DeployQuery(one, ("a", "b", "c")))
    run.deployment.work_until_quiet()
    for number in range(6):
        run.feed()
        run.deployment.work(2)
        if number in (1, 3):
            run.directory.submit(ReplacePlans(other if number == 1 else one))
            run.move("e2" if number == 1 else "e3")
    run.finish()
    run.check()
    expected = join_intervals(text, STREAMS, {stream: pa.concat_tables(fed) for stream, fed in run.fed.items()})
    assert_same_bag(run.directory.read_results("three"), expected)
    assert run.deployment.coordinator.coordinator.refusals("three") == {}


def test_what_the_coordinator_refuses_is_said(tmp_path):
    run = Run(tmp_path)
    name = run.directory.submit(ChangeTopology((RemoveLink("d1", "e3"),)))
    run.deployment.work()
    assert run.directory.outcome(name).startswith("[M6003]")
    run.deployment.close()


def test_a_request_is_not_taken_twice(tmp_path):
    run = Run(tmp_path)
    name = run.directory.submit(ChangeTopology((RemoveLink("d1", "e1"),)))
    run.deployment.work()
    taken = run.directory.requests / f"{name}.taken"
    # As if the coordinator had been killed before it gave the file its new name.
    taken.rename(taken.with_suffix(".json"))
    run.deployment.restart_coordinator()
    run.deployment.work()
    assert run.directory.outcome(name) == ""
    run.deployment.close()


def test_directories_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(BadTopology, match='"e1" would be run by two sites'):
        DeploymentDirectory.create(tmp_path, topology(), {"west": ["e1"], "east": ["e1"]})
    with pytest.raises(BadTopology, match="needs a site"):
        DeploymentDirectory.create(tmp_path, topology(), {})
    with pytest.raises(PathProblem, match="there is no deployment"):
        DeploymentDirectory(tmp_path).layout()
    directory = DeploymentDirectory.create(tmp_path, topology(), SITES)
    with pytest.raises(PathProblem, match='there is no site "wets"'):
        directory.check_site("wets")
    with pytest.raises(PathProblem, match="already"):
        DeploymentDirectory.create(tmp_path, topology(), SITES)


def test_a_lost_node_returns_when_its_stages_run_elsewhere(tmp_path):
    run = Run(tmp_path)
    for _ in range(3):
        run.feed()
        run.deployment.work(3)
    run.directory.submit(ChangeTopology((LoseNode("e1"),)))
    run.deployment.coordinator.look()
    returning = ChangeTopology((AddNode(Node("e1")), AddLink(Link("e1", "cloud"))))
    too_early = run.directory.submit(returning)
    run.deployment.coordinator.look()
    assert "its stages have not all been rescued" in run.directory.outcome(too_early)
    run.directory.submit(ChangeTopology(tuple(AddLink(Link(device, "e2")) for device in DEVICES)))
    run.deployment.work_until_quiet()
    taken = run.directory.submit(returning)
    run.deployment.work()
    assert run.directory.outcome(taken) == ""
    run.feed()
    run.finish()
    run.check()


def test_a_node_that_was_lost_and_is_back_has_nothing_of_what_it_had():
    there = Connectivity.of(1, topology())
    plans = stage_plans("a query", ContinuousQuery(TEXT, STREAMS).plan(), SOURCES, "cloud")
    source = next(plan for plan in plans if plan.stage.pinned_to == "d1")
    group = NodeGroup(lambda node: True)
    group.step(GroupInput([("d1", Prepare("a query", 1, (DeployStage(source, ("d1", "e1")),)))], connectivity=there))
    assert group.nodes["d1"].running
    back = Connectivity.of(2, topology(), {"d1": 1})
    group.step(GroupInput([("d1", Commit("a query", 1))], connectivity=back))
    assert not group.nodes["d1"].running
    stored = {key: data for key, data in group.changes().items() if data is not None}
    assert not NodeGroup.restored(lambda node: True, stored).nodes["d1"].running
    assert stored_stage(stored_by_lost_node(stored, "d1", 1, is_gone=False), source.stage.id)
    assert stored_by_lost_node(stored, "d1", 2, is_gone=False) is None, "it has not heard of a second loss"


def test_the_coordinators_log_and_old_requests_do_not_grow_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(coordinator_process, "COMPACT_AFTER", 5)
    monkeypatch.setattr(coordinator_process, "KEPT_REQUESTS", 2)
    run = Run(tmp_path)
    for edge in ["e2", "e3", "e1", "e2"]:
        run.feed()
        run.move(edge)
        run.deployment.work_until_quiet()
        run.deployment.restart_coordinator()
    assert len(list(run.directory.requests.iterdir())) <= 3
    assert run.deployment._log.entries > 20 > run.deployment._log.lines
    assert run.deployment.coordinator.coordinator.committed == 5
    run.finish()
    run.check()
