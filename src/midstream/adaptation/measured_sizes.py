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

import msgspec
import numpy as np

from midstream.planning.cost.sizes import BlockSizes, PlanSizes
from midstream.planning.join_order.join_graph import bits

__all__ = ["MeasuredBlock", "MeasuredSizes"]


class MeasuredBlock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sizes of one block of joins."""

    identity: str
    names: tuple[str, ...]
    held: tuple[float, ...]
    increments: tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]
    """Each set of inputs as places among the names, and its replicates."""
    held_sets: tuple[tuple[tuple[int, ...], float], ...] = ()


class MeasuredSizes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sizes of a query's joins, as one cell measured them after a micro-batch."""

    rows: int
    blocks: tuple[MeasuredBlock, ...]
    counted: tuple[tuple[tuple[str, ...], int], ...]
    """The aliases below each join of the plan in force, and how many tuples it produced."""
    silent: tuple[str, ...]

    @classmethod
    def of(cls, sizes: PlanSizes) -> MeasuredSizes:
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
                )
                for identity, block in sizes.blocks.items()
            ),
            counted=tuple((tuple(sorted(names)), count) for names, count in sizes.counted.items()),
            silent=tuple(sizes.silent),
        )

    def sizes(self) -> PlanSizes:
        """The sizes as they were measured."""
        blocks = {
            block.identity: BlockSizes(
                block.names,
                block.held,
                {sum(1 << place for place in inputs): np.array(found) for inputs, found in block.increments},
                {sum(1 << place for place in inputs): count for inputs, count in block.held_sets},
            )
            for block in self.blocks
        }
        counted = {frozenset(names): count for names, count in self.counted}
        return PlanSizes(self.rows, blocks, counted, self.silent)
