"""A deployment on real nodes and a real coordinator, brought on by hand: each message is delivered when a test says so.

::

    a@N7 → distinct a ─┐                   N7 → N4 ─┐
    b@N8 → distinct b ─┴→ join → sink      N8 → N5 ─┼→ N3 → N2 → N1
                                                N6 ─┘

The topology and the move are those of ISQD's figures 2 and 6: sources O1 and O2 on the trains N7 and N8, O3 and O4
keep state at N4 and N5, O5 at N3, and results are wanted at N1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import pyarrow as pa

from midstream import ContinuousQuery, Stream
from midstream.algebra.window_spec import NEVER
from midstream.deployment.placement.stage_plans import StagePlan, stage_plans
from midstream.deployment.protocol.coordinator import Coordinator, Instruction
from midstream.deployment.protocol.invariants import check_at_rest, check_one_owner, check_retention
from midstream.deployment.protocol.messages import Control, Envelope, Report
from midstream.deployment.protocol.node_runtime import Arrival, NodeRuntime, Outgoing
from midstream.deployment.protocol.node_storage import restored_node, store_node
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import AddLink, RemoveLink, TopologyEvent

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
TEXT = (
    "SELECT x.k FROM (SELECT DISTINCT k FROM a [RANGE 10]) x, (SELECT DISTINCT k FROM b [RANGE 10]) y WHERE x.k = y.k"
)
O1, O2, O3, O4, O5, SINK = "q/a@N7", "q/b@N8", "q/distinct-1", "q/distinct-2", "q/join-3", "q/sink"
MOVE = (RemoveLink("N8", "N5"), AddLink(Link("N8", "N6")))
MOVE_BACK = (RemoveLink("N8", "N6"), AddLink(Link("N8", "N5")))


def topology() -> Topology:
    slots = {"N7": 1, "N8": 1}
    links = [Link(f"N{child}", f"N{parent}") for child, parent in ["74", "85", "43", "53", "63", "32", "21"]]
    return Topology([Node(f"N{number}", slots.get(f"N{number}")) for number in range(1, 9)], links)


def plans() -> list[StagePlan]:
    query = ContinuousQuery(TEXT, [Stream("a", SCHEMA, "ts"), Stream("b", SCHEMA, "ts")])
    return stage_plans("q", next(iter(query.plans())), {"a": ["N7"], "b": ["N8"]}, "N1")


class SmallDeployment:
    """Nodes, coordinator, and what is on its way between them."""

    def __init__(self, chunk_bytes: int = 1 << 16) -> None:
        self.topology = topology()
        self.coordinator = Coordinator(topology())
        self.nodes = {name: NodeRuntime(name, chunk_bytes) for name in self.topology.nodes}
        self.control: deque[Instruction] = deque()
        self.reports: deque[Report] = deque()
        self.envelopes: deque[Envelope] = deque()
        self.results: list[int] = []
        self._chunk_bytes = chunk_bytes
        self.control += self.coordinator.deploy(plans())
        self.settle()

    # Steps by hand

    def feed(self, node: str, stream: str, *rows: tuple[int, int], end: bool = False) -> None:
        """Rows arise; what the node sends is on its way."""
        table = pa.table(list(map(pa.array, zip(*rows, strict=True))), schema=SCHEMA) if rows else None
        self._sent(node, self.nodes[node].step(arrivals=[Arrival(stream, table, NEVER if end else None)]))

    def move(self, events: Sequence[TopologyEvent] = MOVE) -> None:
        """Links change; the coordinator's instructions are on their way."""
        for event in events:
            if isinstance(event, RemoveLink):
                self.topology.remove_link(event.child, event.parent)
                gone = {event.child, event.parent}
                self.envelopes = deque(e for e in self.envelopes if {e.path[e.place - 1], e.node} != gone)
            elif isinstance(event, AddLink):
                self.topology.add_link(event.link)
        self.control += self.coordinator.apply(events)

    def tell(self, *kinds: type[Control], nodes: Sequence[str] | None = None) -> list[Instruction]:
        """Deliver the control messages of these kinds to these nodes, and give what was delivered."""
        told = [i for i in self.control if isinstance(i[1], kinds) and (nodes is None or i[0] in nodes)]
        self.control = deque(i for i in self.control if i not in told)
        for node, message in told:
            self._sent(node, self.nodes[node].step([message]))
        return told

    def report(self) -> list[Report]:
        """Deliver all reports, and give them."""
        reports, self.reports = list(self.reports), deque()
        for report in reports:
            self.control += self.coordinator.take(report)
        return reports

    def carry(self, wanted: Callable[[Envelope], bool] = lambda envelope: True) -> None:
        """Let envelopes travel over the links that there are until none of the wanted ones is left."""
        while any(map(wanted, self.envelopes)):
            waiting, self.envelopes = self.envelopes, deque()
            for envelope in waiting:
                if not wanted(envelope):
                    self.envelopes.append(envelope)
                elif self.topology.link(envelope.path[envelope.place - 1], envelope.node) is not None:
                    self._sent(envelope.node, self.nodes[envelope.node].step(envelopes=[envelope]))

    def crash(self, node: str) -> None:
        """A node goes on from what it has stored."""
        storage: dict[str, bytes] = {}
        store_node(self.nodes[node], storage)
        self.nodes[node] = restored_node(node, storage, self._chunk_bytes)

    def settle(self) -> None:
        """Deliver everything, and ask again, until nothing happens any more."""
        for _ in range(200):
            self.tell(object)
            self.carry()
            self.report()
            if not (self.control or self.envelopes or self.reports):
                if self.coordinator.is_idle and not self._is_busy():
                    break
                self.control += self.coordinator.ask_again()
                for name, node in self.nodes.items():
                    self._sent(name, node.ask_again())
        check_at_rest(self.coordinator, self.nodes)

    def end(self) -> list[int]:
        """End the streams, settle, and give the results: the values of k, in order."""
        self.feed("N7", "a", end=True)
        self.feed("N8", "b", end=True)
        self.settle()
        return sorted(self.results)

    def where(self, stage: str) -> list[str]:
        """The nodes on which a stage runs."""
        return [name for name, node in self.nodes.items() if stage in node.running]

    def _is_busy(self) -> bool:
        outputs = [i.output for node in self.nodes.values() for i in node.running.values() if not i.is_sink]
        return any(output.messages or not output.is_connected for output in outputs)

    def _sent(self, node: str, out: Outgoing) -> None:
        self.envelopes += out.envelopes
        self.reports += out.reports
        self.results += [k for _, rows in out.results for k in rows.columns[0].to_pylist()]
        check_one_owner(self.nodes)
        check_retention(self.coordinator.plan, self.nodes)
