"""Deployment contexts: what each node must be told so that a query runs as its new placement says (ISQD §4.1).

The fragments that the new placement needs are compared with those that run. A fragment that stays as it is, is not
touched. The others pass through the states of ISQD's figure 4::

    (none) ──▶ to be deployed ──▶ deployed ──▶ to be updated ──▶ deployed
                                     └───────▶ to be undeployed ──▶ (none)

A new fragment takes over the id of the one on the same node with which it shares most stages; this one is then
updated. An edge that is cut off changes nothing: its node could not be told, so its fragment keeps the route that it
knows.

A stage that keeps state and leaves its fragment makes a *state migration*, along a path from the old node to the new
one (a single node if it only changes fragments there). A fragment that ends and hands over state is updated first,
then drained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from midstream.deployment.placement.fragments import DeployedQuery, Fragment, FragmentId, decompose
from midstream.deployment.placement.global_plan import GlobalPlan, NodeId, StageId
from midstream.deployment.placement.placement import QueryPlacement
from midstream.deployment.placement.placement_amendment import QueryAmendment
from midstream.deployment.placement.reconfiguration_marker import Action, MarkerEntries, MarkerEntry, entry_points
from midstream.deployment.topology.topology import Route, Topology

__all__ = [
    "DeploymentContext",
    "FragmentState",
    "Redeployment",
    "StateMigration",
    "ToBeDeployed",
    "ToBeUndeployed",
    "ToBeUpdated",
    "deploy",
    "redeploy",
    "redeploy_holistically",
]


class FragmentState(Enum):
    """The states of figure 4."""

    DEPLOYED = "deployed"
    TO_BE_DEPLOYED = "to be deployed"
    TO_BE_UPDATED = "to be updated"
    TO_BE_UNDEPLOYED = "to be undeployed"


@dataclass(frozen=True)
class StateMigration:
    """The state of a stage passes from one fragment to another."""

    stage: StageId
    source: FragmentId
    target: FragmentId
    path: Route
    """From the source's node to the target's."""


@dataclass(frozen=True)
class ToBeDeployed:
    """A new fragment."""

    node: NodeId
    fragment: Fragment
    state = FragmentState.TO_BE_DEPLOYED


@dataclass(frozen=True)
class ToBeUpdated:
    """A fragment that goes on with other stages or neighbours."""

    node: NodeId
    fragment_id: FragmentId
    version: int
    """The version that runs."""
    fragment: Fragment
    """The version to change to."""
    state = FragmentState.TO_BE_UPDATED


@dataclass(frozen=True)
class ToBeUndeployed:
    """A fragment that ends."""

    node: NodeId
    fragment_id: FragmentId
    version: int
    state = FragmentState.TO_BE_UNDEPLOYED


DeploymentContext = ToBeDeployed | ToBeUpdated | ToBeUndeployed


@dataclass(frozen=True)
class Redeployment:
    """Everything that changes a query's deployment from one placement to the next."""

    query: str
    before: DeployedQuery
    after: DeployedQuery
    contexts: tuple[DeploymentContext, ...]
    migrations: tuple[StateMigration, ...]
    marker: MarkerEntries
    entry_points: tuple[FragmentId, ...]
    lost: tuple[FragmentId, ...] = ()
    """Fragments that are gone with their nodes: there is nobody to tell."""

    def state_of(self, fragment: FragmentId) -> FragmentState:
        """The state of a fragment while the redeployment is under way."""
        for context in self.contexts:
            if fragment == (context.fragment.id if isinstance(context, ToBeDeployed) else context.fragment_id):
                return context.state
        assert fragment in self.after.fragments, fragment
        return FragmentState.DEPLOYED


def deploy(plan: GlobalPlan, placement: QueryPlacement) -> Redeployment:
    """The first deployment of a query: everything is to be deployed, and no marker is needed."""
    nothing = DeployedQuery(placement.query)
    after = _next_deployment(plan, nothing, placement, {})
    contexts = tuple(ToBeDeployed(fragment.node, fragment) for fragment in after.fragments.values())
    return Redeployment(placement.query, nothing, after, contexts, (), {}, ())


def redeploy(plan: GlobalPlan, deployed: DeployedQuery, amendment: QueryAmendment, topology: Topology) -> Redeployment:
    """Touch only the fragments that the amendment changes. ``topology`` is the one after the amendment's events."""
    living, lost = _living(deployed, topology)
    after = _next_deployment(plan, living, amendment.after, _continued(plan, living, amendment.after))
    contexts: list[DeploymentContext] = []
    entries: dict[tuple[FragmentId, int], MarkerEntry] = {}
    migrations = _migrations(plan, living, after, {move.stage: move.state_path for move in amendment.moves})
    handing_over = {migration.source for migration in migrations}
    for fragment in living.fragments.values():
        following = after.fragments.get(fragment.id)
        key = (fragment.id, fragment.version)
        if following is None:
            contexts.append(ToBeUndeployed(fragment.node, fragment.id, fragment.version))
            if fragment.id in handing_over:
                entries[key] = MarkerEntry(Action.UPDATE_THEN_DRAIN, fragment.version + 1)
            else:
                entries[key] = MarkerEntry(Action.DRAIN)
        elif following != fragment:
            contexts.append(ToBeUpdated(fragment.node, fragment.id, fragment.version, following))
            entries[key] = MarkerEntry(Action.UPDATE, following.version)
    contexts += [
        ToBeDeployed(fragment.node, fragment)
        for fragment in after.fragments.values()
        if fragment.id not in living.fragments
    ]
    return Redeployment(
        deployed.query,
        deployed,
        after,
        tuple(contexts),
        migrations,
        entries,
        entry_points(living, entries, topology),
        lost,
    )


def redeploy_holistically(
    plan: GlobalPlan, deployed: DeployedQuery, placement: QueryPlacement, topology: Topology
) -> Redeployment:
    """End all fragments and deploy the new placement from scratch, without state: the baseline of ISQD's evaluation."""
    living, lost = _living(deployed, topology)
    after = _next_deployment(plan, replace(deployed, fragments={}), placement, {})
    contexts: tuple[DeploymentContext, ...] = (
        *(ToBeUndeployed(old.node, old.id, old.version) for old in living.fragments.values()),
        *(ToBeDeployed(new.node, new) for new in after.fragments.values()),
    )
    return Redeployment(deployed.query, deployed, after, contexts, (), {}, (), lost)


def _living(deployed: DeployedQuery, topology: Topology) -> tuple[DeployedQuery, tuple[FragmentId, ...]]:
    """The fragments whose node is there, or leaving, and the ids of the others."""
    living = {
        id: fragment
        for id, fragment in deployed.fragments.items()
        if fragment.node in topology.nodes or fragment.node in topology.leaving
    }
    return replace(deployed, fragments=living), tuple(id for id in deployed.fragments if id not in living)


def _continued(
    plan: GlobalPlan, deployed: DeployedQuery, placement: QueryPlacement
) -> dict[tuple[StageId, ...], Fragment]:
    """Which fragment each part of the placement continues: of those on its node, the one with most stages in common."""
    by_stage = {stage: fragment for fragment in deployed.fragments.values() for stage in fragment.stages}
    pairs: dict[tuple[int, int, int], tuple[tuple[StageId, ...], Fragment]] = {}
    order = {id: number for number, id in enumerate(deployed.fragments)}
    for number, (node, stages) in enumerate(decompose(plan, placement)):
        for old in {by_stage[stage].id: by_stage[stage] for stage in stages if stage in by_stage}.values():
            if old.node == node:
                common = len(set(stages) & set(old.stages))
                pairs[-common, number, order[old.id]] = stages, old
    continued: dict[tuple[StageId, ...], Fragment] = {}
    taken: set[FragmentId] = set()
    for _, (stages, old) in sorted(pairs.items(), key=lambda pair: pair[0]):
        if stages not in continued and old.id not in taken:
            continued[stages] = old
            taken.add(old.id)
    return continued


def _next_deployment(
    plan: GlobalPlan,
    deployed: DeployedQuery,
    placement: QueryPlacement,
    continued: Mapping[tuple[StageId, ...], Fragment],
) -> DeployedQuery:
    """The fragments of a placement: continued ones keep their id, and their version if nothing changed."""
    fragments: dict[FragmentId, Fragment] = {}
    number = deployed.next_number
    for node, stages in decompose(plan, placement):
        old = continued.get(stages)
        inputs: dict[StageId, NodeId] = {}
        for edge in (producer for stage in stages for producer in plan.stages[stage].inputs):
            if edge in stages:
                continue
            where = placement.nodes.get(edge)
            if where is None and old is not None:
                where = old.inputs.get(edge)
            if where is not None:
                inputs[edge] = where
        route = placement.routes.get(stages[-1])
        if old is None:
            fragment = Fragment(f"{placement.query}#{number}", 1, placement.query, node, stages, inputs, route)
            number += 1
        else:
            if route is None and old.output == stages[-1]:
                route = old.route
            fragment = replace(old, stages=stages, inputs=inputs, route=route)
            if fragment != old:
                fragment = replace(fragment, version=old.version + 1)
        fragments[fragment.id] = fragment
    return DeployedQuery(placement.query, fragments, number)


def _migrations(
    plan: GlobalPlan, before: DeployedQuery, after: DeployedQuery, paths: Mapping[StageId, Route | None]
) -> tuple[StateMigration, ...]:
    """The states that pass from one fragment to another."""
    targets = {stage: fragment for fragment in after.fragments.values() for stage in fragment.stages}
    return tuple(
        StateMigration(stage, source.id, targets[stage].id, paths.get(stage) or (source.node,))
        for source in before.fragments.values()
        for stage in _stateful(plan, source.stages)
        if stage in targets and targets[stage].id != source.id
    )


def _stateful(plan: GlobalPlan, stages: Iterable[StageId]) -> list[StageId]:
    return [stage for stage in stages if plan.stages[stage].is_stateful]
