"""What is answered for a lost node, from what it has stored.

Whoever has what a lost node stored (its site, or another one if the whole site is lost) answers two questions of the
coordinator: what the snapshot of a stage is, and whether a stage has begun there.

A question says how often the node had been lost. A site that has not heard of the last loss yet must not answer: what
it had put aside is of an earlier loss.
"""

from __future__ import annotations

from collections.abc import Mapping

from midstream.deployment.placement.global_plan import StageId
from midstream.deployment.protocol.messages import (
    Abort,
    Aborted,
    InspectLostNode,
    Installed,
    ProvideState,
    Report,
    RescueState,
)
from midstream.deployment.protocol.node_storage import HELD, RUNNING, restored_node, stored_stage

__all__ = ["LostNodeAnswer", "LostNodeQuestion", "answer_for_lost_node", "with_earlier_stages"]

LostNodeQuestion = RescueState | InspectLostNode
LostNodeAnswer = ProvideState | Installed | Aborted


def answer_for_lost_node(question: LostNodeQuestion, stored: Mapping[str, bytes]) -> LostNodeAnswer | None:
    """The answer to a question from what the lost node had stored; None if it has no such snapshot."""
    if isinstance(question, RescueState):
        files = stored_stage(stored, question.stage)
        return None if files is None else ProvideState(question.stage, question.generation, files)
    node = restored_node(question.lost_node, stored)
    (answer,) = node.step([Abort(question.query, question.generation, (question.stage,))]).reports
    assert isinstance(answer, Report) and isinstance(answer, Installed | Aborted)
    return answer


def with_earlier_stages(stored: Mapping[str, bytes], earlier: Mapping[str, bytes]) -> dict[str, bytes]:
    """What a node had stored when it was lost, and the stages of an earlier loss that it never got back."""
    known = _stages(stored)
    kept = {key: data for key, data in earlier.items() if (stage := _stage_of(key)) is not None and stage not in known}
    return {**kept, **stored}


def _stages(stored: Mapping[str, bytes]) -> set[StageId]:
    return {stage for key in stored if (stage := _stage_of(key)) is not None}


def _stage_of(key: str) -> StageId | None:
    for kind in (RUNNING, HELD):
        if key.startswith(kind):
            return key.removeprefix(kind).partition("\n")[0]
    return None
