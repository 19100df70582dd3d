"""Places some stages of a query while all others stay where they are: those around them are the pins.

Producers are placed first. A stage counts those of its inputs whose rows can reach the next pin above; the others are
cut off and have no say. It is placed so that these inputs reach it and it reaches that pin, or, if all inputs are cut
off, anywhere from which it reaches that pin: whatever comes back will then find it.
"""

from __future__ import annotations

from collections.abc import Collection

from midstream.deployment.placement.free_slots import FreeSlots
from midstream.deployment.placement.global_plan import GlobalPlan, NodeId, Stage, StageId
from midstream.deployment.placement.placement_strategy import PlacementStrategy
from midstream.deployment.topology.topology import Topology
from midstream.errors import NoFreeSlot, quoted

__all__ = ["place_stages"]


def place_stages(
    plan: GlobalPlan,
    query: str,
    moving: Collection[StageId],
    nodes: dict[StageId, NodeId],
    topology: Topology,
    slots: FreeSlots,
    strategy: PlacementStrategy,
) -> None:
    """Add nodes for the moving stages to ``nodes``, and take their slots.

    A stage for which no node is possible at all stays without one. NoFreeSlot if only room is missing.
    """
    for moved in (plan.stages[stage] for stage in plan.stages_of(query) if stage in moving):
        pin = plan.consumer_of(moved.id)
        while pin is not None and pin in moving:
            pin = plan.consumer_of(pin)
        towards = None if pin is None else nodes.get(pin)
        inputs = _inputs_that_count(moved, nodes, towards, topology)
        node = strategy.node_for(moved, inputs, towards, topology, slots.has_room)
        if node is not None:
            slots.take(node, moved)
            nodes[moved.id] = node
        elif strategy.node_for(moved, inputs, towards, topology, lambda node: True) is not None:
            after = f"after {quoted(sorted(set(inputs)))}" if inputs else "before its consumer"
            raise NoFreeSlot(
                f'no node has a free slot for stage "{moved.id}" of query "{query}"',
                detail=f"It must run {after}" + ("." if towards is None else f', with a path to "{towards}".'),
                hint="Give a node on that way more slots, or remove a query.",
            )


def _inputs_that_count(
    stage: Stage, nodes: dict[StageId, NodeId], towards: NodeId | None, topology: Topology
) -> list[NodeId]:
    """The nodes of the inputs whose rows can reach the pin above; without a pin, of inputs that can meet anywhere."""
    placed = [nodes[producer] for producer in stage.inputs if producer in nodes]
    if towards is not None:
        return [node for node in placed if topology.path(node, towards) is not None]
    counting: list[NodeId] = []
    meeting: set[NodeId] | None = None
    for node in placed:
        reached = set(topology.reachable_from(node))
        if meeting is None or meeting & reached:
            meeting = reached if meeting is None else meeting & reached
            counting.append(node)
    return counting
