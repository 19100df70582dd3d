"""Values that cannot be, given to the interfaces in this process: one clear message, and nothing changes."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, MidstreamError, Stream
from midstream.deployment import (
    AddLink,
    AddNode,
    Deployment,
    Link,
    LoseNode,
    Node,
    RemoveLink,
    RemoveNode,
    Topology,
    move,
)
from midstream.deployment.topology.topology_events import EventBatch
from midstream.errors import BadTopology

HUGE = 10**400
"""No float is so large."""
NAMES = [1, None, b"x", "", ["a"], True, "\ud800"]
TIMES = [math.nan, math.inf, -1, "5", None, True, HUGE, []]


def topology():
    return Topology([Node("a"), Node("b")], [Link("a", "b")])


def query():
    schema = pa.schema({"ts": pa.int64(), "id": pa.int64()})
    return ContinuousQuery("SELECT s.id FROM s [RANGE 10]", streams=[Stream("s", schema, event_time="ts")])


@pytest.mark.parametrize("name", NAMES)
def test_names_are_text(name):
    makers = [
        lambda: Node(name),
        lambda: Node("a", kind=name) if name is not None else Node(None),
        lambda: Link(name, "b"),
        lambda: Link("a", name),
        lambda: RemoveNode(name),
        lambda: LoseNode(name),
        lambda: RemoveLink(name, "b"),
        lambda: RemoveLink("a", name),
        lambda: move("a", "b", name),
        lambda: topology().remove_node(name),
        lambda: Deployment(topology()).deploy(name, query(), sources={"s": ["a"]}, sink="b"),
        lambda: Deployment(topology()).deploy("q", query(), sources={"s": ["a"]}, sink=name),
        lambda: Deployment(topology()).fragments(name),
        lambda: Deployment(topology()).results(name),
        lambda: Deployment(topology()).push(name, "s", None),
    ]
    for make in makers:
        with pytest.raises(BadTopology, match="name"):
            make()


@pytest.mark.parametrize("slots", [1.5, "1", True, -1, 2**70, HUGE, math.nan, []])
def test_slots_are_integers(slots):
    with pytest.raises(BadTopology, match="slots"):
        Node("a", slots)


@pytest.mark.parametrize("time", TIMES)
def test_times_are_finite_and_not_negative(time):
    for make in (
        lambda: Link("a", "b", latency_ms=time),
        lambda: move("a", "b", "c", latency_ms=time),
        lambda: EventBatch(time, ()),
        lambda: Deployment(topology()).run_for(time),
    ):
        with pytest.raises(BadTopology, match="ms"):
            make()


@pytest.mark.parametrize("bandwidth", [0, *(time for time in TIMES if time is not None)])
def test_bandwidths_are_finite_and_above_zero(bandwidth):
    with pytest.raises(BadTopology, match="bandwidth"):
        Link("a", "b", bandwidth_mbit_per_s=bandwidth)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Topology(None),
        lambda: Topology("abc"),
        lambda: Topology(Node("a")),
        lambda: Topology(["a"]),
        lambda: Topology([Node("a")], 5),
        lambda: Topology([Node("a"), Node("b")], [("a", "b")]),
        lambda: Link("a", "b", is_peer="yes"),
        lambda: AddNode("a"),
        lambda: AddLink(("a", "b")),
        lambda: Deployment(None),
        lambda: Deployment(topology(), costs=5),
        lambda: Deployment(topology(), unreliability=5),
    ],
)
def test_what_is_no_node_link_or_topology_is_refused(make):
    with pytest.raises(BadTopology):
        make()


@pytest.mark.parametrize("events", [None, "abc", RemoveLink("a", "b"), ["x"], [None], [Link("a", "b")]])
def test_what_is_no_event_changes_nothing(events):
    deployment = Deployment(topology())
    with pytest.raises(BadTopology, match="event"):
        deployment.apply(events)
    with pytest.raises(BadTopology, match="event"):
        EventBatch(0, events)
    assert list(deployment.topology.links()) == [Link("a", "b")]


@pytest.mark.parametrize(
    ("given", "sources"),
    [(query(), None), (query(), "s"), (query(), {"s": [["a"]]}), (query(), {"s": 5}), ("SELECT", {"s": ["a"]})],
)
def test_a_query_with_wrong_sources_is_not_deployed(given, sources):
    deployment = Deployment(topology())
    with pytest.raises(MidstreamError):
        deployment.deploy("q", given, sources=sources, sink="b")
    assert deployment.status().queries == []


def test_a_deployment_that_takes_longer_than_anybody_waits_goes_on():
    deployment = Deployment(Topology([Node("a"), Node("b")], [Link("a", "b", latency_ms=400_000)]))
    with pytest.raises(BadTopology, match="has not come to rest within 10 minutes"):
        deployment.deploy("q", query(), sources={"s": ["a"]}, sink="b")
    deployment.push("a", "s", pa.table({"ts": [1], "id": [7]}))
    for _ in range(4):
        deployment.run_for(400_000)
    assert deployment.results("q")["id"].to_pylist() == [7]
