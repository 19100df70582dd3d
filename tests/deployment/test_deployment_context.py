"""What becomes of fragments when stages come and go."""

from __future__ import annotations

import pytest

from midstream.deployment.placement.deployment_context import (
    StateMigration,
    ToBeDeployed,
    ToBeUndeployed,
    ToBeUpdated,
    deploy,
    redeploy,
    redeploy_holistically,
)
from midstream.deployment.placement.fragments import Fragment, check_deployment, decompose
from midstream.deployment.placement.global_plan import GlobalPlan, Stage
from midstream.deployment.placement.initial_placement import initial_placement
from midstream.deployment.placement.placement import QueryPlacement
from midstream.deployment.placement.placement_amendment import QueryAmendment, StageMove, amend
from midstream.deployment.placement.reconfiguration_marker import Action, MarkerEntry
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import AddLink, LoseNode, RemoveLink, RemoveNode
from midstream.errors import InvalidPlacement

CHAIN = GlobalPlan(
    [
        Stage("1", "q", (), "e"),
        Stage("2", "q", ("1",), is_stateful=True),
        Stage("3", "q", ("2",), is_stateful=True),
        Stage("4", "q", ("3",), "c"),
    ]
)
TOPOLOGY = Topology(
    [Node(name) for name in "efgc"], [Link("e", "c"), Link("f", "c"), Link("g", "c"), Link("e", "f", is_peer=True)]
)


def placed(*nodes: str) -> QueryPlacement:
    """The stages 1, 2, … on these nodes."""
    where = {str(number + 1): node for number, node in enumerate(nodes)}
    routes = {str(n): TOPOLOGY.path(where[str(n)], where[str(n + 1)]) or () for n in range(1, len(nodes))}
    return QueryPlacement("q", where, routes)


def moved(before: QueryPlacement, after: QueryPlacement) -> QueryAmendment:
    moves = tuple(
        StageMove(stage, before.nodes[stage], node, TOPOLOGY.state_path(before.nodes[stage], node))
        for stage, node in after.nodes.items()
        if before.nodes[stage] != node
    )
    return QueryAmendment("q", before, after, moves)


def test_neighbouring_stages_on_one_node_are_one_fragment():
    assert decompose(CHAIN, placed("e", "e", "c", "c")) == [("e", ("1", "2")), ("c", ("3", "4"))]
    assert decompose(CHAIN, placed("e", "f", "e", "c")) == [("e", ("1",)), ("f", ("2",)), ("e", ("3",)), ("c", ("4",))]


def test_at_first_everything_is_deployed():
    first = deploy(CHAIN, placed("e", "e", "c", "c"))
    assert [context.fragment for context in first.contexts] == [
        Fragment("q#1", 1, "q", "e", ("1", "2"), {}, ("e", "c")),
        Fragment("q#2", 1, "q", "c", ("3", "4"), {"2": "e"}, None),
    ]
    assert not first.marker and not first.entry_points


def test_a_fragment_that_gains_a_stage_is_updated_and_takes_over_its_state():
    before, after = placed("e", "e", "c", "c"), placed("e", "e", "e", "c")
    first = deploy(CHAIN, before)
    change = redeploy(CHAIN, first.after, moved(before, after), TOPOLOGY)
    assert change.contexts == (
        ToBeUpdated("e", "q#1", 1, Fragment("q#1", 2, "q", "e", ("1", "2", "3"), {}, ("e", "c"))),
        ToBeUpdated("c", "q#2", 1, Fragment("q#2", 2, "q", "c", ("4",), {"3": "e"}, None)),
    )
    assert change.migrations == (StateMigration("3", "q#2", "q#1", ("c", "e")),)
    assert change.entry_points == ("q#1",), "the one on the cloud gets the marker from it"


def test_a_fragment_that_is_split_keeps_its_id_in_the_larger_part():
    before, after = placed("e", "e", "e", "c"), placed("e", "f", "e", "c")
    first = deploy(CHAIN, before)
    change = redeploy(CHAIN, first.after, moved(before, after), TOPOLOGY)
    assert change.after.fragments["q#1"].stages == ("1",)
    assert {m.stage: (m.source, m.path) for m in change.migrations} == {
        "2": ("q#1", ("e", "f")),
        "3": ("q#1", ("e",)),
    }, "state that stays on its node passes to the new fragment there"
    back = redeploy(CHAIN, change.after, moved(after, before), TOPOLOGY)
    assert back.after.fragments["q#1"].stages == ("1", "2", "3")
    assert {entry.action for entry in back.marker.values()} == {Action.UPDATE, Action.UPDATE_THEN_DRAIN}
    assert len(back.migrations) == 2


def test_a_fragment_without_state_is_just_drained():
    plan = GlobalPlan([Stage("1", "q", (), "e"), Stage("2", "q", ("1",)), Stage("3", "q", ("2",), "c")])
    before, after = placed("e", "f", "c"), placed("e", "c", "c")
    first = deploy(plan, before)
    change = redeploy(plan, first.after, moved(before, after), TOPOLOGY)
    assert ToBeUndeployed("f", "q#2", 1) in change.contexts
    assert change.marker["q#2", 1] == MarkerEntry(Action.DRAIN)


JOIN = GlobalPlan(
    [
        Stage("a", "q", (), "a"),
        Stage("b", "q", (), "b"),
        Stage("join", "q", ("a", "b"), is_stateful=True),
        Stage("sink", "q", ("join",), "c"),
    ]
)


class Running:
    """The join on two devices below edge node e; f is another one."""

    def __init__(self) -> None:
        links = [Link(*pair) for pair in ("ae", "be", "ec", "fc")]
        self.topology = Topology([Node(name, 1 if name in "ab" else None) for name in "abcef"], links)
        self.placement = initial_placement(JOIN, self.topology)
        self.deployed = deploy(JOIN, self.placement.of("q")).after

    def change(self, *events):
        amendment = amend(JOIN, self.topology, self.placement, events)
        change = redeploy(JOIN, self.deployed, amendment.queries["q"], self.topology)
        self.deployed = change.after
        return change


def test_an_edge_that_is_cut_off_and_restored_on_the_same_route_touches_no_fragment():
    running = Running()
    assert not running.change(RemoveLink("a", "e")).contexts
    assert not running.change(AddLink(Link("a", "e"))).contexts


def test_a_device_that_was_out_of_reach_is_told_of_the_move_when_it_returns():
    running = Running()
    running.change(RemoveLink("a", "e"))
    assert {c.node for c in running.change(RemoveLink("b", "e"), AddLink(Link("b", "f"))).contexts} == {
        "b",
        "c",
        "e",
        "f",
    }
    (told,) = running.change(AddLink(Link("a", "f"))).contexts
    assert (told.node, told.fragment.route) == ("a", ("a", "f"))


def test_a_lost_node_is_told_nothing():
    change = Running().change(LoseNode("e"), AddLink(Link("a", "f")), AddLink(Link("b", "f")))
    assert change.lost == ("q#3",)
    assert {context.node for context in change.contexts} == {"a", "b", "c", "f"}
    assert not change.migrations
    assert set(change.entry_points) == {"q#1", "q#2", "q#4"}, "nothing comes to the cloud any more"


def test_a_removed_node_hands_its_state_over():
    change = Running().change(RemoveNode("e"), AddLink(Link("a", "f")), AddLink(Link("b", "f")))
    assert change.marker["q#3", 1] == MarkerEntry(Action.UPDATE_THEN_DRAIN, 2)
    (migration,) = change.migrations
    assert (migration.stage, migration.source, migration.path) == ("join", "q#3", ("e", "c", "f"))
    assert set(change.entry_points) == {"q#1", "q#2", "q#3", "q#4"}, "it cannot be reached by rows any more"


def test_the_marker_is_inserted_once_along_a_route_that_still_exists():
    running = Running()
    change = running.change(RemoveLink("a", "e"), AddLink(Link("a", "f")))
    entries = {fragment for fragment, _ in change.marker}
    nodes = {running.deployed.fragments.get(id, change.before.fragments[id]).node for id in change.entry_points}
    assert {change.before.fragments[id].node for id in entries} == {"a", "b", "e", "c"}
    assert nodes == {"a", "b"}, "e gets it from b, and the cloud from e"


def test_a_holistic_redeployment_touches_every_fragment():
    running = Running()
    amend(JOIN, running.topology, running.placement, [RemoveLink("a", "e"), AddLink(Link("a", "f"))])
    change = redeploy_holistically(JOIN, running.deployed, running.placement.of("q"), running.topology)
    assert [type(context) for context in change.contexts] == 4 * [ToBeUndeployed] + 3 * [ToBeDeployed]
    assert change.before.fragments.keys().isdisjoint(change.after.fragments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f[:-1], 'the fragments of query "q" are not its maximal connected parts'),
        (lambda f: [*f, f[0]], 'the fragments of query "q" are not its maximal connected parts'),
        (
            lambda f: [*f[:2], Fragment("x", 1, "q", "f", ("join",)), f[3]],
            'fragment "x" on node "f" has stage "join", which is placed on node "e"',
        ),
    ],
)
def test_fragments_that_do_not_fit_the_placement_are_invalid(change, message):
    running = Running()
    fragments = list(running.deployed.fragments.values())
    check_deployment(JOIN, running.placement.of("q"), fragments, running.topology)
    with pytest.raises(InvalidPlacement) as refusal:
        check_deployment(JOIN, running.placement.of("q"), change(fragments), running.topology)
    assert (refusal.value.code, refusal.value.message) == ("M6009", message)


def test_a_route_over_a_link_that_does_not_exist_is_invalid():
    running = Running()
    running.topology.remove_link("e", "c")
    with pytest.raises(InvalidPlacement) as refusal:
        check_deployment(JOIN, running.placement.of("q"), running.deployed.fragments.values(), running.topology)
    assert refusal.value.message == 'edge "join" → "sink" has no valid route from node "e" to node "c"'
    assert refusal.value.detail == 'Condition 2: every edge between two nodes has a path. Its route is "e", "c".'
