"""Holistic redeployment (``holistic``) on Spark sites: its messages as bytes, its nodes and its coordinator.

Importing this module lets sites and coordinator read the messages of the baselines; Python workers import it because
the operator is defined here. What the baselines keep (rows to replay, what a sink has had) is in memory only, and their
coordinator logs nothing: both make them faster than they could be in earnest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pyarrow.compute as pc

from benchmarks.isqd.holistic import Answered, Call, HolisticCoordinator, HolisticNode
from midstream.deployment.protocol import wire_format
from midstream.deployment.protocol.coordinator import Coordinator, Instruction
from midstream.deployment.protocol.coordinator_log import CoordinatorLog
from midstream.deployment.protocol.coordinator_requests import CoordinatorInput, InitialTopology
from midstream.deployment.protocol.messages import Control, DeployStage, Report
from midstream.deployment.protocol.node_runtime import Arrival
from midstream.deployment.protocol.node_storage import StoredContext, context_from_json, context_to_json
from midstream.deployment.sites import coordinator_process, site_input
from midstream.deployment.sites.node_group import NodeGroup
from midstream.spark.node_operator import NodeOperator

__all__ = ["HolisticOperator", "use_holistic_coordinator"]


class _Call(msgspec.Struct, frozen=True):
    query: str
    generation: int
    phase: str
    fragment: str
    stages: tuple[str, ...]
    contexts: list[StoredContext]
    replay_from: int


def _write_call(call: Call) -> _Call:
    contexts = [context_to_json(context) for context in call.contexts]
    return _Call(call.query, call.generation, call.phase, call.fragment, call.stages, contexts, call.replay_from)


def _read_call(written: _Call) -> Call:
    contexts = [context_from_json(context) for context in written.contexts]
    deployed = tuple(context for context in contexts if isinstance(context, DeployStage))
    return Call(
        written.query,
        written.generation,
        written.phase,
        written.fragment,
        written.stages,
        deployed,
        written.replay_from,
    )


wire_format._FORMS["Call"] = wire_format._Form(_Call, _write_call, _read_call)
wire_format._FORMS["Answered"] = wire_format._Form(Answered)
site_input.Control = Control | Call  # type: ignore[assignment, misc]
coordinator_process.Report = Report | Answered  # type: ignore[assignment, misc]


class HolisticSiteNode(HolisticNode):
    """A node that knows from the rows themselves how far its feeds are: files of feeds bring no watermark."""

    def _feed(self, arrival: Arrival) -> None:
        if arrival.table is not None and arrival.table.num_rows:
            arrival = replace(arrival, at_least=pc.max(arrival.table["ts"]).as_py())
        super()._feed(arrival)


class HolisticGroup(NodeGroup):
    """The nodes of a site."""

    runtimes = HolisticSiteNode


class HolisticOperator(NodeOperator):
    """Runs the nodes of a site."""

    node_groups = HolisticGroup


class _Coordinator(HolisticCoordinator):
    def ask_again(self, everything: bool = False) -> list[Instruction]:
        return super().ask_again()


class _Unlogged(CoordinatorLog):
    """A log that keeps the beginning only."""

    at_once = 1

    def append(self, entries: Iterable[tuple[str, InitialTopology | CoordinatorInput]]) -> None:
        told = list(entries)
        if not self.entries:
            super().append(told)
            return
        self.origins.update(origin for origin, _ in told)
        self.entries += len(told)

    def replay(self, begin: Any = None) -> Coordinator:
        return super().replay(partial(_Coordinator, at_once=self.at_once))


def use_holistic_coordinator(at_once: int) -> None:
    """Let this process run the coordinator of the baselines, with so many queries at once."""
    _Unlogged.at_once = at_once
    coordinator_process.CoordinatorLog = _Unlogged  # type: ignore[misc]
