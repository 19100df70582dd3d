"""A deployment in this process, as its users see it: what it gives, and what it refuses without changing anything."""

from __future__ import annotations

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, MidstreamError, Stream
from midstream.deployment import AddLink, Deployment, Link, LoseNode, Node, RemoveLink, RemoveNode, Topology, move
from midstream.deployment.simulation import Unreliability
from midstream.deployment.topology.topology_events import EventBatch
from midstream.errors import (
    BadPlan,
    BadTopology,
    CyclicTopology,
    DuplicateName,
    FinishedRun,
    MigrationRefused,
    MissingColumn,
    NoFreeSlot,
    NotRunning,
    NotSettled,
    PushedTypeMismatch,
    SinkUnreachable,
    UnknownLink,
    UnknownNode,
    UnknownStreamPushed,
)
from midstream.testing import assert_same_bag, join_intervals

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
STREAMS = [Stream(name, SCHEMA, "ts") for name in ("a", "b", "c")]
TEXT = """SELECT a.k, b.ts AS tb, c.ts AS tc FROM a [RANGE 50] a, b [RANGE 50] b, c [RANGE 50] c
          WHERE a.k = b.k AND b.k = c.k"""
QUERY = ContinuousQuery(TEXT, STREAMS)
SOURCES = {"a": ["d1"], "b": ["d2"], "c": ["d3"]}


def topology(edges: int = 2) -> Topology:
    names = [f"e{number}" for number in range(1, edges + 1)]
    devices = ["d1", "d2", "d3"]
    return Topology(
        [Node("cloud"), *(Node(name) for name in names), *(Node(device, slots=1) for device in devices)],
        [*(Link(name, "cloud", 5) for name in names), *(Link(device, "e1", 2) for device in devices)],
    )


def deployed(**options) -> Deployment:
    deployment = Deployment(topology())
    deployment.deploy("q", QUERY, sources=SOURCES, sink="cloud", **options)
    return deployment


def rows(times: range, key: int = 1) -> pa.Table:
    return pa.table({"ts": list(times), "k": [key] * len(times)}, SCHEMA)


def node_of(deployment: Deployment, stage: str) -> str:
    return next(fragment.node for fragment in deployment.fragments("q") if stage in fragment.stages)


def pushed(deployment: Deployment, times: range) -> None:
    for stream, (node,) in SOURCES.items():
        deployment.push(node, stream, rows(times))


def expected(end: int) -> pa.Table:
    return join_intervals(TEXT, STREAMS, {name: rows(range(end)) for name in "abc"})


def test_results_do_not_depend_on_where_stages_run():
    deployment = deployed()
    for step, target in enumerate(["e2", "e1", "e2"]):
        pushed(deployment, range(10 * step, 10 * step + 10))
        source = "e1" if target == "e2" else "e2"
        deployment.apply([event for device in ("d1", "d2", "d3") for event in move(device, source, target, 2)])
        deployment.run_for(7)
    deployment.finish()
    assert node_of(deployment, "q/join-2") == "e2"
    assert_same_bag(deployment.results("q"), expected(30))


def test_rows_of_a_device_without_a_link_wait_and_arrive_when_it_has_one():
    deployment = deployed()
    deployment.apply([RemoveLink("d1", "e1")])
    pushed(deployment, range(10))
    deployment.settle()
    (query,) = deployment.status().queries
    assert query.cut_off == ["q/a@d1"]
    assert {node.name: node.buffered_rows for node in deployment.status().nodes}["d1"] == 10
    assert len(deployment.results("q")) == 0
    deployment.apply([AddLink(Link("d1", "e2"))])
    deployment.finish()
    assert_same_bag(deployment.results("q"), expected(10))


def test_the_order_of_joins_can_be_changed_where_they_run():
    deployment = deployed(plan="(a b) c", joins_together=True)
    pushed(deployment, range(10))
    deployment.settle()
    deployment.migrate("q", "a (b c)", "gen-mig")
    pushed(deployment, range(10, 20))
    deployment.apply([event for device in ("d1", "d2", "d3") for event in move(device, "e1", "e2", 2)])
    pushed(deployment, range(20, 90))
    deployment.finish()
    assert not deployment.status().queries[0].refusals
    assert_same_bag(deployment.results("q"), expected(90))


def test_a_removed_node_hands_over_and_a_lost_one_is_rescued_from_its_disk():
    for event in (RemoveNode("e1"), LoseNode("e1")):
        deployment = deployed()
        pushed(deployment, range(10))
        deployment.settle()
        deployment.apply([event, *(AddLink(Link(device, "e2")) for device in ("d1", "d2", "d3"))])
        pushed(deployment, range(10, 20))
        deployment.finish()
        assert_same_bag(deployment.results("q"), expected(20))


REFUSED = {
    "unknown node": (UnknownNode, [AddLink(Link("d1", "e9"))]),
    "unknown link": (UnknownLink, [RemoveLink("d1", "e2")]),
    "cycle": (CyclicTopology, [AddLink(Link("cloud", "d1"))]),
    "half of the batch is wrong": (UnknownNode, [*move("d1", "e1", "e2"), RemoveNode("e7")]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_events_that_are_refused_change_nothing(name):
    error, events = REFUSED[name]
    deployment = deployed()
    before = deployment.status(), list(deployment.topology.links())
    with pytest.raises(error):
        deployment.apply(events)
    assert (deployment.status(), list(deployment.topology.links())) == before
    pushed(deployment, range(10))
    deployment.finish()
    assert_same_bag(deployment.results("q"), expected(10))


def test_a_query_that_cannot_be_placed_is_refused_beside_those_that_run():
    deployment = deployed()
    other = {name: ["cloud"] for name in "abc"}
    with pytest.raises(SinkUnreachable):
        deployment.deploy("other", QUERY, sources=other, sink="e1")
    with pytest.raises(NoFreeSlot):
        deployment.deploy("other", QUERY, sources=SOURCES, sink="cloud")
    with pytest.raises(DuplicateName):
        deployment.deploy("q", QUERY, sources=SOURCES, sink="cloud")
    with pytest.raises(UnknownNode):
        deployment.deploy("other", QUERY, sources={**SOURCES, "a": ["d8"]}, sink="cloud")
    pushed(deployment, range(10))
    deployment.finish()
    assert_same_bag(deployment.results("q"), expected(10))


@pytest.mark.parametrize("sources", [{}, {"a": "d1", "b": ["d2"], "c": ["d3"]}, {**SOURCES, "z": ["d1"]}])
def test_sources_that_do_not_fit_the_streams_are_refused(sources):
    with pytest.raises(UnknownStreamPushed):
        Deployment(topology()).deploy("q", QUERY, sources=sources, sink="cloud")


def test_what_does_not_exist_is_named():
    deployment = deployed()
    with pytest.raises(NotRunning, match='no query "p"'):
        deployment.results("p")
    with pytest.raises(UnknownStreamPushed, match='node "d1" is no source of stream "b"'):
        deployment.push("d1", "b", rows(range(1)))
    with pytest.raises(UnknownNode):
        deployment.push("d7", "b", rows(range(1)))


def test_a_plan_with_other_stages_is_refused():
    deployment = deployed(plan="(a b) c")
    with pytest.raises(MigrationRefused, match="other stages"):
        deployment.migrate("q", "a (b c)")
    with pytest.raises(BadPlan):
        deployment.migrate("q", ContinuousQuery("SELECT a.k FROM a [NOW] a", STREAMS).plan())
    assert isinstance(MigrationRefused(""), MidstreamError)


def test_streams_that_have_ended_take_no_more_rows():
    deployment = deployed()
    deployment.finish()
    with pytest.raises(FinishedRun):
        deployment.push("d1", "a", rows(range(1)))
    with pytest.raises(FinishedRun):
        deployment.finish()


def test_rows_that_do_not_fit_are_refused_by_push_and_nothing_is_lost():
    deployment = deployed()
    with pytest.raises(MissingColumn):
        deployment.push("d1", "a", pa.table({"ts": [1]}))
    for watermark in (2**70, "5", 1.5, True):
        with pytest.raises(PushedTypeMismatch):
            deployment.push("d1", "a", rows(range(1)), watermark)
    pushed(deployment, range(10))
    deployment.finish()
    assert_same_bag(deployment.results("q"), expected(10))


@pytest.mark.parametrize("node", ["cloud", "d1"])
def test_nodes_of_sources_and_sinks_are_not_removed_but_may_be_lost(node):
    deployment = deployed()
    with pytest.raises(BadTopology, match="can run nowhere else"):
        deployment.apply([RemoveNode(node)])
    deployment.apply([LoseNode(node)])
    deployment.settle()
    if node == "d1":
        with pytest.raises(UnknownNode):
            deployment.push("d1", "a", rows(range(1)))
        deployment.finish()


def test_unknown_strategies_are_refused_at_once():
    deployment = deployed(plan="(a b) c", joins_together=True)
    for strategy, options in (("nope", {}), ("jisc", {"bogus": 3})):
        with pytest.raises(MigrationRefused):
            deployment.migrate("q", "a (b c)", strategy, **options)


def test_a_deployment_keeps_a_topology_of_its_own():
    given = topology()
    deployment = Deployment(given)
    deployment.deploy("q", QUERY, sources=SOURCES, sink="cloud")
    deployment.apply(event for event in move("d1", "e1", "e2"))
    deployment.settle()
    assert given.link("d1", "e1") is not None
    assert deployment.topology.link("d1", "e2") is not None


@pytest.mark.parametrize("latency, bandwidth, lost", [(90_000.0, None, 0.0), (0.0, None, 0.97)])
def test_a_deployment_settles_however_slow_its_links_are(latency, bandwidth, lost):
    slow = Topology(
        [Node("cloud"), Node("e1"), Node("d1"), Node("d2"), Node("d3")],
        [Link("e1", "cloud", latency, bandwidth), *(Link(f"d{n}", "e1", latency, bandwidth) for n in (1, 2, 3))],
    )
    deployment = Deployment(slow, unreliability=Unreliability(lost))
    deployment.deploy("q", QUERY, sources=SOURCES, sink="cloud")
    pushed(deployment, range(10))
    deployment.finish()
    assert_same_bag(deployment.results("q"), expected(10))


def test_a_deployment_that_does_not_settle_says_so():
    deployment = deployed()
    deployment.apply(move("d1", "e1", "e2"))
    with pytest.raises(NotSettled, match="has not come to rest within 0 ms"):
        deployment.simulation.run_until_quiet(0.0)
    deployment.settle()


@pytest.mark.parametrize("lost, doubled", [(1.0, 0.0), (-0.1, 0.0), (float("nan"), 0.0), (0.0, 1.5)])
def test_losses_that_cannot_be_are_refused(lost, doubled):
    with pytest.raises(BadTopology):
        Unreliability(lost, doubled)


@pytest.mark.parametrize("time", [-1.0, float("nan"), float("inf")])
def test_times_that_cannot_be_are_refused(time):
    with pytest.raises(BadTopology):
        deployed().run_for(time)
    with pytest.raises(BadTopology):
        EventBatch(time, ())
