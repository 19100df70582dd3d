"""What a node stores, so that it can go on after a crash, and so that its stages can be rescued if it does not.

    node                            generations, contexts, which stages run, are held or awaited
    running/STAGE/PIECE             the snapshot of a stage that runs, or has ended here
    held/STAGE/PIECE                the snapshot of a stage that has ended here, if it has begun here again since
    unclaimed/NUMBER                rows of a stream that has no source here yet

Messages that are on their way, and chunks of state that have come, are not stored: they are asked for again.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import msgspec
import pyarrow as pa

from midstream.deployment.placement.global_plan import NodeId, StageId
from midstream.deployment.placement.stage_plans import StagePlan, stage_plan_from_json, stage_plan_to_json
from midstream.deployment.protocol.messages import DeployStage, DrainStage, StageContext, UpdateStage
from midstream.deployment.protocol.node_runtime import CHUNK_BYTES, Arrival, Awaiting, Held, NodeRuntime, chunks_of
from midstream.deployment.protocol.stage_instance import StageInstance
from midstream.runtime.state_backend import refusing_damage
from midstream.runtime.transport import from_bytes, to_bytes

__all__ = [
    "StoredContext",
    "context_from_json",
    "context_to_json",
    "restored_node",
    "store_node",
    "stored_stage",
]

Storage = MutableMapping[str, bytes]
NODE, RUNNING, HELD, UNCLAIMED = "node", "running/", "held/", "unclaimed/"


class StoredContext(msgspec.Struct, frozen=True):
    """A stage context: deploy, update or drain."""

    kind: str
    stage: StageId
    path: list[NodeId]
    plan: dict[str, Any] | None = None
    awaits_state: bool = False


class _HeldStage(msgspec.Struct, frozen=True):
    plan: dict[str, Any]
    generation: int
    path: list[NodeId]


class _StoredNode(msgspec.Struct, frozen=True):
    generations: dict[str, int]
    running: dict[StageId, dict[str, Any]]
    """The plans of the stages."""
    held: dict[StageId, _HeldStage]
    awaiting: dict[StageId, tuple[int, StoredContext]]
    contexts: list[tuple[str, int, list[StoredContext]]]


def store_node(node: NodeRuntime, storage: Storage) -> None:
    """Bring what is stored of a node up to date."""
    wanted: dict[str, bytes] = {}
    for stage, instance in node.running.items():
        wanted.update((f"{RUNNING}{stage}\n{piece}", data) for piece, data in instance.save().items())
    for stage, held in node.held.items():
        # Where it was while the stage ran: a large snapshot is not to be written again before it is sent.
        kind = HELD if stage in node.running else RUNNING
        wanted.update((f"{kind}{stage}\n{piece}", data) for piece, data in held.instance.save().items())
    for number, arrival in enumerate(node.unclaimed):
        wanted[f"{UNCLAIMED}{number:010d}"] = _arrival_to_bytes(arrival)
    wanted[NODE] = msgspec.json.encode(
        _StoredNode(
            node.generations,
            {stage: stage_plan_to_json(instance.plan) for stage, instance in node.running.items()},
            {
                stage: _HeldStage(stage_plan_to_json(held.instance.plan), held.generation, list(held.path))
                for stage, held in node.held.items()
            },
            {stage: (a.generation, context_to_json(a.context)) for stage, a in node.awaiting.items()},
            [
                (query, generation, [context_to_json(context) for context in contexts.values()])
                for (query, generation), contexts in node.contexts.items()
            ],
        )
    )
    for key in [key for key in storage if key not in wanted]:
        del storage[key]
    for key, data in wanted.items():
        if storage.get(key) != data:
            storage[key] = data


def restored_node(name: NodeId, storage: Mapping[str, bytes], chunk_bytes: int = CHUNK_BYTES) -> NodeRuntime:
    """The node as it was when it was last stored."""
    node = NodeRuntime(name, chunk_bytes)
    if NODE not in storage:
        return node
    with refusing_damage("What a node has stored"):
        stored = msgspec.json.decode(storage[NODE], type=_StoredNode)
    node.generations = stored.generations
    for stage, plan in stored.running.items():
        node.running[stage] = StageInstance.restored(stage_plan_from_json(plan), _pieces(storage, RUNNING, stage))
    for stage, held in stored.held.items():
        pieces = _pieces(storage, HELD, stage) or _pieces(storage, RUNNING, stage)
        instance = StageInstance.restored(stage_plan_from_json(held.plan), pieces)
        node.held[stage] = Held(instance, held.generation, tuple(held.path), chunks_of(pieces, chunk_bytes))
    for stage, (generation, context) in stored.awaiting.items():
        deployed = context_from_json(context)
        assert isinstance(deployed, DeployStage)
        node.awaiting[stage] = Awaiting(deployed, generation)
    node.unclaimed = [_arrival_from_bytes(storage[key]) for key in sorted(storage) if key.startswith(UNCLAIMED)]
    for query, generation, contexts in stored.contexts:
        node.contexts[query, generation] = {context.stage: context_from_json(context) for context in contexts}
    return node


def stored_stage(storage: Mapping[str, bytes], stage: StageId) -> dict[str, bytes] | None:
    """The snapshot of a stage that ran, or had ended, on a node that is lost; None if there is none."""
    return _pieces(storage, RUNNING, stage) or _pieces(storage, HELD, stage) or None


class _ArrivalHeader(msgspec.Struct, frozen=True):
    stream: str
    at_least: int | None
    has_rows: bool


def _arrival_to_bytes(arrival: Arrival) -> bytes:
    table = arrival.table
    batches = [] if table is None else [_one_batch(table)]
    return to_bytes(_ArrivalHeader(arrival.stream, arrival.at_least, table is not None), batches)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def _arrival_from_bytes(data: bytes) -> Arrival:
    header, batches = from_bytes(data, _ArrivalHeader)
    return Arrival(header.stream, pa.Table.from_batches(batches) if header.has_rows else None, header.at_least)


def _pieces(storage: Mapping[str, bytes], kind: str, stage: StageId) -> dict[str, bytes]:
    prefix = f"{kind}{stage}\n"
    return {key.removeprefix(prefix): data for key, data in storage.items() if key.startswith(prefix)}


def context_to_json(context: StageContext) -> StoredContext:
    """A context for storage or for the way."""
    match context:
        case DeployStage(plan, route, awaits_state):
            return StoredContext("deploy", context.stage, list(route), stage_plan_to_json(plan), awaits_state)
        case UpdateStage(stage, route):
            return StoredContext("update", stage, list(route))
        case DrainStage(stage, path):
            return StoredContext("drain", stage, list(path))


def context_from_json(context: StoredContext) -> StageContext:
    """The context that :func:`context_to_json` gave this for."""
    path = tuple(context.path)
    if context.plan is not None:
        plan: StagePlan = stage_plan_from_json(context.plan)
        return DeployStage(plan, path, context.awaits_state)
    return UpdateStage(context.stage, path) if context.kind == "update" else DrainStage(context.stage, path)
