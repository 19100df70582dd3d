"""The worked example of ISQD (figures 2, 4, 5 and 6), as far as planning goes: a train, N8, moves from N5 to N6.

::

    plan:   O1 → O3 ─┐                      topology:   N7 → N4 ─┐
            O2 → O4 ─┴→ O5 → O6 → O7                    N8 → N5 ─┼→ N3 → N2 → N1
                                                             N6 ─┘

O1 and O2 are sources on trains, O3 and O4 partial aggregates, O5 the whole one. The paper has two outputs, O6 and O7;
as our stages have one consumer each, O6 writes its output and passes the rows on.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from midstream.deployment.placement.deployment_context import (
    FragmentState,
    Redeployment,
    StateMigration,
    ToBeDeployed,
    ToBeUndeployed,
    ToBeUpdated,
    deploy,
    redeploy,
)
from midstream.deployment.placement.fragments import check_deployment, check_state_paths, decompose
from midstream.deployment.placement.global_plan import GlobalPlan, Stage
from midstream.deployment.placement.initial_placement import initial_placement
from midstream.deployment.placement.placement_amendment import StageMove, amend
from midstream.deployment.placement.reconfiguration_marker import Action, MarkerEntry
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import AddLink, RemoveLink
from midstream.errors import InvalidPlacement

PLAN = GlobalPlan(
    [
        Stage("O1", "trains", (), pinned_to="N7"),
        Stage("O2", "trains", (), pinned_to="N8"),
        Stage("O3", "trains", ("O1",), is_stateful=True),
        Stage("O4", "trains", ("O2",), is_stateful=True),
        Stage("O5", "trains", ("O3", "O4"), is_stateful=True),
        Stage("O6", "trains", ("O5",), pinned_to="N2"),
        Stage("O7", "trains", ("O6",), pinned_to="N1"),
    ]
)
AT_T0 = {"O1": "N7", "O2": "N8", "O3": "N4", "O4": "N5", "O5": "N3", "O6": "N2", "O7": "N1"}
MOVE = (RemoveLink("N8", "N5"), AddLink(Link("N8", "N6")))


class Example:
    """The example before the move."""

    def __init__(self) -> None:
        slots = {"N7": 1, "N8": 1}
        self.topology = Topology(Node(f"N{number}", slots.get(f"N{number}")) for number in range(1, 9))
        for child, parent in ["74", "85", "43", "53", "63", "32", "21"]:
            self.topology.add_link(Link(f"N{child}", f"N{parent}"))
        self.placement = initial_placement(PLAN, self.topology)
        self.deployed = deploy(PLAN, self.placement.of("trains")).after

    def move(self) -> Redeployment:
        self.amendment = amend(PLAN, self.topology, self.placement, MOVE)
        return redeploy(PLAN, self.deployed, self.amendment.queries["trains"], self.topology)

    def on(self, node: str) -> str:
        """The id of the fragment that runs on a node before the move."""
        (fragment,) = (fragment.id for fragment in self.deployed.fragments.values() if fragment.node == node)
        return fragment


@pytest.fixture
def example():
    return Example()


def test_figure_2b_each_operator_is_a_fragment_of_its_own(example):
    assert example.placement.of("trains").nodes == AT_T0
    assert {(node, stages) for node, stages in decompose(PLAN, example.placement.of("trains"))} == {
        (node, (stage,)) for stage, node in AT_T0.items()
    }
    check_deployment(PLAN, example.placement.of("trains"), example.deployed.fragments.values(), example.topology)


def test_figure_2c_after_the_move_the_old_fragments_are_invalid(example):
    before = example.placement.of("trains")
    old = example.deployed.fragments.values()
    example.move()
    with pytest.raises(InvalidPlacement, match=r'"O4", which is placed on node "N6"') as condition_1:
        check_deployment(PLAN, example.placement.of("trains"), old, example.topology)
    assert "Condition 1" in condition_1.value.detail
    with pytest.raises(InvalidPlacement, match='edge "O2" → "O4" has no valid route') as condition_2:
        check_deployment(PLAN, before, old, example.topology)
    assert "Condition 2" in condition_2.value.detail


def test_figure_2c_only_o4_moves(example):
    redeployment = example.move()
    assert list(example.amendment.moves) == [StageMove("O4", "N5", "N6", ("N5", "N3", "N6"))]
    assert example.placement.of("trains").nodes == {**AT_T0, "O4": "N6"}
    assert example.amendment.rerouted == {
        "O2": (("N8", "N5"), ("N8", "N6")),
        "O4": (("N5", "N3"), ("N6", "N3")),
    }
    check_deployment(PLAN, example.placement.of("trains"), redeployment.after.fragments.values(), example.topology)


def test_figure_4_the_example_has_all_states(example):
    redeployment = example.move()
    (new,) = set(redeployment.after.fragments) - set(redeployment.before.fragments)
    expected = {
        **{example.on(f"N{number}"): FragmentState.DEPLOYED for number in (1, 2, 4, 7)},
        example.on("N3"): FragmentState.TO_BE_UPDATED,
        example.on("N8"): FragmentState.TO_BE_UPDATED,
        example.on("N5"): FragmentState.TO_BE_UNDEPLOYED,
        new: FragmentState.TO_BE_DEPLOYED,
    }
    assert {fragment: redeployment.state_of(fragment) for fragment in expected} == expected


def test_figure_4_a_context_has_what_its_state_needs(example):
    redeployment = example.move()
    contexts = {context.node: context for context in redeployment.contexts}
    assert set(contexts) == {"N3", "N5", "N6", "N8"}
    deployed = contexts["N6"]
    assert isinstance(deployed, ToBeDeployed)
    assert (deployed.fragment.stages, deployed.fragment.version) == (("O4",), 1)
    assert (deployed.fragment.inputs, deployed.fragment.route) == ({"O2": "N8"}, ("N6", "N3"))
    sender, receiver = contexts["N8"], contexts["N3"]
    assert isinstance(sender, ToBeUpdated) and isinstance(receiver, ToBeUpdated)
    assert (sender.fragment_id, sender.version, sender.fragment.version) == (example.on("N8"), 1, 2)
    assert sender.fragment.route == ("N8", "N6")
    assert receiver.fragment.inputs == {"O3": "N4", "O4": "N6"}
    assert contexts["N5"] == ToBeUndeployed("N5", example.on("N5"), 1)


def test_figure_5a_o4_would_run_without_its_state(example):
    example.move()
    query = example.amendment.queries["trains"]
    check_state_paths(PLAN, query)
    (move,) = query.moves
    with pytest.raises(InvalidPlacement, match="without its state") as condition_3:
        check_state_paths(PLAN, replace(query, moves=(replace(move, state_path=None),)))
    assert "Condition 3" in condition_3.value.detail


def test_figure_5b_a_migration_takes_the_state_from_n5_to_n6(example):
    redeployment = example.move()
    (new,) = set(redeployment.after.fragments) - set(redeployment.before.fragments)
    assert redeployment.migrations == (StateMigration("O4", example.on("N5"), new, ("N5", "N3", "N6")),)


def test_figure_6c_the_marker_and_where_it_is_inserted(example):
    redeployment = example.move()
    assert redeployment.marker == {
        (example.on("N5"), 1): MarkerEntry(Action.UPDATE_THEN_DRAIN, 2),
        (example.on("N8"), 1): MarkerEntry(Action.UPDATE, 2),
        (example.on("N3"), 1): MarkerEntry(Action.UPDATE, 2),
    }
    assert set(redeployment.entry_points) == {example.on("N5"), example.on("N8")}


def test_figure_6h_moving_back_is_an_ordinary_move(example):
    redeployment = example.move()
    back = (RemoveLink("N8", "N6"), AddLink(Link("N8", "N5")))
    amendment = amend(PLAN, example.topology, example.placement, back)
    again = redeploy(PLAN, redeployment.after, amendment.queries["trains"], example.topology)
    assert example.placement.of("trains").nodes == AT_T0
    assert sorted(fragment.version for fragment in again.after.fragments.values()) == [1, 1, 1, 1, 1, 3, 3]
    assert not set(redeployment.before.fragments).isdisjoint(again.after.fragments)
    assert example.on("N5") not in again.after.fragments, "ids are not used again"
