"""What a coordinator is told: to deploy a query, that the topology has changed, to replace plans, what nodes report.

A coordinator is a deterministic state machine: the topology that it begins with (``InitialTopology``) and all that it
is told afterwards, in this order, determine what it knows. So these are also the entries of its log
(``coordinator_log``), and the requests that others write for it (``coordinator_process``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from midstream.deployment.placement.stage_plans import StagePlan
from midstream.deployment.protocol.coordinator import Coordinator, Instruction
from midstream.deployment.protocol.messages import Report
from midstream.deployment.protocol.wire_format import message_from_json, message_to_json
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import TopologyEvent
from midstream.errors import MalformedMessage

__all__ = [
    "ChangeTopology",
    "CoordinatorInput",
    "DeployQuery",
    "InitialTopology",
    "ReplacePlans",
    "Request",
    "TakeReport",
    "handle",
    "request_from_json",
    "request_to_json",
]


@dataclass(frozen=True)
class InitialTopology:
    """The topology before anything happened."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]

    @classmethod
    def of(cls, topology: Topology) -> InitialTopology:
        return cls(tuple(topology.nodes.values()), tuple(topology.links()))

    def topology(self) -> Topology:
        return Topology(self.nodes, self.links)


@dataclass(frozen=True)
class DeployQuery:
    """Deploy a query that runs nowhere yet."""

    plans: tuple[StagePlan, ...]
    columns: tuple[str, ...] = ()
    """The names of the results' columns, for whoever writes results."""


@dataclass(frozen=True)
class ChangeTopology:
    """The topology has changed: a batch of events."""

    events: tuple[TopologyEvent, ...]


@dataclass(frozen=True)
class ReplacePlans:
    """Replace the plans of a query's stages, where they run, by equivalent ones."""

    plans: tuple[StagePlan, ...]
    strategy: str = "jisc"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TakeReport:
    """A node has reported."""

    report: Report


Request = DeployQuery | ChangeTopology | ReplacePlans
"""What people and monitors ask of a coordinator. It may refuse."""
CoordinatorInput = Request | TakeReport


def handle(coordinator: Coordinator, told: CoordinatorInput) -> list[Instruction]:
    """What the coordinator answers. Raises, and changes nothing, if it refuses a request."""
    match told:
        case DeployQuery(plans):
            return coordinator.deploy(plans)
        case ChangeTopology(events):
            return coordinator.apply(events)
        case ReplacePlans(plans, strategy, options):
            return coordinator.migrate(plans, strategy, options)
        case TakeReport(report):
            return coordinator.take(report)


# As JSON


class _InitialTopology(msgspec.Struct, frozen=True, tag="beginning", forbid_unknown_fields=True):
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]


class _Deploy(msgspec.Struct, frozen=True, tag="deploy", forbid_unknown_fields=True):
    plans: list[dict[str, Any]]
    columns: tuple[str, ...]


class _Change(msgspec.Struct, frozen=True, tag="change", forbid_unknown_fields=True):
    events: list[dict[str, Any]]


class _Replace(msgspec.Struct, frozen=True, tag="replace", forbid_unknown_fields=True):
    plans: list[dict[str, Any]]
    strategy: str
    options: dict[str, Any]


class _Report(msgspec.Struct, frozen=True, tag="report", forbid_unknown_fields=True):
    report: dict[str, Any]


_Written = _InitialTopology | _Deploy | _Change | _Replace | _Report


def request_to_json(told: InitialTopology | CoordinatorInput) -> bytes:
    """What a coordinator is told, or begins with, as one line of JSON."""
    written: _Written
    match told:
        case InitialTopology(nodes, links):
            written = _InitialTopology(nodes, links)
        case DeployQuery(plans, columns):
            written = _Deploy([message_to_json(plan) for plan in plans], columns)
        case ChangeTopology(events):
            written = _Change([message_to_json(event) for event in events])
        case ReplacePlans(plans, strategy, options):
            written = _Replace([message_to_json(plan) for plan in plans], strategy, dict(options))
        case TakeReport(report):
            written = _Report(message_to_json(report))
    return msgspec.json.encode(written)


def request_from_json(data: bytes) -> InitialTopology | CoordinatorInput:
    """What :func:`request_to_json` gave this for. Raises if there is nothing such."""
    try:
        written = msgspec.json.decode(data, type=_Written)
    except msgspec.MsgspecError as problem:
        raise MalformedMessage("a request cannot be read", detail=f"{problem}.") from problem
    if isinstance(written, _Deploy | _Replace) and not written.plans:
        raise MalformedMessage("a request cannot be read", detail="It has no plans.")
    match written:
        case _InitialTopology(nodes, links):
            return InitialTopology(nodes, links)
        case _Deploy(plans, columns):
            return DeployQuery(tuple(_all_of(StagePlan, plans)), columns)
        case _Change(events):
            return ChangeTopology(tuple(_all_of(TopologyEvent, events)))
        case _Replace(plans, strategy, options):
            return ReplacePlans(tuple(_all_of(StagePlan, plans)), strategy, options)
        case _:
            (taken,) = _all_of(Report, [written.report])
            return TakeReport(taken)


def _all_of(kind: Any, written: list[dict[str, Any]]) -> list[Any]:
    """The messages, all of which must be of a kind."""
    messages = [message_from_json(each) for each in written]
    for message in messages:
        if not isinstance(message, kind):
            raise MalformedMessage("a request cannot be read", detail=f"It has a {type(message).__name__} inside.")
    return messages
