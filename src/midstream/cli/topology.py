"""``midstream topology``: change the topology of a running deployment, and show one."""

from __future__ import annotations

import time
from pathlib import Path

from midstream.cli.deployment_status import read_status, summary
from midstream.cli.failures import DONE, FAILED, PENDING
from midstream.cli.output import Output, escape
from midstream.deployment.protocol.coordinator_requests import ChangeTopology
from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.topology.topology import Topology
from midstream.deployment.topology.topology_events import EventBatch
from midstream.deployment.topology.topology_files import read_batches, read_topology
from midstream.errors import BadArgument

__all__ = ["apply_events", "show_topology"]

LOOK_SECONDS = 0.1


def apply_events(directory: Path, events: Path, timed: bool, timeout: float, output: Output) -> int:
    """Submit the batches of a file, one after the other, and say what became of each."""
    paths = DeploymentDirectory(directory)
    paths.layout()
    batches = read_batches(events)
    if not batches:
        raise BadArgument(f'"{events}" has no batches of events', hint="Add a [[batches]] section.")
    began, outcomes = time.monotonic(), []
    for number, batch in enumerate(batches, 1):
        if timed:
            while (left := began + batch.time_ms / 1000 - time.monotonic()) > 0:
                # Python does not sleep for centuries.
                time.sleep(min(left, 3600.0))
        state, reason = _apply(paths, batch, timeout)
        outcomes.append({"batch": number, "events": len(batch.events), "state": state, "reason": reason})
        said = f"batch {number} of {len(batches)}: {len(batch.events)} events, {state}"
        output.say(escape(said if reason is None else f"{said}: {reason}"))
        if state != "settled":
            break
    output.document({"directory": str(paths.path), "batches": outcomes})
    return {"settled": DONE, "refused": FAILED}.get(str(outcomes[-1]["state"]), PENDING)


def _apply(paths: DeploymentDirectory, batch: EventBatch, timeout: float) -> tuple[str, str | None]:
    name = paths.submit(ChangeTopology(batch.events))
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        outcome = paths.outcome(name)
        if outcome:
            return "refused", outcome
        status = read_status(paths)
        if outcome is not None and status is not None and status.is_idle:
            waiting = [query.name for query in status.queries if query.problem is not None or query.cut_off]
            return "settled", f"waiting: {', '.join(waiting)}" if waiting else None
        time.sleep(LOOK_SECONDS)
    if paths.outcome(name) is None:
        return "submitted", "the coordinator has not taken it yet; is it running?"
    status = read_status(paths)
    return "taken", "not settled yet" if status is None else summary(status)


def show_topology(place: Path, picture: Path | None, output: Output) -> int:
    """Show a topology from a file, or that of a deployment with what runs on it."""
    if picture is not None and picture.suffix != ".png":
        raise BadArgument(f'a picture cannot be written to "{picture}"', hint="Give a name that ends with .png.")
    if place.is_dir():
        paths = DeploymentDirectory(place)
        status = read_status(paths)
        topology = paths.beginning().topology() if status is None else status.current_topology()
    else:
        status, topology = None, read_topology(place)
    for line in _lines(topology):
        output.say(escape(line))
    if picture is not None:
        from midstream.deployment.drawing import draw, picture_of
        from midstream.deployment.protocol.status import DeploymentStatus

        shown = DeploymentStatus(queries=[] if status is None else status.queries, nodes=[])
        draw([(place.name, picture_of(topology, shown))], picture)
        output.note(f"picture in {escape(str(picture))}")
    links = [{"child": link.child, "parent": link.parent, "peer": link.is_peer} for link in topology.links()]
    output.document({"nodes": sorted(topology.nodes), "links": links})
    return DONE


def _lines(topology: Topology) -> list[str]:
    """The nodes as trees, from the top down; a node with several parents is shown below each."""
    children: dict[str, list[str]] = {}
    below: set[str] = set()
    for link in topology.links():
        if not link.is_peer:
            children.setdefault(link.parent, []).append(link.child)
            below.add(link.child)
    lines: list[str] = []
    pending = [(node, 0) for node in sorted(set(topology.nodes) - below, reverse=True)]
    while pending:
        node, depth = pending.pop()
        slots = topology.nodes[node].slots
        lines.append("  " * depth + node + ("" if slots is None else f" ({slots} slot{'' if slots == 1 else 's'})"))
        pending += [(child, depth + 1) for child in sorted(children.get(node, ()), reverse=True)]
    return lines
