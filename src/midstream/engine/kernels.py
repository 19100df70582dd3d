"""Compiled loops over arrays that more than one operator needs: sorting and taking.

All kernels are compiled once, cached on disk, and release the interpreter lock. They take int64 row numbers and
C-contiguous arrays; nothing here knows what the numbers mean.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["Flags", "Ints", "among", "compiled", "prefetch", "sort_order", "take_columns", "take_values"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def _digest_of_sources() -> str:
    """A digest of all files of this folder and those below it."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


_SOURCES = _digest_of_sources()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as machine code: no interpreter lock, no bounds checks, cached between processes.

    Numba keeps the code of a function until its own file changes. Functions of other files are compiled into it, so
    what counts here is whether any file of ``engine/`` has changed.
    """
    jitted: Any
    try:
        jitted = numba.njit(function, nogil=True, cache=True, boundscheck=False)
    except RuntimeError:
        # No folder to cache in can be written to: every process compiles for itself.
        jitted = numba.njit(function, nogil=True, boundscheck=False)
    cache = getattr(getattr(jitted, "_cache", None), "_cache_file", None)
    if cache is not None:
        cache._source_stamp = _SOURCES
    return jitted  # type: ignore[no-any-return]


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of an array's item (counted through all dimensions) before it is needed.

    Random reads of states larger than the cache cost half as much when they are announced some steps ahead.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte_pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte_pointer, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        place = builder.bitcast(builder.gep(data, [arguments[1]]), byte_pointer)
        # To read, keep in all caches, data and not code.
        builder.call(function, [place, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return numba.types.void(array, numba.types.int64), generate


prefetch: Callable[..., None] = intrinsic(_prefetch)


@compiled
def take_values(values, order, out):  # type: ignore[no-untyped-def]
    """out[i] = values[order[i]]."""
    for i in range(order.shape[0]):
        if i + 32 < order.shape[0]:
            prefetch(values, order[i + 32])
        out[i] = values[order[i]]


@compiled
def take_columns(matrix, order, out):  # type: ignore[no-untyped-def]
    """out[:, i] = matrix[:, order[i]]."""
    for j in range(matrix.shape[0]):
        take_values(matrix[j], order, out[j])


def among(keys: Ints, wanted: Ints) -> Flags:
    """Which of many keys are among a few wanted ones, which are sorted."""
    found = np.zeros(len(keys), np.bool_)
    bits = max(12, (16 * len(wanted)).bit_length())
    if len(wanted):
        _among(keys, wanted, np.zeros(1 << bits, np.bool_), np.uint64(64 - bits), found)
    return found


@compiled
def _among(keys, wanted, is_possible, shift, found):  # type: ignore[no-untyped-def]
    """Nearly all keys that are not wanted are told by a bit of their hash."""
    for key in wanted:
        is_possible[np.uint64(key) * np.uint64(0x9E3779B97F4A7C15) >> shift] = True
    for i in range(keys.shape[0]):
        if is_possible[np.uint64(keys[i]) * np.uint64(0x9E3779B97F4A7C15) >> shift]:
            place = np.searchsorted(wanted, keys[i])
            found[i] = place < wanted.shape[0] and wanted[place] == keys[i]


@compiled
def _is_sorted(keys):  # type: ignore[no-untyped-def]
    i = 1
    while i < keys.shape[0] and keys[i - 1] <= keys[i]:
        i += 1
    return i >= keys.shape[0]


@compiled
def _bounds(keys):  # type: ignore[no-untyped-def]
    low = keys[0]
    high = keys[0]
    for key in keys:
        low = min(low, key)
        high = max(high, key)
    return low, high


@compiled
def _counting_order(keys, low, size):  # type: ignore[no-untyped-def]
    """The stable order of keys that lie in [low, low + size)."""
    places = np.zeros(size + 1, np.int64)
    for key in keys:
        places[key - low + 1] += 1
    for i in range(size):
        places[i + 1] += places[i]
    order = np.empty(keys.shape[0], np.int64)
    for i in range(keys.shape[0]):
        bucket = keys[i] - low
        order[places[bucket]] = i
        places[bucket] += 1
    return order


@compiled
def _radix_order(keys, low, digits):  # type: ignore[no-untyped-def]
    """The stable order of keys of at most ``digits`` times 11 bits above low."""
    count = keys.shape[0]
    order = np.arange(count)
    spare = np.empty(count, np.int64)
    for digit in range(digits):
        shift = np.uint64(11 * digit)
        places = np.zeros(2049, np.int64)
        for i in range(count):
            places[((np.uint64(keys[i] - low) >> shift) & np.uint64(2047)) + np.uint64(1)] += 1
        for i in range(2048):
            places[i + 1] += places[i]
        for i in range(count):
            bucket = (np.uint64(keys[order[i]] - low) >> shift) & np.uint64(2047)
            spare[places[bucket]] = order[i]
            places[bucket] += 1
        order, spare = spare, order
    return order


def sort_order(keys: Ints) -> Ints | None:
    """The stable order that sorts int64 keys; None where they already are sorted.

    Counting sort where the keys span few values (validities of one batch do), radix sort otherwise.

    >>> sort_order(np.array([30, 10, 20, 10])).tolist()
    [1, 3, 2, 0]
    >>> sort_order(np.array([1, 1, 2])) is None
    True
    """
    if len(keys) < 2 or _is_sorted(keys):
        return None
    low, high = _bounds(keys)
    # In Python integers: the span of int64 keys need not fit into int64.
    span = int(high) - int(low)
    if span < 4 * len(keys) + 1024:
        result: Ints = _counting_order(keys, low, span + 1)
    elif len(keys) < 256 or span >= 1 << 63:
        result = np.argsort(keys, kind="stable")
    else:
        result = _radix_order(keys, low, -(-span.bit_length() // 11))
    return result
