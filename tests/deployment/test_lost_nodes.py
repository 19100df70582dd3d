"""Nodes that are lost, removed or crash while a generation concerns them: small cases of what random ones found."""

from dataclasses import replace

import pyarrow as pa
import pytest

from midstream import Stream
from midstream.algebra.window_spec import NEVER
from midstream.deployment.protocol.coordinator import Coordinator
from midstream.deployment.protocol.messages import Aborted, Commit, Committed, InspectLostNode, Installed
from midstream.deployment.protocol.node_runtime import NodeRuntime
from midstream.deployment.simulation import Costs, Simulation
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import AddLink, AddNode, LoseNode, RemoveLink, RemoveNode
from midstream.testing import Change, CrashNode, DeploymentCase, QueryCase, Scenario, Step

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
TO_E2 = (RemoveLink("d1", "e1"), AddLink(Link("d1", "e2")), RemoveLink("d2", "e1"), AddLink(Link("d2", "e2")))
TO_CLOUD = (AddLink(Link("d1", "cloud")), AddLink(Link("d2", "cloud")))


def case(*steps: Step, costs: Costs | None = None) -> DeploymentCase:
    """A join at e1 of what arises at d1 and d2, with an e2 to go to."""
    scenario = Scenario.from_rows(
        "SELECT x.k FROM a [RANGE 20] x, b [RANGE 20] y WHERE x.k = y.k",
        [Stream("a", SCHEMA, "ts"), Stream("b", SCHEMA, "ts")],
        [{"a": [(t, t % 3)], "b": [(t, t % 2)]} for t in range(1, 13)],
    )
    return DeploymentCase(
        [Node("cloud"), Node("e1"), Node("e2"), Node("d1", slots=1), Node("d2", slots=1)],
        [Link("e1", "cloud"), Link("e2", "cloud"), Link("d1", "e1"), Link("d2", "e1")],
        [QueryCase("q", scenario, {"a": ("d1",), "b": ("d2",)})],
        steps,
        push_every=20.0,
        costs=costs or Costs(),
        chunk_bytes=200,
    )


@pytest.mark.parametrize("moment", ["prepare", "mark", "transfer", "commit"])
@pytest.mark.parametrize("lost", ["e1", "e2"])
def test_a_node_is_lost_at_any_moment_of_a_move(moment, lost):
    played = case(Step(50.0, Change(TO_E2)), Step(0.0, Change((LoseNode(lost), *TO_CLOUD)), moment)).check()
    assert played.met["node lost"] == 1 and played.met[f"node lost during {moment}"] == 1


@pytest.mark.parametrize("moment", ["prepare", "mark", "transfer", "commit"])
def test_both_nodes_of_a_move_are_lost(moment):
    both = (LoseNode("e1"), LoseNode("e2"), *TO_CLOUD)
    played = case(Step(50.0, Change(TO_E2)), Step(0.0, Change(both), moment)).check()
    assert played.met["node lost"] == 2


def test_a_generation_given_up_does_not_wait_for_the_lost_node_that_it_was_to_use():
    slow = Costs(control=20.0)
    move = Step(50.0, Change((RemoveNode("e1"), AddLink(Link("d1", "e2")), AddLink(Link("d2", "e2")))))
    played = case(move, Step(0.0, Change((LoseNode("e2"), *TO_CLOUD)), "prepare"), costs=slow).check()
    assert played.met["generation given up"] == 1


def test_a_node_that_comes_back_while_its_state_is_rescued_is_refused():
    lose = Step(50.0, Change((LoseNode("e1"), *TO_E2[1::2])))
    back = Step(0.0, Change((AddNode(Node("e1")), AddLink(Link("e1", "cloud")))), "prepare")
    played = case(lose, back).check()
    assert played.met["request refused"] == 1 and played.met["state rescued from a lost node"] == 1


def test_the_state_of_a_leaving_node_waits_for_a_way_or_for_the_loss_of_the_node():
    # d1, d2 → below → e1 → above → cloud: e1 leaves, then all that leads away from it is lost.
    leave = Step(50.0, Change((RemoveNode("e1"), AddLink(Link("below", "cloud")))))
    lose = Step(0.0, Change((LoseNode("above"), LoseNode("below"), *TO_CLOUD)), "mark")
    chain = [Link("d1", "below"), Link("d2", "below"), Link("below", "e1"), Link("e1", "above"), Link("above", "cloud")]
    relays = [Node("above", slots=0), Node("below", slots=0)]
    played = replace(case(leave, lose), nodes=[*case().nodes, *relays], links=chain).check()
    assert played.met["state rescued from a lost node"] == 1


def test_a_node_that_is_lost_while_it_is_down_does_not_come_back():
    crash = Step(0.0, CrashNode("e1", 30.0), "transfer")
    played = case(Step(50.0, Change(TO_E2)), crash, Step(0.0, Change((LoseNode("e1"),)))).check()
    assert played.met["node lost"] == 1


@pytest.mark.parametrize("moment", ["prepare", "mark", "transfer", "commit"])
@pytest.mark.parametrize("node", ["e1", "e2", "d1", "cloud"])
def test_a_node_crashes_at_any_moment_of_a_move(moment, node):
    played = case(Step(50.0, Change(TO_E2)), Step(0.0, CrashNode(node, 40.0), moment)).check()
    assert played.met[f"node crashed during {moment}"] == 1


@pytest.mark.parametrize("after", [0.0, 60.0])
def test_a_source_that_is_lost_and_comes_back_loses_nothing(after):
    back = Change((AddNode(Node("d1", slots=1)), AddLink(Link("d1", "e2"))))
    played = case(Step(50.0, Change((LoseNode("d1"),))), Step(after, back)).check()
    assert played.met["node added"] == 1


def test_a_source_comes_back_after_other_stages_have_moved_without_it():
    # Generations in between forget where the source was; its stage still runs there.
    back = Change((AddNode(Node("d1", slots=1)), AddLink(Link("d1", "e2"))))
    move = Change((LoseNode("e1"), AddLink(Link("d2", "e2"))))
    played = case(Step(50.0, Change((LoseNode("d1"),))), Step(40.0, move), Step(60.0, back)).check()
    assert played.met["node added"] == 1


def deployed_but_for_e1() -> Coordinator:
    """A first deployment of which every node has been heard, except the one that the join is to begin on."""
    coordinator = Coordinator(Topology(case().nodes, case().links))
    (query,) = case().queries
    told = dict(coordinator.deploy(query.stage_plans(0)))
    for node in ("cloud", "d1", "d2"):
        for report in NodeRuntime(node).step([told[node]]).reports:
            coordinator.take(report)
    return coordinator


def test_a_stage_of_a_first_deployment_whose_node_is_lost_begins_once():
    coordinator, join = deployed_but_for_e1(), "q/join-1"
    asked = coordinator.apply([LoseNode("e1"), *TO_CLOUD])
    assert ("cloud", InspectLostNode("q", 1, join, "e1", 1)) in asked, (
        "it is not known whether the join has begun there"
    )
    (generation,) = coordinator.under_way()
    assert generation.number == 1 and generation.phase == "mark"
    following = coordinator.take(Installed("e1", "q", 1, join))
    commits = [(node, message) for node, message in following if isinstance(message, Commit)]
    for node, _ in commits:
        following += coordinator.take(Committed(node, "q", 1))
    (generation,) = coordinator.under_way()
    (context,) = (c for own in generation.contexts.values() for c in own if c.stage == join)
    assert generation.number == 2 and context.awaits_state, "it goes on from what e1 has stored"


def test_a_stage_that_never_began_on_its_lost_node_begins_elsewhere_without_a_state():
    coordinator, join = deployed_but_for_e1(), "q/join-1"
    coordinator.apply([LoseNode("e1"), *TO_CLOUD])
    following = coordinator.take(Aborted("e1", "q", 1, join))
    for node, _ in [i for i in following if isinstance(i[1], Commit)]:
        coordinator.take(Committed(node, "q", 1))
    (generation,) = coordinator.under_way()
    (context,) = (c for own in generation.contexts.values() for c in own if c.stage == join)
    assert generation.number == 2 and not context.awaits_state


@pytest.mark.parametrize("when", [0.5, 1.05, 1.5, 2.5, 3.5])
def test_a_node_is_lost_during_the_first_deployment(when):
    simulation = Simulation(Topology(case().nodes, case().links))
    (query,) = case().queries
    simulation.deploy(query.stage_plans(0))
    for device, stream in (("d1", "a"), ("d2", "b")):
        simulation.feed(device, stream, pa.table([[1], [7]], schema=SCHEMA))
    simulation.run_until(when)
    simulation.change_topology([LoseNode("e1"), *TO_CLOUD])
    simulation.run_until_quiet()
    simulation.check_at_rest()
    for device, stream in (("d1", "a"), ("d2", "b")):
        simulation.feed(device, stream, pa.table([[2], [7]], schema=SCHEMA))
        simulation.feed(device, stream, None, NEVER)
    simulation.run_until_quiet()
    assert sum(len(delivery.rows) for delivery in simulation.deliveries) == 4


def test_a_source_answers_that_it_runs_when_a_generation_that_was_given_up_is_aborted():
    # Its stage never ended there: the node was removed and has come back.
    coordinator = Coordinator(Topology(case().nodes, case().links))
    (query,) = case().queries
    for node, message in coordinator.deploy(query.stage_plans(0)):
        for report in NodeRuntime(node).step([message]).reports:
            coordinator.take(report)
    known = coordinator.queries["q"]
    known.running = None
    known.given_up[3, "q/a@d1"] = "d1"
    assert not coordinator.is_idle
    coordinator.take(Installed("d1", "q", 3, "q/a@d1"))
    assert coordinator.is_idle
