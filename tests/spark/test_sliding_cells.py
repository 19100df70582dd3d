"""Cells whose operators are final up to different instants, rebuilt from their state backend around every migration.

The same queries run on Spark in ``test_migrating_aggregates.py``; here one cell runs without Spark, many times.
"""

import functools
import random
from itertools import islice

import pyarrow as pa
import pytest

from midstream.migration.state_matching import Completion
from midstream.runtime.cell_setup import CellSetup
from midstream.runtime.messages import Finish
from midstream.testing import assert_snapshot_equivalent, snapshots
from tests.examples import EXAMPLES
from tests.runtime.test_durable_cell import migrate, read_once
from tests.spark.simulated import LoneCell, command
from tests.spark.sliding import AHEAD, BETWEEN, QUERIES, STREAMS, micro_batches
from tests.strategies import ANY_OPERATOR

WAYS = list(ANY_OPERATOR.values())

SEEDS = max(2, EXAMPLES // 75)
BATCHES = 10


@pytest.fixture(autouse=True)
def _read_plans_once(monkeypatch):
    """Reading the same plans again and again would take longer than everything else."""
    monkeypatch.setattr(CellSetup, "plan", lambda setup, text: read_once(text, setup.derived_from))


@functools.cache
def plans_of(name):
    return list(islice(LoneCell(QUERIES[name], STREAMS).query.plans(), 12))


def played(name, plan, seed, commands):
    """The outcome of each command, by number, of a cell that is rebuilt after every micro-batch."""
    batches = micro_batches(BATCHES, seed)
    cell = LoneCell(QUERIES[name], STREAMS, plan)
    results, outcomes = [], {}
    for number, batch in enumerate(batches):
        results.append(cell.run(batch, commands.get(number, [])))
        assert cell.durable.time.watermark == BETWEEN[number]
        cell.rebuild(list(Completion)[seed % 2])
        outcomes |= {outcome.number: outcome.state for outcome in cell.durable.figures().commands}
    results.append(cell.run({}, [command(99, Finish())]))
    whole = {stream.name: pa.concat_tables([batch[stream.name] for batch in batches]) for stream in STREAMS}
    assert_snapshot_equivalent(pa.concat_tables(results), snapshots(QUERIES[name], STREAMS, whole))
    return outcomes


@pytest.mark.parametrize("strategy, options", WAYS)
@pytest.mark.parametrize("name", QUERIES)
def test_a_cell_rebuilt_around_a_migration_between_slides_equals_the_oracle(name, strategy, options):
    """There by one strategy, and back by any other while the first migration may be under way."""
    for seed in range(SEEDS):
        choose = random.Random(seed)
        here, there = choose.sample(plans_of(name), 2)
        moment, pause = choose.randrange(1, 4), choose.randrange(1, 4)
        back, back_options = choose.choice(WAYS)
        commands = {
            moment: [migrate(1, there, strategy, options)],
            moment + pause: [migrate(2, here, back, back_options)],
        }
        outcomes = played(name, here, seed, commands)
        if name != AHEAD:
            assert outcomes.keys() == {1, 2} and set(outcomes.values()) <= {"running", "completed"}
            continue
        # The aggregate of the plan without a partial one is ahead of the rows that it is united with.
        is_ahead = here == plans_of(name)[0]
        assert (outcomes[1] == "refused") == (is_ahead and strategy != "gen-mig")
        assert outcomes[2] != "refused" or back != "gen-mig"


@pytest.mark.parametrize("name", QUERIES)
def test_a_cell_rebuilt_between_any_migrations_equals_the_oracle(name):
    plans = plans_of(name)
    for seed in range(2 * SEEDS):
        choose = random.Random(seed)
        commands = {
            number: [migrate(number, choose.choice(plans), *choose.choice(WAYS))]
            for number in range(BATCHES)
            if choose.random() < 0.5
        }
        outcomes = played(name, choose.choice(plans), seed, commands)
        assert outcomes.keys() == commands.keys()
        assert name == AHEAD or "refused" not in outcomes.values()
