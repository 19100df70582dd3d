"""Aggregate functions as running totals: arguments into words, totals into values.

Integers and decimals are summed exactly in limbs, floats exactly in fixed point (see ``exact_sum``); MIN and MAX
work on order codes. A sum that its type cannot hold is NULL; its mean is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from midstream.algebra.aggregates import AggregateCall
from midstream.engine.codes import order_codes, values_of_order_codes
from midstream.engine.fixed_width import Values, fixed_width_values, wrap_values
from midstream.engine.kernels import Flags, Ints
from midstream.engine.operators.sweep import COUNT, EXTREME, FLOAT_SUM, INTEGER_SUM, WIDE_SUM, Total

__all__ = ["Accumulator", "concatenated"]


class Accumulator:
    """One aggregate: which total it needs, and the way there and back."""

    def __init__(self, call: AggregateCall) -> None:
        self.call = call
        self.total = Total(self._kind(), call.distinct)

    def _kind(self) -> int:
        argument = self.call.argument
        if self.call.function == "count" or argument is None:
            return COUNT
        if self.call.function in ("min", "max"):
            return EXTREME
        if pat.is_floating(argument.type):
            return FLOAT_SUM
        return WIDE_SUM if pat.is_decimal(argument.type) or pat.is_uint64(argument.type) else INTEGER_SUM

    def words(self, argument: pa.Array | None, count: int) -> Ints:
        """The argument's words, one row each: 1 if it is not NULL, then its value."""
        if argument is None:
            return np.ones((count, 1), np.int64)
        valid = np.asarray(argument.is_valid())
        values = self._values(argument)
        return np.concatenate([valid[:, None], np.where(valid[:, None], values, 0)], axis=1).astype(np.int64)

    def _values(self, argument: pa.Array) -> Ints:
        kind = self.total.kind
        count = len(argument)
        if kind == COUNT:
            return np.empty((count, 0), np.int64)
        if pat.is_null(argument.type):
            return np.zeros((count, 2 if kind == WIDE_SUM else 1), np.int64)
        if kind == FLOAT_SUM:
            return np.asarray(argument.cast(pa.float64()).fill_null(0.0)).view(np.int64)[:, None]
        if kind == WIDE_SUM:
            wide = argument if pat.is_decimal(argument.type) else argument.cast(pa.decimal128(38, 0))
            return fixed_width_values(wide)[0]
        if kind == INTEGER_SUM:
            return np.asarray(argument.fill_null(0)).astype(np.int64)[:, None]
        codes, _ = order_codes(argument)
        return (~codes if self.call.function == "max" else codes)[:, None]

    def values(self, words: Ints) -> pa.Array:
        """The totals' values, of the aggregate's type."""
        kind, data_type = self.total.kind, self.call.type
        counts = words[:, 0]
        some = counts > 0
        if kind == COUNT:
            return wrap_values(np.ascontiguousarray(counts), None, pa.int64())
        if kind == EXTREME:
            codes = ~words[:, 1] if self.call.function == "max" else words[:, 1]
            return values_of_order_codes(codes, some, data_type)
        if kind == FLOAT_SUM:
            sums = np.ascontiguousarray(words[:, 1]).view(np.float64)
            return self._float(sums, counts, some)
        if kind == INTEGER_SUM:
            low, high = words[:, 1], words[:, 2]
            carried = high + (low >> 32)
            fits = (carried >= -(2**31)) & (carried < 2**31)
            whole = np.where(fits, (carried << 32) | (low & 0xFFFFFFFF), 0)
            if self.call.function == "avg":
                rough = carried.astype(np.float64) * 2.0**32 + (low & 0xFFFFFFFF)
                return self._float(np.where(fits, whole, rough), counts, some)
            return wrap_values(whole, some & fits, pa.int64())
        return self._wide(words, counts, some)

    def _float(self, sums: Values, counts: Ints, some: Flags) -> pa.Array:
        result = np.asarray(sums, np.float64)
        if self.call.function == "avg":
            result = result / np.maximum(counts, 1)
        return wrap_values(np.ascontiguousarray(result), some, pa.float64())

    def _wide(self, words: Ints, counts: Ints, some: Flags) -> pa.Array:
        limbs = [words[:, i].copy() for i in range(1, 5)]
        for i in range(3):
            limbs[i + 1] += limbs[i] >> 32
            limbs[i] &= 0xFFFFFFFF
        fits = (limbs[3] >= -(2**31)) & (limbs[3] < 2**31)
        pairs = np.stack([limbs[0] | (limbs[1] << 32), limbs[2] | (limbs[3] << 32)], axis=1)
        assert self.call.argument is not None
        scale = _type_scale(self.call.argument.type)
        sums = _within_precision(np.where(fits[:, None], pairs, 0), some & fits, pa.decimal128(38, scale))
        if self.call.function == "avg":
            return self._wide_average(sums, limbs, counts, some)
        return sums

    def _wide_average(self, sums: pa.Array, limbs: Sequence[Ints], counts: Ints, some: Flags) -> pa.Array:
        """The means of decimals: also of those whose sum no decimal holds."""
        means = np.asarray(sums.cast(pa.float64()).fill_null(0.0)) / np.maximum(counts, 1)
        for position in np.flatnonzero(some & ~np.asarray(sums.is_valid())):
            total = sum(int(limb[position]) << 32 * place for place, limb in enumerate(limbs))
            # A quotient of whole numbers is rounded once.
            scale = sums.type.scale
            means[position] = total * 10 ** max(0, -scale) / (int(counts[position]) * 10 ** max(0, scale))
        return wrap_values(np.ascontiguousarray(means), some, pa.float64())


def _type_scale(data_type: pa.DataType) -> int:
    return data_type.scale if pat.is_decimal(data_type) else 0


def _within_precision(words: Ints, valid: Flags, data_type: pa.DataType) -> pa.Array:
    """Decimals from their words; NULL instead of those that 128 bits can hold but 38 digits cannot."""
    high = words[:, 1]
    limit = 10**38 >> 64
    valid = valid.copy()
    for position in np.flatnonzero(valid & ((high >= limit) | (high < -limit))):
        number = (int(high[position]) << 64) + (int(words[position, 0]) & (2**64 - 1))
        valid[position] = abs(number) < 10**38
    return wrap_values(words, valid, data_type)


def concatenated(parts: Sequence[Ints], count: int) -> Ints:
    """Words side by side."""
    return np.concatenate(parts, axis=1) if parts else np.empty((count, 0), np.int64)
