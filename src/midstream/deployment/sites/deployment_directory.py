"""The directory of a deployment: how its coordinator, its sites and everybody else find each other's files.

    deployment.json                      the topology to begin with, and which site runs which nodes
    requests/NAME.json                   what the coordinator is asked: deploy, topology events, replace plans
    requests/NAME.taken, NAME.refused    what became of it; a refused one has the reason; the latest thousand stay
    coordinator/log                      all that the coordinator was told (``coordinator_log``)
    coordinator/status.json              what it knows, for people and tests
    coordinator/reports/SITE/N.parquet   reports of a site's nodes
    sites/SITE/inbox/FROM/N.parquet      messages for a site (``message_file``): FROM is another site, "coordinator" for
                                         instructions, "site" for what the site's own process has to say
    sites/SITE/feeds/NODE/STREAM/…       rows that arise at a node: Parquet files with the stream's columns, taken in
                                         the order of their names; a file ``end`` says that no more will come
    sites/SITE/place                     the directory's path when the site first ran
    sites/SITE/lost                      the site was given up: the stages of its nodes run elsewhere
    sites/SITE/status.json               what the site's nodes did and hold, for people
    sites/SITE/checkpoint, staged, lock  the site's own: Spark's checkpoint; what its last micro-batches gave, until it
                                         is certain that they count; who holds it runs the site
    results/QUERY/SITE-N.parquet         results; N is the number of the site's micro-batch

Nodes, streams, queries and sites are written as ``file_names`` says. Every file is complete when it gets its name.
Inboxes and reports are emptied by who reads them; feeds and results stay.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.deployment.placement.global_plan import NodeId
from midstream.deployment.protocol.coordinator_requests import Beginning, Request, request_from_json, request_to_json
from midstream.deployment.protocol.status import NodeStatus
from midstream.deployment.sites.durable_files import held_lock, is_held, unique_name, write_whole
from midstream.deployment.sites.file_names import check_file_names, file_name
from midstream.deployment.sites.message_file import spread
from midstream.deployment.topology.topology import Topology
from midstream.errors import BadTopology, PathProblem, did_you_mean, quoted

__all__ = ["COORDINATOR", "DeploymentDirectory", "SiteLayout"]

COORDINATOR = "coordinator"
"""The coordinator's name among those of sites."""
UNFINISHED = "_unfinished"
"""A file that is there, and locked, while the directory is made."""
_NOT_IN_PATHS = frozenset("*?[]{}\\:\n")


class SiteLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which site runs which nodes, and in how many groups."""

    sites: dict[str, list[NodeId]]
    groups: int = 1
    """Per site. A group has a partition of its own in Spark."""

    def site_of(self, node: NodeId) -> str:
        """The site of a node. Nodes that no site names are run by the first."""
        return next((site for site, nodes in self.sites.items() if node in nodes), next(iter(self.sites)))

    def group_of(self, node: NodeId) -> int:
        """The node's group on its site."""
        return spread(node) % self.groups


class _Deployment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    layout: SiteLayout
    beginning: msgspec.Raw


class _Reported(msgspec.Struct, frozen=True):
    """What the coordinator has reported, as far as its topology."""

    topology: msgspec.Raw


class DeploymentDirectory:
    """Paths of a deployment's files, and the small ones read and written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        topology: Topology,
        sites: Mapping[str, Iterable[NodeId]],
        groups: int = 1,
        requests: Iterable[Request] = (),
    ) -> DeploymentDirectory:
        """Make the directory of a new deployment, with what its coordinator is asked first.

        ``deployment.json`` is written last. If the process dies before, there is no deployment, and the next call
        begins anew.
        """
        directory = cls(path)
        directory._check_path()
        layout = SiteLayout({site: list(nodes) for site, nodes in sites.items()}, groups)
        if not layout.sites:
            raise BadTopology("a deployment needs a site")
        if COORDINATOR in layout.sites or "site" in layout.sites:
            raise BadTopology('a site cannot be called "coordinator" or "site"')
        check_file_names("a site", layout.sites, others=[COORDINATOR, "site"])
        check_file_names("a node", topology.nodes)
        twice = {node for site, nodes in layout.sites.items() for node in nodes if layout.site_of(node) != site}
        if twice:
            raise BadTopology(f"{quoted(sorted(twice))} would be run by two sites")
        directory._check_empty()
        with held_lock(directory.path / UNFINISHED, f"the creation of {directory.path}"):
            # Somebody else may have been faster.
            directory._check_empty()
            for left in directory.requests.glob("*"):
                left.unlink()
            for site in layout.sites:
                directory.inbox(site, "site").mkdir(parents=True, exist_ok=True)
                directory.feeds(site).mkdir(parents=True, exist_ok=True)
            for number, request in enumerate(requests):
                write_whole(directory.requests / f"{number:020d}.json", request_to_json(request))
            beginning = msgspec.Raw(request_to_json(Beginning.of(topology)))
            write_whole(directory._description, msgspec.json.encode(_Deployment(layout, beginning)))
            (directory.path / UNFINISHED).unlink()
        return directory

    def _check_empty(self) -> None:
        """Refuse a directory with anything in it but what an interrupted call of :meth:`create` has left."""
        if self._description.exists():
            raise PathProblem(
                f"there is a deployment in {self.path} already",
                hint="Continue it with midstream deploy --resume, or give another directory.",
            )
        try:
            found = sorted(name for name in os.listdir(self.path) if name[0] != "." and name != "lost+found")
        except FileNotFoundError:
            return
        except OSError as problem:
            raise PathProblem(f"{self.path} cannot be the directory of a deployment: {problem.strerror}") from problem
        if found and UNFINISHED not in found:
            raise PathProblem(
                f"{self.path} is not empty",
                detail=f'It has "{found[0]}".',
                hint="Give a new directory, or an empty one, for the deployment.",
            )

    def _check_path(self) -> None:
        """Refuse a path that Spark takes for a pattern, or not for a path."""
        odd = sorted(set(str(self.path)) & _NOT_IN_PATHS)
        if odd:
            raise PathProblem(
                f"Spark cannot read files below {self.path}",
                detail=f"The path has {quoted(odd)}.",
                hint="Give a directory whose path has none of " + " ".join(sorted(_NOT_IN_PATHS - {chr(10)})) + ".",
            )

    @property
    def _description(self) -> Path:
        return self.path / "deployment.json"

    def _read(self) -> _Deployment:
        try:
            return msgspec.json.decode(self._description.read_bytes(), type=_Deployment)
        except FileNotFoundError:
            raise PathProblem(f"there is no deployment in {self.path}") from None
        except NotADirectoryError:
            raise PathProblem(f"{self.path} is not a directory") from None
        except (msgspec.MsgspecError, RecursionError) as problem:
            raise PathProblem(f"{self._description} is damaged", detail=f"{problem}.") from problem

    def layout(self) -> SiteLayout:
        return self._read().layout

    def beginning(self) -> Beginning:
        beginning = request_from_json(bytes(self._read().beginning))
        assert isinstance(beginning, Beginning)
        return beginning

    # Sites

    def site(self, site: str) -> Path:
        return self.path / "sites" / file_name(site)

    def given_up(self, site: str) -> Path:
        """A file that is there if the stages of the site's nodes were rescued: it must not run again."""
        return self.site(site) / "lost"

    def check_site(self, site: str) -> None:
        """Raise if there is no such site."""
        self._check_path()
        known = self.layout().sites
        if site not in known:
            raise PathProblem(
                f'there is no site "{site}" in {self.path}',
                detail=f"Its sites are {quoted(known)}.",
                hint=did_you_mean(site, known),
            )

    def at_place_of(self, site: str) -> DeploymentDirectory:
        """This directory under the path by which the site first ran, which is kept in ``sites/SITE/place``.

        Spark knows the files that it has read by their paths: under other ones it would read all feeds again.
        """
        place = self.site(site) / "place"
        if not place.exists():
            write_whole(place, str(self.path).encode())
        first = Path(place.read_text())
        if first == self.path:
            return self
        if not first.exists() or not first.samefile(self.path):
            raise PathProblem(
                f"the deployment was moved from {first} to {self.path}",
                detail=f'Site "{site}" would read all rows again.',
                hint=f"Move it back, or make {first} a symbolic link to it.",
            )
        return DeploymentDirectory(first)

    def is_without_nodes(self, site: str) -> bool:
        """Whether the topology, as the coordinator last reported it, has none of the site's nodes left."""
        try:
            reported = msgspec.json.decode(self.status.read_bytes(), type=_Reported)
        except FileNotFoundError:
            return False
        beginning = request_from_json(bytes(reported.topology))
        assert isinstance(beginning, Beginning)
        layout = self.layout()
        return not any(layout.site_of(node.id) == site for node in beginning.nodes)

    def inbox(self, site: str, sender: str) -> Path:
        return self.site(site) / "inbox" / file_name(sender)

    def feeds(self, site: str) -> Path:
        return self.site(site) / "feeds"

    def feed(self, node: NodeId, stream: str) -> Path:
        """Where rows of a stream that arise at a node are put."""
        return self.feeds(self.layout().site_of(node)) / file_name(node) / file_name(stream)

    def staged(self, site: str) -> Path:
        return self.site(site) / "staged"

    def checkpoint(self, site: str) -> Path:
        return self.site(site) / "checkpoint"

    def node_status(self, site: str) -> Path:
        """What the site's nodes did and hold, after the last micro-batch."""
        return self.site(site) / "status.json"

    def node_statuses(self) -> list[NodeStatus]:
        """What all nodes have reported."""
        found: list[NodeStatus] = []
        for site in self.layout().sites:
            with contextlib.suppress(FileNotFoundError):
                try:
                    found += msgspec.json.decode(self.node_status(site).read_bytes(), type=list[NodeStatus])
                except msgspec.MsgspecError as problem:
                    raise PathProblem(f"{self.node_status(site)} is damaged", detail=f"{problem}.") from problem
        return sorted(found, key=lambda node: node.name)

    # The coordinator

    @property
    def requests(self) -> Path:
        return self.path / "requests"

    @property
    def log(self) -> Path:
        return self.path / "coordinator" / "log"

    @property
    def status(self) -> Path:
        return self.path / "coordinator" / "status.json"

    def reports(self, site: str) -> Path:
        return self.path / "coordinator" / "reports" / file_name(site)

    def lock(self, name: str) -> Path:
        """What the process of a site, or of the coordinator, holds while it runs."""
        return self.log.with_name("lock") if name == COORDINATOR else self.site(name) / "lock"

    def running(self) -> dict[str, bool]:
        """Which processes run, of the coordinator and all sites that were not given up."""
        sites = [site for site in self.layout().sites if not self.given_up(site).exists()]
        return {name: is_held(self.lock(name)) for name in (COORDINATOR, *sites)}

    def submit(self, request: Request) -> str:
        """Ask something of the coordinator; the request's name."""
        name = unique_name()
        write_whole(self.requests / f"{name}.json", request_to_json(request))
        return name

    def outcome(self, name: str) -> str | None:
        """What became of a request: None as long as it is open, an empty text if it was taken, else why not."""
        if (self.requests / f"{name}.taken").exists():
            return ""
        refused = self.requests / f"{name}.refused"
        return refused.read_text() if refused.exists() else None

    # Rows

    def write_feed(self, node: NodeId, stream: str, number: int, table: pa.Table) -> None:
        """Rows arise at a node."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        write_whole(self.feed(node, stream) / f"{number:010d}.parquet", sink.getvalue().to_pybytes())

    def end_feed(self, node: NodeId, stream: str) -> None:
        """No more rows of a stream will arise at a node."""
        write_whole(self.feed(node, stream) / "end", b"")

    def results(self, query: str) -> Path:
        return self.path / "results" / file_name(query)

    def write_columns(self, query: str, columns: Iterable[str]) -> None:
        """The names of a query's columns, for who writes its results."""
        write_whole(self.results(query) / "_columns.json", json.dumps(list(columns)).encode())

    def columns(self, query: str) -> list[str]:
        path = self.results(query) / "_columns.json"
        return list(json.loads(path.read_bytes())) if path.exists() else []

    def read_results(self, query: str) -> pa.Table | None:
        """All results of a query so far; None if there are none."""
        files = sorted(self.results(query).glob("[!_]*.parquet"))
        return pa.concat_tables(pq.read_table(file) for file in files) if files else None
