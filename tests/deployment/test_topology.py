"""What a topology accepts, and which ways it finds."""

from __future__ import annotations

import pytest

from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import (
    AddLink,
    AddNode,
    LoseNode,
    RemoveLink,
    RemoveNode,
    apply_events,
)
from midstream.errors import AlreadyInTopology, BadTopology, CyclicTopology, UnknownLink, UnknownNode


def topology(*links: str, peers: tuple[str, ...] = ()) -> Topology:
    """Nodes with one-letter names; "ab" is a link from a up to b."""
    nodes = sorted({letter for link in (*links, *peers) for letter in link})
    return Topology(
        [Node(letter) for letter in nodes],
        [*(Link(*link) for link in links), *(Link(*link, is_peer=True) for link in peers)],
    )


def test_rows_travel_upwards_only():
    tree = topology("ae", "be", "ec")
    assert tree.path("a", "c") == ("a", "e", "c")
    assert tree.path("c", "a") is None
    assert tree.path("a", "b") is None
    assert tree.path("a", "a") == ("a",)
    assert tree.reachable_from("a") == {"a": 0, "e": 1, "c": 2}
    assert list(tree.reaching("e")) == ["e", "a", "b"]


def test_of_several_shortest_paths_the_first_by_name_is_taken():
    for links in (["az", "ay", "zc", "yc"], ["ay", "az", "yc", "zc"]):
        assert topology(*links).path("a", "c") == ("a", "y", "c")


def test_a_shorter_path_is_taken_before_one_with_lower_names():
    assert topology("ab", "bd", "dc", "az", "zc").path("a", "c") == ("a", "z", "c")


def test_peer_links_carry_rows_in_both_directions_and_are_no_cycle():
    ring = topology("ec", "fc", "gc", "xe", peers=("ef", "fg", "ge"))
    assert ring.path("e", "g") == ("e", "g")
    assert ring.path("g", "e") == ("g", "e")
    assert ring.path("x", "f") == ("x", "e", "f")
    assert ring.path("f", "x") is None
    assert set(ring.reachable_from("x")) == set("xefgc")


def test_state_travels_over_any_link_in_either_direction():
    tree = topology("ae", "bf", "ec", "fc")
    assert tree.state_path("e", "f") == ("e", "c", "f")
    assert tree.state_path("c", "a") == ("c", "e", "a")
    assert tree.state_path("a", "b") == ("a", "e", "c", "f", "b")
    assert tree.state_path("a", "a") == ("a",)
    assert topology("ab", "cd").state_path("a", "d") is None


def test_state_rather_passes_nodes_above_than_devices():
    tree = topology("ae", "af", "em", "mc", "fn", "nc")
    assert tree.state_path("e", "f") == ("e", "m", "c", "n", "f")
    tree.remove_link("n", "c")
    assert tree.state_path("e", "f") == ("e", "a", "f"), "rather than not at all"


def test_a_state_path_does_not_look_at_other_children_of_the_cloud():
    wide = Topology([Node("cloud"), *(Node(f"edge {number}") for number in range(1000))])
    for number in range(1000):
        wide.add_link(Link(f"edge {number}", "cloud"))
    wide._hops_down = None  # type: ignore[method-assign, assignment]
    assert wide.state_path("edge 17", "edge 900") == ("edge 17", "cloud", "edge 900")


def test_a_cycle_is_refused():
    tree = topology("ae", "ec")
    with pytest.raises(CyclicTopology, match='link "c" → "a" would close a cycle') as refusal:
        tree.add_link(Link("c", "a"))
    assert refusal.value.code == "M6005"
    assert refusal.value.detail == '"c" is above "a".'
    assert set(tree.links()) == {Link("a", "e"), Link("e", "c")}
    with pytest.raises(CyclicTopology, match='node "a" cannot be linked to itself'):
        tree.add_link(Link("a", "a", is_peer=True))


@pytest.mark.parametrize(
    ("event", "error", "code", "message"),
    [
        (AddLink(Link("a", "x")), UnknownNode, "M6002", 'there is no node "x"'),
        (RemoveLink("x", "e"), UnknownNode, "M6002", 'there is no node "x"'),
        (RemoveNode("x"), UnknownNode, "M6002", 'there is no node "x"'),
        (LoseNode("x"), UnknownNode, "M6002", 'there is no node "x"'),
        (RemoveLink("a", "c"), UnknownLink, "M6003", 'there is no link "a" → "c"'),
        (RemoveLink("e", "a"), UnknownLink, "M6003", 'there is no link "e" → "a"'),
        (AddLink(Link("a", "e")), AlreadyInTopology, "M6004", 'nodes "a" and "e" are linked already'),
        (AddLink(Link("e", "a")), AlreadyInTopology, "M6004", 'nodes "e" and "a" are linked already'),
        (AddLink(Link("a", "e", is_peer=True)), AlreadyInTopology, "M6004", 'nodes "a" and "e" are linked already'),
        (AddNode(Node("e")), AlreadyInTopology, "M6004", 'node "e" exists already'),
        (AddNode(Node("b")), BadTopology, "M6001", 'node "b" leaves and returns in one batch of events'),
    ],
)
def test_an_event_that_cannot_be_is_refused_and_those_before_it_are_taken_back(event, error, code, message):
    tree = topology("ae", "be", "ec")
    with pytest.raises(error) as refusal:
        apply_events(tree, [AddNode(Node("d")), AddLink(Link("d", "c")), RemoveNode("b"), event])
    assert (refusal.value.code, refusal.value.message) == (code, message)
    assert set(tree.nodes) == set("abec")
    assert set(tree.links()) == {Link("a", "e"), Link("b", "e"), Link("e", "c")}
    assert not tree.leaving


def test_a_wrong_direction_and_a_near_name_are_pointed_out():
    tree = Topology([Node("edge 1"), Node("cloud")], [Link("edge 1", "cloud")])
    with pytest.raises(UnknownLink) as reverse:
        tree.remove_link("cloud", "edge 1")
    assert reverse.value.hint == 'There is one "edge 1" → "cloud".'
    with pytest.raises(UnknownNode) as near:
        tree.remove_node("egde 1")
    assert near.value.hint == 'Did you mean "edge 1"?'


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Node(""), "a node has no name"),
        (lambda: Node("a", slots=-1), 'node "a" has -1 slots'),
        (lambda: Link("a", "b", latency_ms=-1), 'link "a" → "b" has a latency of -1 ms'),
        (lambda: Link("a", "b", latency_ms=float("nan")), 'link "a" → "b" has a latency of nan ms'),
        (lambda: Link("a", "b", bandwidth_mbit_per_s=0), 'link "a" → "b" has a bandwidth of 0 Mbit/s'),
    ],
)
def test_values_that_cannot_be_are_refused(make, message):
    with pytest.raises(BadTopology) as refusal:
        make()
    assert (refusal.value.code, refusal.value.message) == ("M6001", message)


def test_state_can_be_fetched_from_a_leaving_node_until_it_is_forgotten():
    tree = topology("ae", "ec", "fc")
    tree.remove_node("e")
    assert "e" not in tree.nodes and "e" in tree.leaving
    assert tree.path("a", "c") is None
    assert tree.state_path("e", "f") == ("e", "c", "f")
    assert tree.link("e", "c") == Link("e", "c")
    assert tree.state_path("a", "f") is None, "other state does not pass it"
    tree.forget("e")
    assert tree.state_path("e", "f") is None


def test_state_passes_several_nodes_that_leave_together():
    chain = topology("ab", "bc", "cd")
    apply_events(chain, [RemoveNode("b"), RemoveNode("c")])
    assert chain.state_path("b", "d") == ("b", "c", "d")
    apply_events(chain, [LoseNode("c")])
    assert chain.state_path("b", "d") is None


def test_a_lost_node_is_gone_with_what_it_held():
    tree = topology("ae", "ec", "fc")
    tree.lose_node("e")
    assert "e" not in tree.nodes and not tree.leaving
    assert tree.state_path("e", "f") is None


def test_a_node_that_returns_is_a_new_one():
    tree = topology("ae", "ec", "fc")
    tree.remove_node("e")
    tree.add_node(Node("e", slots=3))
    assert tree.nodes["e"].slots == 3 and not tree.leaving
    assert tree.state_path("e", "c") is None, "it has no links as yet"


def test_inner_transactions_are_taken_back_with_the_outer_one():
    tree = topology("ae", "ec")
    with pytest.raises(RuntimeError), tree.transaction():
        with tree.transaction():
            tree.remove_link("a", "e")
        raise RuntimeError
    assert tree.path("a", "c") == ("a", "e", "c")
