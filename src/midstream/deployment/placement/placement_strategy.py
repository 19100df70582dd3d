"""How a node is chosen for a stage.

Stages are placed one after the other, producers first. A strategy is asked for each stage that is not pinned, and
knows the nodes of its inputs, the node that its rows must be able to reach, and which nodes have room.

``BottomUp`` takes the node that is nearest to the inputs, and so to the sources: a stage with one input runs where
its input runs if there is room, a stage with several on their first common ancestor with room. It decides stage by
stage and never revises a decision, so it may find no room where another strategy would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from midstream.deployment.placement.global_plan import NodeId, Stage
from midstream.deployment.topology.topology import Topology

__all__ = ["BottomUp", "PlacementStrategy"]


class PlacementStrategy(Protocol):
    """Chooses a node for a stage."""

    def node_for(
        self,
        stage: Stage,
        inputs: Sequence[NodeId],
        towards: NodeId | None,
        topology: Topology,
        has_room: Callable[[NodeId], bool],
    ) -> NodeId | None:
        """A node with room that all inputs reach and that reaches ``towards`` (None: it need not); None if there is
        none.

        Without inputs (all of them are cut off), any node with room that reaches ``towards``.
        """
        ...


class BottomUp:
    """As near to the sources as slots allow."""

    def node_for(
        self,
        stage: Stage,
        inputs: Sequence[NodeId],
        towards: NodeId | None,
        topology: Topology,
        has_room: Callable[[NodeId], bool],
    ) -> NodeId | None:
        if inputs:
            nearest = self._common_ancestors(inputs, topology)
        else:
            nearest = iter(()) if towards is None else topology.reaching(towards)
        for node in nearest:
            if has_room(node) and (towards is None or topology.path(node, towards) is not None):
                return node
        return None

    @staticmethod
    def _common_ancestors(inputs: Sequence[NodeId], topology: Topology) -> Iterator[NodeId]:
        """The nodes that all inputs reach: first by the hops of the farthest input, then by all hops, then by name."""
        hops = [topology.reachable_from(node) for node in dict.fromkeys(inputs)]
        common = [node for node in hops[0] if all(node in others for others in hops[1:])]
        return iter(
            sorted(common, key=lambda node: (max(far[node] for far in hops), sum(far[node] for far in hops), node))
        )
