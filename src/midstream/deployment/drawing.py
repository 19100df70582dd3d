"""Pictures of a topology with the fragments on its nodes, before and after a change.

Nodes stand in layers, by how many links they are from the top. A node shows the stages that run on it, in the colour of
their query; of many, it shows how many. Links that rows take are dark. In a picture of two moments, what is different
from the first is framed in the second. Needs matplotlib, which midstream itself does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from midstream.deployment.placement.global_plan import NodeId
from midstream.deployment.protocol.status import DeploymentStatus
from midstream.deployment.topology.topology import Topology

__all__ = ["Picture", "draw", "picture_of"]

COLOURS = ("#1565c0", "#2e7d32", "#c62828", "#6a1b9a", "#ef6c00", "#00838f", "#4e342e", "#37474f")
MOST_LINES = 4
"""So many stages of a node are named; of more, the number."""
_WIDTH, _HEIGHT = 2.4, 1.5


@dataclass(frozen=True)
class Picture:
    """What is drawn of one moment: it stays as it is when the topology changes."""

    nodes: tuple[NodeId, ...]
    links: frozenset[tuple[NodeId, NodeId]]
    """From child to parent; peers in the order of their names."""
    used: frozenset[tuple[NodeId, NodeId]]
    """Links that rows take."""
    stages: Mapping[NodeId, tuple[tuple[str, str], ...]]
    """By node: query and stage."""


def picture_of(topology: Topology, status: DeploymentStatus) -> Picture:
    """The topology and what runs on it, as they are now."""
    stages: dict[NodeId, list[tuple[str, str]]] = {}
    used: set[tuple[NodeId, NodeId]] = set()
    for query in status.queries:
        for fragment in query.fragments:
            for stage in fragment.stages:
                stages.setdefault(fragment.node, []).append((query.name, stage.removeprefix(f"{query.name}/")))
            used.update(pairwise(fragment.route))
    return Picture(
        tuple(sorted(topology.nodes)),
        frozenset((link.child, link.parent) for link in topology.links()),
        frozenset(used),
        {node: tuple(own) for node, own in stages.items()},
    )


def draw(moments: Sequence[tuple[str, Picture]], path: Path) -> None:
    """Draw one moment, or several side by side, each with its title."""
    layers = [_layers(picture) for _, picture in moments]
    columns = max(len(layer) for layered in layers for layer in layered)
    rows = max(map(len, layers))
    figure = Figure(figsize=(max(5.0, columns * 1.7) * len(moments), 1.2 + rows * 1.6), layout="constrained")
    FigureCanvasAgg(figure)
    queries = sorted({query for _, p in moments for own in p.stages.values() for query, _ in own})
    colours = {query: COLOURS[place % len(COLOURS)] for place, query in enumerate(queries)}
    axes = figure.subplots(1, len(moments), squeeze=False)[0]
    for place, ((title, picture), layered, axis) in enumerate(zip(moments, layers, axes, strict=True)):
        before = moments[place - 1][1] if place else None
        _draw_one(axis, title, picture, layered, colours, before)
    figure.savefig(path, dpi=120)


def _layers(picture: Picture) -> list[list[NodeId]]:
    """The nodes by their distance from the top, the top first."""
    parents: dict[NodeId, list[NodeId]] = {}
    for child, parent in picture.links:
        parents.setdefault(child, []).append(parent)
    depth: dict[NodeId, int] = {}
    pending = [node for node in picture.nodes if node not in parents]
    depth.update(dict.fromkeys(pending, 0))
    while pending:
        following = []
        for child, parent in sorted(picture.links):
            if parent in pending and child not in depth:
                depth[child] = depth[parent] + 1
                following.append(child)
        pending = following
    layered: list[list[NodeId]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for node in picture.nodes:
        layered[depth.get(node, 0)].append(node)
    for upper, layer in pairwise(layered):
        places = {node: place for place, node in enumerate(upper)}
        layer.sort(key=lambda node: (min((places.get(p, 0) for p in parents.get(node, ())), default=0), node))
    return layered


def _draw_one(
    axis: Axes,
    title: str,
    picture: Picture,
    layered: Sequence[Sequence[NodeId]],
    colours: Mapping[str, str],
    before: Picture | None,
) -> None:
    widest = max(map(len, layered))
    places = {
        node: ((position + 0.5) * widest / len(layer) * (_WIDTH + 0.4), -depth * (_HEIGHT + 0.7))
        for depth, layer in enumerate(layered)
        for position, node in enumerate(layer)
    }
    for child, parent in sorted(picture.links):
        is_used = (child, parent) in picture.used or (parent, child) in picture.used
        is_new = before is not None and (child, parent) not in before.links
        colour = "#c62828" if is_new else "#444444" if is_used else "#cccccc"
        (x1, y1), (x2, y2) = places[child], places[parent]
        axis.plot([x1, x2], [y1, y2], color=colour, linewidth=1.8 if is_used else 1.0, zorder=1)
    for node, (x, y) in places.items():
        own = picture.stages.get(node, ())
        changed = before is not None and own != before.stages.get(node, ())
        box = FancyBboxPatch(
            (x - _WIDTH / 2, y - _HEIGHT / 2),
            _WIDTH,
            _HEIGHT,
            boxstyle="round,pad=0.03,rounding_size=0.15",
            facecolor="white" if own else "#f5f5f5",
            edgecolor="#c62828" if changed else "#888888",
            linewidth=2.0 if changed else 1.0,
            zorder=2,
        )
        axis.add_patch(box)
        axis.text(x, y + _HEIGHT / 2 - 0.12, node, ha="center", va="top", fontsize=8, weight="bold", zorder=3)
        for line, (text, colour) in enumerate(_lines(own, colours)):
            axis.text(x, y + 0.3 - 0.27 * line, text, ha="center", va="center", fontsize=6, color=colour, zorder=3)
    axis.set_title(title, fontsize=10)
    axis.autoscale_view()
    axis.margins(0.05)
    axis.set_axis_off()


def _lines(own: Sequence[tuple[str, str]], colours: Mapping[str, str]) -> list[tuple[str, str]]:
    if len(own) <= MOST_LINES:
        return [(stage, colours[query]) for query, stage in own]
    by_query: dict[str, int] = {}
    for query, _ in own:
        by_query[query] = by_query.get(query, 0) + 1
    shown = [(f"{query}: {count} stages", colours[query]) for query, count in by_query.items()]
    if len(shown) > MOST_LINES:
        shown = [*shown[: MOST_LINES - 1], (f"and {len(shown) - MOST_LINES + 1} more queries", "#444444")]
    return shown
