"""The baselines of ISQD's evaluation: exact, and slow for the reasons that the paper gives."""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random

import pyarrow as pa
import pytest

from benchmarks.isqd.costs import FITTED
from benchmarks.isqd.emulation import APPROACHES, ISQD, emulate
from benchmarks.isqd.holistic import HolisticCoordinator, HolisticNode
from benchmarks.isqd.state_availability import FITTED as NETWORK
from benchmarks.isqd.state_availability import replay_time, transfer_time
from midstream import ContinuousQuery, Stream
from midstream.deployment.placement.stage_plans import stage_plans
from midstream.deployment.protocol.logical_edge import ConsumerEnd
from midstream.deployment.simulation import Costs, Simulation, Unreliability
from midstream.deployment.topology.published_traces import SETUPS
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import AddLink, RemoveLink

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "v": pa.int64()})
STREAMS = [Stream(name, SCHEMA, event_time="ts") for name in "ab"]
QUERIES = {
    "join": "SELECT a.v AS av, b.v AS bv FROM a [RANGE 40], b [RANGE 40] WHERE a.k = b.k",
    "tumbling": "SELECT a.v AS av, b.v AS bv FROM a [RANGE 20 SLIDE 20], b [RANGE 20 SLIDE 20] WHERE a.k = b.k",
    # Last, so that no slot is left for it at the device: it runs at an edge node.
    "map": "SELECT k, v * 2 AS doubled FROM a [NOW]",
}
EDGES = ("edge 1", "edge 2", "edge 3")


def topology() -> Topology:
    made = Topology([Node("cloud"), *map(Node, EDGES), *(Node(device, 3) for device in "ab")])
    for edge in EDGES:
        made.add_link(Link(edge, "cloud", latency_ms=3.0))
    for device in "ab":
        made.add_link(Link(device, "edge 1", latency_ms=2.0))
    return made


def results(seed: int, approach: str, moves: bool, lost: float = 0.0) -> Counter[tuple]:
    """All queries over the same random rows, with or without devices that move."""
    random = Random(seed)
    options = {}
    if approach != "ISQD":
        at_once = 1 if approach == "HSQD" else 8
        options = {"coordinators": partial(HolisticCoordinator, at_once=at_once), "nodes": HolisticNode}
    costs = Costs(call=1.0, threads=1 if approach == "HSQD" else 8)
    simulation = Simulation(topology(), costs, Unreliability(lost, lost / 2), seed, **options)
    for name, text in QUERIES.items():
        query = ContinuousQuery(text, streams=[s for s in STREAMS if f"{s.name} [" in text])
        simulation.deploy(stage_plans(name, query.plan(), {"a": ["a"], "b": ["b"]}, "cloud"))
    simulation.run_until_quiet()
    parents = dict.fromkeys("ab", "edge 1")
    now = 0
    for _ in range(40):
        now += random.randint(0, 6)
        device = random.choice("ab")
        rows = random.randint(0, 3)
        table = pa.table(
            {"ts": [now] * rows, "k": [random.randint(0, 3) for _ in range(rows)], "v": [now] * rows}, SCHEMA
        )
        # Not final at once: the next rows may have the same time.
        simulation.feed(device, device, table, now)
        mover, target = random.choice("ab"), random.choice(EDGES)
        wait = random.choice([0.0, 1.0, 10.0, 80.0])
        has_moved = random.random() < 0.5
        if moves and has_moved and target != parents[mover]:
            simulation.change_topology(
                [RemoveLink(mover, parents[mover]), AddLink(Link(mover, target, latency_ms=2.0))]
            )
            parents[mover] = target
        simulation.run_until(simulation.now + wait)
    for device in "ab":
        simulation.feed(device, device, None, now + 1_000)
    simulation.run_until_quiet()
    found: Counter[tuple] = Counter()
    for delivery in simulation.deliveries:
        rows = delivery.rows
        columns = [column.to_pylist() for column in rows.columns]
        found.update((delivery.query, *row) for row in zip(rows.valid_from, rows.valid_to, *columns, strict=True))
    return found


@pytest.mark.parametrize("approach", ["HSQD", "HCQD", "ISQD"])
@pytest.mark.parametrize("seed", range(4))
def test_every_approach_gives_each_row_once(approach, seed):
    expected = results(seed, "ISQD", moves=False)
    assert len({query for query, *_ in expected}) == len(QUERIES)
    assert results(seed, approach, moves=True) == expected


@pytest.mark.parametrize("approach", ["HSQD", "HCQD"])
def test_baselines_are_exact_when_control_messages_are_lost_and_doubled(approach):
    assert results(7, approach, moves=True, lost=0.2) == results(7, "ISQD", moves=False)


def test_a_sink_that_forgets_what_it_had_repeats_rows(monkeypatch):
    """What makes the baselines exact is needed: without it the replay is seen."""
    monkeypatch.setattr("benchmarks.isqd.holistic._SinkEnd.take", ConsumerEnd.take)
    expected, found = results(1, "ISQD", moves=False), results(1, "HCQD", moves=True)
    assert found - expected
    assert not expected - found


def test_a_holistic_redeployment_touches_all_fragments_and_ours_four_a_query():
    setup = SETUPS["stateless_4_sources_1_mobile"]
    touched = {
        name: emulate(setup, APPROACHES[name], FITTED, 1.0, changes_s=2.0, warm_up_s=3.0).touched / 2 / 10
        for name in ("HCQD", "ISQD")
    }
    # Four devices, four maps at edge nodes and the sink: stopped and started.
    assert touched == {"HCQD": 2 * 9, "ISQD": 4}


def test_the_cost_of_a_call_is_that_of_the_papers_serial_baseline():
    """HSQD at two sources: 128 s for 120 batches of 10 queries."""
    outcome = emulate(
        SETUPS["stateless_2_sources_1_mobile"], APPROACHES["HSQD"], FITTED, 4.0, changes_s=12.0, warm_up_s=3.0
    )
    assert outcome.completes
    assert outcome.busy_s / outcome.batches == pytest.approx(128 / 120, rel=0.03)


def test_the_quiet_latency_is_the_papers():
    outcome = emulate(SETUPS["stateless_2_sources_1_mobile"], ISQD, FITTED, 1.0, changes_s=1.0, warm_up_s=5.0)
    assert outcome.quiet_ms == pytest.approx(5.7, rel=0.01)


def test_serial_redeployment_falls_behind_and_its_queries_fall_silent():
    """Every device has moved again before its last move was handled."""
    setup = SETUPS["stateless_4_sources_1_mobile"]
    outcome = emulate(setup, APPROACHES["HSQD"], FITTED, 1.0, changes_s=20.0, warm_up_s=2.0)
    assert outcome.handled < outcome.batches
    assert outcome.last_output_s < 15
    assert outcome.repeated == 0


def test_an_emulation_is_determined_by_its_seed():
    def run():
        setup = SETUPS["stateful_16_sources_2_mobile"]
        outcome = emulate(setup, ISQD, FITTED, 1.0, changes_s=2.0, warm_up_s=3.0, settle=True)
        return {key: value for key, value in vars(outcome).items() if key != "wall_s"}

    first = run()
    assert first["missing"] == first["repeated"] == 0
    assert first == run()


@pytest.mark.parametrize("between", [1, 4])
def test_state_in_chunks_takes_the_sum_of_hops_and_bytes_and_store_and_forward_their_product(between):
    for is_chunked in (True, False):
        expected = NETWORK.formula_ms(16, between, is_chunked)
        assert transfer_time(NETWORK, 16, between, is_chunked) == pytest.approx(expected, rel=0.05)


def test_chunks_fill_long_ways_too():
    """As many may be under way as the hops can hold: 64 in all would keep the links idle half of the time."""
    assert transfer_time(NETWORK, 256, 8, True) == pytest.approx(NETWORK.formula_ms(256, 8, True), rel=0.05)


def test_rebuilding_a_state_costs_the_joins_work_on_top_of_the_replay():
    alone, with_work = (replay_time(NETWORK, 16, 2, work_ms) for work_ms in (0.0, 1_000.0))
    assert alone < 200
    assert 1_000 <= with_work <= 1_000 + alone
