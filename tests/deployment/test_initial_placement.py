"""Where a query is placed at first."""

from __future__ import annotations

import pytest

from midstream.deployment.placement.global_plan import GlobalPlan, Stage
from midstream.deployment.placement.initial_placement import initial_placement, place_query
from midstream.deployment.placement.placement import Placement
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.errors import NoFreeSlot, SinkUnreachable, UnknownNode


def tree(**slots: int | None) -> Topology:
    """Devices a and b below edge e, d below edge f, both below the cloud c."""
    slots = {"a": 1, "b": 1, "d": 1, **slots}
    links = [Link(*pair) for pair in ("ae", "be", "df", "ec", "fc")]
    return Topology([Node(name, slots.get(name)) for name in "abcdef"], links)


def join(left: str, right: str, query: str = "q", sink: str | None = "c") -> list[Stage]:
    return [
        Stage(f"{query}/{left}", query, (), left),
        Stage(f"{query}/{right}", query, (), right),
        Stage(f"{query}/join", query, (f"{query}/{left}", f"{query}/{right}"), is_stateful=True),
        Stage(f"{query}/sink", query, (f"{query}/join",), sink),
    ]


def test_a_join_runs_on_the_first_common_ancestor_of_its_inputs():
    near = initial_placement(GlobalPlan(join("a", "b")), tree()).of("q")
    assert near.nodes["q/join"] == "e"
    assert near.routes == {"q/a": ("a", "e"), "q/b": ("b", "e"), "q/join": ("e", "c")}
    far = initial_placement(GlobalPlan(join("a", "d")), tree()).of("q")
    assert far.nodes["q/join"] == "c"
    assert far.routes == {"q/a": ("a", "e", "c"), "q/d": ("d", "f", "c"), "q/join": ("c",)}


def test_a_full_node_is_passed_over():
    assert initial_placement(GlobalPlan(join("a", "b")), tree(e=0)).of("q").nodes["q/join"] == "c"


def test_a_stage_with_one_input_runs_where_its_input_runs_if_there_is_room():
    plan = GlobalPlan(
        [Stage("source", "q", (), "a"), Stage("map", "q", ("source",)), Stage("sink", "q", ("map",), "c")]
    )
    assert initial_placement(plan, tree(a=2)).of("q").nodes["map"] == "a"
    assert initial_placement(plan, tree(a=1)).of("q").nodes["map"] == "e"


def test_a_node_from_which_the_next_pinned_stage_cannot_be_reached_is_passed_over():
    topology = Topology(
        [Node(name) for name in "abxyc"],
        [Link(*pair) for pair in ("ax", "bx", "ay", "by", "yc")],
    )
    assert initial_placement(GlobalPlan(join("a", "b")), topology).of("q").nodes["q/join"] == "y"


def test_a_sink_that_is_not_pinned_runs_where_its_rows_are():
    assert initial_placement(GlobalPlan(join("a", "b", sink=None)), tree()).of("q").nodes["q/sink"] == "e"


def test_queries_share_slots():
    plan = GlobalPlan([*join("a", "b"), *join("a", "b", "r")])
    placement = initial_placement(plan, tree(a=2, b=2, e=1))
    assert (placement.of("q").nodes["q/join"], placement.of("r").nodes["r/join"]) == ("e", "c")
    assert (placement.slots_used("a"), placement.slots_used("e"), placement.slots_used("c")) == (2, 1, 3)


def test_a_query_that_has_no_room_changes_nothing():
    plan = GlobalPlan([*join("a", "b"), *join("a", "b", "r")])
    placement = Placement()
    place_query(plan, "q", tree(), placement)
    with pytest.raises(NoFreeSlot) as refusal:
        place_query(plan, "r", tree(), placement)
    assert refusal.value.code == "M6007"
    assert refusal.value.message == 'node "a" has no free slot for stage "r/a"'
    assert list(placement.queries) == ["q"] and placement.slots_used("a") == 1


def test_a_stage_for_which_no_node_has_room_is_refused():
    with pytest.raises(NoFreeSlot) as refusal:
        initial_placement(GlobalPlan(join("a", "b")), tree(e=0, c=1))
    assert refusal.value.message == 'no node has a free slot for stage "q/join" of query "q"'
    assert refusal.value.detail == 'It must run after "a", "b", with a path to "c".'


def test_a_sink_that_cannot_be_reached_is_refused():
    topology = tree()
    topology.remove_link("e", "c")
    with pytest.raises(SinkUnreachable) as refusal:
        initial_placement(GlobalPlan(join("a", "d")), topology)
    assert refusal.value.code == "M6006"
    assert refusal.value.message == 'query "q": no path leads from "a" to "c"'
    with pytest.raises(SinkUnreachable, match='stage "q/join" can be placed on no node that its inputs reach'):
        initial_placement(GlobalPlan(join("a", "d", sink=None)), topology)


def test_a_pinned_stage_whose_node_does_not_exist_is_refused():
    with pytest.raises(UnknownNode, match='stage "q/sink" is pinned to node "cluod", which does not exist'):
        initial_placement(GlobalPlan(join("a", "b", sink="cluod")), tree())
