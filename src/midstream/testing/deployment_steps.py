"""What can happen to a deployment case while it runs: the steps of :mod:`midstream.testing.deployment_cases`.

>>> from midstream.deployment.topology.topology import Link
>>> from midstream.deployment.topology.topology_events import AddLink, RemoveLink
>>> code_of(Step(5.0, Change((RemoveLink("d", "e1"), AddLink(Link("d", "e2", 20.0))))))
"Step(5.0, Change((RemoveLink('d', 'e1'), AddLink(Link('d', 'e2', 20.0)))))"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from midstream.deployment.topology.topology import Topology
from midstream.deployment.topology.topology_events import (
    AddNode,
    LoseNode,
    RemoveNode,
    TopologyEvent,
    apply_events,
)
from midstream.errors import TopologyError

__all__ = [
    "Action",
    "Change",
    "CrashCoordinator",
    "CrashNode",
    "Flap",
    "Replan",
    "Step",
    "code_of",
    "is_request",
    "possible_events",
]


@dataclass(frozen=True)
class Change:
    """A batch of topology events. Those that are impossible by then are left out."""

    events: tuple[TopologyEvent, ...]


@dataclass(frozen=True)
class Replan:
    """Change a query to the plan at this place among its plans, where it is deployed."""

    query: str
    plan: int
    strategy: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CrashNode:
    """A node loses its memory and comes back."""

    node: str
    back_after: float


@dataclass(frozen=True)
class CrashCoordinator:
    """The coordinator loses its memory and comes back."""

    back_after: float


@dataclass(frozen=True)
class Flap:
    """A link loses what is on its way and is interrupted for a while; nobody reports it."""

    one: str
    other: str
    back_after: float


Action = Change | Replan | CrashNode | CrashCoordinator | Flap


@dataclass(frozen=True)
class Step:
    """Something that is done so many milliseconds after the step before, or at this moment of a generation."""

    after: float
    action: Action
    moment: str | None = None
    """Wait for this moment, for a while: see ``deployment_coverage.MOMENTS``."""


def is_request(action: Action) -> bool:
    """Whether the coordinator is asked and may refuse."""
    if isinstance(action, Change):
        return any(isinstance(event, RemoveNode | AddNode) for event in action.events)
    return isinstance(action, Replan)


def possible_events(topology: Topology, events: Sequence[TopologyEvent]) -> list[TopologyEvent]:
    """Apply the events that are possible, and give those."""
    possible: list[TopologyEvent] = []
    gone: set[str] = set()
    for event in events:
        if isinstance(event, AddNode) and event.node.id in gone:
            continue
        try:
            apply_events(topology, [event])
        except TopologyError:
            continue
        possible.append(event)
        if isinstance(event, RemoveNode | LoseNode):
            gone.add(event.node)
    return possible


def code_of(value: Any) -> str:
    """The value as Python code, without the options that have their default."""
    if isinstance(value, tuple):
        return "(" + ", ".join(map(code_of, value)) + ("," if len(value) == 1 else "") + ")"
    made = getattr(type(value), "__dataclass_params__", None)
    if made is None or not made.repr:
        return repr(value)
    written, by_name = [], False
    for place in fields(value):
        given = getattr(value, place.name)
        if given == place.default or (place.name == "options" and not given):
            by_name = True
        else:
            written.append(f"{place.name}={code_of(given)}" if by_name else code_of(given))
    return f"{type(value).__name__}({', '.join(written)})"
