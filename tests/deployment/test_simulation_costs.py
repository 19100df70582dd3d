"""What things cost in a simulation, and that a simulation is determined by its seed."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.deployment.placement.stage_plans import stage_plans
from midstream.deployment.protocol.messages import Prepare
from midstream.deployment.simulation import Costs, Simulation, Unreliability
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import AddLink, RemoveLink

SCHEMA = pa.schema({"ts": pa.int64(), "v": pa.int64()})
QUERY = ContinuousQuery("SELECT v * 2 AS doubled FROM s [NOW]", streams=[Stream("s", SCHEMA, event_time="ts")])
DEVICES = ["device 1", "device 2", "device 3", "device 4"]


class Recorded(Simulation):
    """Notes when the coordinator's messages leave it."""

    def __init__(self, *arguments, **options):
        self.prepared = []
        super().__init__(*arguments, **options)

    def _hear(self, node, message):
        if isinstance(message, Prepare):
            self.prepared.append((message.query, self.now))
        super()._hear(node, message)


def simulation(costs: Costs, queries: int = 1, unreliability: Unreliability | None = None, seed: int = 0) -> Recorded:
    # A single query computes at an edge node, several compute at the devices.
    slots = 1 if queries == 1 else None
    topology = Topology([Node("cloud"), Node("edge 1"), Node("edge 2"), *(Node(device, slots) for device in DEVICES)])
    for edge in ("edge 1", "edge 2"):
        topology.add_link(Link(edge, "cloud", latency_ms=1.0))
    for device in DEVICES:
        topology.add_link(Link(device, "edge 1", latency_ms=1.0))
    made = Recorded(topology, costs, unreliability, seed)
    for number in range(queries):
        made.deploy(stage_plans(f"q{number}", QUERY.plan(), {"s": DEVICES}, "cloud"))
    return made


def test_a_thread_sends_one_call_after_the_other():
    made = simulation(Costs(call=10.0, control=1.0, plan=5.0))
    made.run_until(200.0)
    # A device, the edge node, which gets four contexts, the other devices, the cloud.
    assert [time for _, time in made.prepared] == [16.0, 56.0, 66.0, 76.0, 86.0, 96.0]


@pytest.mark.parametrize(("threads", "last"), [(None, 91.0), (2, 181.0), (1, 361.0)])
def test_as_many_queries_as_there_are_threads_are_served_at_once(threads, last):
    made = simulation(Costs(call=10.0, control=1.0, plan=0.0, threads=threads, ask_again=10_000.0), queries=4)
    made.run_until(500.0)
    first_calls = sorted(time for _, time in made.prepared)[:20]
    assert max(first_calls) == last


def test_nodes_on_too_few_cores_take_longer():
    def latency(cores):
        made = simulation(Costs(step=4.0, row=0.0, cores=cores))
        made.run_until_quiet()
        began = made.now
        for device in DEVICES:
            made.feed(device, "s", pa.table({"ts": [1], "v": [1]}, SCHEMA), 2)
        made.run_until_quiet()
        return max(delivery.time for delivery in made.deliveries) - began

    assert latency(8) == latency(None) < latency(1)


def test_questions_are_not_repeated_while_answers_come():
    """The calls of a generation take longer than the interval after which questions are repeated."""
    made = simulation(Costs(call=30.0, control=1.0, ask_again=150.0))
    made.run_until_quiet()
    assert len(made.prepared) == 6


def deliveries(seed: int) -> list:
    made = simulation(Costs(), 1, Unreliability(lost=0.2, doubled=0.2), seed)
    made.run_until_quiet()
    random = Random(3)
    parents = dict.fromkeys(DEVICES, "edge 1")
    for number in range(40):
        device = random.choice(DEVICES)
        made.feed(device, "s", pa.table({"ts": [number], "v": [number]}, SCHEMA), number)
        if number % 4 == 0:
            old, parents[device] = parents[device], "edge 2" if parents[device] == "edge 1" else "edge 1"
            made.change_topology([RemoveLink(device, old), AddLink(Link(device, parents[device], latency_ms=1.0))])
        made.run_until(made.now + random.random() * 30)
    made.run_until_quiet()
    return [(d.time, d.query, d.rows.valid_from.tolist(), d.rows.columns[0].to_pylist()) for d in made.deliveries]


def test_the_same_seed_gives_the_same_deliveries_at_the_same_times():
    assert deliveries(1) == deliveries(1)


def test_another_seed_gives_the_same_rows_at_other_times():
    def rows(found):
        return sorted((query, value) for _, query, _, values in found for value in values)

    one, other = deliveries(1), deliveries(2)
    assert one != other
    assert rows(one) == rows(other)
