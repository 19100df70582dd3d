"""Sizes of blocks of joins that were not measured: the same joins, with a distinct or a partial aggregate at inputs.

The rules that push a distinct or a partial aggregate below joins change what enters the joins, and nothing else: the
*unreduced* block, without them, is the same in all plans. So the sizes of one of these blocks follow from those of
another, if it is known what the operator makes of an input's rows, its *reduction*:

- ``passing``: how many rows it produces for one that enters. A distinct produces none for a row whose values are valid
  for as long already. It does for one that only makes them valid for longer: then the row produced is valid for what
  is added. An aggregate produces a row whenever a group changes, when rows come and when they end.
- ``density``: how many of its rows are valid at one instant for each row of the input that is. Of a distinct there is
  one for each combination of values, of an aggregate one for each group.

A new row of one input, as far as it passes, meets those rows of the others that are valid then. So of the tuples that a
new row of r completes in the join of a set, a share of passing(r) · ∏ density(p) remains, over the other inputs p of
the set. Which share of all tuples r completes follows from how long rows are valid: those of the shortest window
complete most. Where windows slide, rows of several inputs begin at the same instant and complete one tuple together:
``occupancy`` says at which share of the instants that are possible a row of some key begins.

This assumes that rows with many copies have as many partners as others, and that copies on both sides are independent.
After a change of plan the block is measured itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from midstream.algebra.expressions import Expression
from midstream.algebra.plan import Aggregate, Distinct, Leaf, Plan, Project, Select
from midstream.planning.cost.sizes import BlockSizes, PlanSizes, Reduction, Replicates
from midstream.planning.join_order.join_graph import JoinGraph, bits

__all__ = ["Reducer", "reducer_of", "sizes_of_block", "unreduced_fingerprint"]


@dataclass(frozen=True)
class Reducer:
    """A distinct or partial aggregate between a window and the joins."""

    fingerprint: str
    """Of the input of the joins that it is."""
    node: Distinct | Aggregate
    keys: tuple[Expression, ...]
    """What it compares: rows with equal keys become one, at every instant."""
    source: Plan
    """The window, perhaps under selections."""
    leaf: Leaf
    """The window itself."""


def reducer_of(plan: Plan) -> Reducer | None:
    """The distinct or partial aggregate that an input of joins consists of, if it stands directly on a window."""
    node = _without_projections(plan)
    if isinstance(node, Distinct):
        keys: tuple[Expression, ...] = tuple(field.column for field in node.schema)
    elif isinstance(node, Aggregate):
        keys = tuple(key.expression for key in node.keys)
    else:
        return None
    source = leaf = _without_projections(node.input)
    while isinstance(leaf, Select):
        leaf = leaf.input
    return Reducer(plan.fingerprint, node, keys, source, leaf) if isinstance(leaf, Leaf) else None


def unreduced_fingerprint(block: Plan) -> str:
    """That of the block's joins over inputs without distinct and partial aggregates: equal for all plans of a query.

    Empty if one of these stands on something else than a window: what it does is not measured.
    """
    graph = JoinGraph.of(block)
    if any(_is_reduced(leaf) and reducer_of(leaf) is None for leaf in graph.leaves):
        return ""
    return graph.with_leaves([_unreduced(leaf) for leaf in graph.leaves]).build(graph.order).fingerprint


def sizes_of_block(block: Plan, sizes: PlanSizes) -> BlockSizes | None:
    """The sizes of a block of joins: measured, or else derived from those of another; None if neither is possible."""
    if block.identity in sizes.blocks or not sizes.reductions:
        return sizes.blocks.get(block.identity)
    if block.identity not in sizes.derived:
        sizes.derived[block.identity] = _derived(block, sizes)
    return sizes.derived[block.identity]


def _derived(block: Plan, sizes: PlanSizes) -> BlockSizes | None:
    graph = JoinGraph.of(block)
    new = [sizes.reductions.get(leaf.fingerprint) for leaf in graph.leaves]
    unreduced = unreduced_fingerprint(block)
    if not unreduced or any(r is None and _is_reduced(leaf) for leaf, r in zip(graph.leaves, new, strict=True)):
        return None
    for measured in sizes.blocks.values():
        if measured.unreduced == unreduced and sorted(measured.names) == sorted(graph.names):
            measured = measured.of_graph(graph)
            old = [sizes.reductions.get(leaf) for leaf in measured.leaves]
            return _scaled(measured, graph, old, new)
    return None


def _scaled(
    measured: BlockSizes, graph: JoinGraph, old: Sequence[Reduction | None], new: Sequence[Reduction | None]
) -> BlockSizes:
    """The sizes of a graph with new reductions at its inputs, from those of the block with old ones."""
    lives = [max(1, leaf.longest) for leaf in graph.leaves]
    ratios = {
        inputs: _share(inputs, lives, new) * _inverse(_share(inputs, lives, old)) for inputs in measured.increments
    }
    unreduced = [held if r is None else r.held for held, r in zip(measured.held, old, strict=True)]
    held = [rows if r is None else rows * float(r.passing.mean()) for rows, r in zip(unreduced, new, strict=True)]
    same = [one is other for one, other in zip(old, new, strict=True)]
    return replace(
        measured,
        held=tuple(measured.held[place] if is_same else held[place] for place, is_same in enumerate(same)),
        increments={inputs: found * ratios[inputs] for inputs, found in measured.increments.items()},
        counted={},
        held_sets={inputs: count * float(ratios[inputs].mean()) for inputs, count in measured.held_sets.items()},
        leaves=tuple(leaf.fingerprint for leaf in graph.leaves),
        is_derived=True,
        _derived={},
    )


def _share(inputs: int, lives: Sequence[int], reductions: Sequence[Reduction | None]) -> Replicates:
    """How many tuples the join of the set has for each that it would have without reductions: see the module."""
    places = list(bits(inputs))
    reduced = {place: found for place in places if (found := reductions[place]) is not None}
    if not reduced:
        return np.ones(1)
    if len(places) == 1:
        return reduced[places[0]].passing
    total = sum(1 / lives[place] for place in places)
    result: Replicates = np.zeros(1)
    for place in places:
        share: Replicates = np.full(1, 1 / lives[place] / total)
        for other, reduction in reduced.items():
            share = share * (reduction.passing if other == place else reduction.density)
        result = result + share
    occupancies = [reduction.occupancy for reduction in reduced.values()]
    together = 1 - math.prod(1 - occupancy for occupancy in occupancies)
    return result * (together / sum(occupancies)) if len(reduced) == len(places) and together > 0 else result


def _inverse(replicates: Replicates) -> Replicates:
    """One divided by an estimate: linear around its mean, so that a small replicate does not become a huge one."""
    mean = float(replicates.mean())
    return np.maximum(0.0, 2 - replicates / mean) / mean if mean > 0 else np.ones(1)


def _unreduced(plan: Plan) -> Plan:
    """An input of joins without a distinct or partial aggregate, and without projections that drop columns."""
    reducer = reducer_of(plan)
    return _without_projections(plan) if reducer is None else reducer.source


def _is_reduced(plan: Plan) -> bool:
    return isinstance(_without_projections(plan), Distinct | Aggregate)


def _without_projections(plan: Plan) -> Plan:
    """What lies below projections that only choose columns."""
    while isinstance(plan, Project) and all(item.is_plain for item in plan.items):
        plan = plan.input
    return plan
