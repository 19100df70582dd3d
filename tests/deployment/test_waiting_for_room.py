"""Queries that wait for room: what has happened is known, nothing is lost, and they go on when there is room."""

import datetime

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.deployment import Deployment, Link, Node, Topology, move
from midstream.deployment.simulation import Costs
from midstream.deployment.topology.topology_events import AddLink, AddNode, LoseNode, RemoveLink, RemoveNode
from midstream.errors import BadTopology, NoFreeSlot
from midstream.testing import (
    Change,
    DeploymentCase,
    QueryCase,
    Scenario,
    Step,
    assert_same_bag,
    join_intervals,
)

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
STREAMS = [Stream(name, SCHEMA, "ts") for name in "ab"]
TEXT = "SELECT x.k FROM a [RANGE 20] x, b [RANGE 20] y WHERE x.k = y.k"
SOURCES = {"a": ["d1"], "b": ["d2"]}
JOIN = "q/join-1"
NO_ROOM = f'[M6007] no node has a free slot for stage "{JOIN}" of query "q"'
TO_E2 = [*move("d1", "e1", "e2"), *move("d2", "e1", "e2")]


class Run:
    """A join at e1; neither e2 nor the cloud has room for it."""

    def __init__(self) -> None:
        nodes = [Node("cloud", 2), Node("e1", 1), Node("e2", 0), Node("d1", 1), Node("d2", 1), Node("d3", 2)]
        links = [Link("e1", "cloud"), Link("e2", "cloud"), Link("d1", "e1"), Link("d2", "e1"), Link("d3", "cloud")]
        self.deployment = Deployment(Topology(nodes, links))
        self.deployment.deploy("q", ContinuousQuery(TEXT, STREAMS), sources=SOURCES, sink="cloud")
        other = ContinuousQuery("SELECT DISTINCT k FROM a [RANGE 5]", STREAMS[:1])
        self.deployment.deploy("other", other, sources={"a": ["d3"]}, sink="cloud")
        self.deployment.settle()
        self.fed = 0

    def push(self) -> None:
        for node, stream in (("d1", "a"), ("d2", "b"), ("d3", "a")):
            self.deployment.push(node, stream, pa.table([[self.fed], [self.fed % 3]], schema=SCHEMA))
        self.fed += 1

    def problem(self, query: str = "q") -> str | None:
        return next(status.problem for status in self.deployment.status().queries if status.name == query)

    def check(self) -> None:
        self.push()
        self.deployment.finish()
        fed = pa.table([range(self.fed), [number % 3 for number in range(self.fed)]], schema=SCHEMA)
        assert_same_bag(self.deployment.results("q"), join_intervals(TEXT, STREAMS, {"a": fed, "b": fed}))
        assert self.deployment.results("other").num_rows > 0
        self.deployment.simulation.check_at_rest()


@pytest.fixture
def run():
    run = Run()
    for _ in range(3):
        run.push()
        run.deployment.settle()
    return run


@pytest.mark.parametrize("loses_it", [False, True])
def test_a_query_without_room_waits_while_others_go_on_and_follows_when_there_is_room(run, loses_it):
    events = [LoseNode("e1"), AddLink(Link("d1", "e2")), AddLink(Link("d2", "e2"))] if loses_it else TO_E2
    run.deployment.apply(events)
    run.push()
    run.deployment.settle()
    assert run.problem().startswith(NO_ROOM) and run.problem("other") is None
    assert run.deployment.topology.link("d1", "e2") is not None
    (status,) = (status for status in run.deployment.status().queries if status.name == "q")
    assert "q/x@d1" in status.cut_off and status.phase == "settled"
    assert run.deployment.results("other").num_rows > 0
    run.deployment.apply([AddNode(Node("e3")), AddLink(Link("e3", "cloud"))])
    run.deployment.settle()
    assert run.problem().startswith(NO_ROOM), "there is room, but not on its way"
    run.deployment.apply([*move("d1", "e2", "e3"), *move("d2", "e2", "e3")])
    run.deployment.settle()
    assert run.problem() is None
    assert JOIN in [stage for f in run.deployment.fragments("q") if f.node == "e3" for stage in f.stages]
    run.check()


def test_the_lost_node_itself_makes_room_when_it_comes_back(run):
    run.deployment.apply([LoseNode("e1")])
    run.deployment.apply([AddLink(Link("d1", "e2")), AddLink(Link("d2", "e2"))])
    run.push()
    run.deployment.settle()
    assert run.problem().startswith(NO_ROOM)
    back = [AddNode(Node("e1", 1)), AddLink(Link("e1", "cloud")), AddLink(Link("e2", "e1")), RemoveLink("e2", "cloud")]
    run.deployment.apply(back)
    run.deployment.settle()
    assert run.problem() is None
    assert [f.node for f in run.deployment.fragments("q") if JOIN in f.stages] == ["e1"]
    run.check()


def test_a_query_goes_on_when_another_one_leaves_room(run):
    run.deployment.apply(TO_E2)
    run.deployment.settle()
    assert run.problem().startswith(NO_ROOM)
    run.deployment.apply([*move("d1", "e2", "e1"), *move("d2", "e2", "e1")])
    run.deployment.settle()
    assert run.problem() is None
    run.check()


def test_a_node_of_a_query_that_waits_for_room_is_not_removed(run):
    with pytest.raises(NoFreeSlot):
        run.deployment.apply([RemoveNode("e1"), AddLink(Link("d1", "e2")), AddLink(Link("d2", "e2"))])
    run.deployment.apply(TO_E2)
    run.deployment.settle()
    with pytest.raises(BadTopology, match="cannot be removed now"):
        run.deployment.apply([RemoveNode("e1")])
    run.deployment.apply([*move("d1", "e2", "e1"), *move("d2", "e2", "e1")])
    run.check()


def test_a_query_that_waits_for_room_is_not_planned_anew_while_it_is_being_redeployed():
    # As a random case has found: some edges get another route while a stage of the query waits for room.
    case = DeploymentCase(
        [Node("cloud"), Node("e1", 1), Node("e3", 0), Node("e4", 1), Node("d7", 3)],
        [Link("e1", "cloud", 5.0, 0.1), Link("e3", "e1", 1.0), Link("e4", "e3", 1.0), Link("d7", "e4", 5.0)],
        [
            QueryCase(
                "q2",
                Scenario.from_rows(
                    "SELECT COUNT(r5.n4) AS n6, r5.n4 AS n7 FROM (SELECT MIN(r3.n2) AS n4 FROM "
                    "(SELECT COUNT(DISTINCT r1.j) AS n2 FROM s0 [RANGE 5 SECONDS SLIDE 1 SECOND] r1) r3) r5 "
                    "GROUP BY r5.n4 UNION ALL (SELECT r8.j AS n9, r8.k AS n10 FROM s0 [RANGE 5 SECONDS] r8)",
                    [
                        Stream(
                            "s0",
                            pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("j", pa.int64())]),
                            "ts",
                            datetime.timedelta(0),
                        ),
                    ],
                    [{}] * 6,
                ),
                {"s0": ("d7",)},
            ),
        ],
        [
            Step(20.0, Change((RemoveLink("d7", "e4"), AddLink(Link("d7", "e1", 5.0))))),
            Step(80.0, Change((RemoveLink("d7", "e1"), AddLink(Link("d7", "e4", 5.0))))),
        ],
        costs=Costs(2.0, control=30.0, ask_again=20.0),
    )
    assert case.check().met["query found room"] == 1
