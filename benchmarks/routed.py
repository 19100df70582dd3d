"""Executors without a tree, beside the strategies that change one: CACQ, STAIRs, and JISC on STAIRs.

They run the same query as a multi-way join of all streams. CACQ (an eddy with SteMs) has nothing to migrate: a change
of plan is a change of routing, which it makes by itself, so that it is left alone when the others change theirs. STAIRs
change theirs by moving intermediate results, eagerly as published or lazily (JISC, section 4.6).
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.migrating import Way
from midstream import ContinuousQuery
from midstream.algebra.plan import Plan, Routing

__all__ = ["CACQ", "STAIRS", "eddy_plan", "stairs_plan"]

CACQ = Way("CACQ (eddy, SteMs)", "none", {}, "#000000", "-.")
STAIRS: dict[str, tuple[Routing, Way]] = {
    "stairs": ("eager-stairs", Way("STAIRs", "moving-state", {}, "#882255", "--")),
    "jisc-on-stairs": ("stairs", Way("JISC on STAIRs", "jisc", {}, "#44AA99", "--")),
}
"""By name: the routing, and how a change to another plan with STAIRs is made."""


def eddy_plan(query: ContinuousQuery, names: Sequence[str]) -> Plan:
    """CACQ's plan."""
    return query.plan("{" + " ".join(names) + "}", routing="eddy")


def stairs_plan(query: ContinuousQuery, names: Sequence[str], name: str) -> Plan:
    """A plan with STAIRs that begins with the streams in this order; ``name`` is one of STAIRS."""
    return query.plan("{" + " ".join(names) + "}", routing=STAIRS[name][0])
