"""Cost per batch follows the batch, not the window.

J4 with a ten times larger window and ten times as many keys has the same number of matches per batch. Its time per
batch, once the windows are full, should be the same. Bar: at most 1.3 times.
"""

from __future__ import annotations

import statistics
import time

from benchmarks.j4 import Size, make_batches, query
from benchmarks.measuring import REPEATS, Bar, save

ROWS = 20_000
MEASURED = 24
FACTOR = 10


def median_batch_seconds(size: Size, filling: int) -> tuple[float, float, float]:
    """Median and mean seconds, and mean results, of the batches after the first ``filling``."""
    run = query(size).run_locally()
    seconds, results = [], []
    for batch in make_batches(size):
        start = time.perf_counter()
        results.append(run.push(batch).num_rows)
        seconds.append(time.perf_counter() - start)
    return (
        statistics.median(seconds[filling:]),
        statistics.mean(seconds[filling:]),
        statistics.mean(results[filling:]),
    )


def main() -> bool:
    """Measure the plain and the larger window, in turns, five times each; the ratio is the median of the five."""
    small = Size(ROWS, 2 + 2 + MEASURED, 2 * ROWS, ROWS)
    large = Size(ROWS, 2 * FACTOR + 2 + MEASURED, 2 * ROWS * FACTOR, ROWS * FACTOR)
    median_batch_seconds(Size(ROWS, 4, 2 * ROWS, ROWS), 1)
    pairs = [(median_batch_seconds(small, 4), median_batch_seconds(large, 2 * FACTOR + 2)) for _ in range(REPEATS)]
    ratios = sorted(grown[0] / plain[0] for plain, grown in pairs)
    plain, grown = pairs[0]
    return save(
        "window_growth",
        {
            "window": f"{small.window} against {large.window} ticks",
            "results per batch": f"{plain[2]:.0f} against {grown[2]:.0f}",
            "ratio of medians": statistics.median(ratios),
            "least and greatest of 5 runs": f"{ratios[0]:.3f} to {ratios[-1]:.3f}",
            "ratio of means": statistics.median(grown[1] / plain[1] for plain, grown in pairs),
        },
        Bar("ratio of medians", 1.3),
    )


if __name__ == "__main__":
    main()
