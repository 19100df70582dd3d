"""Rewrite rules: one file, one function of the same name each. A rule takes a plan and gives an equivalent one.

A rule applies everywhere in the plan, leaves it as it is where it has nothing to do, and keeps the plan's schema to the
letter. ``docs/how_to_add_a_rule.md`` shows how to add one.
"""

from __future__ import annotations

from collections.abc import Callable

from midstream.algebra.plan import Plan
from midstream.planning.rules.merge_selections import merge_selections
from midstream.planning.rules.push_distinct_below_join import push_distinct_below_join
from midstream.planning.rules.push_down_projections import push_down_projections
from midstream.planning.rules.push_down_selections import push_down_selections
from midstream.planning.rules.push_partial_aggregate_below_join import push_partial_aggregate_below_join
from midstream.planning.rules.reorder_differences import reorder_differences
from midstream.planning.rules.split_conjunctions import split_conjunctions

__all__ = ["ALWAYS", "RULES", "VARIANTS", "Rule"]

Rule = Callable[[Plan], Plan]

ALWAYS: tuple[Rule, ...] = (
    # First, so that each condition can move by itself, wherever the others have to stay.
    split_conjunctions,
    # Before columns are dropped: a condition at its stream no longer needs its columns above.
    push_down_selections,
    # After the conditions have moved: those that met at one place are tested in one pass.
    merge_selections,
    # After the conditions: what is read only by them is dropped right above them.
    push_down_projections,
    # Sizes are estimated, so conditions must be where they take effect.
    reorder_differences,
)
"""Rules that never make a plan slower, in the order in which they are applied."""

VARIANTS: tuple[Rule, ...] = (
    # Both change what the states hold, and help or hurt depending on the data. Distinct first: the inputs it makes
    # distinct cannot be grouped any smaller by the same columns.
    push_distinct_below_join,
    push_partial_aggregate_below_join,
)
"""Rules that make another plan, better for some data; applied after the joins have been ordered."""

RULES: tuple[Rule, ...] = (*ALWAYS, *VARIANTS)
