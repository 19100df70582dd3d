"""Queries deployed over a topology of sensors, edge nodes and cloud, and redeployed incrementally while they run."""

from midstream.deployment.deployment import Deployment, move
from midstream.deployment.simulation import Costs, Unreliability
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import AddLink, AddNode, LoseNode, RemoveLink, RemoveNode
from midstream.deployment.topology.topology_files import read_batches, read_published_folder, read_topology

__all__ = [
    "AddLink",
    "AddNode",
    "Costs",
    "Deployment",
    "Link",
    "LoseNode",
    "Node",
    "RemoveLink",
    "RemoveNode",
    "Topology",
    "Unreliability",
    "move",
    "read_batches",
    "read_published_folder",
    "read_topology",
]
