"""The nodes that one site runs together: messages between them are worked off at once, and they are stored together.

A site runs its nodes in a few groups, not one by one: what a group costs hardly depends on how many nodes it has. A
node becomes part of its group when something first concerns it, and leaves it when it is lost. What a lost node had
stored stays, so that its stages can be rescued.

    NODE \\n …                 what a node stores (``node_storage``)
    lost/NODE \\n …            what a lost node had stored
    connectivity              which nodes and links are there
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from midstream.deployment.placement.global_plan import NodeId
from midstream.deployment.protocol.lost_nodes import (
    LostNodeAnswer,
    LostNodeQuestion,
    answer_for_lost_node,
    with_earlier_stages,
)
from midstream.deployment.protocol.messages import Control, Envelope, Report
from midstream.deployment.protocol.node_runtime import CHUNK_BYTES, CHUNKS_AT_ONCE, Arrival, NodeRuntime, Outgoing
from midstream.deployment.protocol.node_storage import restored_node, store_node
from midstream.deployment.sites.connectivity import Connectivity
from midstream.deployment.sites.file_names import file_name, name_of_file
from midstream.engine.state.window_store import ReceivedRows

__all__ = ["GroupInput", "GroupOutput", "NodeGroup", "stored_by_lost_node"]

CONNECTIVITY, LOST = "connectivity", "lost/"


@dataclass
class GroupInput:
    """What has come for the nodes of a group."""

    control: list[tuple[NodeId, Control]] = field(default_factory=list)
    envelopes: list[Envelope] = field(default_factory=list)
    arrivals: list[tuple[NodeId, Arrival]] = field(default_factory=list)
    connectivity: Connectivity | None = None
    """The latest, if a new one has come."""
    asks_again: bool = False
    """Whether nodes are to repeat what has not been answered."""


@dataclass
class GroupOutput:
    """What a step of a group gives."""

    envelopes: list[Envelope] = field(default_factory=list)
    """For nodes of other groups."""
    reports: list[Report] = field(default_factory=list)
    results: list[tuple[str, ReceivedRows]] = field(default_factory=list)
    rescues: list[tuple[NodeId, LostNodeQuestion]] = field(default_factory=list)
    """Questions to what a lost node of another group had stored, with the node that was asked."""

    def add(self, out: Outgoing) -> None:
        self.reports += out.reports
        self.results += out.results


class _Files(dict[str, bytes]):
    """What a node has stored, and which of it changed."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        super().__init__(files or {})
        self.changed: set[str] = set()

    def __setitem__(self, key: str, data: bytes) -> None:
        super().__setitem__(key, data)
        self.changed.add(key)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self.changed.add(key)


class NodeGroup:
    """Some nodes of a site. Like a node it knows no clock and does no I/O."""

    runtimes: type[NodeRuntime] = NodeRuntime
    """What a node runs as. Benchmarks put baselines in its place."""
    chunks_at_once = CHUNKS_AT_ONCE
    """So many chunks of a snapshot leave in one step: what a site's micro-batch gives leaves as a whole, so the next
    site begins with the first chunks while this one reads the next."""

    def __init__(self, hosts: Callable[[NodeId], bool], chunk_bytes: int = CHUNK_BYTES) -> None:
        """``hosts`` says which nodes belong to the group."""
        self.nodes: dict[NodeId, NodeRuntime] = {}
        self.connectivity: Connectivity | None = None
        self._hosts = hosts
        self._chunk_bytes = chunk_bytes
        self._stored: dict[NodeId, _Files] = {}
        self._lost: dict[NodeId, Mapping[str, bytes]] = {}
        self._touched: set[NodeId] = set()
        self._changes: dict[str, bytes | None] = {}

    @property
    def is_busy(self) -> bool:
        """Whether any node waits for something."""
        return any(node.is_busy() for node in self.nodes.values())

    @property
    def has_more_to_send(self) -> bool:
        """Whether there is to be another step at once, though nothing may come until then."""
        return any(node.has_more_to_send for node in self.nodes.values())

    def step(self, given: GroupInput) -> GroupOutput:
        """Take all that has come, and work until nothing is left to do inside the group."""
        out = GroupOutput()
        if given.connectivity is not None:
            self._connect(given.connectivity)
        control: dict[NodeId, list[Control]] = {}
        arrivals: dict[NodeId, list[Arrival]] = {}
        envelopes: dict[NodeId, list[Envelope]] = {}
        for name, message in given.control:
            if not isinstance(message, LostNodeQuestion):
                control.setdefault(name, []).append(message)
                continue
            answer = self._answer(message)
            if isinstance(answer, Report):
                out.reports.append(answer)
            elif answer is not None:
                control.setdefault(name, []).append(answer)
            else:
                out.rescues.append((name, message))
        for name, arrival in given.arrivals:
            arrivals.setdefault(name, []).append(arrival)
        for envelope in given.envelopes:
            if self._carries(envelope):
                envelopes.setdefault(envelope.node, []).append(envelope)
        pending: deque[Envelope] = deque()
        sending = [name for name, node in self.nodes.items() if node.has_more_to_send]
        for name in dict.fromkeys([*control, *arrivals, *envelopes, *sending]):
            node = self._node(name)
            if node is not None:
                given_to_it = (control.get(name, ()), envelopes.get(name, ()), arrivals.get(name, ()))
                self._leave(node.step(*given_to_it), out, pending)
        if given.asks_again:
            for name, node in list(self.nodes.items()):
                if node.is_busy():
                    self._touched.add(name)
                    self._leave(node.ask_again(), out, pending)
        self._work_off(pending, out)
        return out

    def _work_off(self, pending: deque[Envelope], out: GroupOutput) -> None:
        while pending:
            brought: dict[NodeId, list[Envelope]] = {}
            while pending:
                envelope = pending.popleft()
                if not self._carries(envelope):
                    continue
                if self._hosts(envelope.node):
                    brought.setdefault(envelope.node, []).append(envelope)
                else:
                    out.envelopes.append(envelope)
            for name, envelopes in brought.items():
                node = self._node(name)
                if node is not None:
                    self._leave(node.step(envelopes=envelopes), out, pending)

    def _leave(self, left: Outgoing, out: GroupOutput, pending: deque[Envelope]) -> None:
        out.add(left)
        pending.extend(left.envelopes)

    # What is there

    def _node(self, name: NodeId) -> NodeRuntime | None:
        """The node, unless it is not there."""
        if not self._is_there(name):
            return None
        self._touched.add(name)
        if name not in self.nodes:
            self.nodes[name] = self.runtimes(name, self._chunk_bytes)
            self.nodes[name].chunks_at_once = self.chunks_at_once
        return self.nodes[name]

    def _is_there(self, name: NodeId) -> bool:
        return self.connectivity is None or self.connectivity.has(name)

    def _carries(self, envelope: Envelope) -> bool:
        """Whether the link that an envelope is crossing is there."""
        if self.connectivity is None or envelope.place == 0:
            return envelope.place == 0
        return self.connectivity.carries(envelope.path[envelope.place - 1], envelope.node)

    def _connect(self, connectivity: Connectivity) -> None:
        before = self.connectivity
        if before is not None and connectivity.version <= before.version:
            return
        self.connectivity = connectivity
        self._changes[CONNECTIVITY] = connectivity.to_bytes()
        for name in [name for name in self.nodes if connectivity.has_lost(name, before)]:
            self._lose(name)

    def _lose(self, name: NodeId) -> None:
        """A node is gone; what it had stored is put aside."""
        self._store(name)
        del self.nodes[name]
        stored, earlier = self._stored.pop(name), self._lost.pop(name, {})
        self._changes |= {_key(file_name(name), key): None for key in stored}
        self._changes |= {_key(LOST + file_name(name), key): None for key in earlier}
        files = self._lost[name] = with_earlier_stages(stored, earlier)
        self._changes |= {_key(LOST + file_name(name), key): data for key, data in files.items()}

    def _answer(self, question: LostNodeQuestion) -> LostNodeAnswer | None:
        """The answer for a lost node of this group; None if it has none, or has not heard of the loss."""
        if self.connectivity is None or not self.connectivity.has_heard_of(question.lost_node, question.losses):
            return None
        return answer_for_lost_node(question, self._lost.get(question.lost_node, {}))

    # Durability

    def changes(self) -> dict[str, bytes | None]:
        """What is to be stored since the last call, by key; None: to be removed."""
        for name in self._touched:
            if name in self.nodes:
                self._store(name)
        self._touched = set()
        changes, self._changes = self._changes, {}
        return changes

    def _store(self, name: NodeId) -> None:
        files = self._stored.setdefault(name, _Files())
        store_node(self.nodes[name], files)
        for key in files.changed:
            self._changes[_key(file_name(name), key)] = files.get(key)
        files.changed = set()

    @classmethod
    def restored(
        cls, hosts: Callable[[NodeId], bool], stored: Mapping[str, bytes], chunk_bytes: int = CHUNK_BYTES
    ) -> NodeGroup:
        """The group as it was when its changes were last stored."""
        group = cls(hosts, chunk_bytes)
        if CONNECTIVITY in stored:
            group.connectivity = Connectivity.from_bytes(stored[CONNECTIVITY])
        for (is_lost, name), files in _by_node(stored).items():
            if is_lost:
                group._lost[name] = files
            else:
                group._stored[name] = _Files(files)
        for name, files in group._stored.items():
            group.nodes[name] = restored_node(name, files, chunk_bytes)
            group.nodes[name].chunks_at_once = cls.chunks_at_once
        return group


def stored_by_lost_node(
    stored: Mapping[str, bytes], node: NodeId, losses: int, *, is_gone: bool
) -> dict[str, bytes] | None:
    """What a lost node had stored, from what its group has stored; None if the group has not heard of its loss.

    ``is_gone`` says that the whole group is gone: then the node is, too, whatever the group has heard of.
    """
    by_node = _by_node(stored)
    put_aside = by_node.get((True, node), {})
    if is_gone:
        return with_earlier_stages(by_node.get((False, node), {}), put_aside)
    connectivity = Connectivity.from_bytes(stored[CONNECTIVITY]) if CONNECTIVITY in stored else None
    return put_aside if connectivity is not None and connectivity.has_heard_of(node, losses) else None


def _by_node(stored: Mapping[str, bytes]) -> dict[tuple[bool, NodeId], dict[str, bytes]]:
    found: dict[tuple[bool, NodeId], dict[str, bytes]] = {}
    for key, data in stored.items():
        owner, separator, rest = key.partition("\n")
        if separator:
            is_lost = owner.startswith(LOST)
            found.setdefault((is_lost, name_of_file(owner.removeprefix(LOST))), {})[rest] = data
    return found


def _key(owner: str, key: str) -> str:
    return f"{owner}\n{key}"
