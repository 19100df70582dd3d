"""When joins are measured: as often as the budget allows, and at once when pushes become expensive."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from midstream import ContinuousQuery, Stream
from midstream.adaptation.measuring import Measuring
from midstream.adaptation.policy import Adaptation
from midstream.planning.cost.coefficients import CostCoefficients

ROWS, WINDOW = 1_000, 10
FEW, MANY = 50, 20_000
QUERY = ContinuousQuery(
    f"SELECT a.t AS t FROM a [RANGE {ROWS * WINDOW}], b [RANGE {ROWS * WINDOW}], c [RANGE {ROWS * WINDOW}]"
    " WHERE a.x = b.x AND b.y = c.y",
    [
        Stream(name, pa.schema([(column, pa.int64()) for column in ("t", *columns)]), "t")
        for name, columns in {"a": "x", "b": "xy", "c": "y"}.items()
    ],
)


def pushed(pushes: int, keys: Callable[[int], int], policy: Adaptation) -> Iterator[tuple[int, bool, Measuring]]:
    """Pushes in which x has so many values: the number of each, and whether joins were measured after it."""
    run = QUERY.run_locally("(a b) c")
    measuring = Measuring(policy, CostCoefficients(), run._cell.executor)
    generator = np.random.default_rng(3)
    for push in range(pushes):
        times = np.arange(push * ROWS, (push + 1) * ROWS)
        values = {"x": keys(push), "y": MANY}
        tables = {
            s.name: pa.table({"t": times} | {c: generator.integers(0, values[c], ROWS) for c in s.schema.names[1:]})
            for s in QUERY.streams
        }
        run.push(tables)
        yield push, measuring.after_push(run._cell.executor, 3 * ROWS) is not None, measuring


def measured_after_a_step(pushes: int) -> list[int]:
    """The pushes after which joins were measured, of so many with an expensive join, without a budget."""
    found = []
    for push, is_measured, measuring in pushed(
        30 + pushes, lambda push: MANY if push < 30 else FEW, Adaptation(measure_share=0)
    ):
        if push == 29:
            measuring._budget = 0.0
        elif push >= 30 and is_measured:
            found.append(push)
    return found


def test_a_join_that_becomes_expensive_is_measured_at_once():
    after = measured_after_a_step(10)
    assert after and after[0] <= 32


def test_measurements_that_change_nothing_become_rare():
    """The join stays expensive, and its plan is never changed: further measurements wait for more and more excess."""
    after = measured_after_a_step(150)
    gaps = np.diff(after)
    assert 3 <= len(after) <= 10
    assert all(gaps[1:] >= gaps[:-1]) and gaps[-1] >= WINDOW


def test_measurements_take_their_share():
    measurements, seconds, total = 0, 0.0, 0.0
    for push, is_measured, measuring in pushed(150, lambda _: MANY, Adaptation(measure_share=0.1)):
        if push >= 2 * WINDOW:
            measurements += is_measured
            seconds += is_measured * measuring.seconds
            total += measuring.push_seconds(measuring.statistics.latest_push())
    assert measurements >= 1
    # One may have been due already.
    assert seconds - measuring.seconds <= 0.1 * total


def test_streams_that_change_all_the_time_are_measured_twice_per_window_at_most():
    """Every second push is so expensive that a measurement seems worthwhile."""
    found = [
        push
        for push, is_measured, _ in pushed(100, lambda p: 400 if p % 2 else MANY, Adaptation(measure_share=1.0))
        if is_measured and push >= 2 * WINDOW
    ]
    assert found and min(np.diff(found)) >= WINDOW // 2


def test_a_plan_that_is_changed_frequently_makes_streams_volatile_for_a_while():
    run = QUERY.run_locally("(a b) c")
    measuring = Measuring(Adaptation(measure_share=1.0), CostCoefficients(), run._cell.executor)
    generator, found = np.random.default_rng(3), {}
    for push in range(6 * WINDOW):
        if push in (20, 24, 28):
            run.migrate("(a b) c" if push == 24 else "a (b c)", strategy="moving-state")
        times = np.arange(push * ROWS, (push + 1) * ROWS)
        run.push(
            {
                s.name: pa.table({"t": times} | {c: generator.integers(0, MANY, ROWS) for c in s.schema.names[1:]})
                for s in QUERY.streams
            }
        )
        sizes = measuring.after_push(run._cell.executor, 3 * ROWS)
        found[push] = measuring.is_volatile
        assert sizes is None or sizes.are_of_windows == measuring.is_volatile
        # The streams themselves are steady: only the number of changes counts.
        measuring._rows_of_change = 0
    assert not any(found[push] for push in range(28)) and found[29]
    # A window and a half after the first of the three changes only two are left.
    assert not any(is_volatile for push, is_volatile in found.items() if push >= 20 + 2 * WINDOW)


def test_volatile_streams_are_measured_over_a_whole_window():
    """With every push another number of pairs: the latest one says nothing about the next."""
    spans = []
    for push, is_measured, measuring in pushed(60, lambda p: FEW if p % 2 else MANY, Adaptation(measure_share=1.0)):
        if push >= 2 * WINDOW:
            assert measuring.is_volatile
            if is_measured:
                assert measuring.sizes is not None
                spans.append(measuring.sizes.rows)
    # Every input has a window of as many rows; tuples that have ended may still be counted among those held.
    assert spans and min(spans) >= 3 * ROWS * WINDOW


def test_one_sudden_change_is_measured_by_itself():
    spans = []
    for push, is_measured, measuring in pushed(60, lambda p: MANY if p < 40 else FEW, Adaptation(measure_share=1.0)):
        assert not measuring.is_volatile
        if push >= 40 and is_measured:
            assert measuring.sizes is not None
            spans.append(measuring.sizes.rows)
    assert spans[0] == 3 * ROWS


def test_streams_that_no_longer_change_are_not_volatile():
    changing, found = 40, {}
    for push, _, measuring in pushed(
        70, lambda p: FEW if p % 2 and p < changing else MANY, Adaptation(measure_share=1.0)
    ):
        found[push] = measuring.is_volatile
    assert found[changing - 1] and found[changing + 2]
    assert not any(is_volatile for push, is_volatile in found.items() if push >= changing + 2 * WINDOW)


def test_a_change_of_plan_does_not_shorten_what_can_be_measured():
    """The rows from before it are still in their windows."""
    run = QUERY.run_locally("(a b) c")
    measuring = Measuring(Adaptation(measure_share=1.0), CostCoefficients(), run._cell.executor)
    generator = np.random.default_rng(3)
    for push in range(2 * WINDOW + 3):
        if push == 2 * WINDOW:
            run.migrate("a (b c)", strategy="moving-state")
        times = np.arange(push * ROWS, (push + 1) * ROWS)
        run.push(
            {
                s.name: pa.table({"t": times} | {c: generator.integers(0, MANY, ROWS) for c in s.schema.names[1:]})
                for s in QUERY.streams
            }
        )
        measuring.after_push(run._cell.executor, 3 * ROWS)
    whole = measuring.statistics.measure(256, generator, 3 * ROWS * WINDOW)
    assert whole.rows == 3 * ROWS * WINDOW
    (block,) = whole.blocks.values()
    assert block.counted == {}
    # Since the change, what the plan in force produced is counted.
    latest = measuring.statistics.measure(256, generator, 3 * ROWS)
    (block,) = latest.blocks.values()
    assert set(block.counted) == {0b110, 0b111}


def test_many_pushes_in_a_window_can_be_measured_together():
    """Marks reach back for a window, however small pushes are."""
    run = QUERY.run_locally("(a b) c")
    measuring = Measuring(Adaptation(measure_share=1.0), CostCoefficients(), run._cell.executor)
    generator = np.random.default_rng(3)
    small, pushes = 50, 300
    for push in range(pushes):
        times = np.arange(push * small, (push + 1) * small)
        run.push(
            {
                s.name: pa.table({"t": times} | {c: generator.integers(0, MANY, small) for c in s.schema.names[1:]})
                for s in QUERY.streams
            }
        )
        measuring.after_push(run._cell.executor, 3 * small)
    wanted = 3 * ROWS * WINDOW
    found = measuring.statistics.measure(256, generator, wanted).rows
    assert wanted <= found <= 1.5 * wanted
    assert measuring.statistics.measure(256, generator, 1_000).rows <= 1_200


def test_pushes_without_rows_are_not_measured():
    run = QUERY.run_locally("(a b) c")
    measuring = Measuring(Adaptation(least_rows=1), CostCoefficients(), run._cell.executor)
    for _ in range(3):
        run.push({})
        assert measuring.after_push(run._cell.executor, 0) is None
