"""The coordinator: decides where stages run, and sees each change through on the nodes (ISQD §6, Algorithm 1).

Each change of a query's deployment is a *generation*, numbered per query, one at a time:

    prepare    contexts go to all nodes concerned; each confirms
    mark       the marker enters the query; stages act when it reaches them, and hand over to their successors
    commit     every stage runs where it should: nodes forget contexts and snapshots; each confirms

Topology events that come meanwhile take effect on the topology at once. A generation that has not been marked is given
up and planned anew. One that has been marked goes on, on other paths where the old ones are gone. A stage that cannot
reach its new node any more is called back: the new node is told not to begin, and only when it has confirmed that does
the old one go on (a stage that has begun stays). Then the query is planned anew from where its stages really are.

The coordinator knows no clock and does no I/O. It is a deterministic state machine: what it has been told (queries,
events, reports), in this order, determines what it knows. So that list is its durable log (``coordinator_log``). What
is to be sent, it gives as pairs of a node and a message; :meth:`Coordinator.ask_again` repeats what has not been
answered.

A node that is lost reports nothing any more, and nothing is expected of it. Only whether a stage had begun there must
be known before the stage goes on elsewhere: whoever reads what the node has stored answers an ``Abort`` for it
(``lost_nodes``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from midstream.algebra.plan_json import plan_to_json
from midstream.deployment.placement.deployment_context import (
    Redeployment,
    deploy,
    redeploy,
)
from midstream.deployment.placement.fragments import DeployedQuery, check_deployment
from midstream.deployment.placement.global_plan import GlobalPlan, NodeId, StageId
from midstream.deployment.placement.initial_placement import place_query
from midstream.deployment.placement.placement import Placement, QueryPlacement
from midstream.deployment.placement.placement_amendment import QueryAmendment, StageMove, amend
from midstream.deployment.placement.placement_strategy import PlacementStrategy
from midstream.deployment.placement.stage_plans import StagePlan
from midstream.deployment.protocol.event_checks import check_events
from midstream.deployment.protocol.generation import Generation, stage_contexts
from midstream.deployment.protocol.messages import (
    Abort,
    Aborted,
    Acted,
    Commit,
    Committed,
    Control,
    DeployStage,
    EnterMarker,
    InspectLostNode,
    Installed,
    Marker,
    MigrateStage,
    Prepare,
    Prepared,
    Report,
    RerouteState,
    RescueState,
    Resume,
    Resumed,
    StageMigrated,
)
from midstream.deployment.protocol.query_state import QueryState
from midstream.deployment.protocol.way_of_marker import entry_stages, passing_on
from midstream.deployment.topology.topology import Topology
from midstream.deployment.topology.topology_events import LoseNode, TopologyEvent
from midstream.errors import AlreadyRunning, MigrationRefused, NotRunning, did_you_mean

__all__ = ["Coordinator", "Generation", "Instruction"]

Instruction = tuple[NodeId, Control]
"""A message for a node."""


class Coordinator:
    """Plans and carries out deployments."""

    def __init__(self, topology: Topology, strategy: PlacementStrategy | None = None) -> None:
        self.topology = topology
        self.placement = Placement()
        self.plan = GlobalPlan([])
        self.committed = 0
        """How many generations have been carried out."""
        self.given_up = 0
        """How many were planned anew before any stage had acted on them."""
        self._strategy = strategy
        self.queries: dict[str, QueryState] = {}
        self.losses: Counter[NodeId] = Counter()
        """How often each node was lost."""

    # What is asked

    def deploy(self, plans: Sequence[StagePlan]) -> list[Instruction]:
        """Deploy a query that runs nowhere yet. Raises, and changes nothing, if it cannot be placed."""
        query = plans[0].stage.query
        if query in self.queries:
            raise AlreadyRunning(f'query "{query}" is deployed already', hint="Give the query another name.")
        plan = self.plan.with_query([stage_plan.stage for stage_plan in plans])
        placed = place_query(plan, query, self.topology, self.placement, self._strategy)
        self.plan = plan
        known = self.queries[query] = QueryState({p.stage.id: p for p in plans}, DeployedQuery(query))
        known.current = {p.stage.id: p.plan for p in plans if p.plan is not None}
        nowhere = QueryPlacement(query)
        return self._begin(known, nowhere, placed, deploy(plan, placed), ())

    def apply(self, events: Sequence[TopologyEvent]) -> list[Instruction]:
        """Take a batch of topology events. Raises, and changes nothing, if it is refused.

        Only what cannot be true is refused, and the removal of nodes that are needed. A query for which the change
        leaves no room waits for it (:meth:`problem`).
        """
        check_events(events, self.topology, self.plan, self.placement, self.queries.values())
        busy = {query for query, known in self.queries.items() if known.running is not None}
        waiting = self._waiting_for_room()
        amendment = amend(self.plan, self.topology, self.placement, events, self._strategy, waiting, leave_alone=busy)
        self.losses.update(event.node for event in events if isinstance(event, LoseNode))
        for query in waiting:
            self.queries[query].problem = None
        for query, problem in amendment.waiting.items():
            self.queries[query].problem = problem
        instructions: list[Instruction] = []
        for query, change in amendment.queries.items():
            instructions += self._redeploy(self.queries[query], change)
        for query in sorted(busy):
            # Planned anew when it is clear where its stages are.
            self.queries[query].is_stale = True
            instructions += self._look_after(self.queries[query])
        return instructions

    def migrate(
        self, plans: Sequence[StagePlan], strategy: str = "jisc", options: Mapping[str, Any] | None = None
    ) -> list[Instruction]:
        """Replace the plans of a query's stages, where they run, by equivalent ones. Raises if the stages differ."""
        query = plans[0].stage.query
        if query not in self.queries:
            raise NotRunning(f'query "{query}" is not deployed', hint=did_you_mean(query, self.queries))
        known = self.queries[query]
        if {p.stage.id: (p.stage, dict(p.leaf_of)) for p in plans} != {
            p.stage.id: (p.stage, dict(p.leaf_of)) for p in known.plans.values()
        }:
            raise MigrationRefused(
                f'the new plan of query "{query}" consists of other stages',
                detail="While a query is deployed, plans can change inside its stages only.",
                hint="Deploy it with joins_together=True to keep the joins in one stage.",
            )
        known.migrations += 1
        known.refusals = {}
        changed = [p for p in plans if p.plan is not None and p.plan != known.current[p.stage.id]]
        for plan in changed:
            assert plan.plan is not None
            known.current[plan.stage.id] = plan.plan
            known.migrating[plan.stage.id] = MigrateStage(
                query, plan.stage.id, known.migrations, plan_to_json(plan.plan), strategy, options or {}
            )
        return self._stage_migrations(known)

    def take(self, report: Report) -> list[Instruction]:
        """Take what a node reports."""
        known = self.queries.get(report.query)
        if known is not None and isinstance(report, StageMigrated):
            self._take_migrated(known, report)
            return []
        if known is not None and isinstance(report, Aborted | Installed):
            # Only a source that never ended on its node answers that it runs: it is known to have begun.
            known.given_up.pop((report.generation, report.stage), None)
        generation = None if known is None else known.running
        if known is None or generation is None or isinstance(report, StageMigrated):
            return []
        if report.generation != generation.number:
            return []
        match report:
            case Prepared(node=node):
                generation.unprepared.discard(node)
            case Acted(stage=stage):
                generation.unacted.pop(stage, None)
            case Installed(stage=stage):
                known.begun.add(stage)
                known.lost_with.pop(stage, None)
                generation.uninstalled.pop(stage, None)
                generation.called_back.pop(stage, None)
            case Aborted(stage=stage):
                if stage in generation.called_back:
                    del generation.called_back[stage]
                    generation.uninstalled.pop(stage, None)
                    old = generation.moves[stage].source if stage in known.begun else None
                    if old is not None and self._is_there(old):
                        generation.resuming[stage] = old
                        return [(old, Resume(report.query, generation.number, stage))]
                    if old is not None:
                        generation.returned.add(stage)
            case Resumed(stage=stage):
                if generation.resuming.pop(stage, None) is not None:
                    generation.unacted.pop(stage, None)
                    generation.returned.add(stage)
            case Committed(node=node):
                generation.uncommitted.discard(node)
        return self._go_on(known, generation)

    def ask_again(self, everything: bool = False) -> list[Instruction]:
        """Repeat what has not been answered, of generations in which nothing has happened since the last call.

        ``everything``: of all, because it may be that nothing of it was sent.
        """
        instructions: list[Instruction] = []
        for known in self.queries.values():
            if known.running is not None:
                if not known.running.is_stuck() and not everything:
                    continue
                instructions += self._open_questions(known, known.running)
            else:
                instructions += self._stage_migrations(known)
            instructions += self._aborts(known)
        return instructions

    def _take_migrated(self, known: QueryState, report: StageMigrated) -> None:
        waiting = known.migrating.get(report.stage)
        if waiting is not None and waiting.number == report.number:
            del known.migrating[report.stage]
            if report.refusal is not None:
                known.refusals[report.stage] = report.refusal

    def _stage_migrations(self, known: QueryState) -> list[Instruction]:
        """Plans to be replaced where stages run; a stage that is on its way is asked when it has come."""
        if known.running is not None:
            return []
        return [
            (fragment.node, known.migrating[stage])
            for fragment in known.deployed.fragments.values()
            for stage in fragment.stages
            if stage in known.migrating and self._is_there(fragment.node)
        ]

    # What is known

    @property
    def is_idle(self) -> bool:
        """Whether no generation is under way, and no plan is being replaced. Queries may wait for nodes or for room."""
        return not any(
            known.running or known.given_up or self._stage_migrations(known) for known in self.queries.values()
        )

    @property
    def can_be_compacted(self) -> bool:
        """Whether what it knows has a form without its history: nothing is under way, and no node is leaving."""
        is_busy = any(known.running or known.given_up or known.migrating for known in self.queries.values())
        return not is_busy and not self.topology.leaving

    def refusals(self, query: str) -> Mapping[StageId, str]:
        """The stages that refused the last change of their plan, and why."""
        return self.queries[query].refusals

    def problem(self, query: str) -> str | None:
        """Why a query waits for room, if it does."""
        return self.queries[query].problem

    def deployed(self, query: str) -> DeployedQuery:
        """The fragments of a query, as of the last generation that was carried out."""
        return self.queries[query].deployed

    def generation(self, query: str) -> int:
        """The number of the query's latest generation."""
        return self.queries[query].generation

    def under_way(self) -> Iterable[Generation]:
        """The generations under way."""
        return [known.running for known in self.queries.values() if known.running is not None]

    # Generations

    def _redeploy(self, known: QueryState, change: QueryAmendment) -> list[Instruction]:
        for move in change.moves:
            if move.source is not None and not self._is_there(move.source):
                known.lost_with[move.stage] = move.source
        redeployment = redeploy(self.plan, known.deployed, change, self.topology)
        if not redeployment.contexts:
            known.deployed = redeployment.after
            return []
        return self._begin(known, change.before, change.after, redeployment, change.moves)

    def _begin(
        self,
        known: QueryState,
        before: QueryPlacement,
        after: QueryPlacement,
        redeployment: Redeployment,
        moves: Iterable[StageMove],
    ) -> list[Instruction]:
        known.generation += 1
        known.is_stale = False
        by_stage = {move.stage: move for move in moves}
        state_paths = {
            stage: (move.state_path or self.topology.state_path(move.source, move.target) or ())
            for stage, move in by_stage.items()
            if move.source is not None and move.target is not None
        }
        contexts = stage_contexts(known.plans, after, redeployment, state_paths, known.begun)
        told = [(context, node) for node, own in contexts.items() for context in own]
        unacted = {context.stage: node for context, node in told if not isinstance(context, DeployStage)}
        uninstalled = {context.stage: node for context, node in told if isinstance(context, DeployStage)}
        query = redeployment.query
        passed_on_by = passing_on(self.plan, query, unacted)
        generation = known.running = Generation(
            query,
            known.generation,
            before,
            after,
            redeployment,
            by_stage,
            contexts,
            Marker(query, known.generation, passed_on_by),
            entry_stages(self.plan, self.topology, before, after, unacted, passed_on_by),
            set(contexts),
            unacted,
            uninstalled,
            state_paths,
        )
        return [(node, Prepare(query, generation.number, own)) for node, own in contexts.items()]

    def _go_on(self, known: QueryState, generation: Generation) -> list[Instruction]:
        """The next phase, if all that this one waits for has been reported."""
        if generation.phase == "prepare" and not generation.unprepared:
            if known.is_stale and generation.moves and not generation.begins(known.begun):
                return self._give_up(known, generation)
            generation.phase = "mark"
            if generation.unacted or generation.uninstalled:
                return self._enter(generation, generation.entry_stages) + self._rescues(known, generation)
        if generation.phase == "mark":
            waits = generation.unacted or generation.uninstalled or generation.called_back or generation.resuming
            if not waits:
                generation.phase = "commit"
                generation.uncommitted = set(filter(self._is_there, generation.nodes))
                if generation.uncommitted:
                    return [
                        (node, Commit(generation.query, generation.number)) for node in sorted(generation.uncommitted)
                    ]
        if generation.phase == "commit" and not generation.uncommitted:
            return self._end(known, generation)
        return []

    def _end(self, known: QueryState, generation: Generation) -> list[Instruction]:
        """The generation is over; plan anew if not all stages could move, or if the topology has changed since."""
        self.committed += 1
        known.running = None
        known.deployed = generation.redeployment.after
        assert generation.left_the_rest_alone, "I6: a fragment changed that nobody was told of"
        if generation.returned:
            actual = generation.reached
            self.placement.put(actual)
            change = QueryAmendment(
                generation.query,
                generation.before,
                actual,
                tuple(move for stage, move in generation.moves.items() if stage not in generation.returned),
            )
            deployed = redeploy(self.plan, generation.redeployment.before, change, self.topology).after
            # Stages on these nodes may have routes to where others never came: all of them are told anew.
            told = {
                id: replace(fragment, inputs={}, route=None) if fragment.node in generation.nodes else fragment
                for id, fragment in deployed.fragments.items()
            }
            known.deployed = replace(deployed, fragments=told)
        elif not known.is_stale:
            check_deployment(self.plan, generation.after, known.deployed.fragments.values(), self.topology)
        if generation.returned or known.is_stale or known.problem is not None:
            return self._plan_anew(known)
        self._forget_left_nodes()
        return self._stage_migrations(known)

    def _forget_left_nodes(self) -> None:
        """Removed nodes can be switched off when nothing that they held is needed any more."""
        needed = {node for generation in self.under_way() for node in generation.nodes}
        for known in self.queries.values():
            needed |= {fragment.node for fragment in known.deployed.fragments.values()}
        for node in [node for node in self.topology.leaving if node not in needed]:
            self.topology.forget(node)

    def _plan_anew(self, known: QueryState) -> list[Instruction]:
        """Plan a query anew, and those that wait for room: it may leave some."""
        known.is_stale = False
        reconsider = {known.deployed.query, *self._waiting_for_room()}
        amendment = amend(self.plan, self.topology, self.placement, [], self._strategy, reconsider)
        instructions: list[Instruction] = []
        for query in sorted(reconsider):
            self.queries[query].problem = amendment.waiting.get(query)
            if query in amendment.queries:
                instructions += self._redeploy(self.queries[query], amendment.queries[query])
        return instructions

    def _waiting_for_room(self) -> list[str]:
        """The queries that wait for room, except those that are being redeployed: they are looked at afterwards."""
        return sorted(q for q, known in self.queries.items() if known.problem is not None and known.running is None)

    def _give_up(self, known: QueryState, generation: Generation) -> list[Instruction]:
        """Plan a generation anew that no stage has acted on."""
        known.given_up |= {(generation.number, stage): node for stage, node in generation.uninstalled.items()}
        known.running = None
        self.given_up += 1
        self.placement.put(generation.before)
        return self._aborts(known) + self._plan_anew(known)

    def _aborts(self, known: QueryState) -> list[Instruction]:
        query = known.deployed.query
        return [
            instruction
            for (generation, stage), node in known.given_up.items()
            for instruction in self._abort(query, generation, stage, node)
        ]

    def _abort(self, query: str, generation: int, stage: StageId, node: NodeId) -> list[Instruction]:
        """Tell a node not to begin a stage. For a node that is lost, another one is asked what it has stored."""
        if self._is_there(node):
            return [(node, Abort(query, generation, (stage,)))]
        sink = self.plan.stages[self.plan.sink_of(query)].pinned_to
        asked = sink if sink in self.topology.nodes else min(self.topology.nodes, default=None)
        if asked is None:
            return []
        return [(asked, InspectLostNode(query, generation, stage, node, self.losses[node]))]

    def _look_after(self, known: QueryState) -> list[Instruction]:
        """After a change of the topology: a generation that is not marked is given up, else its paths are checked."""
        generation = known.running
        assert generation is not None
        lost = {node for node in generation.nodes if not self._is_there(node)}
        if generation.phase == "prepare" and (generation.moves or lost) and not generation.begins(known.begun):
            return self._give_up(known, generation)
        self._wait_no_longer_for(lost, generation)
        instructions: list[Instruction] = []
        for stage, target in list(generation.uninstalled.items()):
            move = generation.moves.get(stage)
            if stage not in known.begun and target in lost:
                # Whether it has begun there must be known before it begins elsewhere.
                generation.called_back[stage] = target
                instructions += self._abort(generation.query, generation.number, stage, target)
            elif (move is None or move.source is None) and target in lost:
                # It was lost before, or has begun there again: the next generation rescues it.
                del generation.uninstalled[stage]
            if move is None or move.source is None or stage in generation.called_back:
                continue
            path = generation.state_paths[stage]
            if path and self.topology.carries_state(path):
                continue
            found = self.topology.state_path(move.source, target)
            if found is not None:
                generation.state_paths[stage] = found
                instructions.append((move.source, RerouteState(stage, generation.number, found)))
            elif known.is_stale and (self._is_there(move.source) or target not in self.topology.nodes):
                generation.called_back[stage] = target
                instructions += self._abort(generation.query, generation.number, stage, target)
        return instructions + self._go_on(known, generation)

    def _wait_no_longer_for(self, lost: set[NodeId], generation: Generation) -> None:
        """Nodes are lost: what they were to do, nobody will report. Their stages are rescued from what they stored."""
        generation.unprepared -= lost
        generation.uncommitted -= lost
        for stage in [stage for stage, node in generation.unacted.items() if node in lost]:
            del generation.unacted[stage]
        for stage in [stage for stage, node in generation.resuming.items() if node in lost]:
            del generation.resuming[stage]
            generation.returned.add(stage)

    def _is_there(self, node: NodeId) -> bool:
        """Whether a node can be asked for what it holds."""
        return node in self.topology.nodes or node in self.topology.leaving

    def _open_questions(self, known: QueryState, generation: Generation) -> list[Instruction]:
        query, number = generation.query, generation.number
        instructions: list[Instruction] = []
        if generation.phase == "prepare":
            instructions += [(n, Prepare(query, number, generation.contexts[n])) for n in sorted(generation.unprepared)]
        if generation.phase == "mark":
            # The marker may be stuck where a link was cut: then it enters behind the cut.
            waiting: dict[NodeId, list[StageId]] = {}
            for stage, node in generation.unacted.items():
                waiting.setdefault(node, []).append(stage)
            instructions += self._enter(generation, waiting)
            instructions += [
                (node, Prepare(query, number, generation.contexts[node]))
                for node in sorted(set(generation.uninstalled.values()))
            ]
            for stage in generation.uninstalled:
                source = generation.moves[stage].source if stage in generation.moves else None
                if source is not None and self._is_there(source):
                    instructions.append((source, RerouteState(stage, number, generation.state_paths[stage])))
            instructions += self._rescues(known, generation)
            for stage, node in generation.called_back.items():
                instructions += self._abort(query, number, stage, node)
            instructions += [(n, Resume(query, number, stage)) for stage, n in generation.resuming.items()]
        if generation.phase == "commit":
            instructions += [(node, Commit(query, number)) for node in sorted(generation.uncommitted)]
        return instructions

    def _rescues(self, known: QueryState, generation: Generation) -> list[Instruction]:
        """Ask for the snapshots of stages whose old node is lost. That of a source may be the node that came back."""
        lost = {
            stage: move.source or known.lost_with.get(stage) or generation.uninstalled[stage]
            for stage, move in generation.moves.items()
            if stage in known.begun and stage in generation.uninstalled
            if move.source is None or not self._is_there(move.source)
        }
        return [
            (target, RescueState(stage, generation.number, lost[stage], self.losses[lost[stage]]))
            for stage, target in generation.uninstalled.items()
            if stage in lost and stage not in generation.called_back
        ]

    def _enter(self, generation: Generation, stages: Mapping[NodeId, Iterable[StageId]]) -> list[Instruction]:
        return [(node, EnterMarker(generation.marker, tuple(own))) for node, own in stages.items()]
