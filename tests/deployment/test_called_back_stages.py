"""Stages that are called back: those beside them learn where they are, as a random case has found."""

import pyarrow as pa

from midstream import Stream
from midstream.deployment.simulation import Costs
from midstream.deployment.topology.topology import Link, Node
from midstream.deployment.topology.topology_events import AddLink, RemoveLink
from midstream.testing import Change, DeploymentCase, QueryCase, Scenario, Step


def test_a_deployment_comes_to_rest_when_a_move_is_reverted_and_then_all_is_cut_off():
    case = DeploymentCase(
        [
            Node("cloud"),
            Node("e1", 65535),
            Node("e2"),
            Node("e3", 65535),
            Node("e4", 0),
            Node("e5"),
            Node("d6"),
            Node("d7", 1),
            Node("d8", 1),
            Node("d9"),
        ],
        [
            Link("e1", "cloud", 1.0),
            Link("e2", "cloud"),
            Link("e3", "e1", 5.0, 1.0),
            Link("e4", "e1", 1.0),
            Link("e5", "e1", 1.0, 1.0),
            Link("d6", "e4"),
            Link("d7", "e4", 5.0),
            Link("d8", "e5", 5.0),
            Link("d9", "e4", 20.0),
        ],
        [
            QueryCase(
                "q1",
                Scenario.from_rows(
                    "SELECT DISTINCT r1.n12 FROM (SELECT r2.n8 AS n12, r2.n8 AS n13, r2.n9 + r2.n9 AS n14 FROM (SELECT DISTINCT CAST(TIMESTAMP '2020-02-29 12:30:15' AS DATE) AS n8, r3.n4 AS n9, r3.n4 AS n10, r3.n4 AS n11 FROM (SELECT s1.ts AS n4, s1.ts + s1.ts AS n5, s1.ts AS n6, s1.j AS n7 FROM s1 [NOW]) AS r3) AS r2) AS r1 JOIN (SELECT s0.ts AS n16, s0.ts AS n17 FROM s0 [NOW]) AS r15 ON r1.n14 = r15.n16 WHERE r1.n12 = r1.n12 AND r1.n12 = r1.n12",  # noqa: E501
                    [
                        Stream("s0", pa.schema([("ts", pa.int64()), ("k", pa.int8()), ("j", pa.uint64())]), "ts", 0),
                        Stream("s1", pa.schema([("ts", pa.int64()), ("k", pa.int8()), ("j", pa.date32())]), "ts", 3),
                    ],
                    [
                        {},
                        {},
                        {},
                        {},
                        {},
                        {},
                    ],
                ),
                {"s0": ("d6", "d7"), "s1": ("d8", "d9")},
            ),
        ],
        [
            Step(250.0, Change((RemoveLink("d7", "e4"), AddLink(Link("d7", "e2"))))),
            Step(0.0, Change((RemoveLink("d7", "e2"), AddLink(Link("d7", "e4", 5.0)))), "mark"),
            Step(5.0, Change((RemoveLink("e1", "cloud"),))),
        ],
        costs=Costs(control=30.0),
    )
    case.check()
