"""Sizes on their way from a cell to the driver, as a typed message.

>>> import numpy as np
>>> from midstream.planning.cost.sizes import BlockSizes, PlanSizes
>>> block = BlockSizes(("a", "b"), (10.0, 20.0), {1: np.ones(2), 2: np.ones(2), 3: np.array([4.0, 6.0])}, {3: 5})
>>> received = MeasuredSizes.of(PlanSizes(30, {"block": block}, ["b"], are_of_windows=True)).sizes()
>>> received.rows, received.silent, received.are_of_windows
(30, ('b',), True)
>>> received.blocks["block"].increments[3].tolist(), received.blocks["block"].counted
([4.0, 6.0], {3: 5})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec
import numpy as np

from midstream.planning.cost.sizes import BlockSizes, PlanSizes, Reduction, Replicates
from midstream.planning.cost.statistics import JoinKeys
from midstream.planning.join_order.join_graph import bits

__all__ = ["MeasuredBlock", "MeasuredReduction", "MeasuredSizes", "sizes_over_cells"]

Number = TypeVar("Number", int, float, Replicates)
Value = TypeVar("Value")


class MeasuredBlock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sizes of one block of joins."""

    identity: str
    names: tuple[str, ...]
    held: tuple[float, ...]
    increments: tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]
    """Each set of inputs as places among the names, and its replicates."""
    counted: tuple[tuple[tuple[int, ...], int], ...] = ()
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
    silent: tuple[str, ...]
    hot_keys: tuple[JoinKeys, ...] | None = None
    """None: they were not counted this time."""
    reductions: tuple[MeasuredReduction, ...] = ()
    are_of_windows: bool = False

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
                    counted=_by_places(block.counted),
                    held_sets=_by_places(block.held_sets),
                    growth=_by_places(block.growth),
                    unreduced=block.unreduced,
                    leaves=block.leaves,
                )
                for identity, block in sizes.blocks.items()
            ),
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
            are_of_windows=sizes.are_of_windows,
        )

    def sizes(self) -> PlanSizes:
        """The sizes as they were measured."""
        blocks = {
            block.identity: BlockSizes(
                block.names,
                block.held,
                {inputs: np.array(found) for inputs, found in _by_mask(block.increments).items()},
                _by_mask(block.counted),
                _by_mask(block.held_sets),
                _by_mask(block.growth),
                block.unreduced,
                block.leaves,
            )
            for block in self.blocks
        }
        reductions = {
            one.input: Reduction(np.array(one.passing), np.array(one.density), one.held, one.occupancy)
            for one in self.reductions
        }
        return PlanSizes(self.rows, blocks, self.silent, reductions, self.are_of_windows)


def sizes_over_cells(cells: Sequence[PlanSizes]) -> PlanSizes:
    """The sizes of a whole query: the sums over its cells of rows, increments and held tuples.

    Cells measure at different times, over spans of their own. So that a cell with a long span does not count for more,
    what arrived and was produced is first scaled to the same share of the rows in the windows in all cells. A row that
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
    for sizes, factor in zip(cells, factors, strict=True):
        for identity, block in sizes.blocks.items():
            blocks[identity] = _added(blocks.get(identity), _scaled(block, factor))
    return PlanSizes(
        sum(sizes.rows for sizes in cells),
        blocks,
        sorted(set.intersection(*(set(sizes.silent) for sizes in cells))),
        _mean_reductions(cells),
        any(sizes.are_of_windows for sizes in cells),
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


def _scaled(block: BlockSizes, factor: float) -> BlockSizes:
    """What the block would have produced in a span so many times as long."""
    return replace(
        block,
        increments={inputs: factor * found for inputs, found in block.increments.items()},
        counted={inputs: round(factor * count) for inputs, count in block.counted.items()},
        growth={},
        _derived={},
    )


def _added(sum_before: BlockSizes | None, block: BlockSizes) -> BlockSizes:
    """The sums, of the sets of inputs that are known of both."""
    if sum_before is None:
        return block
    return replace(
        block,
        held=tuple(one + other for one, other in zip(sum_before.held, block.held, strict=True)),
        increments=_sums(sum_before.increments, block.increments),
        counted=_sums(sum_before.counted, block.counted),
        held_sets=_sums(sum_before.held_sets, block.held_sets),
        _derived={},
    )


def _sums(some: Mapping[int, Number], others: Mapping[int, Number]) -> dict[int, Number]:
    return {inputs: found + others[inputs] for inputs, found in some.items() if inputs in others}


def _by_places(by_mask: Mapping[int, Number]) -> tuple[tuple[tuple[int, ...], Number], ...]:
    """Sets of inputs as places: a bit mask of a hundred inputs is too large a number for a message."""
    return tuple((tuple(bits(inputs)), value) for inputs, value in by_mask.items())


def _by_mask(by_places: Iterable[tuple[tuple[int, ...], Value]]) -> dict[int, Value]:
    return {sum(1 << place for place in inputs): value for inputs, value in by_places}
