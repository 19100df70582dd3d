"""From a query's plan to its stages: where the plan is cut, and what each stage computes.

A plan is cut below every operator that keeps state, so that each of them can be placed by itself; the stateless
operators above it belong to its stage. What a stage takes from others is a ``RemoteSource`` in its plan.

    Project                        stage "q/join-2": Project(Join(remote(join a b), remote(c)))
    └─ Join
       ├─ Join                     stage "q/join-1": Join(remote(a), remote(b))
       │  ├─ Window a              stages "q/a@d1", "q/a@d2": one per physical source of the stream
       │  └─ Window b              stage "q/b@d3"
       └─ Window c                 stage "q/c@d4"

A stream may have several physical sources: each gives a part of its rows, and whoever reads the stream takes rows from
all of them. Selections and plain column choices right above a window are applied at the source; other stateless
operators there form a stage of their own for each source. UNION ALL needs no stage: its consumer takes rows from the
producers of both sides.

``joins_together`` keeps trees of joins in one stage, whose join order can then be changed while it is deployed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from midstream.algebra.plan import Alias, Join, MultiJoin, Plan, Project, RemoteSource, Select, Union, Window
from midstream.algebra.plan_json import plan_from_json, plan_to_json
from midstream.deployment.placement.global_plan import NodeId, Stage, StageId
from midstream.errors import UnknownStreamPushed, did_you_mean, quoted
from midstream.planned_query import PlannedQuery

__all__ = ["StagePlan", "check_sources", "stage_plan_from_json", "stage_plan_to_json", "stage_plans"]


@dataclass(frozen=True)
class StagePlan:
    """A stage and what it computes."""

    stage: Stage
    plan: Plan | None
    """None for a sink: it passes on what it receives."""
    leaf_of: Mapping[StageId, str] = field(default_factory=dict)
    """For each input, the identity of the remote source whose rows it gives."""

    @property
    def source(self) -> Window | None:
        """The window whose rows arise here; None unless the stage is a source."""
        if self.stage.inputs or self.plan is None:
            return None
        (window,) = self.plan.windows()
        return window


def stage_plans(
    query: str, plan: Plan, sources: Mapping[str, Sequence[NodeId]], sink: NodeId, *, joins_together: bool = False
) -> list[StagePlan]:
    """The stages of a query, producers before their consumers.

    ``sources`` gives for each stream the nodes where its rows arise, ``sink`` is the node where results are wanted.
    """
    cutting = _Cutting(query, sources, joins_together)
    producers = cutting.producers_of(plan)
    stage = Stage(f"{query}/sink", query, tuple(producers), pinned_to=sink)
    return [*cutting.found, StagePlan(stage, None)]


def check_sources(query: PlannedQuery, plan: Plan, sources: Mapping[str, Sequence[NodeId]]) -> None:
    """Refuse sources that do not fit the query's streams."""
    read = {window.stream.name for window in plan.windows()}
    for stream in sorted(read):
        nodes = sources.get(stream, ())
        if isinstance(nodes, str) or not nodes or not _are_names(nodes) or len(set(nodes)) != len(nodes):
            raise UnknownStreamPushed(
                f'stream "{stream}" has no sources' if not nodes else f'the sources of stream "{stream}" are {nodes!r}',
                hint=f'Give the nodes where its rows arise: sources={{"{stream}": ["sensor 1", ...]}}.',
            )
    unknown = sorted(set(sources) - {stream.name for stream in query.streams})
    if unknown:
        raise UnknownStreamPushed(
            f'stream "{unknown[0]}" is not one of the query\'s streams',
            detail=f"The query has {quoted(sorted(stream.name for stream in query.streams))}.",
            hint=did_you_mean(unknown[0], read),
        )


def _are_names(nodes: object) -> bool:
    return isinstance(nodes, Sequence) and all(isinstance(node, str) for node in nodes)


@dataclass
class _Cutting:
    """One plan being cut."""

    query: str
    sources: Mapping[str, Sequence[NodeId]]
    joins_together: bool
    found: list[StagePlan] = field(default_factory=list)
    _numbers: int = 0
    _aliases: Counter[str] = field(default_factory=Counter)

    def producers_of(self, plan: Plan) -> list[StageId]:
        """The stages whose outputs together are the plan's output."""
        below = _below_stateless(plan)
        if isinstance(below, Window):
            return self._at_sources(plan, below)
        if isinstance(plan, Union):
            return self.producers_of(plan.left) + self.producers_of(plan.right)
        leaves: dict[str, RemoteSource] = {}
        cut = self._cut(plan, below, leaves)
        # In an order that does not depend on that of the joins: stages keep their names when it changes.
        leaf_of = {
            producer: identity
            for identity, leaf in sorted(leaves.items())
            for producer in self.producers_of(leaf.subplan)
        }
        name = f"{type(below).__name__.lower()}-{self._number()}"
        return [self._add(name, cut, leaf_of, is_stateful=any(node.is_stateful for node in cut.walk()))]

    def _at_sources(self, plan: Plan, window: Window) -> list[StageId]:
        """A stage for each physical source of the window's stream, and one after it for what is computed there."""
        applied = _applied_at_source(plan)
        name = self._unique(re.sub(r"[/@\s]", "_", window.alias))
        producers = []
        for node in self.sources[window.stream.name]:
            stage = Stage(f"{self.query}/{name}@{node}", self.query, (), pinned_to=node)
            self.found.append(StagePlan(stage, applied))
            producer = stage.id
            if applied is not plan:
                leaf = RemoteSource(applied)
                computed = _replaced(plan, {id(applied): leaf})
                producer = self._add(f"{name}-map@{node}", computed, {producer: leaf.identity})
            producers.append(producer)
        return producers

    def _cut(self, plan: Plan, top: Plan, leaves: dict[str, RemoteSource]) -> Plan:
        """The plan with remote sources below its uppermost stateful operator, or block of joins."""
        replaced: dict[int, Plan] = {}
        pending = list(top.inputs)
        if self.joins_together and isinstance(top, Join | MultiJoin):
            pending = _join_inputs(top)
        for node in [top] if isinstance(top, Union) else pending:
            leaf = RemoteSource(node)
            leaves[leaf.identity] = leaf
            replaced[id(node)] = leaf
        return _replaced(plan, replaced)

    def _add(self, name: str, plan: Plan, leaf_of: dict[StageId, str], is_stateful: bool = False) -> StageId:
        stage = Stage(f"{self.query}/{name}", self.query, tuple(leaf_of), is_stateful=is_stateful)
        self.found.append(StagePlan(stage, plan, leaf_of))
        return stage.id

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _unique(self, alias: str) -> str:
        """The alias, with a number if subqueries have used it before."""
        self._aliases[alias] += 1
        return alias if self._aliases[alias] == 1 else f"{alias}-{self._aliases[alias]}"


def _below_stateless(plan: Plan) -> Plan:
    """What lies below the selections, projections and renamings on top of the plan."""
    while isinstance(plan, Select | Project | Alias):
        plan = plan.input
    return plan


def _applied_at_source(plan: Plan) -> Plan:
    """The part of a chain of stateless operators above a window that only drops rows or columns."""
    chain = [plan]
    while isinstance(chain[-1], Select | Project | Alias):
        chain.append(chain[-1].input)
    applied = chain.pop()
    for node in reversed(chain):
        if isinstance(node, Project) and not all(item.is_plain for item in node.items):
            break
        applied = node
    return applied


def _join_inputs(top: Plan) -> list[Plan]:
    """The inputs of a tree of joins with selections and projections between them."""
    found: list[Plan] = []
    pending = list(reversed(top.inputs))
    while pending:
        node = pending.pop()
        below = _below_stateless(node)
        if isinstance(below, Join | MultiJoin):
            pending.extend(reversed(below.inputs))
        else:
            found.append(node)
    return found


def _replaced(plan: Plan, replacements: Mapping[int, Plan]) -> Plan:
    """The plan with other nodes in the places of those given by their id."""
    if id(plan) in replacements:
        return replacements[id(plan)]
    inputs: Iterable[Plan] = [_replaced(child, replacements) for child in plan.inputs]
    return plan.with_inputs(*inputs)


def stage_plan_to_json(plan: StagePlan) -> dict[str, Any]:
    """A stage and what it computes, as a value for ``json.dumps``."""
    computed = None if plan.plan is None else plan_to_json(plan.plan)
    return {"stage": asdict(plan.stage), "plan": computed, "leaf_of": dict(plan.leaf_of)}


def stage_plan_from_json(data: Mapping[str, Any]) -> StagePlan:
    """The stage that :func:`stage_plan_to_json` gave this for."""
    stage = dict(data["stage"])
    plan = None if data["plan"] is None else plan_from_json(data["plan"])
    return StagePlan(Stage(**{**stage, "inputs": tuple(stage["inputs"])}), plan, dict(data["leaf_of"]))
