"""Who is compared with whom, by which ratios and bars: engines that drop their results, and those that keep them.

With *durable* sinks every side has each result exactly once whatever fails: midstream a Delta table that its cells
write, Spark's own joins Spark's parquet sink, Flink its file sink, which shows what a checkpoint has completed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.measuring import Bar
from benchmarks.peers.competitors import COMPETITORS, DURABLE, Competitor
from benchmarks.peers.outcome import Outcome
from benchmarks.readme import Place


@dataclass(frozen=True)
class Contest:
    """``name`` is that of the file of results, ``place`` is where the README has its table.

    ``ours`` are competitors of our own, and how their figures begin; bars are about the first: a query runs so by
    default. ``others`` are those that the first are compared with, by what they are called in figures.
    """

    name: str
    place: Place
    competitors: tuple[Competitor, ...]
    ours: Mapping[str, str]
    others: Mapping[str, str]
    bars: tuple[Bar, ...]

    def figures(self, measured: Mapping[str, list[Outcome]]) -> dict[str, float]:
        """The ratios that bars are about, by size; 0 where there is nothing to compare with."""
        by_name = {size: {outcome.name: outcome for outcome in outcomes} for size, outcomes in measured.items()}

        def ratio(size: str, one: str, other: str, figure: str) -> float:
            numbers = [getattr(by_name[size][name], figure) or 0.0 for name in (one, other)]
            return round(numbers[0] / numbers[1], 3) if numbers[1] else 0.0

        seen: dict[str, float] = {}
        for size in measured:
            for our, begins in self.ours.items():
                for title, other in self.others.items():
                    seen[f"{begins}{size}: steady rows/s, times {title}"] = ratio(size, our, other, "steady")
                    seen[f"{begins}{size}: rows/s of the whole run, times {title}"] = ratio(size, our, other, "rate")
                    seconds = ratio(size, other, our, "process_seconds")
                    seen[f"{begins}{size}: {title}'s process seconds to midstream's"] = seconds
                seen[f"{begins}{size}: peak MiB"] = round(by_name[size][our].peak_mebibytes or 0.0)
        seen["sizes on which midstream's results are exact"] = sum(
            all(by_name[size][our].is_exact() for our in self.ours) for size in measured
        )
        return seen


_EXACT = Bar("sizes on which midstream's results are exact", 2, at_least=True)
DROPPED = Contest(
    "peers",
    Place("peers", "python -m benchmarks.peers"),
    COMPETITORS,
    {"midstream": "", "midstream-cells": "with two cells, "},
    {
        "native Spark (chain)": "native-chain",
        "native Spark (tree)": "native-tree",
        "Flink": "flink",
        "Pathway": "pathway",
    },
    (
        Bar("small: steady rows/s, times native Spark (chain)", 15, at_least=True),
        Bar("small: steady rows/s, times native Spark (tree)", 15, at_least=True),
        Bar("small: steady rows/s, times Flink", 2, at_least=True),
        Bar("large: Flink's process seconds to midstream's", 1, at_least=True),
        _EXACT,
    ),
)
KEPT = Contest(
    "peers_durable",
    Place("peers with durable sinks", "python -m benchmarks.peers --durable"),
    DURABLE,
    {"midstream-delta": "", "midstream-cells-delta": "with two cells, "},
    {
        "native Spark (chain)": "native-chain-parquet",
        "native Spark (tree)": "native-tree-parquet",
        "Flink": "flink-csv",
    },
    (
        Bar("small: steady rows/s, times native Spark (chain)", 15, at_least=True),
        Bar("small: steady rows/s, times native Spark (tree)", 9, at_least=True),
        Bar("small: steady rows/s, times Flink", 5, at_least=True),
        Bar("large: steady rows/s, times native Spark (chain)", 25, at_least=True),
        Bar("large: steady rows/s, times native Spark (tree)", 12, at_least=True),
        Bar("large: steady rows/s, times Flink", 5, at_least=True),
        # A process pays for starting Spark, too; it is to be ahead by the same factors nevertheless.
        Bar("large: native Spark (chain)'s process seconds to midstream's", 25, at_least=True),
        Bar("large: native Spark (tree)'s process seconds to midstream's", 12, at_least=True),
        Bar("large: Flink's process seconds to midstream's", 5, at_least=True),
        # What one cell took when results were dropped (results/peers.json, commit 3215ff0).
        Bar("small: peak MiB", 1844),
        Bar("large: peak MiB", 3209),
        _EXACT,
    ),
)
