"""Positive-negative streams: a tuple is announced by + when it becomes valid and by − when it ends to be.

Krämer et al. 2006, section 2.3. (e, [s, t)) is (e, s, +) and (e, t, −); a validity that never ends has no −. Converters
in both directions; the way back needs to know which + and − belong together: the tuples' keys (see ``tuple_keys``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from midstream.algebra.types import is_comparable
from midstream.algebra.window_spec import NEVER
from midstream.engine.batch import Batch
from midstream.engine.codes import combine_codes
from midstream.engine.kernels import Flags, Ints
from midstream.engine.state.key_table import KeyTable

__all__ = ["Signed", "from_signed", "pairs", "to_signed", "tuple_keys"]


@dataclass(frozen=True)
class Signed:
    """Elements of a positive-negative stream: for each the tuple (a place in a batch), its time and its sign."""

    tuples: Ints
    times: Ints
    is_positive: Flags

    def taken(self, keep: Flags) -> Signed:
        """The elements for which the flag is set."""
        return Signed(self.tuples[keep], self.times[keep], self.is_positive[keep])


def to_signed(batch: Batch) -> Signed:
    """The tuples of a batch as signed elements, in order of time; at the same time − comes before +."""
    places = np.arange(len(batch))
    ends = batch.valid_to < NEVER
    tuples = np.concatenate([places, places[ends]])
    times = np.concatenate([batch.valid_from, batch.valid_to[ends]])
    is_positive = np.arange(len(tuples)) < len(batch)
    order = np.lexsort([is_positive, times])
    return Signed(tuples[order], times[order], is_positive[order])


def from_signed(signed: Signed, keys: Ints) -> tuple[Ints, Ints, Ints, Signed]:
    """Pairs of + and −: the tuple of the +, its begin, its end; and the elements that are left over.

    First + and − of one and the same tuple, then of tuples with equal keys (given for each element).
    """
    tuples, begins, ends, signed, keys = _paired(signed, signed.tuples, keys)
    others = _paired(signed, keys, keys)
    return (
        np.concatenate([tuples, others[0]]),
        np.concatenate([begins, others[1]]),
        np.concatenate([ends, others[2]]),
        others[3],
    )


def _paired(signed: Signed, by: Ints, keys: Ints) -> tuple[Ints, Ints, Ints, Signed, Ints]:
    plus, minus = np.flatnonzero(signed.is_positive), np.flatnonzero(~signed.is_positive)
    at, to = pairs(by[plus], by[minus])
    started, ended = plus[at], minus[to]
    left = np.ones(len(keys), np.bool_)
    left[started] = left[ended] = False
    return signed.tuples[started], signed.times[started], signed.times[ended], signed.taken(left), keys[left]


def pairs(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Places of equal keys on both sides, each used once: the first of a key left with its first right."""
    left_order, right_order = np.argsort(left, kind="stable"), np.argsort(right, kind="stable")
    left_keys, right_keys = left[left_order], right[right_order]
    # How many of its key came before each.
    left_rank = np.arange(len(left)) - np.searchsorted(left_keys, left_keys)
    right_first = np.searchsorted(right_keys, left_keys)
    partner = right_first + left_rank
    found = (partner < len(right)) & (partner < np.searchsorted(right_keys, left_keys, "right"))
    return left_order[found], right_order[partner[found]]


def tuple_keys(batches: Sequence[Batch]) -> list[Ints]:
    """Keys for the tuples of several batches: equal if the tuples are the same.

    Tuples are the same if they were made of the same rows. Where that is not known, because operators have made rows of
    their own, they are the same if their values are; values that cannot be compared are taken for different.
    """
    some = [batch for batch in batches if len(batch)]
    starts = np.cumsum([len(batch) for batch in batches])[:-1]
    if not some:
        keys = np.empty(0, np.int64)
    elif all(batch.layout.has_origin for batch in some):
        keys = _origin_keys(np.concatenate([batch.origins() for batch in some], axis=1))
    elif all(is_comparable(field.type) for field in some[0].layout.fields):
        table = KeyTable([field.type for field in some[0].layout.fields])
        keys = np.concatenate([table.hold(batch.columns(), len(batch)) for batch in some])
    else:
        keys = np.arange(sum(len(batch) for batch in some))
    return np.split(keys, starts)


def _origin_keys(origins: Ints) -> Ints:
    """Hashes of the row numbers, if they are different for different rows; otherwise ranks."""
    hashes = combine_codes(list(np.ascontiguousarray(origins)))
    order = np.argsort(hashes, kind="stable")
    same_hash = hashes[order][1:] == hashes[order][:-1]
    differ = np.logical_or.reduce(origins[:, order][:, 1:] != origins[:, order][:, :-1], axis=0)
    if not (same_hash & differ).any():
        return hashes
    order = np.lexsort(origins)
    ordered = origins[:, order]
    starts = np.concatenate([[True], np.logical_or.reduce(ordered[:, 1:] != ordered[:, :-1], axis=0)])
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(starts)
    return ranks
