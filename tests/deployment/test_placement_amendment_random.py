"""After any batches of events on any topology, the placement is valid, and only what had to change changed."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.deployment.placement.deployment_context import (
    Redeployment,
    ToBeDeployed,
    ToBeUndeployed,
    ToBeUpdated,
    deploy,
    redeploy,
)
from midstream.deployment.placement.fragments import DeployedQuery, check_deployment, check_state_paths
from midstream.deployment.placement.global_plan import GlobalPlan, StageId
from midstream.deployment.placement.initial_placement import place_query
from midstream.deployment.placement.placement import Placement, QueryPlacement
from midstream.deployment.placement.placement_amendment import Amendment, QueryAmendment, amend
from midstream.deployment.placement.reconfiguration_marker import Action
from midstream.deployment.topology.topology import Link, Topology
from midstream.deployment.topology.topology_events import AddLink, RemoveLink, RemoveNode, TopologyEvent
from midstream.errors import NoFreeSlot, SinkUnreachable, StateOutOfReach, TopologyError
from tests.deployment.random_deployments import Model, random_events, random_plan, random_topology, spread
from tests.examples import EXAMPLES, random_examples

seeds = st.integers(0, 2**32 - 1)


class World:
    """Queries on a topology, and the model of the topology."""

    def __init__(self, random: Random, bounded: bool = True, queries: int = 3) -> None:
        self.topology = random_topology(random, bounded)
        self.model = Model.of(self.topology)
        self.placement = Placement()
        self.plan = random_plan(random, self.topology, queries)
        self.deployed: dict[str, DeployedQuery] = {}
        self.waiting: set[str] = set()
        """Queries that wait for room."""
        for query in list(self.plan.queries):
            before = state(self.topology, self.placement)
            try:
                placed = place_query(self.plan, query, self.topology, self.placement)
                self.deployed[query] = deploy(self.plan, placed).after
            except (NoFreeSlot, SinkUnreachable):
                assert state(self.topology, self.placement) == before
                self.plan = self.plan.without_query(query)

    def amend(self, events: list[TopologyEvent]) -> Amendment | None:
        """Amend, or find that a refusal changed nothing."""
        before = state(self.topology, self.placement)
        model = self.model.copy()
        model.apply(events)
        try:
            amendment = amend(self.plan, self.topology, self.placement, events, reconsider=self.waiting)
        except (NoFreeSlot, StateOutOfReach):
            assert any(isinstance(event, RemoveNode) for event in events), "facts are not refused"
            assert state(self.topology, self.placement) == before
            return None
        self.model = model
        self.waiting = set(amendment.waiting)
        return amendment

    def stages_above(self, edge: StageId) -> list[StageId]:
        """The stages above an edge up to the first that is pinned."""
        chain: list[StageId] = []
        above = self.plan.consumer_of(edge)
        while above is not None:
            chain.append(above)
            above = None if self.plan.stages[above].pinned_to else self.plan.consumer_of(above)
        return chain


def state(topology: Topology, placement: Placement) -> Any:
    """Everything that a refused batch must leave as it was."""

    def filled(content: Any) -> Any:
        if isinstance(content, dict):
            return {
                key: value for key, value in ((key, filled(value)) for key, value in content.items()) if value != {}
            }
        return content

    return deepcopy([filled(topology.__dict__), filled(placement.__dict__)])


def below(plan: GlobalPlan, stage: StageId) -> list[StageId]:
    return [found for producer in plan.stages[stage].inputs for found in [producer, *below(plan, producer)]]


def check_topology(world: World) -> None:
    rebuilt = Model.of(world.topology)
    assert (rebuilt.nodes, rebuilt.up) == (world.model.nodes, world.model.up)
    assert {frozenset(link) for link in rebuilt.peers} == {frozenset(link) for link in world.model.peers}
    assert set(world.topology.leaving) == world.model.leaving


def check_placement(world: World, placed: QueryPlacement) -> None:
    plan, model = world.plan, world.model
    for stage in map(plan.stages.__getitem__, plan.stages_of(placed.query)):
        node = placed.nodes.get(stage.id)
        if placed.query in world.waiting:
            assert node is None or node in model.nodes or node in model.leaving
            continue
        assert node is None or node in model.nodes
        if stage.pinned_to is not None:
            assert node == (stage.pinned_to if stage.pinned_to in model.nodes else None)
    for edge in plan.stages_of(placed.query):
        consumer = plan.consumer_of(edge)
        if consumer is None:
            continue
        start, end = placed.nodes.get(edge), placed.nodes.get(consumer)
        reached = model.reachable(start) if start is not None else {}
        assert (edge in placed.routes) != (edge in placed.cut_off)
        assert (edge in placed.cut_off) == (end is None or end not in reached), (
            "cut off if and only if there is no path"
        )
        if edge in placed.routes:
            route = placed.routes[edge]
            assert (route[0], route[-1]) == (start, end)
            assert set(pairwise(route)) <= model.carries_rows()
        elif placed.query in world.waiting:
            assert placed.cut_off[edge] is None, "any change may make room"
        elif placed.cut_off[edge] is None:
            links = model.carries_state(with_leaving=False)
            assert any(
                plan.stages[stage].is_stateful
                and stage in placed.nodes
                and placed.nodes[stage] not in spread(start or "", links)
                for stage in world.stages_above(edge)
            ), "it waits for a state that it cannot get"
        else:
            above = [placed.nodes.get(stage) for stage in world.stages_above(edge)]
            assert above[-1] is None or reached.keys().isdisjoint(above), "it waits though a stage above can be reached"
            assert reached.keys() <= placed.cut_off[edge], "new links from there are noticed"


def check_slots_and_indexes(world: World) -> None:
    rebuilt = Placement()
    for query in world.placement.queries:
        rebuilt.put(world.placement.of(query))
    assert state(world.topology, rebuilt)[1] == state(world.topology, world.placement)[1]
    for node in world.model.nodes.values():
        assert node.slots is None or world.placement.slots_used(node.id) <= node.slots


def check_change(world: World, before: QueryPlacement, change: QueryAmendment | None) -> None:
    """What changed had to, and what is listed is what changed."""
    after = world.placement.of(before.query)
    valid = all(set(pairwise(r)) <= world.model.carries_rows() for r in before.routes.values())
    if valid and not before.cut_off and all(node in world.model.nodes for node in before.nodes.values()):
        assert after == before and change is None
    if change is None:
        assert (before.nodes, before.routes, before.cut_off.keys()) == (after.nodes, after.routes, after.cut_off.keys())
        return
    assert change.before == before and change.after == after
    moved = {move.stage for move in change.moves}
    assert moved == {
        stage for stage in world.plan.stages_of(before.query) if before.nodes.get(stage) != after.nodes.get(stage)
    }
    for move in change.moves:
        assert (before.nodes.get(move.stage), after.nodes.get(move.stage)) == (move.source, move.target)
        if move.source in world.model.nodes:
            stay = {stage for stage in after.nodes if stage not in moved or world.plan.stages[stage].pinned_to}
            stay &= set(below(world.plan, move.stage))
            assert any(move.source not in world.model.reachable(after.nodes[stage]) for stage in stay), "it had to move"
        if move.state_path is not None:
            links = world.model.carries_state(with_leaving=move.source in world.model.leaving)
            assert set(pairwise(move.state_path)) <= links
            assert len(move.state_path) == len(set(move.state_path))
        is_lost = move.source is not None and move.source not in {*world.model.nodes, *world.model.leaving}
        assert (move.stage in change.lost_state) == (is_lost and world.plan.stages[move.stage].is_stateful)
    for edge, route in after.routes.items():
        old = before.routes.get(edge)
        assert (edge in change.rerouted) == (old is not None and old != route)
        assert (edge in change.restored) == (edge in before.cut_off)
        if old != route:
            assert len(route) - 1 == world.model.reachable(route[0])[route[-1]], "a new route is a shortest one"
        elif old is not None:
            assert edge not in change.rerouted
    assert set(change.cut_off) == after.cut_off.keys() - before.cut_off.keys()
    check_state_paths(world.plan, change)


def check_redeployment(world: World, redeployment: Redeployment, change: QueryAmendment) -> None:
    """The contexts lead from the fragments before to those after, and the marker gets everywhere."""
    fragments = {id: old for id, old in redeployment.before.fragments.items() if id not in redeployment.lost}
    alive = dict(fragments)
    for context in redeployment.contexts:
        match context:
            case ToBeDeployed(node, fragment):
                assert fragment.id not in redeployment.before.fragments and fragment.version == 1
                assert fragment.node == node
                fragments[fragment.id] = fragment
            case ToBeUpdated(node, id, version, fragment):
                assert (fragment.id, fragment.node, fragment.version) == (id, node, version + 1)
                assert fragments[id].version == version
                fragments[id] = fragment
            case ToBeUndeployed(node, id, version):
                assert (fragments[id].node, fragments[id].version) == (node, version)
                del fragments[id]
    assert fragments == dict(redeployment.after.fragments)
    check_deployment(world.plan, change.after, fragments.values(), world.topology)

    old_of = {stage: old for old in alive.values() for stage in old.stages}
    new_of = {stage: new for new in fragments.values() for stage in new.stages}
    expected = {
        (stage, old_of[stage].id, new_of[stage].id)
        for stage in old_of.keys() & new_of.keys()
        if world.plan.stages[stage].is_stateful and old_of[stage].id != new_of[stage].id
    }
    assert {(m.stage, m.source, m.target) for m in redeployment.migrations} == expected
    for migration in redeployment.migrations:
        assert migration.path[0] == old_of[migration.stage].node
        assert migration.path[-1] == new_of[migration.stage].node

    concerned = {id for id, _ in redeployment.marker}
    assert concerned == {c.fragment_id for c in redeployment.contexts if not isinstance(c, ToBeDeployed)}
    for (id, version), entry in redeployment.marker.items():
        assert alive[id].version == version
        ends = id not in fragments
        hands_over = any(migration.source == id for migration in redeployment.migrations)
        assert (entry.action is Action.UPDATE) == (not ends)
        assert (entry.action is Action.UPDATE_THEN_DRAIN) == (ends and hands_over)
        feeding = [
            old_of[edge].id
            for edge in alive[id].inputs
            if edge in old_of
            and old_of[edge].route is not None
            and set(pairwise(old_of[edge].route)) <= world.model.carries_rows()
        ]
        assert (id in redeployment.entry_points) == concerned.isdisjoint(feeding)


@random_examples(8 * EXAMPLES)
@given(seed=seeds)
def test_any_batches_lead_to_a_valid_placement_that_changes_no_more_than_it_must(seed):
    random = Random(seed)
    world = World(random)
    for _ in range(random.randint(1, 6)):
        before = {query: world.placement.of(query) for query in world.placement.queries}
        amendment = world.amend(random_events(random, world.model))
        if amendment is None:
            continue
        check_topology(world)
        check_slots_and_indexes(world)
        for query, old in before.items():
            change = amendment.queries.get(query)
            check_placement(world, world.placement.of(query))
            check_change(world, old, change)
            if change is not None:
                redeployment = redeploy(world.plan, world.deployed[query], change, world.topology)
                check_redeployment(world, redeployment, change)
                world.deployed[query] = redeployment.after


@random_examples(2 * EXAMPLES)
@given(seed=seeds)
def test_a_batch_that_is_refused_halfway_changes_nothing(seed):
    random = Random(seed)
    world = World(random)
    wrong: list[TopologyEvent] = [RemoveLink("cloud", "nowhere"), AddLink(Link("cloud", "cloud"))]
    for _ in range(3):
        before = state(world.topology, world.placement)
        events = [*random_events(random, world.model), random.choice(wrong)]
        with pytest.raises(TopologyError):
            amend(world.plan, world.topology, world.placement, events)
        assert state(world.topology, world.placement) == before
        world.amend(random_events(random, world.model))


@random_examples(2 * EXAMPLES)
@given(seed=seeds)
def test_the_placement_does_not_depend_on_how_the_topology_came_about(seed):
    random = Random(seed)
    world = World(random)
    nodes, links = list(world.topology.nodes.values()), list(world.topology.links())
    random.shuffle(nodes)
    random.shuffle(links)
    topology, placement = Topology(nodes, links), Placement()
    for query in world.plan.queries:
        place_query(world.plan, query, topology, placement)
        assert placement.of(query) == world.placement.of(query)
    for _ in range(3):
        events = random_events(random, world.model)
        if world.amend(events) is not None:
            amend(world.plan, topology, placement, events)
        for query in world.plan.queries:
            assert placement.of(query) == world.placement.of(query)


@random_examples(2 * EXAMPLES)
@given(seed=seeds)
def test_a_query_is_amended_like_the_only_one_if_slots_are_not_short(seed):
    random = Random(seed)
    world = World(random, bounded=False)
    alone = {}
    for query in world.plan.queries:
        topology, placement = deepcopy(world.topology), Placement()
        place_query(world.plan, query, topology, placement)
        alone[query] = topology, placement
    for _ in range(3):
        events = random_events(random, world.model, bounded=False)
        if world.amend(events) is None:
            return
        for query, (topology, placement) in alone.items():
            amend(world.plan, topology, placement, events)
            assert placement.of(query) == world.placement.of(query)


@random_examples(2 * EXAMPLES)
@given(seed=seeds)
def test_a_placement_that_was_put_back_is_reconsidered(seed):
    random = Random(seed)
    world = World(random, bounded=False)
    for _ in range(4):
        amendment = world.amend(random_events(random, world.model, bounded=False))
        if amendment is None or not amendment.queries:
            continue
        query = random.choice(sorted(amendment.queries))
        world.placement.put(amendment.queries[query].before)
        try:
            amend(world.plan, world.topology, world.placement, [], reconsider=[query])
        except StateOutOfReach:
            world.placement.put(amendment.queries[query].after)
            continue
        check_placement(world, world.placement.of(query))
        check_slots_and_indexes(world)
