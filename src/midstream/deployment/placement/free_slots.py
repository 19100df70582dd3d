"""Free slots while new places are sought: a placement's, less those taken, plus those released."""

from __future__ import annotations

from collections import Counter

from midstream.deployment.placement.global_plan import NodeId, Stage
from midstream.deployment.placement.placement import Placement
from midstream.deployment.topology.topology import Topology
from midstream.errors import NoFreeSlot

__all__ = ["FreeSlots"]


class FreeSlots:
    """Counts slots beside a placement, which stays as it is."""

    def __init__(self, topology: Topology, placement: Placement) -> None:
        self._topology = topology
        self._placement = placement
        self._taken: Counter[NodeId] = Counter()

    def has_room(self, node: NodeId) -> bool:
        """Whether a node can take one more stage."""
        slots = self._topology.nodes[node].slots
        return slots is None or self._placement.slots_used(node) + self._taken[node] < slots

    def take(self, node: NodeId, stage: Stage) -> None:
        """Take a slot for a stage."""
        if not self.has_room(node):
            raise NoFreeSlot(
                f'node "{node}" has no free slot for stage "{stage.id}"',
                detail=f"It has {self._topology.nodes[node].slots}, all taken.",
            )
        self._taken[node] += 1

    def release(self, node: NodeId) -> None:
        """Give back the slot of a stage that leaves."""
        self._taken[node] -= 1
