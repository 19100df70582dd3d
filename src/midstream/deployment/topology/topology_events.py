"""What can happen to a topology. Events come in batches, and a batch is applied as a whole or not at all.

A node that is *removed* leaves as planned: its stages move, and their state is fetched before it is switched off. A
node that is *lost* is gone with what it held. (ISQD knows the first only.) A mobile device that moves is a removed
link and, in the same batch, an added one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from midstream.deployment.placement.global_plan import NodeId
from midstream.deployment.topology.topology import Link, Node, Topology, check_name, check_time
from midstream.errors import BadTopology

__all__ = [
    "AddLink",
    "AddNode",
    "EventBatch",
    "LoseNode",
    "RemoveLink",
    "RemoveNode",
    "TopologyEvent",
    "apply_events",
    "checked_events",
]


@dataclass(frozen=True)
class AddNode:
    """A node is there, without links as yet."""

    node: Node

    def __post_init__(self) -> None:
        if not isinstance(self.node, Node):
            raise BadTopology(f"a node is added that is {self.node!r}", hint='Write AddNode(Node("edge 1")).')


@dataclass(frozen=True)
class RemoveNode:
    """A node is about to leave, with its links; what it holds can still be fetched."""

    node: NodeId

    def __post_init__(self) -> None:
        check_name("a node", self.node)


@dataclass(frozen=True)
class LoseNode:
    """A node is gone, with its links and what it held."""

    node: NodeId

    def __post_init__(self) -> None:
        check_name("a node", self.node)


@dataclass(frozen=True)
class AddLink:
    """Two nodes are connected."""

    link: Link

    def __post_init__(self) -> None:
        if not isinstance(self.link, Link):
            raise BadTopology(f"a link is added that is {self.link!r}", hint='Write AddLink(Link("edge 1", "cloud")).')


@dataclass(frozen=True)
class RemoveLink:
    """Two nodes are connected no longer."""

    child: NodeId
    parent: NodeId

    def __post_init__(self) -> None:
        check_name("a link's child", self.child)
        check_name("a link's parent", self.parent)


TopologyEvent = AddNode | RemoveNode | LoseNode | AddLink | RemoveLink


@dataclass(frozen=True)
class EventBatch:
    """Events that are handled together."""

    time_ms: float
    """When, in milliseconds after the first batch."""
    events: tuple[TopologyEvent, ...]

    def __post_init__(self) -> None:
        check_time("a batch of events is at", self.time_ms)
        checked_events(self.events)


def checked_events(events: object) -> tuple[TopologyEvent, ...]:
    """The events; raises if they are something else."""
    if isinstance(events, str) or not isinstance(events, Iterable):
        raise BadTopology(f"the events are {events!r}", hint="Give a list of events.")
    found = tuple(events)
    for event in found:
        if not isinstance(event, TopologyEvent):
            raise BadTopology(
                f"{event!r} is not an event", hint="Events are AddNode, RemoveNode, LoseNode, AddLink, RemoveLink."
            )
    return found


def apply_events(topology: Topology, events: Iterable[TopologyEvent]) -> None:
    """Apply all events in their order; if one is refused, none is applied."""
    gone: set[NodeId] = set()
    with topology.transaction():
        for event in events:
            match event:
                case AddNode(node):
                    if node.id in gone:
                        raise BadTopology(
                            f'node "{node.id}" leaves and returns in one batch of events',
                            hint="Put its return into the next batch.",
                        )
                    topology.add_node(node)
                case RemoveNode(leaving):
                    topology.remove_node(leaving)
                    gone.add(leaving)
                case LoseNode(lost):
                    topology.lose_node(lost)
                    gone.add(lost)
                case AddLink(link):
                    topology.add_link(link)
                case RemoveLink(child, parent):
                    topology.remove_link(child, parent)
