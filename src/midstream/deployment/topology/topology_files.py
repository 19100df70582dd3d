"""Topologies and batches of topology events from files.

Our own format is TOML or JSON, by the name's ending. A file has a topology, or batches of events, or both:

.. code-block:: toml

    [[nodes]]
    id = "sensor 1"
    slots = 1                     # how many stages it can take; left out: any number
    kind = "sensor"               # for people; can be left out

    [[links]]
    child = "sensor 1"
    parent = "edge 1"
    latency_ms = 20               # left out: 0
    bandwidth_mbit_per_s = 250    # left out: unlimited
    peer = false                  # true: a link between neighbours, for rows in both directions

    [[batches]]
    time_ms = 1000                # after the first batch, or whenever the run begins
    events = [
        {event = "remove_link", child = "sensor 1", parent = "edge 1"},
        {event = "add_link", child = "sensor 1", parent = "edge 2", latency_ms = 20},
        {event = "add_node", id = "edge 3", slots = 8},
        {event = "remove_node", id = "edge 1"},     # planned: what it holds can still be fetched
        {event = "lose_node", id = "edge 2"},       # gone with what it held
    ]

``read_published_folder`` reads the format of ISQD's evaluation: a folder with ``fixed_topology.json`` (the nodes that
stay), ``source_groups.json`` (the query of each device) and ``topology_updates.json`` or ``.json.gz`` (the device's
first parents and the batches). Its node ids are numbers; the cloud, node 1, is not listed. Links between edge nodes
become peer links.
"""

from __future__ import annotations

import gzip
import json
import tomllib
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from midstream.deployment.placement.global_plan import NodeId
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import (
    AddLink,
    AddNode,
    EventBatch,
    LoseNode,
    RemoveLink,
    RemoveNode,
    TopologyEvent,
)
from midstream.errors import BadTopology, PathProblem, TopologyError

__all__ = ["Trace", "parse_file", "read_batches", "read_published_folder", "read_topology"]

CLOUD = "1"
"""The cloud's id in ISQD's evaluation."""


@dataclass(frozen=True)
class Trace:
    """A topology, the device's queries, and what happens to the topology."""

    topology: Topology
    groups: Mapping[NodeId, int]
    """The query of each device: the devices of a group are the sources of one query."""
    batches: tuple[EventBatch, ...]


class _NodeEntry(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    slots: int | None = None
    kind: str | None = None

    def node(self) -> Node:
        return Node(self.id, self.slots, self.kind)


class _LinkEntry(msgspec.Struct, forbid_unknown_fields=True):
    child: str
    parent: str
    latency_ms: float = 0.0
    bandwidth_mbit_per_s: float | None = None
    peer: bool = False

    def link(self) -> Link:
        return Link(self.child, self.parent, self.latency_ms, self.bandwidth_mbit_per_s, self.peer)


class _AddNode(_NodeEntry, tag_field="event", tag="add_node", forbid_unknown_fields=True):
    def event(self) -> TopologyEvent:
        return AddNode(self.node())


class _RemoveNode(msgspec.Struct, tag_field="event", tag="remove_node", forbid_unknown_fields=True):
    id: str

    def event(self) -> TopologyEvent:
        return RemoveNode(self.id)


class _LoseNode(msgspec.Struct, tag_field="event", tag="lose_node", forbid_unknown_fields=True):
    id: str

    def event(self) -> TopologyEvent:
        return LoseNode(self.id)


class _AddLink(_LinkEntry, tag_field="event", tag="add_link", forbid_unknown_fields=True):
    def event(self) -> TopologyEvent:
        return AddLink(self.link())


class _RemoveLink(msgspec.Struct, tag_field="event", tag="remove_link", forbid_unknown_fields=True):
    child: str
    parent: str

    def event(self) -> TopologyEvent:
        return RemoveLink(self.child, self.parent)


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    time_ms: float
    events: list[_AddNode | _RemoveNode | _LoseNode | _AddLink | _RemoveLink]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    nodes: list[_NodeEntry] = []
    links: list[_LinkEntry] = []
    batches: list[_Batch] = []


class _FixedTopology(msgspec.Struct):
    nodes: dict[int, list[float]]
    slots: dict[int, int]
    children: dict[int, list[int]]


class _PublishedEvent(msgspec.Struct, rename="camel"):
    parent_id: int
    child_id: int
    action: str


class _PublishedBatch(msgspec.Struct):
    timestamp: float
    events: list[_PublishedEvent]


class _PublishedUpdates(msgspec.Struct):
    initial_parents: list[tuple[int, int]]
    topology_updates: list[_PublishedBatch]


_Content = TypeVar("_Content")


def read_topology(path: str | Path) -> Topology:
    """The topology of a file."""
    path = Path(path)
    content = _convert(path, parse_file(path), _File)
    with _named_file(path):
        return Topology([entry.node() for entry in content.nodes], [entry.link() for entry in content.links])


def read_batches(path: str | Path) -> list[EventBatch]:
    """The batches of events of a file, in order of time."""
    path = Path(path)
    batches = _convert(path, parse_file(path), _File).batches
    with _named_file(path):
        found = [EventBatch(batch.time_ms, tuple(entry.event() for entry in batch.events)) for batch in batches]
    times = [batch.time_ms for batch in found]
    if times != sorted(times):
        raise BadTopology(f"{path}: the batches are not in order of time")
    return found


def read_published_folder(folder: str | Path) -> Trace:
    """The topology, the devices' queries and the batches of one of ISQD's set-ups."""
    folder = Path(folder)
    fixed = _convert(folder, parse_file(folder / "fixed_topology.json"), _FixedTopology)
    groups = _convert(folder, parse_file(folder / "source_groups.json"), dict[int, tuple[int]])
    updates_path = folder / "topology_updates.json"
    if not updates_path.exists():
        updates_path = folder / "topology_updates.json.gz"
    updates = _convert(folder, parse_file(updates_path), _PublishedUpdates)
    without = sorted(set(fixed.nodes) - set(fixed.slots))
    if without:
        raise BadTopology(f'"{folder}" is not a topology file', detail=f"Node {without[0]} has no slots.")
    with _named_file(folder):
        return _published_trace(fixed, groups, updates)


def _published_trace(fixed: _FixedTopology, groups: Mapping[int, tuple[int]], updates: _PublishedUpdates) -> Trace:
    shift = 1 if min(fixed.nodes, default=2) == 1 else 0
    topology = Topology([Node(CLOUD, kind="cloud")])
    for number in sorted(fixed.nodes):
        topology.add_node(Node(str(number + shift), fixed.slots[number], "edge"))
    for device in sorted(groups):
        topology.add_node(Node(str(device), 1, "device"))
    for link in _fixed_links({number: set(fixed.children.get(number, ())) for number in fixed.nodes}, shift):
        topology.add_link(link)
    for parent, device in updates.initial_parents:
        topology.add_link(Link(str(device), str(parent)))
    batches = tuple(EventBatch(batch.timestamp, tuple(map(_event, batch.events))) for batch in updates.topology_updates)
    return Trace(topology, {str(device): group for device, (group,) in sorted(groups.items())}, batches)


@contextmanager
def _named_file(path: Path) -> Iterator[None]:
    """Say in which file a problem is."""
    try:
        yield
    except TopologyError as problem:
        problem.detail = " ".join(filter(None, [problem.detail, f"In {path}."]))
        raise


def _fixed_links(children: Mapping[int, set[int]], shift: int) -> list[Link]:
    """The links among fixed nodes and to the cloud. Nodes that are each other's children are peers below the cloud."""
    peers = {
        (one, other)
        for one, below in children.items()
        for other in below
        if one < other and one in children.get(other, ())
    }
    below_another = {
        child
        for node, below in children.items()
        for child in below
        if (min(node, child), max(node, child)) not in peers
    }
    links = [Link(str(node + shift), CLOUD) for node in sorted(children) if node not in below_another]
    for node in sorted(children):
        for child in sorted(children[node]):
            if (min(node, child), max(node, child)) not in peers:
                links.append(Link(str(child + shift), str(node + shift)))
    return links + [Link(str(one + shift), str(other + shift), is_peer=True) for one, other in sorted(peers)]


def _event(published: _PublishedEvent) -> TopologyEvent:
    child, parent = str(published.child_id), str(published.parent_id)
    if published.action == "add":
        return AddLink(Link(child, parent))
    if published.action == "remove":
        return RemoveLink(child, parent)
    raise BadTopology(f'an event has the action "{published.action}"', detail='Actions are "add" and "remove".')


def parse_file(path: Path) -> Any:
    """What a TOML or JSON file holds, by the name's ending."""
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise PathProblem(f'cannot read "{path}": {problem.strerror}') from problem
    try:
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        if path.suffix == ".toml":
            return tomllib.loads(content.decode())
        return json.loads(content, object_pairs_hook=_without_doubles)
    except (ValueError, EOFError, OSError, zlib.error, RecursionError) as problem:
        form = "TOML" if path.suffix == ".toml" else "JSON"
        detail = "It is nested too deeply." if isinstance(problem, RecursionError) else f"{problem}."
        raise BadTopology(f'"{path}" is not {form}', detail=detail) from problem


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. As in TOML, a key that comes twice is a mistake."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f'the key "{next(key for key in found if keys.count(key) > 1)}" comes twice')
    return found


def _convert(path: Path, content: Any, to: type[_Content]) -> _Content:
    try:
        return msgspec.convert(content, to, strict=to in (_File, _PublishedUpdates))
    except (msgspec.ValidationError, OverflowError, RecursionError) as problem:
        raise BadTopology(f'"{path}" is not a topology file', detail=f"{problem}.") from problem
