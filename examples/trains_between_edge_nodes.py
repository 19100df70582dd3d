"""Trains that pass from one edge node to the next, and a query that follows them.

Each train counts passengers at its doors and validates tickets. An edge node beside the track joins the two, so only
boardings without a delay of more than a minute travel on to the cloud. When a train reaches the next edge node, the
join follows it, with the rows in its windows; nothing else is touched. Links and nodes are simulated, on a virtual
clock. Look at the fragments before and after, and at the two counts in the end: nothing is lost, nothing comes twice.
"""

import numpy as np
import pyarrow as pa

from midstream import ContinuousQuery, Stream
from midstream.deployment import Deployment, Link, Node, Topology, move

EDGES, TRAINS = ["edge 1", "edge 2", "edge 3"], ["train 1", "train 2"]
schema = pa.schema({"ts": pa.int64(), "train": pa.string(), "passenger": pa.int64()})
query = ContinuousQuery(
    """SELECT d.train, d.passenger, d.ts AS boarded, t.ts AS validated
       FROM doors [RANGE 60] d, tickets [RANGE 60] t WHERE d.train = t.train AND d.passenger = t.passenger""",
    streams=[Stream(name, schema, event_time="ts", lateness=60) for name in ("doors", "tickets")],
)


def deployed() -> Deployment:
    """Two trains at edge node 1, one query for each of them."""
    nodes = [Node("cloud"), *(Node(edge) for edge in EDGES), *(Node(train, slots=2) for train in TRAINS)]
    links = [*(Link(edge, "cloud", 10) for edge in EDGES), *(Link(train, "edge 1", 20) for train in TRAINS)]
    deployment = Deployment(Topology(nodes, links))
    for train in TRAINS:
        name = train.replace(" ", "")
        deployment.deploy(name, query, sources={"doors": [train], "tickets": [train]}, sink="cloud")
    return deployment


def run(moves: bool) -> int:
    """Twenty minutes; every few, a train reaches the next edge node. How many boardings the cloud has heard of."""
    deployment, random, at = deployed(), np.random.default_rng(1), dict.fromkeys(TRAINS, 0)
    for minute in range(20):
        for train in TRAINS:
            times = np.sort(random.integers(60 * minute, 60 * minute + 60, 30))
            doors = pa.table({"ts": times, "train": [train] * 30, "passenger": random.integers(0, 99, 30)}, schema)
            delayed = doors.set_column(0, "ts", pa.array(times + random.integers(0, 90, 30)))
            deployment.push(train, "doors", doors)
            deployment.push(train, "tickets", delayed)
        if moves and minute % 5 == 4:
            train = TRAINS[minute // 5 % 2]
            here, there = EDGES[at[train]], EDGES[at[train] + 1]
            at[train] += 1
            deployment.apply(move(train, here, there, latency_ms=20))
            print(f"minute {minute}: {train} passes from {here} to {there}")
        deployment.run_for(100)
    deployment.finish()
    for fragment in deployment.fragments("train1"):
        print(f"  {fragment.id} version {fragment.version} on {fragment.node}: {', '.join(fragment.stages)}")
    return sum(len(deployment.results(train.replace(" ", ""))) for train in TRAINS)


print("boardings:", run(moves=True), "with moves,", run(moves=False), "without")
