"""Random deployment cases: queries on a random topology, and what happens to both.

`deployment_cases()` is a Hypothesis strategy, `random_deployment` makes a case from any source of choices. A case is
made of the choices of its scenarios, then those of its topology, then those of its steps, so that several deployments
can be tried on one scenario.

Topologies have a cloud, up to three layers below it, and devices at the edge where rows arise; some nodes have few
slots, some links are slow, some neighbours are linked. Sometimes the cloud has few slots, too: then queries may have to
wait for room. Steps lean to where deployments are hard: batches follow each other while a generation is under way,
revert each other, and come with crashes at every moment of a generation. Devices are cut off and lost, and come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from midstream.deployment.protocol.coordinator import Coordinator
from midstream.deployment.simulation import Costs, Unreliability
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import (
    AddLink,
    AddNode,
    LoseNode,
    RemoveLink,
    RemoveNode,
    TopologyEvent,
    apply_events,
)
from midstream.errors import TopologyError
from midstream.testing.choices import Choices, Draw, HypothesisChoices
from midstream.testing.deployment_cases import SINK, DeploymentCase, QueryCase, with_own_lateness
from midstream.testing.deployment_steps import (
    Action,
    Change,
    CrashCoordinator,
    CrashNode,
    Flap,
    Replan,
    Step,
    possible_events,
)
from midstream.testing.generators import WINDOWS, Scenario, random_scenario
from midstream.testing.migration_cases import plans_of

__all__ = ["deployment_cases", "random_deployment", "random_deployment_on", "random_deployment_scenarios"]

_EMPHASES = ["plans"] * 4 + ["final beside incremental", "final beside final", "final over distinct", "language"]
_STRATEGIES: list[tuple[str, dict[str, Any]]] = [("jisc", {}), ("moving-state", {}), ("gen-mig", {})]
_FAULTS = ["node", "node", "coordinator", "flap"]
_LATENCIES = [0.0, 1.0, 5.0, 20.0]
_BANDWIDTHS = [None, None, None, 1.0, 0.1]


def random_deployment(choices: Choices) -> DeploymentCase:
    """A case."""
    return random_deployment_on(choices, random_deployment_scenarios(choices))


def deployment_cases() -> st.SearchStrategy[DeploymentCase]:
    """Cases drawn by Hypothesis."""

    @st.composite
    def build(draw: Draw) -> DeploymentCase:
        return random_deployment(HypothesisChoices(draw))

    return build()


def random_deployment_scenarios(choices: Choices) -> list[Scenario]:
    """The scenarios of the queries, one or two; the second may be the first one, for two queries on the same rows."""
    scenarios = [_random_scenario(choices)]
    if choices.chance(4):
        scenarios.append(scenarios[0] if choices.chance(2) else _random_scenario(choices))
    return scenarios


def _random_scenario(choices: Choices) -> Scenario:
    emphasis = choices.pick(_EMPHASES)
    is_final = emphasis.startswith("final")
    scenario = random_scenario(
        choices,
        emphasis=emphasis,
        min_streams=choices.pick([1, 2, 2, 3]),
        max_streams=6 if is_final else choices.pick([3, 3, 4]),
        windows={"slide", "range"} if is_final else WINDOWS,
        max_rows=2 if is_final else choices.pick([3, 4, 6]),
        batchings=["mixed"],
    )
    return with_own_lateness(scenario)


def random_deployment_on(choices: Choices, scenarios: Sequence[Scenario]) -> DeploymentCase:
    """The scenarios deployed on a random topology, with random steps."""
    return _DeploymentWriter(choices, scenarios).case()


class _DeploymentWriter:
    """Writes a case. `topology` is as the steps written so far leave it."""

    def __init__(self, choices: Choices, scenarios: Sequence[Scenario]) -> None:
        self._choices = choices
        self._scenarios = scenarios
        self._nodes: list[Node] = []
        self._links: list[Link] = []
        self._tiers: list[list[str]] = [[SINK]]
        self._devices: list[str] = []
        self._queries: list[QueryCase] = []
        self._names = 0
        self._undo: list[TopologyEvent] = []
        self._unreliable = False

    def case(self) -> DeploymentCase:
        choices = self._choices
        self._write_tiers()
        for number, scenario in enumerate(self._scenarios):
            self._write_query(f"q{number + 1}", scenario)
        if choices.chance(4):
            self._limit_cloud(len(self._queries) + choices.number(0, 1))
        self.topology = Topology(self._nodes, self._links)
        costs = Costs(
            step=choices.pick([0.1, 2.0]),
            control=choices.pick([0.5, 5.0, 30.0]),
            monitor=choices.pick([0.0, 0.0, 10.0]),
            ask_again=choices.pick([50.0, 20.0]),
        )
        unreliability = choices.pick([Unreliability(), Unreliability(), Unreliability(0.15, 0.15)])
        steps = [step for _ in range(choices.number(1, 5)) for step in self._some_steps()]
        return DeploymentCase(
            list(self._nodes),
            list(self._links),
            self._queries,
            steps,
            push_every=choices.pick([10.0, 0.0, 1.0, 50.0]),
            costs=costs,
            unreliability=unreliability,
            chunk_bytes=choices.pick([1 << 16, 1000, 200]),
            seed=choices.number(0, 99),
        )

    # The beginning

    def _write_tiers(self) -> None:
        choices = self._choices
        self._nodes.append(Node(SINK))
        for _ in range(choices.number(0, 2)):
            self._write_tier(choices.number(1, 2))
        self._write_tier(choices.number(2, 4))

    def _limit_cloud(self, slots: int) -> None:
        """Give the cloud few slots, if the queries can be deployed all the same."""
        limited = [Node(SINK, slots), *self._nodes[1:]]
        coordinator = Coordinator(Topology(limited, self._links))
        try:
            for query in self._queries:
                coordinator.deploy(query.stage_plans(query.plan))
        except TopologyError:
            return
        self._nodes = limited

    def _write_tier(self, size: int) -> None:
        choices = self._choices
        above = [node for tier in self._tiers for node in tier]
        tier = [self._new_name("e") for _ in range(size)]
        for name in tier:
            self._nodes.append(Node(name, slots=choices.pick([None, None, None, 0, 1, 2, 65535])))
            parents = [choices.pick(self._tiers[-1])]
            if choices.chance(6):
                parents.append(choices.pick(above))
            self._links += [self._link(name, parent) for parent in dict.fromkeys(parents)]
        for one, other in pairwise(tier):
            if choices.chance(6):
                self._links.append(replace(self._link(one, other), is_peer=True))
        self._tiers.append(tier)

    def _write_query(self, name: str, scenario: Scenario) -> None:
        choices = self._choices
        plans = plans_of(scenario)[1]
        plan = choices.number(0, min(5, len(plans) - 1))
        sharing = [query for query in self._queries if query.scenario is scenario]
        joins_together = choices.pick([False, True, True])
        if sharing:
            self._queries.append(QueryCase(name, scenario, sharing[0].sources, plan, joins_together))
            return
        users = sum(one is scenario for one in self._scenarios)
        sources: dict[str, tuple[str, ...]] = {}
        for stream in scenario.streams:
            need = users * sum(window.stream.name == stream.name for window in plans[plan].windows())
            own = tuple(self._new_name("d") for _ in range(choices.pick([1, 1, 2])))
            for device in own:
                # Queries with the same rows may have plans with more windows of a stream than this one.
                slots = choices.pick([need, None, need + 1]) if users == 1 else None
                self._nodes.append(Node(device, slots=slots))
                self._links.append(self._link(device, choices.pick(self._tiers[-1])))
            self._devices += own
            sources[stream.name] = own
        self._queries.append(QueryCase(name, scenario, sources, plan, joins_together))

    def _new_name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"

    def _link(self, child: str, parent: str) -> Link:
        return Link(child, parent, self._choices.pick(_LATENCIES), self._choices.pick(_BANDWIDTHS))

    # Steps

    def _some_steps(self) -> Iterator[Step]:
        """A step, and often others on its heels: at some moment of the generation that it causes, or soon after."""
        choices = self._choices
        yield Step(choices.pick([0.0, 5.0, 20.0, 80.0, 250.0]), self._action(["change"] * 7 + ["plan"] * 3 + _FAULTS))
        for _ in range(choices.pick([0, 1, 1, 2])):
            action = self._action(["change"] * 3 + ["plan"] + _FAULTS)
            if choices.chance(3):
                yield Step(choices.pick([0.0, 1.0, 5.0, 20.0]), action)
            else:
                yield Step(0.0, action, choices.pick(["prepare", "mark", "transfer", "commit"]))

    def _action(self, kinds: Sequence[str]) -> Action:
        choices = self._choices
        kind = choices.pick(kinds)
        if kind == "node":
            return CrashNode(choices.pick(sorted(self.topology.nodes)), choices.pick([1.0, 30.0, 120.0]))
        if kind == "coordinator":
            return CrashCoordinator(choices.pick([1.0, 60.0]))
        links = sorted((link.child, link.parent) for link in self.topology.links())
        if kind == "flap" and links:
            return Flap(*choices.pick(links), choices.pick([1.0, 30.0]))
        if kind == "plan":
            movable = [
                query for query in self._queries if query.joins_together and len(plans_of(query.scenario)[1]) > 1
            ]
            query = choices.pick(movable or self._queries)
            strategy, options = choices.pick(_STRATEGIES)
            return Replan(query.name, choices.number(0, 7), strategy, options)
        events = self._events()
        apply_events(self.topology, events)
        return Change(tuple(events))

    def _events(self) -> list[TopologyEvent]:
        choices = self._choices
        undo, self._undo = self._undo, []
        if undo and choices.chance(3):
            return self._legal(undo)
        kind = choices.pick(
            ["devices", "devices", "devices", "cut", "edge", "edge", "peers", "remove", "lose", "lose", "source", "add"]
        )
        events: list[TopologyEvent] = []
        if kind == "source":
            for device in self._some(self._devices):
                events += self._lost_source(device)
        if kind in ("devices", "cut"):
            for device in self._some(self._devices):
                events += self._moved(device, cut=kind == "cut")
        edges = [node for node in self.topology.nodes if node not in self._devices and node != SINK]
        if kind == "edge" and edges:
            events += self._moved(choices.pick(sorted(edges)), cut=choices.chance(3))
        if kind == "peers" and len(edges) > 1:
            one, other = choices.pick(sorted(edges)), choices.pick(sorted(edges))
            if one != other:
                events.append(
                    RemoveLink(one, other)
                    if self.topology.link(one, other)
                    else AddLink(replace(self._link(one, other), is_peer=True))
                )
        if kind == "add" or not edges:
            name = self._new_name("e")
            events += [AddNode(Node(name, choices.pick([None, 0, 1]))), AddLink(self._link(name, SINK))]
        if kind in ("remove", "lose") and edges:
            # With a device's own edge node something is lost that matters.
            near = [parent for device in self._devices for parent in self.topology.next_hops(device)]
            candidates = sorted(node for node in near if node in edges) or sorted(edges)
            gone = choices.pick([*candidates, *sorted(edges)])
            below = self.topology.previous_hops(gone)
            events.append(RemoveNode(gone) if kind == "remove" else LoseNode(gone))
            if not choices.chance(3):
                for child in below:
                    if target := self._target(child, {gone}):
                        events.append(AddLink(self._link(child, target)))
            if choices.chance(3):
                self._undo = [AddNode(Node(gone)), AddLink(self._link(gone, SINK))]
        return self._legal(events)

    def _lost_source(self, device: str) -> list[TopologyEvent]:
        """A device is lost, or comes back. That it is removed is refused: its source can run nowhere else."""
        if device not in self.topology.nodes:
            return self._moved(device, cut=False)
        (known,) = (known for known in self._nodes if known.id == device)
        parents = [link for link in self.topology.links() if link.child == device]
        self._undo += [AddNode(known), *map(AddLink, parents)]
        return [RemoveNode(device) if self._choices.chance(5) else LoseNode(device)]

    def _moved(self, node: str, cut: bool) -> list[TopologyEvent]:
        """A node leaves its parents, and gets another one unless it is cut off. A device that is gone comes back."""
        if node not in self.topology.nodes and (target := self._target(node, set())):
            (known,) = (known for known in self._nodes if known.id == node)
            return [AddNode(known), AddLink(self._link(node, target))]
        parents = [link for link in self.topology.links() if link.child == node and not link.is_peer]
        events: list[TopologyEvent] = [RemoveLink(node, link.parent) for link in parents]
        self._undo += [AddLink(link) for link in parents]
        target = self._target(node, {link.parent for link in parents})
        if target is not None and not (cut and parents):
            events.append(AddLink(self._link(node, target)))
            self._undo.insert(0, RemoveLink(node, target))
        return events

    def _target(self, child: str, but: set[str]) -> str | None:
        """A node to which another one can be linked."""
        candidates = [
            node
            for node in self.topology.nodes
            if node not in self._devices and node != child and node not in but
            and (child in self._devices or child not in self.topology.reachable_from(node))
        ]  # fmt: skip
        if child in self._devices and len(candidates) > 1:
            candidates = [node for node in candidates if node != SINK]
        return self._choices.pick(sorted(candidates)) if candidates else None

    def _some(self, names: Sequence[str]) -> list[str]:
        choices = self._choices
        chosen = [choices.pick(names) for _ in range(choices.pick([1, 1, 2, 3]))]
        return list(dict.fromkeys(chosen))

    def _legal(self, events: Sequence[TopologyEvent]) -> list[TopologyEvent]:
        """The events that are possible one after the other."""
        legal: list[TopologyEvent] = []

        class Tried(Exception):
            pass

        try:
            with self.topology.transaction():
                legal = possible_events(self.topology, events)
                raise Tried
        except Tried:
            return legal
