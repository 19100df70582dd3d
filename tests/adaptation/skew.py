"""How far the sizes of join subsets are off where keys are skewed: the q-error of a chain of four inputs.

Keys follow Zipf's law. Either the frequent ones are the same on both sides of a join ("shared"), or each column has its
own ("apart"), so that a key that is hot on one side is rare on the other and may not be drawn. A fifth input finds no
partner and stands first in the plan in force, so that nothing else is computed: the true sizes follow from how often
each key occurs.

    python -m tests.adaptation.skew 40        for Zipf 0, 1 and 1.5, with so many seeds
"""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np
import pyarrow as pa

from midstream import ContinuousQuery, Stream
from midstream.adaptation.statistics import QueryStatistics
from midstream.planning.cost.explain_cost import q_error

COLUMNS = {"a": "wx", "b": "xy", "c": "yz", "d": "z", "e": "w"}
STREAMS = [Stream(n, pa.schema({"ts": pa.int64(), **{c: pa.int64() for c in cs}}), "ts") for n, cs in COLUMNS.items()]
TEXT = (
    f"SELECT a.ts AS t FROM {', '.join(f'{name} [RANGE 1000000]' for name in COLUMNS)} "
    "WHERE e.w = a.w AND a.x = b.x AND b.y = c.y AND c.z = d.z"
)
PUSHES = 8
Keys = dict[str, dict[str, np.ndarray]]


def q_errors(zipf: float, are_apart: bool, keys: int, seed: int, rows: int = 2_000, sample: int = 256):
    """By set of inputs: the q-error of its increment in the latest push, and its true size."""
    run, statistics = ContinuousQuery(TEXT, STREAMS).run_locally("e a b c d"), QueryStatistics()
    statistics.follow(run._cell.executor)
    generator = np.random.default_rng(seed)
    shares = 1 / np.arange(1, keys + 1) ** zipf
    shares /= shares.sum()
    pushed: list[Keys] = []
    for push in range(PUSHES):
        pushed.append(
            {
                name: {
                    column: _named(name if are_apart else "", column, keys, seed)[
                        generator.choice(keys, rows, p=shares)
                    ]
                    for column in columns
                    if column != "w"
                }
                for name, columns in COLUMNS.items()
            }
        )
        tables = {name: pa.table({"ts": np.full(rows, push), **found}) for name, found in pushed[-1].items()}
        for name, column in (("a", 0), ("e", 1)):
            tables[name] = tables[name].append_column("w", pa.array(np.full(rows, column)))
        run.push(tables)
        statistics.follow(run._cell.executor)
    (block,) = statistics.measure(sample, np.random.default_rng([seed, 1]), least_span=1).blocks.values()
    before, now = _sizes(pushed[:-1], keys), _sizes(pushed, keys)
    found = {}
    for names, size in now.items():
        places = [block.names.index(name) for name in names]
        # No row has ended, as the estimates allow for.
        alive = np.prod([1 - float(block.increments[1 << place].mean()) / block.held[place] / 2 for place in places])
        estimate = float(block.increments[sum(1 << place for place in places)].mean())
        true = size - before[names]
        found[names] = (q_error(estimate * alive ** (1 - 1 / len(names)), true), true)
    return found


def _named(name: str, column: str, keys: int, seed: int) -> np.ndarray:
    """Which keys are the frequent ones."""
    return np.random.default_rng([seed, *map(ord, name + column)]).permutation(keys)


def _sizes(pushed: list[Keys], keys: int) -> dict[str, float]:
    """The sizes of all joins of neighbours in the chain."""

    def column(name: str, column: str) -> np.ndarray:
        return np.concatenate([push[name][column] for push in pushed])

    def counts(name: str, key: str) -> np.ndarray:
        return np.bincount(column(name, key), minlength=keys).astype(float)

    with_a = np.bincount(column("b", "y"), counts("a", "x")[column("b", "x")], minlength=keys)
    with_d = np.bincount(column("c", "y"), counts("d", "z")[column("c", "z")], minlength=keys)
    return {
        "ab": counts("a", "x") @ counts("b", "x"),
        "bc": counts("b", "y") @ counts("c", "y"),
        "cd": counts("c", "z") @ counts("d", "z"),
        "abc": with_a @ counts("c", "y"),
        "bcd": counts("b", "y") @ with_d,
        "abcd": with_a @ with_d,
    }


def main(seeds: int) -> None:
    print("| Zipf | hot keys | keys | inputs | median | 90 % below | largest |")
    print("|---|---|---|---|---|---|---|")
    for zipf in (0.0, 1.0, 1.5):
        for are_apart in (False, True):
            for keys in (1_000, 10_000):
                errors = defaultdict(list)
                for seed in range(seeds):
                    for names, (error, _) in q_errors(zipf, are_apart, keys, seed).items():
                        errors[len(names)].append(error)
                for inputs, found in errors.items():
                    figures = " | ".join(f"{np.quantile(found, share):.2f}" for share in (0.5, 0.9, 1.0))
                    print(f"| {zipf} | {'apart' if are_apart else 'shared'} | {keys:,} | {inputs} | {figures} |")


if __name__ == "__main__":
    main(int(sys.argv[1]))
