"""Random topologies, queries and batches of events, and a plain model of the topology to judge by.

The model keeps sets of nodes and links and finds paths by trying all links, again and again: slow, and
not the code under test.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from midstream.deployment.placement.global_plan import GlobalPlan, Stage
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import (
    AddLink,
    AddNode,
    LoseNode,
    RemoveLink,
    RemoveNode,
    TopologyEvent,
)

__all__ = ["Model", "random_events", "random_plan", "random_topology"]


@dataclass
class Model:
    """A topology as sets."""

    nodes: dict[str, Node] = field(default_factory=dict)
    up: set[tuple[str, str]] = field(default_factory=set)
    peers: set[tuple[str, str]] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    left: set[tuple[str, str]] = field(default_factory=set)
    """Links that went with leaving nodes."""

    @classmethod
    def of(cls, topology: Topology) -> Model:
        model = cls(dict(topology.nodes))
        for link in topology.links():
            (model.peers if link.is_peer else model.up).add((link.child, link.parent))
        return model

    def copy(self) -> Model:
        return Model(dict(self.nodes), set(self.up), set(self.peers), set(self.leaving), set(self.left))

    def apply(self, events: Iterable[TopologyEvent]) -> None:
        for event in events:
            match event:
                case AddNode(node):
                    self._forget(node.id)
                    self.nodes[node.id] = node
                case RemoveNode(name):
                    self.leaving.add(name)
                    self.left |= {link for link in self.up | self.peers if name in link}
                    self._cut(name)
                case LoseNode(name):
                    self._forget(name)
                    self.left = {link for link in self.left if name not in link}
                    self._cut(name)
                case AddLink(link):
                    (self.peers if link.is_peer else self.up).add((link.child, link.parent))
                case RemoveLink(child, parent):
                    self.up.discard((child, parent))
                    self.peers -= {(child, parent), (parent, child)}

    def _cut(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.up = {link for link in self.up if name not in link}
        self.peers = {link for link in self.peers if name not in link}

    def _forget(self, name: str) -> None:
        if name in self.leaving:
            self.leaving.discard(name)
            self.left = {link for link in self.left if name not in link}

    def carries_rows(self) -> set[tuple[str, str]]:
        return self.up | self.peers | {(other, one) for one, other in self.peers}

    def carries_state(self, with_leaving: bool) -> set[tuple[str, str]]:
        links = self.up | self.peers | (self.left if with_leaving else set())
        return links | {(other, one) for one, other in links}

    def reachable(self, start: str) -> dict[str, int]:
        """Hops by which rows reach each node."""
        return spread(start, self.carries_rows()) if start in self.nodes else {}


def spread(start: str, links: set[tuple[str, str]]) -> dict[str, int]:
    """Hops to all nodes that can be reached over directed links."""
    hops = {start: 0}
    while True:
        new = {end: hops[begin] + 1 for begin, end in links if begin in hops and end not in hops}
        if not new:
            return hops
        nearest = min(new.values())
        hops.update({node: far for node, far in new.items() if far == nearest})


def random_topology(random: Random, bounded: bool = True) -> Topology:
    """Devices below edge nodes below some in between below the cloud, with some links across."""
    topology = Topology([Node("cloud", kind="cloud")])
    above = ["cloud"]
    for number in range(random.randint(0, 2)):
        topology.add_node(Node(f"middle {number}", _slots(random, bounded)))
        topology.add_link(Link(f"middle {number}", random.choice(above)))
        above.append(f"middle {number}")
    edges = [f"edge {number}" for number in range(random.randint(1, 4))]
    for edge in edges:
        topology.add_node(Node(edge, _slots(random, bounded)))
        for parent in random.sample(above, random.choice([1, 1, min(2, len(above))])):
            topology.add_link(Link(edge, parent))
    for number in range(random.randint(2, 6)):
        topology.add_node(Node(f"device {number}", 3 if bounded else None))
        for parent in random.sample(edges, random.choice([1, 1, min(2, len(edges))])):
            topology.add_link(Link(f"device {number}", parent))
    for _ in range(random.choice([0, 0, 1, 2])):
        _try_to_link(random, topology, edges)
    return topology


def _slots(random: Random, bounded: bool) -> int | None:
    return random.choice([None, None, 0, 1, 2, 4]) if bounded else None


def _try_to_link(random: Random, topology: Topology, edges: list[str]) -> None:
    if len(edges) > 1:
        one, other = random.sample(edges, 2)
        if topology.link(one, other) is None:
            topology.add_link(Link(one, other, is_peer=True))


def random_plan(random: Random, topology: Topology, queries: int) -> GlobalPlan:
    """Trees of stages above sources on devices, some of them pinned."""
    devices = sorted(node for node in topology.nodes if node.startswith("device"))
    fixed = sorted(node for node in topology.nodes if not node.startswith("device"))
    stages: list[Stage] = []
    for number in range(queries):
        query = f"query {number}"
        tops = [
            Stage(f"{query}/source {source}", query, (), random.choice(devices))
            for source in range(random.randint(1, 4))
        ]
        stages += tops
        for step in range(random.randint(0, 5)):
            inputs = random.sample(tops, min(len(tops), random.choice([1, 2, 2, 3])))
            pinned_to = random.choice(fixed) if random.random() < 0.1 else None
            stage = Stage(f"{query}/stage {step}", query, tuple(i.id for i in inputs), pinned_to, random.random() < 0.5)
            tops = [*(top for top in tops if top not in inputs), stage]
            stages.append(stage)
        sink = random.choice(["cloud", "cloud", random.choice(fixed)])
        stages.append(Stage(f"{query}/sink", query, tuple(top.id for top in tops), sink))
    return GlobalPlan(stages)


def random_events(random: Random, model: Model, bounded: bool = True) -> list[TopologyEvent]:
    """Events that can be applied one after the other: devices that move, links and nodes that come and go."""
    model = model.copy()
    events: list[TopologyEvent] = []
    gone: set[str] = set()
    for _ in range(random.randint(1, 4)):
        following = _random_event(random, model, gone, bounded)
        model.apply(following)
        gone |= {event.node for event in following if isinstance(event, RemoveNode | LoseNode)}
        events += following
    return events


def _random_event(random: Random, model: Model, gone: set[str], bounded: bool) -> list[TopologyEvent]:
    kind = random.choice(["move", "move", "move", "unlink", "unlink", "link", "link", "remove", "lose", "add"])
    links = sorted(model.up | model.peers)
    level = {"device": 0, "edge": 1, "middle": 2, "cloud": 3}
    pairs = [
        (low, high)
        for low in sorted(model.nodes)
        for high in sorted(model.nodes)
        if level[low.split()[0]] < level[high.split()[0]]
        or (low.split()[0] == high.split()[0] == "middle" and low > high)
    ]
    pairs = [pair for pair in pairs if pair not in model.up]
    if kind == "move":
        moving = [link for link in links if link[0].startswith("device")]
        if moving:
            device, old = random.choice(moving)
            parents = [high for low, high in pairs if low == device and high != old]
            if parents:
                return [RemoveLink(device, old), AddLink(Link(device, random.choice(parents)))]
    elif kind == "unlink" and links:
        return [RemoveLink(*random.choice(links))]
    elif kind == "link" and pairs:
        return [AddLink(Link(*random.choice(pairs)))]
    elif kind in ("remove", "lose") and model.nodes:
        node = random.choice(sorted(model.nodes))
        return [RemoveNode(node) if kind == "remove" else LoseNode(node)]
    elif kind == "add":
        names = [f"edge {number}" for number in range(5)] + [f"device {number}" for number in range(6)] + ["cloud"]
        missing = [name for name in names if name not in model.nodes and name not in gone]
        if missing:
            name = random.choice(missing)
            below = [node for node in sorted(model.nodes) if level[node.split()[0]] < level[name.split()[0]]]
            above = [node for node in sorted(model.nodes) if level[node.split()[0]] > level[name.split()[0]]]
            slots = _slots(random, bounded) if name.startswith("edge") else None
            added: list[TopologyEvent] = [AddNode(Node(name, slots))]
            if above:
                added.append(AddLink(Link(name, random.choice(above))))
            added += [AddLink(Link(node, name)) for node in random.sample(below, min(len(below), 2))]
            return added
    return []
