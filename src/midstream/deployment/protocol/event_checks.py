"""Which batches of topology events a coordinator refuses, because of what runs on the nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from midstream.deployment.placement.global_plan import GlobalPlan, NodeId
from midstream.deployment.placement.placement import Placement
from midstream.deployment.protocol.query_state import QueryState
from midstream.deployment.topology.topology import Topology
from midstream.deployment.topology.topology_events import AddNode, RemoveNode, TopologyEvent
from midstream.errors import BadTopology

__all__ = ["check_events"]


def check_events(
    events: Iterable[TopologyEvent],
    topology: Topology,
    plan: GlobalPlan,
    placement: Placement,
    queries: Collection[QueryState],
) -> None:
    """Raise if a node is to be removed that is needed, or is to return while what it had is needed."""
    for event in events:
        if isinstance(event, AddNode):
            _check_returning(event.node.id, topology, queries)
        elif isinstance(event, RemoveNode):
            _check_removal(event.node, plan, placement, queries)


def _check_returning(node: NodeId, topology: Topology, queries: Collection[QueryState]) -> None:
    """A node that was lost may come back, as an empty one, when nothing refers to the lost one any more."""
    is_there = node in topology.nodes or node in topology.leaving
    if not is_there and any(known.uses(node) for known in queries):
        raise BadTopology(
            f'node "{node}" was lost, and its stages have not all been rescued',
            hint="Add it when no generation is under way, or under another name.",
        )


def _check_removal(node: NodeId, plan: GlobalPlan, placement: Placement, queries: Collection[QueryState]) -> None:
    """A node is not removed while queries that use it are being redeployed: it is not clear what it holds."""
    for stage in placement.stages_on(node):
        if plan.stages[stage].pinned_to == node:
            raise BadTopology(
                f'node "{node}" cannot be removed: stage "{stage}" can run nowhere else',
                hint="Sources and sinks stay where they are. Report the node as lost if it is gone.",
            )
    unsettled = [known for known in queries if known.running is not None or known.problem is not None]
    if any(known.uses(node) for known in unsettled):
        raise BadTopology(
            f'node "{node}" cannot be removed now',
            detail="It runs a query that is being redeployed, or that waits for room.",
            hint="Remove it when the query is settled.",
        )
