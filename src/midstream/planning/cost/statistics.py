"""What is known of a running query's streams and joins: what ``run.statistics()`` and ``live.statistics()`` give.

``query.plans(statistics=...)`` and ``query.explain(statistics=...)`` use the sizes of joins. The streams and the hot
keys are for people: a rate that has doubled, or one key that makes most of a join's pairs, explains a plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from midstream.planning.cost.sizes import PlanSizes

__all__ = ["HotKey", "JoinKeys", "Statistics", "StreamStatistics"]


class StreamStatistics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stream in one of its windows, over the latest pushes or micro-batches (64 at most)."""

    alias: str
    """What the query calls the window."""
    stream: str
    rows: int
    """Rows of the stream that arrived, late ones included."""
    rate: float | None = None
    """Rows in time per unit of event time: per second for timestamps, per tick for integers. None until event time has
    moved on."""
    late_share: float = 0.0
    """The share of the rows that were late, and dropped."""
    selectivity: float | None = None
    """The share of the rows in time that enter the first join: the others do not satisfy the conditions on this stream
    alone. None before a row has come in time, and for a query that keeps no rows."""


class HotKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frequent key of a join: how many tuples on each side have it, and which share of all pairs they make."""

    value: str
    """As text, the first 200 characters; of a key of several columns, separated by commas."""
    left: int
    right: int
    pairs: float


class JoinKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most frequent keys of a join in force, counted over all tuples that it holds."""

    inputs: tuple[tuple[str, ...], tuple[str, ...]]
    """The aliases below its left and its right input."""
    key: tuple[tuple[str, ...], tuple[str, ...]]
    """The key on the left and on the right side, an expression for each of its parts."""
    tuples: tuple[int, int]
    """How many tuples each side holds; those whose key is NULL are not counted."""
    pairs: int
    """How many pairs of them have equal keys: for each key, the tuples on the left times those on the right."""
    left: tuple[HotKey, ...]
    """The most frequent on the left side, the most frequent first; ``right`` likewise."""
    right: tuple[HotKey, ...]


@dataclass(frozen=True)
class Statistics:
    """The sizes of a query's joins, its streams, and the hot keys of the joins in force."""

    sizes: PlanSizes | None = None
    """As they were measured last; None before the first measurement, and for a query that does not adapt."""
    streams: tuple[StreamStatistics, ...] = ()
    """Of each window, in the order of the plan."""
    hot_keys: tuple[JoinKeys, ...] = ()
    """Of each join in force that finds partners by equal keys, inputs first; none during a migration."""
