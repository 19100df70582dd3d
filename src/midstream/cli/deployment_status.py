"""``midstream deployment status``: queries, fragments and nodes of a deployment, as tables."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from midstream.cli.failures import DONE
from midstream.cli.output import Output
from midstream.deployment.protocol.status import NodeStatus, QueryStatus
from midstream.deployment.sites.coordinator_process import CoordinatorStatus
from midstream.deployment.sites.deployment_directory import COORDINATOR, DeploymentDirectory
from midstream.errors import BadArgument, PathProblem, quoted

__all__ = ["deployment_status", "read_status", "summary"]

LOOK_SECONDS = 1.0


def deployment_status(directory: Path, watch: bool, output: Output) -> int:
    """Show the status once, or again and again until the user ends it."""
    if watch and output.as_json:
        raise BadArgument("--watch and --json do not go together", hint="Call it repeatedly with --json alone.")
    paths = DeploymentDirectory(directory)
    paths.layout()
    if not watch:
        output.say(_shown(paths))
        output.document(_document(paths))
        return DONE
    with Live(console=output.words, auto_refresh=False) as live:
        try:
            while True:
                live.update(_shown(paths), refresh=True)
                time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            # The normal way to leave --watch.
            return DONE


def read_status(paths: DeploymentDirectory) -> CoordinatorStatus | None:
    """What the coordinator has reported; None if it has not yet."""
    try:
        return msgspec.json.decode(paths.status.read_bytes(), type=CoordinatorStatus)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise PathProblem(f"{paths.status} is damaged", detail=f"{problem}.") from problem


def summary(status: CoordinatorStatus) -> str:
    """The figures that matter at a glance."""
    fragments = sum(len(query.fragments) for query in status.queries)
    nodes = {fragment.node for query in status.queries for fragment in query.fragments}
    under_way = [f"{query.name}: {query.phase}" for query in status.queries if query.phase != "settled"]
    cut_off = sum(len(query.cut_off) for query in status.queries)
    parts = [
        f"{_counted(len(status.queries), 'query', 'queries')}, {_counted(fragments, 'fragment')} on "
        f"{_counted(len(nodes), 'node')}",
        f"{_counted(status.committed, 'generation')} carried out",
        *([", ".join(under_way)] if under_way else []),
        *([f"{cut_off} edges cut off"] if cut_off else []),
    ]
    return "; ".join(parts)


def _counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _document(paths: DeploymentDirectory) -> dict[str, object]:
    status = read_status(paths)
    if status is None:
        nothing: dict[str, object] = {"is_idle": None, "committed": 0, "queries": [], "nodes": []}
        return {"directory": str(paths.path), "running": paths.running(), **nothing}
    return {
        "directory": str(paths.path),
        "running": paths.running(),
        "is_idle": status.is_idle,
        "committed": status.committed,
        "queries": msgspec.to_builtins(status.queries),
        "nodes": msgspec.to_builtins(paths.node_statuses()),
    }


def _shown(paths: DeploymentDirectory) -> RenderableType:
    warnings = [Text(line) for line in _not_running(paths)]
    status = read_status(paths)
    if status is None:
        return Group(Text("the coordinator has reported nothing yet"), *warnings)
    parts: list[RenderableType] = [Text(summary(status), style="bold"), *warnings, _queries(status.queries)]
    parts += [Text(f"{query.name} waits: {query.problem}") for query in status.queries if query.problem is not None]
    nodes = paths.node_statuses()
    if nodes:
        parts.append(_nodes(nodes))
    parts += [
        Text(f"{node.name} refused a file of rows: {line}")
        for node in nodes
        for line in (node.refusal or "").splitlines()[:1]
    ]
    return Group(*parts)


def _not_running(paths: DeploymentDirectory) -> list[str]:
    """What is to be said about processes that do not run."""
    stopped = [name for name, runs in paths.running().items() if not runs]
    if not stopped:
        return []
    sites = [name for name in stopped if name != COORDINATOR]
    lines = []
    if COORDINATOR in stopped:
        lines.append("the coordinator is not running: changes wait, and this is what it last knew")
    if sites:
        lines.append(f"not running: site{'' if len(sites) == 1 else 's'} {quoted(sites)}")
    return [*lines, f"  start with: midstream deploy --resume {paths.path}{_only(paths, stopped)}"]


def _only(paths: DeploymentDirectory, stopped: list[str]) -> str:
    """The option that starts one process beside those that run."""
    return "" if len(stopped) == len(paths.running()) else f" --only {shlex.quote(stopped[0])}"


def _queries(queries: list[QueryStatus]) -> Table:
    table = Table("query", "generation", "state", "fragment", "version", "node", "stages", box=None, pad_edge=False)
    for query in queries:
        state = query.phase if not query.cut_off else f"{query.phase}, {len(query.cut_off)} cut off"
        for place, fragment in enumerate(query.fragments):
            head = (query.name, str(query.generation), state) if place == 0 else ("", "", "")
            stages = ", ".join(stage.removeprefix(f"{query.name}/") for stage in fragment.stages)
            table.add_row(*map(Text, (*head, fragment.id, str(fragment.version), fragment.node, stages)))
    return table


def _nodes(nodes: list[NodeStatus]) -> Table:
    table = Table("node", "runs", "held", "awaited", "rows waiting", box=None, pad_edge=False)
    for node in nodes:
        if node.running or node.held or node.awaited or node.unclaimed_rows:
            counts = (len(node.running), len(node.held), len(node.awaited))
            waiting = node.buffered_rows + node.unclaimed_rows
            table.add_row(Text(node.name), *(str(count) for count in counts), f"{waiting:,}")
    return table
