"""What holds of a deployment as a whole, whatever happens to it: checked by the simulation, from outside the nodes.

The numbers are those of ``docs/deployment.md``. What one node can know of itself, it sees to itself: I2 where a
snapshot is restored (``stage_instance``), I4, I5 and I7 at the ends of edges (``logical_edge``).

- I1, one owner: no stage runs on two nodes;
- I3, retention: the producer of an edge has every message that its consumer has not taken durably;
- I6, validity: after a commit every stage runs where its fragment is; at rest all edges are empty, connected along
  their routes, and nothing is left of what has been.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from midstream.deployment.placement.fragments import check_deployment
from midstream.deployment.placement.global_plan import GlobalPlan, NodeId, StageId
from midstream.deployment.protocol.coordinator import Coordinator
from midstream.deployment.protocol.node_runtime import NodeRuntime
from midstream.deployment.protocol.stage_instance import StageInstance

__all__ = ["check_at_rest", "check_committed", "check_one_owner", "check_retention"]

Nodes = Mapping[NodeId, NodeRuntime]


def check_one_owner(nodes: Nodes) -> None:
    """I1."""
    owners: dict[StageId, NodeId] = {}
    for name, node in nodes.items():
        for stage in node.running:
            assert stage not in owners, f"I1: {stage} runs on {owners[stage]} and {name}"
            owners[stage] = name


def check_retention(plan: GlobalPlan, nodes: Nodes, lost: Collection[StageId] = ()) -> None:
    """I3. Stages that ran on ``lost`` nodes are passed over until they have been rescued."""
    instances = _instances(nodes, lost)
    for edge, producer in instances.items():
        output = producer.output
        assert len(output.messages) == output.next_number - output.first_number, f"I3: {edge} has a gap in its outbox"
        consumer = instances.get(plan.consumer_of(edge) or "")
        if consumer is None:
            continue
        cursor = consumer.inputs[edge].next_number
        assert output.first_number <= cursor, (
            f"I3: {edge} has no message before {output.first_number}, but {consumer.stage.id} expects {cursor}"
        )
        assert cursor <= output.next_number, (
            f"I3: {consumer.stage.id} has taken {cursor} messages of {edge}, which has made {output.next_number}"
        )


def _instances(nodes: Nodes, lost: Collection[StageId]) -> dict[StageId, StageInstance]:
    """The instance of each stage that counts: the one that runs, else the one that was held last."""
    held = [held for node in nodes.values() for stage, held in node.held.items() if stage not in lost]
    instances = {one.instance.stage.id: one.instance for one in sorted(held, key=lambda one: one.generation)}
    for node in nodes.values():
        instances |= node.running
    return instances


def check_committed(coordinator: Coordinator, query: str, nodes: Nodes) -> None:
    """I6, right after a commit."""
    for fragment in coordinator.deployed(query).fragments.values():
        if fragment.node in nodes:
            for stage in fragment.stages:
                assert stage in nodes[fragment.node].running, f"I6: {stage} does not run on {fragment.node}"


def check_at_rest(coordinator: Coordinator, nodes: Nodes) -> None:
    """I6, when no generation is under way and no message on its way."""
    check_one_owner(nodes)
    plan, placement = coordinator.plan, coordinator.placement
    for name, node in nodes.items():
        assert not node.held and not node.awaiting, f"I6: {name} has stages that neither run nor are gone"
        for stage in node.running:
            expected = placement.of(plan.stages[stage].query).nodes.get(stage)
            assert expected == name, f"I6: {stage} runs on {name} instead of {expected}"
    for query in placement.queries:
        placed = placement.of(query)
        check_deployment(plan, placed, coordinator.deployed(query).fragments.values(), coordinator.topology)
        for stage, where in placed.nodes.items():
            assert stage in nodes[where].running, f"I6: {stage} does not run on {where}"
            output, consumer = nodes[where].running[stage].output, plan.consumer_of(stage)
            if consumer is None or stage not in placed.routes:
                continue
            cursor = nodes[placed.nodes[consumer]].running[consumer].inputs[stage].next_number
            assert output.first_number == output.next_number == cursor, f"I6: {stage} has messages left"
            assert output.route == placed.routes[stage], f"I6: {stage} sends along {output.route}"
