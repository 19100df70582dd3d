"""Executors without a tree, beside the strategies that change one: CACQ, STAIRs, and JISC on STAIRs.

They run the same query as a multi-way join of all streams. CACQ (an eddy with SteMs) has nothing to migrate: a change
of plan is a change of routing, which it makes by itself, so that it is left alone when the others change theirs. STAIRs
change theirs by moving intermediate results, eagerly as published or lazily (JISC, section 4.6).
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from benchmarks.migrating import Way
from midstream import ContinuousQuery
from midstream.algebra.plan import Plan

__all__ = ["CACQ", "STAIRS", "eddy_plan", "stairs_note", "stairs_plan", "stairs_run"]

CACQ = Way("CACQ (eddy, SteMs)", "none", {}, "#000000", "-.")
STAIRS_OPTION = "promotion"
"""The option of a plan with STAIRs that says when intermediate results are moved; its values are in STAIRS."""
STAIRS = {
    "stairs": ("eager", Way("STAIRs", "moving-state", {}, "#882255", "--")),
    "jisc-on-stairs": ("lazy", Way("JISC on STAIRs", "jisc", {}, "#44AA99", "--")),
}
"""By name: the value of the option, and how a change to another plan with STAIRs is made."""


def eddy_plan(query: ContinuousQuery, names: Sequence[str]) -> Plan:
    """CACQ's plan."""
    return query.plan("{" + " ".join(names) + "}", routing="eddy")


def stairs_run() -> bool:
    """Whether plans with STAIRs can be made, with the option for both ways of moving intermediate results."""
    return STAIRS_OPTION in inspect.signature(ContinuousQuery.plan).parameters


def stairs_plan(query: ContinuousQuery, names: Sequence[str], name: str) -> Plan:
    """A plan with STAIRs that begins with the streams in this order; ``name`` is one of STAIRS."""
    options = {STAIRS_OPTION: STAIRS[name][0]}
    return query.plan("{" + " ".join(names) + "}", routing="stairs", **options)  # type: ignore[arg-type]


def stairs_note() -> str:
    """What the settings of a figure say about them."""
    return "" if stairs_run() else "; STAIRs, and JISC on STAIRs, do not run yet"
