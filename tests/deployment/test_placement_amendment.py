"""What a batch of events changes, case by case. Devices a, b, d; edge nodes e, f, g; cloud c."""

from __future__ import annotations

import pytest

from midstream.deployment.placement.global_plan import GlobalPlan, Stage
from midstream.deployment.placement.initial_placement import initial_placement
from midstream.deployment.placement.placement_amendment import Amendment, StageMove, amend
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import (
    AddLink,
    AddNode,
    LoseNode,
    RemoveLink,
    RemoveNode,
    TopologyEvent,
)
from midstream.errors import NoFreeSlot, StateOutOfReach

JOIN = [
    Stage("a", "q", (), "a"),
    Stage("b", "q", (), "b"),
    Stage("join", "q", ("a", "b"), is_stateful=True),
    Stage("sink", "q", ("join",), "c"),
]


class Case:
    """A plan on a topology; "ae" is a link from a up to e."""

    def __init__(self, links: str, plan: list[Stage] = JOIN, peers: str = "", **slots: int) -> None:
        pairs = [*links.split(), *peers.split()]
        self.plan = GlobalPlan(plan)
        nodes = [Node(name, slots.get(name, 1 if name in "abd" else None)) for name in sorted({*"".join(pairs)})]
        self.topology = Topology(nodes, [Link(*pair, is_peer=pair in peers.split()) for pair in pairs])
        self.placement = initial_placement(self.plan, self.topology)

    def amend(self, *events: TopologyEvent | str) -> Amendment:
        """Amend; "-ae" removes a link, "+af" adds one."""
        batch = [
            event
            if not isinstance(event, str)
            else AddLink(Link(*event[1:]))
            if event[0] == "+"
            else RemoveLink(*event[1:])
            for event in events
        ]
        return amend(self.plan, self.topology, self.placement, batch)

    def nodes(self) -> dict[str, str]:
        return {stage: node for query in self.plan.queries for stage, node in self.placement.of(query).nodes.items()}


def test_if_the_consumer_can_still_be_reached_only_the_route_changes():
    case = Case("ax xe be ec ay ye")
    amendment = case.amend("-ax")
    assert not list(amendment.moves)
    assert amendment.rerouted == {"a": (("a", "x", "e"), ("a", "y", "e"))}


def test_a_join_follows_its_sources():
    case = Case("ae be ec fc")
    amendment = case.amend("-ae", "+af", "-be", "+bf")
    assert list(amendment.moves) == [StageMove("join", "e", "f", ("e", "c", "f"))]
    assert list(amendment.queries) == ["q"]


def test_a_join_whose_sources_part_goes_up_to_where_they_meet():
    case = Case("ae be ec fc")
    amendment = case.amend("-ae", "+af")
    assert list(amendment.moves) == [StageMove("join", "e", "c", ("e", "c"))]
    assert amendment.rerouted["b"] == (("b", "e"), ("b", "e", "c")), "the other source is told as well"


def test_a_better_place_is_not_taken_as_long_as_rows_get_through():
    case = Case("ae be ec fc")
    case.amend("-ae", "+af")
    amendment = case.amend("-af", "+ae")
    assert case.nodes()["join"] == "c"
    assert not list(amendment.moves)


def test_peers_make_a_move_needless():
    case = Case("ae be ec fc", peers="ef")
    amendment = case.amend("-ae", "+af", "-be", "+bf")
    assert not list(amendment.moves)
    assert amendment.rerouted["a"] == (("a", "e"), ("a", "f", "e"))


def test_a_link_that_is_removed_and_added_in_one_batch_changes_nothing():
    assert not Case("ae be ec").amend("-ae", "+ae").queries


def test_other_queries_are_not_looked_at():
    other = [Stage("d", "r", (), "d"), Stage("map", "r", ("d",)), Stage("end", "r", ("map",), "c")]
    case = Case("ae be df ec fc", [*JOIN, *other])
    before = case.placement.of("r")
    case.amend("-ae", "+af")
    assert case.placement.of("r") is before


def test_a_device_out_of_reach_is_cut_off_and_nothing_moves():
    case = Case("ae be ec fc")
    before = case.nodes()
    amendment = case.amend("-ae")
    assert amendment.cut_off == ["a"] and not list(amendment.moves)
    assert case.nodes() == before
    again = case.amend("+ae")
    assert again.restored == ["a"] and not list(again.moves)
    assert case.placement.of("q").routes["a"] == ("a", "e")


def test_a_device_that_returns_elsewhere_takes_its_join_along():
    case = Case("ae be ec fc")
    case.amend("-ae", "-be")
    amendment = case.amend("+af", "+bf")
    assert list(amendment.moves) == [StageMove("join", "e", "f", ("e", "c", "f"))]
    assert amendment.restored == ["a", "b"]


def test_a_link_far_above_a_device_restores_it():
    case = Case("ax xe be ec")
    case.amend("-xe")
    assert case.amend("+xc").restored == ["a"]


def test_a_link_that_cannot_help_leaves_an_edge_cut_off():
    case = Case("ae be ec fc")
    case.amend("-ae")
    amendment = case.amend(AddNode(Node("x")), "+ax")
    assert not amendment.queries
    assert case.amend("+xe").restored == ["a"], "though the way is longer now"


def test_the_stages_between_two_pins_are_placed_together():
    plan = [
        *JOIN[:3],
        Stage("d", "q", (), "d"),
        Stage("upper", "q", ("join", "d"), is_stateful=True),
        Stage("sink", "q", ("upper",), "c"),
    ]
    case = Case("ae be de ec fc", plan)
    amendment = case.amend("-ae", "+af", "-be", "+bf", "-de", "+df")
    assert [(move.stage, move.target) for move in amendment.moves] == [("join", "f"), ("upper", "f")]


def test_a_stage_above_stays_if_it_can_be_reached():
    plan = [
        *JOIN[:3],
        Stage("d", "q", (), "d"),
        Stage("upper", "q", ("join", "d"), is_stateful=True),
        Stage("sink", "q", ("upper",), "c"),
    ]
    case = Case("ae be em fm dm mc", plan)
    assert case.nodes()["upper"] == "m"
    amendment = case.amend("-ae", "+af", "-be", "+bf")
    assert [(move.stage, move.target) for move in amendment.moves] == [("join", "f")]
    assert "d" not in amendment.rerouted


def test_a_pinned_stage_never_moves():
    plan = [Stage("a", "q", (), "a"), Stage("here", "q", ("a",), "e"), Stage("sink", "q", ("here",), "c")]
    case = Case("ae ec fc", plan)
    assert case.amend("-ae", "+af").cut_off == ["a"]


def test_a_stage_does_not_move_where_its_state_cannot_follow():
    case = Case("ae be ec fc")
    case.amend("-ec")
    assert list(case.placement.cut_off()) == ["join"]
    amendment = case.amend("-ae", "+af", "-be", "+bf")
    assert amendment.cut_off == ["a", "b"] and not list(amendment.moves), "the join's state is still on e"
    amendment = case.amend("+ef")
    assert list(amendment.moves) == [StageMove("join", "e", "f", ("e", "f"))]
    assert set(amendment.restored) == {"a", "b", "join"}


def test_the_state_of_a_removed_node_is_fetched_over_the_links_it_had():
    case = Case("ae be ec fc")
    amendment = case.amend(RemoveNode("e"), "+af", "+bf")
    assert list(amendment.moves) == [StageMove("join", "e", "f", ("e", "c", "f"))]
    assert not amendment.lost_state


def test_the_state_of_a_lost_node_is_lost():
    case = Case("ae be ec fc")
    amendment = case.amend(LoseNode("e"), "+af", "+bf")
    assert list(amendment.moves) == [StageMove("join", "e", "f", None)]
    assert amendment.lost_state == ["join"]


@pytest.mark.parametrize("event", [RemoveNode("e"), LoseNode("e")])
def test_a_stage_that_must_leave_goes_towards_its_consumer_if_its_inputs_are_cut_off(event):
    case = Case("ae be ec fc")
    amendment = case.amend(event)
    assert case.nodes()["join"] == "c"
    assert amendment.cut_off == ["a", "b"]
    assert not list(case.amend("+af", "+bf").moves), "whatever comes back finds it there"


@pytest.mark.parametrize("event", [RemoveNode("a"), LoseNode("a")])
def test_the_source_of_a_device_that_leaves_waits_for_its_return(event):
    case = Case("ae be ec fc")
    amendment = case.amend(event)
    assert list(amendment.moves) == [StageMove("a", "a", None, None)]
    assert amendment.cut_off == ["a"]
    amendment = case.amend(AddNode(Node("a", 1)), "+ae")
    assert list(amendment.moves) == [StageMove("a", None, "a", None)]
    assert amendment.restored == ["a"]


def test_a_query_waits_for_its_sink():
    case = Case("ae be ec fc")
    assert case.amend(RemoveNode("c")).cut_off == ["join"]
    assert not case.amend(AddNode(Node("c"))).restored
    assert case.amend("+ec").restored == ["join"]
    assert case.nodes() == {"a": "a", "b": "b", "join": "e", "sink": "c"}


def test_a_node_whose_state_has_nowhere_to_go_cannot_be_removed():
    case = Case("ae be ec fc")
    case.amend("-ec", "-ae", "-be")
    before = case.placement.of("q")
    with pytest.raises(StateOutOfReach) as refusal:
        case.amend("+ac", "+bc", RemoveNode("e"))
    assert refusal.value.code == "M6008"
    assert refusal.value.message == 'the state of stage "join" cannot be brought away from node "e"'
    assert case.placement.of("q") is before
    assert "e" in case.topology.nodes and case.topology.link("a", "c") is None
    assert case.amend("+ac", "+bc", LoseNode("e")).lost_state == ["join"], "a loss is a fact"


def test_a_query_without_room_stays_where_it_is_and_follows_when_there_is_room():
    case = Case("ae be ec fc", f=0, c=1)
    before = case.nodes()
    amendment = case.amend("-ae", "+af", "-be", "+bf")
    assert amendment.waiting["q"].startswith('[M6007] no node has a free slot for stage "join" of query "q"')
    assert case.topology.path("a", "f") == ("a", "f"), "what has happened is known"
    assert case.nodes() == before and amendment.cut_off == ["a", "b"]
    again = amend(case.plan, case.topology, case.placement, [AddNode(Node("g"))], reconsider=["q"])
    assert "q" in again.waiting and not again.queries
    roomy = [RemoveLink("f", "c"), AddLink(Link("f", "g")), AddLink(Link("g", "c"))]
    again = amend(case.plan, case.topology, case.placement, roomy, reconsider=["q"])
    assert not again.waiting and case.nodes()["join"] == "g" and not list(case.placement.cut_off())


def test_the_stages_of_a_lost_node_run_nowhere_if_no_node_has_room():
    case = Case("ae be ec fc", f=0, c=1)
    amendment = case.amend(LoseNode("e"), "+af", "+bf")
    assert "q" in amendment.waiting and "join" not in case.nodes()
    assert list(amendment.moves) == [StageMove("join", "e", None)]


def test_a_removal_for_which_no_node_has_room_is_refused_and_nothing_changes():
    case = Case("ae be ec fc", f=0, c=1)
    before = case.placement.of("q")
    with pytest.raises(NoFreeSlot) as refusal:
        case.amend(RemoveNode("e"), "+af", "+bf")
    assert refusal.value.code == "M6007"
    assert refusal.value.message == 'no node has a free slot for stage "join" of query "q"'
    assert case.placement.of("q") is before and "e" in case.topology.nodes


def test_a_query_without_room_does_not_keep_others_from_moving():
    def query(name: str, device: str) -> list[Stage]:
        source, map_, sink = (f"{name}{stage}" for stage in (1, 2, 3))
        return [Stage(source, name, (), device), Stage(map_, name, (source,)), Stage(sink, name, (map_,), "c")]

    # p2 would take the slot of q2, which has to stay: both wait. o2 moves.
    plan = [*query("o", "d"), *query("p", "a"), *query("q", "b")]
    case = Case("ae bf dh ec fc gc hc ic", plan, e=1, f=1, g=0, c=3)
    amendment = case.amend("-ae", "+af", "-bf", "+bg", "-dh", "+di")
    assert set(amendment.waiting) == {"p", "q"}
    assert (case.nodes()["o2"], case.nodes()["p2"], case.nodes()["q2"]) == ("i", "e", "f")


def test_slots_that_are_given_up_in_a_batch_can_be_taken_in_it():
    def query(name: str, device: str) -> list[Stage]:
        stages = (f"{name}{stage}" for stage in (1, 2, 3))
        source, map_, sink = stages
        return [Stage(source, name, (), device), Stage(map_, name, (source,)), Stage(sink, name, (map_,), "c")]

    case = Case("ae bf ec fc", [*query("p", "a"), *query("q", "b")], e=1, f=1, c=2)
    case.amend("-ae", "+af", "-bf", "+be")
    assert (case.nodes()["p2"], case.nodes()["q2"]) == ("f", "e")


def test_batches_are_amended_one_after_the_other():
    case = Case("ae be ec fc gc")
    case.amend("-ae", "+af", "-be", "+bf")
    amendment = case.amend("-af", "+ag", "-bf", "+bg")
    assert list(amendment.moves) == [StageMove("join", "f", "g", ("f", "c", "g"))]


def test_a_placement_that_was_put_back_is_amended_again():
    case = Case("ae be ec fc")
    amendment = case.amend("-ae", "+af", "-be", "+bf")
    case.placement.put(amendment.queries["q"].before)
    again = amend(case.plan, case.topology, case.placement, [], reconsider=["q"])
    assert again == amendment


def test_another_producer_of_a_stage_that_moves_makes_stages_above_move():
    plan = [*JOIN[:3], Stage("upper", "q", ("join",)), Stage("sink", "q", ("upper",), "c")]
    case = Case("ae be ac en nc", plan, e=1)
    assert case.nodes() == {"a": "a", "b": "b", "join": "e", "upper": "n", "sink": "c"}
    # b's rows now come in at n and a's at the cloud: though b could go on below "upper", a could not.
    amendment = case.amend("-en", "-be", "+bn")
    assert [(move.stage, move.target) for move in amendment.moves] == [("join", "c"), ("upper", "c")]
    assert not list(case.placement.cut_off())


def test_a_stage_does_not_move_for_a_stage_above_that_moves_out_of_reach():
    plan = [
        Stage("a", "q", (), "a"),
        Stage("b", "q", (), "b"),
        Stage("lower", "q", ("a",), is_stateful=True),
        Stage("upper", "q", ("lower", "b"), is_stateful=True),
        Stage("sink", "q", ("upper",), "c"),
    ]
    case = Case("ae en bn nc fc", plan)
    assert (case.nodes()["lower"], case.nodes()["upper"]) == ("e", "n")
    # a could go on below "upper" on n, but n is cut off, and b takes "upper" to f.
    amendment = case.amend("-nc", "-ae", "+an", "-bn", "+bf", "+ef")
    assert [(move.stage, move.target) for move in amendment.moves] == [("upper", "f")]
    assert amendment.cut_off == ["a"]
    assert case.nodes()["lower"] == "e"
