"""Sizes on their way from a cell to the driver, as a typed message.

>>> import numpy as np
>>> from midstream.planning.cost.sizes import BlockSizes, PlanSizes
>>> block = BlockSizes(("a", "b"), (10.0, 20.0), {1: np.ones(2), 2: np.ones(2), 3: np.array([4.0, 6.0])})
>>> sent = MeasuredSizes.of(PlanSizes(30, {"block": block}, {frozenset("ab"): 5}, ["b"]))
>>> received = sent.sizes()
>>> received.counted == {frozenset("ab"): 5}
True
>>> received.rows, received.silent, received.blocks["block"].increments[3].tolist()
(30, ('b',), [4.0, 6.0])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from midstream.planning.cost.sizes import BlockSizes, PlanSizes, Reduction, Replicates
from midstream.planning.cost.statistics import JoinKeys
from midstream.planning.join_order.join_graph import bits

__all__ = ["MeasuredBlock", "MeasuredReduction", "MeasuredSizes", "sizes_over_cells"]


class MeasuredBlock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sizes of one block of joins."""

    identity: str
    names: tuple[str, ...]
    held: tuple[float, ...]
    increments: tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]
    """Each set of inputs as places among the names, and its replicates."""
    held_sets: tuple[tuple[tuple[int, ...], float], ...] = ()
    growth: tuple[tuple[tuple[int, ...], float], ...] = ()
    unreduced: str = ""
    leaves: tuple[str, ...] = ()


class MeasuredReduction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a distinct or partial aggregate makes of an input's rows, with replicates."""

    input: str
    """The fingerprint of the joins' input that it is."""
    passing: tuple[float, ...]
    density: tuple[float, ...]
    held: float
    occupancy: float


class MeasuredSizes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sizes of a query's joins, as one cell measured them after a micro-batch."""

    rows: int
    blocks: tuple[MeasuredBlock, ...]
    counted: tuple[tuple[tuple[str, ...], int], ...]
    """The aliases below each join of the plan in force, and how many tuples it produced."""
    silent: tuple[str, ...]
    hot_keys: tuple[JoinKeys, ...] | None = None
    """None: they were not counted this time."""
    reductions: tuple[MeasuredReduction, ...] = ()

    @classmethod
    def of(cls, sizes: PlanSizes, hot_keys: tuple[JoinKeys, ...] | None = None) -> MeasuredSizes:
        return cls(
            rows=sizes.rows,
            blocks=tuple(
                MeasuredBlock(
                    identity=identity,
                    names=block.names,
                    held=block.held,
                    increments=tuple(
                        (tuple(bits(inputs)), tuple(found.tolist())) for inputs, found in block.increments.items()
                    ),
                    held_sets=tuple((tuple(bits(inputs)), count) for inputs, count in block.held_sets.items()),
                    growth=tuple((tuple(bits(inputs)), factor) for inputs, factor in block.growth.items()),
                    unreduced=block.unreduced,
                    leaves=block.leaves,
                )
                for identity, block in sizes.blocks.items()
            ),
            counted=tuple((tuple(sorted(names)), count) for names, count in sizes.counted.items()),
            silent=tuple(sizes.silent),
            hot_keys=hot_keys,
            reductions=tuple(
                MeasuredReduction(
                    input=leaf,
                    passing=tuple(found.passing.tolist()),
                    density=tuple(found.density.tolist()),
                    held=found.held,
                    occupancy=found.occupancy,
                )
                for leaf, found in sizes.reductions.items()
            ),
        )

    def sizes(self) -> PlanSizes:
        """The sizes as they were measured."""
        blocks = {
            block.identity: BlockSizes(
                block.names,
                block.held,
                {sum(1 << place for place in inputs): np.array(found) for inputs, found in block.increments},
                {sum(1 << place for place in inputs): count for inputs, count in block.held_sets},
                {sum(1 << place for place in inputs): factor for inputs, factor in block.growth},
                block.unreduced,
                block.leaves,
            )
            for block in self.blocks
        }
        counted = {frozenset(names): count for names, count in self.counted}
        reductions = {
            one.input: Reduction(np.array(one.passing), np.array(one.density), one.held, one.occupancy)
            for one in self.reductions
        }
        return PlanSizes(self.rows, blocks, counted, self.silent, reductions)


def sizes_over_cells(cells: Sequence[PlanSizes]) -> PlanSizes:
    """The sizes of a whole query: the sums over its cells of rows, increments and held tuples.

    Cells measure at different times, over spans of their own. So that a cell with a long span does not count for more,
    what arrived and was produced is first brought to the same share of the rows in the windows in all cells. A row that
    was sent to several cells counts in each. An input is silent if it is in all cells.
    """
    if len(cells) == 1:
        return cells[0]
    held = [sum(sum(block.held) for block in sizes.blocks.values()) for sizes in cells]
    share = sum(sizes.rows for sizes in cells) / max(1.0, sum(held))
    factors = [
        share * there / sizes.rows if sizes.rows and there else 1.0 for sizes, there in zip(cells, held, strict=True)
    ]
    blocks: dict[str, BlockSizes] = {}
    counted: dict[frozenset[str], float] = {}
    for sizes, factor in zip(cells, factors, strict=True):
        for identity, block in sizes.blocks.items():
            blocks[identity] = _added(blocks.get(identity), block, factor)
        for names, count in sizes.counted.items():
            counted[names] = counted.get(names, 0.0) + factor * count
    return PlanSizes(
        sum(sizes.rows for sizes in cells),
        blocks,
        {names: round(count) for names, count in counted.items()},
        sorted(set.intersection(*(set(sizes.silent) for sizes in cells))),
        _mean_reductions(cells),
    )


def _mean_reductions(cells: Sequence[PlanSizes]) -> dict[str, Reduction]:
    """The means over the cells, by their rows; and the sums of the rows held."""
    found: dict[str, Reduction] = {}
    for leaf in dict.fromkeys(leaf for sizes in cells for leaf in sizes.reductions):
        known = [(max(1, sizes.rows), sizes.reductions[leaf]) for sizes in cells if leaf in sizes.reductions]
        total = sum(rows for rows, _ in known)
        found[leaf] = Reduction(
            np.asarray(sum(rows / total * reduction.passing for rows, reduction in known)),
            np.asarray(sum(rows / total * reduction.density for rows, reduction in known)),
            sum(reduction.held for _, reduction in known),
            sum(rows / total * reduction.occupancy for rows, reduction in known),
        )
    return found


def _added(sum_before: BlockSizes | None, block: BlockSizes, factor: float) -> BlockSizes:
    increments: Mapping[int, Replicates] = {inputs: factor * found for inputs, found in block.increments.items()}
    if sum_before is None:
        return replace(block, increments=increments, growth={}, _derived={})
    return BlockSizes(
        block.names,
        tuple(one + other for one, other in zip(sum_before.held, block.held, strict=True)),
        {inputs: found + increments[inputs] for inputs, found in sum_before.increments.items() if inputs in increments},
        {
            inputs: count + block.held_sets[inputs]
            for inputs, count in sum_before.held_sets.items()
            if inputs in block.held_sets
        },
        unreduced=block.unreduced,
        leaves=block.leaves,
    )
