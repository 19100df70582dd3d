"""Where stages run and which nodes their rows pass.

A query's placement is immutable: a node for each of its stages and a route for each of its edges. (An edge has the
name of the stage that produces its rows.) An edge without a route is *cut off*: its producer keeps its rows until
there is one. A stage without a node waits for the node that it is pinned to, or for rows that could reach it.

``Placement`` holds those of all queries, replaced one by one, and answers which edges use a link, which stages a node
runs, how many of its slots are taken, and which cut-off edges a new link might restore. Replacing a query's placement
takes time in proportion to the size of the query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from midstream.deployment.placement.global_plan import NodeId, StageId
from midstream.deployment.topology.topology import Route

__all__ = ["Placement", "QueryPlacement"]


@dataclass(frozen=True)
class QueryPlacement:
    """Where the stages of one query run."""

    query: str
    nodes: Mapping[StageId, NodeId] = field(default_factory=dict)
    """The node of each stage that has one."""
    routes: Mapping[StageId, Route] = field(default_factory=dict)
    """The route of each edge that has one, from the producer's node to the consumer's."""
    cut_off: Mapping[StageId, frozenset[NodeId] | None] = field(default_factory=dict)
    """The edges without a route, and where a new link or the return of a node may restore them; None: anywhere."""


class Placement:
    """The placements of all queries."""

    def __init__(self) -> None:
        self._queries: dict[str, QueryPlacement] = {}
        self._stages_on: dict[NodeId, dict[StageId, str]] = {}
        self._edges_over: dict[tuple[NodeId, NodeId], dict[StageId, str]] = {}
        self._waiting: dict[NodeId | None, dict[StageId, str]] = {}

    @property
    def queries(self) -> Iterable[str]:
        return self._queries.keys()

    def of(self, query: str) -> QueryPlacement:
        """The placement of one query."""
        return self._queries[query]

    def __contains__(self, query: str) -> bool:
        return query in self._queries

    def stages_on(self, node: NodeId) -> Mapping[StageId, str]:
        """The stages that run on a node, with their queries."""
        return self._stages_on.get(node, {})

    def slots_used(self, node: NodeId) -> int:
        """How many slots of a node are taken: one for each stage."""
        return len(self._stages_on.get(node, {}))

    def edges_over(self, sender: NodeId, receiver: NodeId) -> Mapping[StageId, str]:
        """The edges whose rows take a link in this direction, with their queries."""
        return self._edges_over.get((sender, receiver), {})

    def waiting_at(self, node: NodeId | None) -> Mapping[StageId, str]:
        """The cut-off edges that a new link of this node may restore, with their queries; None: any link may."""
        return self._waiting.get(node, {})

    def cut_off(self) -> Iterator[StageId]:
        """All edges without a route."""
        for placement in self._queries.values():
            yield from placement.cut_off

    def put(self, placement: QueryPlacement) -> None:
        """Set or replace the placement of a query."""
        self.remove(placement.query)
        self._queries[placement.query] = placement
        for index, key, stage in self._entries(placement):
            index.setdefault(key, {})[stage] = placement.query

    def remove(self, query: str) -> None:
        """Free what a query uses; nothing happens if it is not placed."""
        placement = self._queries.pop(query, None)
        if placement is None:
            return
        for index, key, stage in self._entries(placement):
            del index[key][stage]
            if not index[key]:
                del index[key]

    def _entries(self, placement: QueryPlacement) -> Iterator[tuple[dict[object, dict[StageId, str]], object, StageId]]:
        """What the indexes know of a placement."""
        stages_on: dict[object, dict[StageId, str]] = self._stages_on  # type: ignore[assignment]
        edges_over: dict[object, dict[StageId, str]] = self._edges_over  # type: ignore[assignment]
        waiting: dict[object, dict[StageId, str]] = self._waiting  # type: ignore[assignment]
        for stage, node in placement.nodes.items():
            yield stages_on, node, stage
        for edge, route in placement.routes.items():
            for link in pairwise(route):
                yield edges_over, link, edge
        for edge, places in placement.cut_off.items():
            for place in (None,) if places is None else places:
                yield waiting, place, edge
