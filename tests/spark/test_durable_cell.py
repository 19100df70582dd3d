"""Durable cells: whatever a cluster does to them, the results of the committed micro-batches are the query's."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from midstream import ContinuousQuery, Stream
from midstream.algebra.windows import NEVER
from midstream.testing import (
    JOIN_OPERATORS,
    WINDOWS,
    Scenario,
    assert_same_bag,
    assert_snapshot_equivalent,
    scenarios,
)
from tests.spark.simulated import FAULTS, DictShelf, Fault, SimulatedCluster, cell_setup

EXAMPLES = int(os.environ.get("MIDSTREAM_EXAMPLES", "150"))


def examples(count: int) -> settings:
    return settings(
        max_examples=count,
        derandomize="MIDSTREAM_SOAK" not in os.environ,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )


STRATEGIES = [
    ("moving-state", {}),
    ("jisc", {}),
    ("jisc", {"as_published": True}),
    ("parallel-track", {}),
    ("parallel-track", {"as_published": True}),
    ("gen-mig", {}),
    ("gen-mig", {"shortened": True}),
    ("gen-mig", {"variant": "reference-point"}),
    ("gen-mig", {"variant": "reference-point", "shortened": True}),
    ("gen-mig", {"variant": "positive-negative"}),
    ("pause-drain-resume", {}),
]
MOST_PLANS = 8


@dataclass(frozen=True)
class Script:
    """What happens around the rows, by the number of the micro-batch; plans by their place among the query's."""

    cells: int = 1
    seed: int = 0
    first_plan: int = 0
    migrations: tuple[tuple[int, int, str, tuple[tuple[str, Any], ...]], ...] = ()
    idle: tuple[tuple[int, int], ...] = ()
    faults: tuple[tuple[int, Fault], ...] = ()


@st.composite
def scripts(draw, batches: int) -> Script:
    ways = [(name, tuple(options.items())) for name, options in STRATEGIES]
    moments = st.integers(0, batches)
    migration = st.tuples(moments, st.integers(0, MOST_PLANS - 1), st.sampled_from(ways)).map(
        lambda drawn: (drawn[0], drawn[1], *drawn[2])
    )
    fault = st.builds(Fault, st.sampled_from(FAULTS), st.integers(0, 3), st.integers(0, 2))
    return Script(
        draw(st.integers(1, 4)),
        draw(st.integers(0, 2**32)),
        draw(st.integers(0, 3)),
        tuple(draw(st.lists(migration, max_size=3))),
        tuple(draw(st.lists(st.tuples(moments, st.integers(0, 5)), max_size=2))),
        tuple(draw(st.lists(st.tuples(moments, fault), max_size=6))),
    )


@st.composite
def scripted(draw, **choices: Any) -> tuple[Scenario, Script]:
    windows = draw(st.sampled_from([WINDOWS - {"unbounded"}, WINDOWS]))
    scenario = draw(scenarios(max_streams=4, batchings=["rows", "mixed"], windows=windows, **choices))
    return scenario, draw(scripts(len(scenario.pushes)))


def silent_from(scenario: Scenario, number: int) -> list[str]:
    """The streams without a row from this micro-batch on: they may be declared idle, and no row becomes late."""
    later = {
        name
        for push in scenario.pushes[number:]
        for name, table in push.rows.items()
        if table.column(0).null_count < table.num_rows
    }
    return [stream.name for stream in scenario.streams if stream.name not in later]


def played(scenario: Scenario, script: Script) -> SimulatedCluster:
    """The cluster, after all micro-batches and the end of the streams."""
    plans = list(islice(ContinuousQuery(scenario.query_text, scenario.streams).plans(), MOST_PLANS))
    cluster = SimulatedCluster(
        scenario.query_text, scenario.streams, plans[script.first_plan % len(plans)], script.cells, script.seed
    )
    for number in range(len(scenario.pushes) + 1):
        commands = [
            cluster.migrate(plans[plan % len(plans)], strategy, **dict(options))
            for moment, plan, strategy, options in script.migrations
            if moment == number
        ]
        silent = silent_from(scenario, number)
        commands += [cluster.idle(silent[s % len(silent)]) for moment, s in script.idle if moment == number and silent]
        rows = {}
        if number < len(scenario.pushes):
            rows = scenario.pushes[number].rows
        else:
            commands.append(cluster.finish())
        faults = [fault for moment, fault in script.faults if moment == number]
        cluster.run(rows, commands, faults, restart_with=cluster.random.choice(plans))
    return cluster


@examples(200)
@given(scripted())
def test_any_run_on_a_cluster_equals_the_oracle(case):
    scenario, script = case
    cluster = played(scenario, script)
    assert_snapshot_equivalent(cluster.results, scenario.expected())
