"""A deployment as a file, TOML or JSON: topology, streams with their sources, queries, and sites that host the nodes.

.. code-block:: toml

    topology = "topology.toml"                # beside this file; see topology_files

    [[streams]]
    name = "doors"
    columns = {ts = "timestamp[us]", id = "int64"}    # Arrow types by name
    event_time = "ts"
    lateness = "1 second"                     # left out: 0
    sources = ["train 1", "train 2"]          # the nodes where rows arise

    [[queries]]
    name = "boarding"
    text = "SELECT d.id FROM doors [RANGE 1 MINUTE] d, tickets [RANGE 1 MINUTE] t WHERE d.id = t.id"
    sink = "cloud"                            # the node where results are wanted
    plan = "d t"                              # a join order; left out: the default plan
    joins_together = true                     # left out: false
    sources = {doors = ["train 1"]}           # other sources for this query; left out: those of the streams

    [sites]                                   # left out: one site hosts all nodes
    track = ["train 1", "train 2", "edge 1"]
    centre = ["cloud"]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from midstream.algebra.plan import Plan
from midstream.algebra.stream import Stream
from midstream.algebra.type_text import type_from_text
from midstream.deployment.placement.global_plan import NodeId
from midstream.deployment.placement.stage_plans import StagePlan, check_sources, stage_plans
from midstream.deployment.sites.file_names import check_file_names
from midstream.deployment.topology.topology import Topology
from midstream.deployment.topology.topology_files import parse_file, read_topology
from midstream.errors import BadDeploymentFile, BadStreamDeclaration, did_you_mean
from midstream.planned_query import PlannedQuery

__all__ = ["DeploymentFile", "QueryToDeploy", "read_deployment"]

ONE_SITE = "everything"
"""What the only site is called if the file names none."""


class _StreamEntry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    columns: dict[str, str]
    event_time: str
    sources: list[NodeId]
    lateness: int | str = 0


class _QueryEntry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    text: str
    sink: NodeId
    plan: str | None = None
    joins_together: bool = False
    sources: dict[str, list[NodeId]] = {}


class _File(msgspec.Struct, forbid_unknown_fields=True):
    topology: str
    streams: list[_StreamEntry]
    queries: list[_QueryEntry]
    sites: dict[str, list[NodeId]] = {}


@dataclass(frozen=True)
class QueryToDeploy:
    """A query with its places."""

    name: str
    query: PlannedQuery
    plan: Plan
    sources: Mapping[str, Sequence[NodeId]]
    sink: NodeId
    joins_together: bool

    def stages(self) -> list[StagePlan]:
        """The query's stages."""
        return stage_plans(self.name, self.plan, self.sources, self.sink, joins_together=self.joins_together)


@dataclass(frozen=True)
class DeploymentFile:
    """All that a deployment begins with."""

    topology: Topology
    streams: Mapping[str, Stream]
    queries: Sequence[QueryToDeploy]
    sites: Mapping[str, Sequence[NodeId]]
    """The nodes that each site hosts; every node is on one."""


def read_deployment(path: str | Path) -> DeploymentFile:
    """The deployment that a file describes; raises if it does not fit together."""
    path = Path(path)
    try:
        content = msgspec.convert(parse_file(path), _File)
    except (msgspec.ValidationError, OverflowError, RecursionError) as problem:
        raise BadDeploymentFile(f'"{path}" is not a deployment file', detail=f"{problem}.") from problem
    topology = read_topology(path.parent / content.topology)
    streams = {entry.name: _stream(entry) for entry in content.streams}
    sources = {entry.name: entry.sources for entry in content.streams}
    if not content.queries:
        raise BadDeploymentFile(f'"{path}" has no query', hint="Add a [[queries]] section.")
    names = [entry.name for entry in content.queries]
    if len(set(names)) != len(names) or len(streams) != len(content.streams):
        raise BadDeploymentFile(f'"{path}" has two queries or two streams of one name')
    check_file_names("a stream", streams)
    check_file_names("a query", names)
    queries = [_query(entry, streams, sources) for entry in content.queries]
    return DeploymentFile(topology, streams, queries, _sites(path, content.sites, topology))


def _stream(entry: _StreamEntry) -> Stream:
    try:
        schema = pa.schema([(name, type_from_text(kind)) for name, kind in entry.columns.items()])
    except ValueError as problem:
        raise BadStreamDeclaration(
            f'a column of stream "{entry.name}" has an unknown type',
            detail=f"{problem}.",
            hint='Types are Arrow\'s: "int64", "double", "string", "timestamp[us]".',
        ) from None
    return Stream(entry.name, schema, entry.event_time, entry.lateness)


def _query(entry: _QueryEntry, streams: Mapping[str, Stream], sources: Mapping[str, Sequence[NodeId]]) -> QueryToDeploy:
    query = PlannedQuery(entry.text, list(streams.values()))
    plan = query.plan(entry.plan)
    read = {window.stream.name for window in plan.windows()}
    places = {name: nodes for name, nodes in {**sources, **entry.sources}.items() if name in read}
    check_sources(query, plan, {**places, **entry.sources})
    return QueryToDeploy(entry.name, query, plan, places, entry.sink, entry.joins_together)


def _sites(path: Path, sites: Mapping[str, list[NodeId]], topology: Topology) -> Mapping[str, Sequence[NodeId]]:
    if not sites:
        return {ONE_SITE: sorted(topology.nodes)}
    hosted: dict[NodeId, str] = {}
    for site, nodes in sites.items():
        for node in nodes:
            if node not in topology.nodes:
                raise BadDeploymentFile(
                    f'{path}: site "{site}" hosts node "{node}", which does not exist',
                    hint=did_you_mean(node, topology.nodes),
                )
            if node in hosted:
                raise BadDeploymentFile(f'{path}: node "{node}" is on the sites "{hosted[node]}" and "{site}"')
            hosted[node] = site
    missing = sorted(set(topology.nodes) - set(hosted))
    if missing:
        raise BadDeploymentFile(f'{path}: node "{missing[0]}" is on no site', hint="Add it to a site.")
    return sites
