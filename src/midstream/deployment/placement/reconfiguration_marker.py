"""The reconfiguration marker: what fragments are to do when it reaches them, in line with the rows.

The marker is inserted at some fragments and passed on with the rows, so that a fragment acts after the rows that
precede it. An entry is for one version of one fragment: ``update`` to the version that was prepared, ``drain``
(finish and end), or ``update then drain`` (hand its state over, then end). New fragments need no entry.

It is inserted at every fragment with an entry that will not get it from another one with an entry: none of its inputs
comes from one over a route that still exists. So a marker never has to cross a link that is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from midstream.deployment.placement.fragments import DeployedQuery, FragmentId
from midstream.deployment.topology.topology import Topology

__all__ = ["Action", "MarkerEntries", "MarkerEntry", "entry_points"]


class Action(Enum):
    """What a fragment does when the marker reaches it."""

    DRAIN = "drain"
    UPDATE = "update"
    UPDATE_THEN_DRAIN = "update then drain"


@dataclass(frozen=True)
class MarkerEntry:
    """What one fragment is to do."""

    action: Action
    new_version: int | None = None
    """The version to update to; None for a drain."""


MarkerEntries = Mapping[tuple[FragmentId, int], MarkerEntry]
"""The entries by fragment and version."""


def entry_points(deployed: DeployedQuery, marker: MarkerEntries, topology: Topology) -> tuple[FragmentId, ...]:
    """Where to insert the marker, on the topology as it is now; ``deployed`` is what runs before it."""
    concerned = {fragment for fragment, _ in marker}
    producers = {fragment.output: fragment for fragment in deployed.fragments.values()}

    def brings_it(edge: str) -> bool:
        producer = producers.get(edge)
        if producer is None or producer.id not in concerned or producer.route is None:
            return False
        return topology.is_route(producer.route)

    return tuple(
        fragment.id
        for fragment in deployed.fragments.values()
        if fragment.id in concerned and not any(map(brings_it, fragment.inputs))
    )
