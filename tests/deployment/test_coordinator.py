"""The coordinator: bad input changes nothing, its log makes it again, and lost nodes are not waited for."""

import pytest

from midstream.deployment.protocol.coordinator import Coordinator
from midstream.deployment.protocol.messages import (
    Abort,
    Aborted,
    Commit,
    EnterMarker,
    Installed,
    Prepare,
    RescueState,
    Resume,
)
from midstream.deployment.topology.topology import Link, Node
from midstream.deployment.topology.topology_events import AddLink, AddNode, LoseNode, RemoveLink, RemoveNode
from midstream.errors import BadTopology, MigrationRefused, TopologyError
from tests.deployment.small_deployment import MOVE, MOVE_BACK, O2, O4, O5, SmallDeployment, plans, topology


def known(coordinator: Coordinator) -> tuple:
    """What a coordinator knows."""
    return (
        sorted(coordinator.topology.nodes),
        sorted((link.child, link.parent) for link in coordinator.topology.links()),
        [coordinator.placement.of(query) for query in coordinator.placement.queries],
        [coordinator.deployed(query) for query in coordinator.placement.queries],
        list(coordinator.plan.stages),
        [(g.query, g.number, g.phase) for g in coordinator.under_way()],
    )


@pytest.mark.parametrize(
    "events",
    [
        [RemoveLink("N8", "N4")],
        [RemoveLink("N8", "N5"), AddLink(Link("N8", "N9"))],
        [AddNode(Node("N3"))],
        [AddLink(Link("N1", "N8"))],
        [RemoveNode("N9")],
        [RemoveLink("N8", "N5"), LoseNode("N9")],
        [RemoveLink("N5", "N3"), RemoveNode("N5")],
    ],
)
@pytest.mark.parametrize("is_moving", [False, True])
def test_refused_events_change_nothing(events, is_moving):
    deployment = SmallDeployment()
    if is_moving:
        deployment.coordinator.apply([RemoveLink("N7", "N4"), AddLink(Link("N7", "N6"))])
    before = known(deployment.coordinator)
    with pytest.raises(TopologyError):
        deployment.coordinator.apply(events)
    assert known(deployment.coordinator) == before


def test_a_query_that_cannot_be_placed_changes_nothing():
    bare = topology()
    bare.remove_link("N8", "N5")
    coordinator = Coordinator(bare)
    with pytest.raises(TopologyError):
        coordinator.deploy(plans())
    assert coordinator.is_idle and not list(coordinator.placement.queries) and not coordinator.plan.stages


def test_a_plan_of_other_stages_is_refused_and_changes_nothing():
    deployment = SmallDeployment()
    before = known(deployment.coordinator)
    with pytest.raises(MigrationRefused, match="other stages"):
        deployment.coordinator.migrate(plans()[1:])
    assert known(deployment.coordinator) == before and deployment.coordinator.is_idle


def test_reports_of_other_generations_and_queries_are_ignored():
    deployment = SmallDeployment()
    deployment.move()
    before = known(deployment.coordinator)
    for report in (Installed("N6", "q", 1, O4), Installed("N6", "other", 2, O4), Aborted("N6", "q", 7, O4)):
        assert deployment.coordinator.take(report) == []
    assert known(deployment.coordinator) == before


def test_the_log_makes_the_same_coordinator():
    deployment = SmallDeployment()
    told = []
    take = deployment.coordinator.take
    deployment.coordinator.take = lambda report: (told.append(report), take(report))[1]
    deployment.move()
    deployment.settle()
    again = SmallDeployment().coordinator
    again.apply(MOVE)
    assert known(again) != known(deployment.coordinator)
    for report in told:
        again.take(report)
    assert known(again) == known(deployment.coordinator)


def test_a_generation_that_is_not_marked_is_given_up():
    deployment = SmallDeployment()
    deployment.move()
    deployment.move(MOVE_BACK)
    assert deployment.coordinator.given_up == 1
    deployment.settle()
    assert deployment.where(O4) == ["N5"] and not deployment.nodes["N6"].awaiting


def test_the_old_node_goes_on_only_when_the_new_one_has_confirmed_that_it_will_not_begin():
    deployment = SmallDeployment()
    deployment.move()
    deployment.tell(Prepare)
    deployment.report()
    deployment.tell(EnterMarker)
    deployment.report()
    deployment.envelopes.clear()
    deployment.move([RemoveLink("N6", "N3"), *MOVE_BACK])
    assert [(node, type(m)) for node, m in deployment.control if isinstance(m, Abort | Resume)] == [("N6", Abort)]
    deployment.tell(Abort)
    assert Aborted("N6", "q", 2, O4) in deployment.report()
    assert [(node, type(m)) for node, m in deployment.control if isinstance(m, Resume)] == [("N5", Resume)]
    deployment.settle()
    assert deployment.where(O4) == ["N5"]


def test_a_lost_node_is_not_waited_for():
    deployment = SmallDeployment()
    deployment.move()
    deployment.tell(Prepare)
    deployment.report()
    told = deployment.coordinator.apply([LoseNode("N5")])
    assert (("N6", RescueState(O4, 2, "N5", 1))) in [*told, *deployment.coordinator.ask_again(everything=True)]
    (generation,) = deployment.coordinator.under_way()
    assert O4 not in generation.unacted and O4 in generation.uninstalled


def test_a_commit_does_not_wait_for_a_lost_node():
    deployment = SmallDeployment()
    deployment.move()
    deployment.tell(Prepare)
    deployment.report()
    deployment.tell(EnterMarker)
    for _ in range(9):
        deployment.carry()
        deployment.report()
        deployment.control += deployment.coordinator.ask_again()
        deployment.tell(Prepare, EnterMarker)
    (generation,) = deployment.coordinator.under_way()
    assert generation.phase == "commit" and "N5" in generation.uncommitted
    deployment.coordinator.apply([LoseNode("N5")])
    assert "N5" not in generation.uncommitted
    deployment.tell(Commit, nodes=["N3", "N6", "N8"])
    deployment.report()
    assert deployment.coordinator.generation("q") == 2 and not list(deployment.coordinator.under_way())


def test_a_lost_node_may_come_back_when_nothing_refers_to_it_any_more():
    deployment = SmallDeployment()
    deployment.coordinator.apply([LoseNode("N5"), AddLink(Link("N8", "N6"))])
    before = known(deployment.coordinator)
    with pytest.raises(BadTopology, match='node "N5" was lost'):
        deployment.coordinator.apply([AddNode(Node("N5"))])
    assert known(deployment.coordinator) == before
    idle = SmallDeployment()
    idle.coordinator.apply([LoseNode("N6")])
    assert idle.coordinator.apply([AddNode(Node("N6"))]) == []


def test_the_edges_of_stages_are_named_by_their_producers():
    deployment = SmallDeployment()
    assert deployment.coordinator.plan.stages[O5].inputs == ("q/distinct-1", O4)
    assert deployment.coordinator.placement.of("q").routes[O2] == ("N8", "N5")


def test_a_stage_that_is_cut_off_keeps_its_route_when_its_fragment_is_updated():
    # As a random case has found: it had none when its link was there again.
    deployment = SmallDeployment()
    deployment.move([RemoveLink("N3", "N2")])
    deployment.move(MOVE)
    deployment.feed("N7", "a", (1, 5))
    deployment.feed("N8", "b", (2, 5))
    for _ in range(30):
        deployment.tell(object)
        deployment.carry()
        deployment.report()
        deployment.control += deployment.coordinator.ask_again()
    assert deployment.where(O4) == ["N6"] and deployment.coordinator.is_idle
    assert deployment.nodes["N3"].running[O5].output.route == ("N3", "N2", "N1")
    deployment.move([AddLink(Link("N3", "N2"))])
    assert deployment.end() == [5]
