"""The topology: nodes from sensors to the cloud, and the links between them.

Rows travel *upwards*, from a child to its parent, so these links must not form a cycle. A *peer link* joins two nodes
beside the hierarchy (neighbouring edge nodes) and carries rows in both directions. State that moves from node to node
may take any link in either direction.

A topology changes while queries run, so it is mutable, and the cost of a change does not depend on the topology's size.
Within a ``transaction`` every change can be taken back: a batch of events that fails halfway leaves nothing behind.
All searches visit neighbours by name, so the answer depends on the topology alone and not on how it came about.

A node that was removed as planned stays *leaving* until it is forgotten: it takes no new work, but the state that it
holds can still be fetched over the links that it had. A lost node is gone with what it held.

>>> topology = Topology([Node("sensor", slots=1), Node("edge"), Node("cloud")])
>>> topology.add_link(Link("sensor", "edge"))
>>> topology.add_link(Link("edge", "cloud"))
>>> topology.path("sensor", "cloud")
('sensor', 'edge', 'cloud')
>>> topology.path("cloud", "sensor") is None
True
>>> topology.state_path("cloud", "sensor")
('cloud', 'edge', 'sensor')
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import TypeGuard, TypeVar

from midstream.deployment.placement.global_plan import NodeId
from midstream.errors import AlreadyInTopology, BadTopology, CyclicTopology, UnknownLink, UnknownNode, did_you_mean

__all__ = ["Link", "Node", "Route", "Topology", "check_name", "check_time"]

Route = tuple[NodeId, ...]
"""The nodes that rows or state pass, both ends included; a single node if nothing is to be passed."""


def check_name(what: str, name: object) -> None:
    """Refuse what cannot be the name of a node or a query: a string that can be written."""
    if not isinstance(name, str):
        raise BadTopology(f"the name of {what} is {_shown(name)}", hint="Names are strings.")
    if not name:
        raise BadTopology(f"{what} has no name")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadTopology(f"the name of {what} is {name!r}", hint="Names are Unicode text.") from None


def check_time(what: str, milliseconds: object) -> None:
    """Refuse what cannot be a time or a duration: it is finite and not below 0."""
    if not _is_number(milliseconds) or not 0 <= milliseconds <= sys.float_info.max:
        raise BadTopology(f"{what} {_shown(milliseconds)} ms", hint="Times are finite numbers, 0 or more.")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    """A value in a message, numbers as they are. Python refuses to write integers of thousands of digits."""
    if isinstance(value, int) and abs(value) > 10**20:
        return "a number of more than 20 digits"
    return str(value) if _is_number(value) else repr(value)


@dataclass(frozen=True)
class Node:
    """A place where stages can run."""

    id: NodeId
    slots: int | None = None
    """How many stages it can take; None: any number."""
    kind: str | None = None
    """What it is, for people: "sensor", "edge", "cloud"."""

    def __post_init__(self) -> None:
        check_name("a node", self.id)
        if self.slots is not None and not (type(self.slots) is int and 0 <= self.slots < 2**63):
            raise BadTopology(
                f'node "{self.id}" has {_shown(self.slots)} slots', hint="Slots are an integer, 0 or more, or left out."
            )
        if self.kind is not None:
            check_name(f'the kind of node "{self.id}"', self.kind)


@dataclass(frozen=True)
class Link:
    """A link from a node to the next one towards the cloud, or between two peers."""

    child: NodeId
    parent: NodeId
    latency_ms: float = 0.0
    bandwidth_mbit_per_s: float | None = None
    """None: unlimited."""
    is_peer: bool = False
    """Whether it lies beside the hierarchy and carries rows in both directions."""

    def __post_init__(self) -> None:
        check_name("a link's child", self.child)
        check_name("a link's parent", self.parent)
        name = f'link "{self.child}" → "{self.parent}"'
        check_time(f"{name} has a latency of", self.latency_ms)
        bandwidth = self.bandwidth_mbit_per_s
        if bandwidth is not None and not (_is_number(bandwidth) and 0 < bandwidth <= sys.float_info.max):
            raise BadTopology(
                f"{name} has a bandwidth of {_shown(bandwidth)} Mbit/s",
                hint="Bandwidths are finite numbers above 0; without one the link is unlimited.",
            )
        if not isinstance(self.is_peer, bool):
            raise BadTopology(f"{name} has is_peer={self.is_peer!r}", hint="It is True or False.")


_Value = TypeVar("_Value")
_Neighbours = dict[NodeId, dict[NodeId, Link]]


class Topology:
    """Nodes and links, changed in place."""

    def __init__(self, nodes: Iterable[Node] = (), links: Iterable[Link] = ()) -> None:
        self._nodes: dict[NodeId, Node] = {}
        self._parents: _Neighbours = {}
        self._children: _Neighbours = {}
        self._peers: _Neighbours = {}
        self._leaving: dict[NodeId, Node] = {}
        self._leaving_links: _Neighbours = {}
        """The links that went with leaving nodes, under both of their ends."""
        self._undo: list[Callable[[], object]] = []
        self._transactions = 0
        for name, given, kind in (("nodes", nodes, Node), ("links", links, Link)):
            if isinstance(given, str) or not isinstance(given, Iterable):
                raise BadTopology(
                    f"the {name} of a topology are {given!r}", hint=f"Give a list of {kind.__name__}(...)."
                )
        for node in nodes:
            self.add_node(node)
        for link in links:
            self.add_link(link)

    # What there is.

    @property
    def nodes(self) -> Mapping[NodeId, Node]:
        return MappingProxyType(self._nodes)

    @property
    def leaving(self) -> Mapping[NodeId, Node]:
        """Nodes that were removed as planned, from which state can still be fetched."""
        return MappingProxyType(self._leaving)

    def links(self) -> Iterator[Link]:
        """All links, each once."""
        for parents in self._parents.values():
            yield from parents.values()
        for node, peers in self._peers.items():
            yield from (link for link in peers.values() if link.child == node)

    def leaving_links(self) -> Iterator[Link]:
        """The links that went with leaving nodes, each once."""
        for node, neighbours in self._leaving_links.items():
            yield from (link for link in neighbours.values() if link.child == node)

    def link(self, one: NodeId, other: NodeId) -> Link | None:
        """The link between two nodes, whichever is above; also a link that a leaving node had."""
        for neighbours in (self._parents, self._children, self._peers, self._leaving_links):
            found = neighbours.get(one, {}).get(other)
            if found is not None:
                return found
        return None

    def carries_rows(self, sender: NodeId, receiver: NodeId) -> bool:
        """Whether a link takes rows from the one node to the other."""
        return receiver in self._parents.get(sender, {}) or receiver in self._peers.get(sender, {})

    def is_route(self, route: Route) -> bool:
        """Whether rows can take this route."""
        return all(node in self._nodes for node in route) and all(map(self.carries_rows, route, route[1:]))

    def carries_state(self, path: Route) -> bool:
        """Whether state can take this path: over any links in either direction, and from a leaving node."""
        return bool(path) and self._is_known(path[0]) and all(self.link(*pair) is not None for pair in pairwise(path))

    # Searches.

    def next_hops(self, node: NodeId) -> list[NodeId]:
        """The nodes that rows reach from a node over one link."""
        return sorted({*self._parents.get(node, {}), *self._peers.get(node, {})})

    def previous_hops(self, node: NodeId) -> list[NodeId]:
        """The nodes from which rows reach a node over one link."""
        return sorted({*self._children.get(node, {}), *self._peers.get(node, {})})

    def reachable_from(self, node: NodeId) -> dict[NodeId, int]:
        """The nodes that rows can reach from a node, itself included, with the number of hops; nearest first."""
        return self._search(node, self.next_hops)

    def reaching(self, node: NodeId) -> Iterator[NodeId]:
        """The nodes from which rows can reach a node, itself included, nearest first; found as they are asked for."""
        found = {node: None}
        frontier = [node]
        while frontier:
            yield from frontier
            following: list[NodeId] = []
            for here in frontier:
                following += [before for before in self.previous_hops(here) if before not in found]
                found.update(dict.fromkeys(following))
            frontier = list(dict.fromkeys(following))

    def path(self, start: NodeId, end: NodeId) -> Route | None:
        """A shortest route for rows, or None; of several, the first by the names of its nodes from the start on."""
        if start not in self._nodes or end not in self._nodes:
            return None
        came_from = {start: start}
        frontier = [start]
        while frontier and end not in came_from:
            following: list[NodeId] = []
            for here in frontier:
                for there in self.next_hops(here):
                    if there not in came_from:
                        came_from[there] = here
                        following.append(there)
            frontier = following
        return _walk_back(came_from, end)[::-1] if end in came_from else None

    def state_path(self, start: NodeId, end: NodeId) -> Route | None:
        """A path over any links in either direction, or None. It may start at a leaving node.

        Up from both ends to the nearest node where the ways meet, if they do: nodes near the cloud make good relays,
        and their many other children need not be looked at. Otherwise a shortest path, whatever it passes.
        """
        if not self._is_known(start) or end not in self._nodes:
            return None
        with_leaving = start in self._leaving
        return self._path_over_the_top(start, end, with_leaving) or self._path_anywhere(start, end, with_leaving)

    def _path_over_the_top(self, start: NodeId, end: NodeId, with_leaving: bool) -> Route | None:
        ways = []
        for node in (start, end):
            hops, came_from = {node: 0}, {node: node}
            frontier = [node]
            while frontier:
                following: list[NodeId] = []
                for here in frontier:
                    for there in self._hops_up(here, with_leaving):
                        if there not in hops:
                            hops[there], came_from[there] = hops[here] + 1, here
                            following.append(there)
                frontier = following
            ways.append((hops, came_from))
        (from_start, back_to_start), (from_end, back_to_end) = ways
        meeting = [node for node in from_start if node in from_end]
        if not meeting:
            return None
        top = min(meeting, key=lambda node: (from_start[node] + from_end[node], from_start[node], node))
        return _walk_back(back_to_start, top)[::-1] + _walk_back(back_to_end, top)[1:]

    def _path_anywhere(self, start: NodeId, end: NodeId, with_leaving: bool) -> Route | None:
        """A shortest path. The search goes from both ends and widens the side with fewer links to look at."""
        sides = ({start: start}, {end: end})
        frontiers = [[start], [end]]
        while all(frontiers):
            side = 0 if self._degree(frontiers[0]) <= self._degree(frontiers[1]) else 1
            following: list[NodeId] = []
            for here in frontiers[side]:
                for there in (*self._hops_up(here, with_leaving), *self._hops_down(here, with_leaving)):
                    if there in sides[side]:
                        continue
                    sides[side][there] = here
                    if there in sides[1 - side]:
                        return _walk_back(sides[0], there)[::-1] + _walk_back(sides[1], there)[1:]
                    following.append(there)
            frontiers[side] = following
        return None

    def _search(self, start: NodeId, hops: Callable[[NodeId], list[NodeId]]) -> dict[NodeId, int]:
        found = {start: 0} if start in self._nodes else {}
        frontier = list(found)
        while frontier:
            following: list[NodeId] = []
            for here in frontier:
                for there in hops(here):
                    if there not in found:
                        found[there] = found[here] + 1
                        following.append(there)
            frontier = following
        return found

    def _hops_up(self, node: NodeId, with_leaving: bool) -> list[NodeId]:
        """The nodes that state reaches over one link upwards or to a peer."""
        hops = self.next_hops(node)
        if with_leaving:
            left = self._leaving_links.get(node, {}).items()
            hops += sorted(n for n, link in left if (link.is_peer or link.child == node) and self._is_known(n))
        return hops

    def _hops_down(self, node: NodeId, with_leaving: bool) -> list[NodeId]:
        """The nodes that state reaches over one link downwards."""
        hops = sorted(self._children.get(node, {}))
        if with_leaving:
            left = self._leaving_links.get(node, {}).items()
            hops += sorted(n for n, link in left if not link.is_peer and link.parent == node and self._is_known(n))
        return hops

    def _is_known(self, node: NodeId) -> bool:
        return node in self._nodes or node in self._leaving

    def _degree(self, frontier: list[NodeId]) -> int:
        return sum(
            len(neighbours.get(node, {}))
            for node in frontier
            for neighbours in (self._parents, self._peers, self._children)
        )

    # Changes. Each checks first, so that a refused change leaves the topology as it was.

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Take back all changes made within if an exception leaves it. Transactions can be nested."""
        mark = len(self._undo)
        self._transactions += 1
        try:
            yield
        except BaseException:
            while len(self._undo) > mark:
                self._undo.pop()()
            raise
        finally:
            self._transactions -= 1
            if not self._transactions:
                self._undo.clear()

    def add_node(self, node: Node) -> None:
        """Add a node without links."""
        if not isinstance(node, Node):
            raise BadTopology(f"{node!r} is not a node", hint='Write Node("edge 1").')
        if node.id in self._nodes:
            raise AlreadyInTopology(f'node "{node.id}" exists already')
        self.forget(node.id)
        self._put(self._nodes, node.id, node)

    def remove_node(self, node: NodeId) -> None:
        """Remove a node and its links as planned: it is leaving until it is forgotten."""
        self._check_node(node)
        for link in self._links_of(node):
            self._unlink(link)
            self._put(self._leaving_links.setdefault(link.child, {}), link.parent, link)
            self._put(self._leaving_links.setdefault(link.parent, {}), link.child, link)
        self._put(self._leaving, node, self._nodes[node])
        self._drop(self._nodes, node)

    def lose_node(self, node: NodeId) -> None:
        """Remove a node, which may be a leaving one, with its links and what it held."""
        if node in self._leaving:
            self.forget(node)
            return
        self._check_node(node)
        for link in self._links_of(node):
            self._unlink(link)
        for other in list(self._leaving_links.get(node, {})):
            self._drop(self._leaving_links[other], node)
            self._drop(self._leaving_links[node], other)
        self._drop(self._nodes, node)

    def forget(self, node: NodeId) -> None:
        """Drop a leaving node: nothing is to be fetched from it any more. Nothing happens if it is not leaving."""
        if node in self._leaving:
            for other in list(self._leaving_links.get(node, {})):
                self._drop(self._leaving_links[other], node)
                self._drop(self._leaving_links[node], other)
            self._drop(self._leaving, node)

    def add_link(self, link: Link) -> None:
        """Add a link between two nodes that have none."""
        if not isinstance(link, Link):
            raise BadTopology(f"{link!r} is not a link", hint='Write Link("edge 1", "cloud").')
        for end in (link.child, link.parent):
            self._check_node(end)
        if link.child == link.parent:
            raise CyclicTopology(f'node "{link.child}" cannot be linked to itself')
        if self._linked(link.child, link.parent):
            raise AlreadyInTopology(f'nodes "{link.child}" and "{link.parent}" are linked already')
        if link.is_peer:
            self._put(self._peers.setdefault(link.child, {}), link.parent, link)
            self._put(self._peers.setdefault(link.parent, {}), link.child, link)
            return
        above = self._search(link.parent, lambda node: sorted(self._parents.get(node, {})))
        if link.child in above:
            raise CyclicTopology(
                f'link "{link.child}" → "{link.parent}" would close a cycle',
                detail=f'"{link.child}" is above "{link.parent}".',
                hint="Rows travel upwards only. A link between neighbours can be a peer link.",
            )
        self._put(self._parents.setdefault(link.child, {}), link.parent, link)
        self._put(self._children.setdefault(link.parent, {}), link.child, link)

    def remove_link(self, child: NodeId, parent: NodeId) -> Link:
        """Remove a link; the ends of a peer link can be given in either order."""
        for end in (child, parent):
            self._check_node(end)
        link = self._parents.get(child, {}).get(parent) or self._peers.get(child, {}).get(parent)
        if link is None:
            reverse = parent in self._children.get(child, {}) or child in self._parents.get(parent, {})
            raise UnknownLink(
                f'there is no link "{child}" → "{parent}"',
                hint=f'There is one "{parent}" → "{child}".' if reverse else None,
            )
        self._unlink(link)
        return link

    def _linked(self, one: NodeId, other: NodeId) -> bool:
        return any(other in neighbours.get(one, {}) for neighbours in (self._parents, self._children, self._peers))

    def _links_of(self, node: NodeId) -> list[Link]:
        of_node = (self._parents, self._peers, self._children)
        return [neighbours[node][other] for neighbours in of_node for other in sorted(neighbours.get(node, {}))]

    def _unlink(self, link: Link) -> None:
        lower, upper = (self._peers, self._peers) if link.is_peer else (self._parents, self._children)
        self._drop(lower[link.child], link.parent)
        self._drop(upper[link.parent], link.child)

    def _check_node(self, node: NodeId) -> None:
        check_name("a node", node)
        if node not in self._nodes:
            # The closest name is looked for in small topologies only: it would take as long as the topology is large.
            hint = did_you_mean(node, self._nodes) if len(self._nodes) <= 1_000 else None
            raise UnknownNode(f'there is no node "{node}"', hint=hint)

    def _put(self, into: dict[NodeId, _Value], key: NodeId, value: _Value) -> None:
        if self._transactions:
            if key in into:
                before = into[key]
                self._undo.append(lambda: into.__setitem__(key, before))
            else:
                self._undo.append(lambda: into.pop(key))
        into[key] = value

    def _drop(self, out_of: dict[NodeId, _Value], key: NodeId) -> None:
        value = out_of.pop(key)
        if self._transactions:
            self._undo.append(lambda: out_of.__setitem__(key, value))


def _walk_back(came_from: Mapping[NodeId, NodeId], end: NodeId) -> Route:
    """The way from a node back to where the search began."""
    way = [end]
    while came_from[way[-1]] != way[-1]:
        way.append(came_from[way[-1]])
    return tuple(way)
