"""Thousands of nodes: the set-up of figure 7 made larger, by more queries on a ring of more edge nodes.

Each edge node begins with the 16 devices of one query; every second, each gives one to the next. Ten times the paper's
largest set-up has 1,701 nodes and 100 moves a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.isqd.costs import FITTED
from benchmarks.isqd.emulation import ISQD, Outcome, emulate
from benchmarks.measuring import Bar, save
from midstream.deployment.topology.published_traces import PublishedSetup

__all__ = ["FIGURES"]

SECONDS = 5.0


@dataclass(frozen=True)
class _LargerSetup(PublishedSetup):
    """As many edge nodes as there are to be queries."""

    queries: int = 10

    @property
    def edge_nodes(self) -> range:
        return range(2, 2 + self.queries)


def _run(queries: int) -> Outcome:
    setup = _LargerSetup(f"{queries} queries", 16, 1, int(SECONDS), is_stateful=False, queries=queries)
    # Fewer tuples than in the paper: all of them pass one cloud node.
    outcome = emulate(
        setup,
        ISQD,
        FITTED,
        1.0,
        rows_per_s=1.0,
        changes_s=SECONDS,
        warm_up_s=5.0,
        settle=True,
        cores=None,
        tuples_per_s=500,
    )
    assert not outcome.missing and not outcome.repeated
    return outcome


def scale() -> bool:
    """Nodes, and how fast they are simulated."""
    figures: dict[str, Any] = {}
    for queries in (10, 100, 200):
        outcome = _run(queries)
        nodes = 1 + 17 * queries
        figures |= {
            f"{nodes} nodes: changes handled before the next": outcome.on_time / outcome.batches,
            f"{nodes} nodes: deployment per batch, ms": 1000 * outcome.busy_s / outcome.batches,
            f"{nodes} nodes: fragments touched per batch": outcome.touched / outcome.batches,
            f"{nodes} nodes: control messages per batch": outcome.messages / outcome.batches,
            f"{nodes} nodes: node steps per second of wall time": outcome.steps / outcome.wall_s,
            f"{nodes} nodes: wall time, s": outcome.wall_s,
        }
    few, many = (figures[f"{1 + 17 * queries} nodes: fragments touched per batch"] / queries for queries in (10, 200))
    figures["fragments touched per query, 3401 nodes / 171 nodes"] = many / few
    return save("isqd_scale", figures, Bar("fragments touched per query, 3401 nodes / 171 nodes", 1.0))


FIGURES = {"scale": scale}
