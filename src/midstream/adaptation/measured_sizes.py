"""Sizes on their way from a cell to the driver, as a typed message.

>>> import numpy as np
>>> from midstream.planning.cost.sizes import BlockSizes, PlanSizes
>>> block = BlockSizes(("a", "b"), (10.0, 20.0), {1: np.ones(2), 2: np.ones(2), 3: np.array([4.0, 6.0])})
>>> sent = MeasuredSizes.of(PlanSizes(30, {"block": block}, {frozenset("ab"): 5}, ["b"]))
>>> received = sent.sizes()
>>> received.rows, received.counted, received.silent, received.blocks["block"].increments[3].tolist()
(30, {frozenset({'a', 'b'}): 5}, ('b',), [4.0, 6.0])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from midstream.planning.cost.sizes import BlockSizes, PlanSizes, Replicates
from midstream.planning.cost.statistics import JoinKeys
from midstream.planning.join_order.join_graph import bits

__all__ = ["MeasuredBlock", "MeasuredSizes", "sizes_over_cells"]


class MeasuredBlock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sizes of one block of joins."""

    identity: str
    names: tuple[str, ...]
    held: tuple[float, ...]
    increments: tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]
    """Each set of inputs as places among the names, and its replicates."""
    held_sets: tuple[tuple[tuple[int, ...], float], ...] = ()
    growth: tuple[tuple[tuple[int, ...], float], ...] = ()


class MeasuredSizes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sizes of a query's joins, as one cell measured them after a micro-batch."""

    rows: int
    blocks: tuple[MeasuredBlock, ...]
    counted: tuple[tuple[tuple[str, ...], int], ...]
    """The aliases below each join of the plan in force, and how many tuples it produced."""
    silent: tuple[str, ...]
    hot_keys: tuple[JoinKeys, ...] | None = None
    """None: they were not counted this time."""

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
                )
                for identity, block in sizes.blocks.items()
            ),
            counted=tuple((tuple(sorted(names)), count) for names, count in sizes.counted.items()),
            silent=tuple(sizes.silent),
            hot_keys=hot_keys,
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
            )
            for block in self.blocks
        }
        counted = {frozenset(names): count for names, count in self.counted}
        return PlanSizes(self.rows, blocks, counted, self.silent)


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
    )


def _added(sum_before: BlockSizes | None, block: BlockSizes, factor: float) -> BlockSizes:
    increments: Mapping[int, Replicates] = {inputs: factor * found for inputs, found in block.increments.items()}
    if sum_before is None:
        return BlockSizes(block.names, block.held, increments, dict(block.held_sets))
    return BlockSizes(
        block.names,
        tuple(one + other for one, other in zip(sum_before.held, block.held, strict=True)),
        {inputs: found + increments[inputs] for inputs, found in sum_before.increments.items() if inputs in increments},
        {
            inputs: count + block.held_sets[inputs]
            for inputs, count in sum_before.held_sets.items()
            if inputs in block.held_sets
        },
    )
