"""Which nodes are there and which links carry messages, as of one moment: how sites emulate the network.

Sites are processes of one machine or cluster, and could always reach each other. So that a link that was cut carries
nothing, and a lost node does nothing, whoever watches the topology (the coordinator) tells every site what is there. A
message that would cross a link that is not there is lost, both where it leaves and where it arrives.

>>> from midstream.deployment.topology.topology import Link, Node
>>> there = Connectivity.of(1, Topology([Node("edge"), Node("cloud")], [Link("edge", "cloud")]))
>>> there.carries("cloud", "edge"), there.carries("edge", "sensor"), there.has("sensor")
(True, False, False)
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from midstream.deployment.placement.global_plan import NodeId
from midstream.deployment.topology.topology import Topology
from midstream.errors import MalformedMessage

__all__ = ["Connectivity"]


class Connectivity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is there; of two, the one with the higher version counts."""

    version: int
    nodes: frozenset[NodeId]
    links: frozenset[tuple[NodeId, NodeId]]
    """Pairs of nodes, the lower name first."""
    losses: dict[NodeId, int] = {}
    """How often each node was lost so far. A node that was lost and is there again has nothing of what it had."""

    @classmethod
    def of(cls, version: int, topology: Topology, losses: Mapping[NodeId, int] | None = None) -> Connectivity:
        """What a topology has, nodes that are leaving included: what they hold can still be fetched."""
        links = [*topology.links(), *topology.leaving_links()]
        pairs = [(min(link.child, link.parent), max(link.child, link.parent)) for link in links]
        return cls(version, frozenset([*topology.nodes, *topology.leaving]), frozenset(pairs), dict(losses or {}))

    def has(self, node: NodeId) -> bool:
        return node in self.nodes

    def carries(self, one: NodeId, other: NodeId) -> bool:
        """Whether messages pass between two nodes."""
        return (min(one, other), max(one, other)) in self.links

    def has_heard_of(self, node: NodeId, losses: int) -> bool:
        """Whether this is after a node was lost for so many times."""
        return self.losses.get(node, 0) >= losses

    def has_lost(self, node: NodeId, before: Connectivity | None) -> bool:
        """Whether a node was lost since an earlier moment."""
        losses = 0 if before is None else before.losses.get(node, 0)
        return not self.has(node) or self.losses.get(node, 0) > losses

    def to_bytes(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Connectivity:
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except msgspec.MsgspecError as problem:
            raise MalformedMessage("what is there cannot be read", detail=f"{problem}.") from problem
