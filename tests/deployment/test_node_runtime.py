"""A node: what it does with each message, also with those that come twice, late or for somebody else."""

import msgspec
import pytest

from midstream.deployment.protocol.messages import (
    Abort,
    Aborted,
    Acted,
    Commit,
    Committed,
    EnterMarker,
    Envelope,
    Installed,
    Prepare,
    Prepared,
    ProvideState,
    RerouteState,
    Resume,
    Resumed,
    StateChunk,
    StateCursor,
)
from midstream.deployment.protocol.node_runtime import NodeRuntime, chunks_of
from midstream.deployment.protocol.node_storage import store_node, stored_stage
from midstream.deployment.protocol.status import node_status
from tests.deployment.small_deployment import O2, O4, SmallDeployment


class Moving:
    """The move of O4 from N5 to N6 (and of its input O2 to another route), prepared at all nodes."""

    def __init__(self) -> None:
        self.deployment = SmallDeployment(chunk_bytes=100)
        self.deployment.feed("N8", "b", (1, 2), (2, 3))
        self.deployment.settle()
        self.deployment.move()
        self.prepare = {node: message for node, message in self.deployment.tell(Prepare)}
        self.deployment.report()
        self.enter = {n: m for n, m in self.deployment.control if isinstance(m, EnterMarker)}
        self.n5, self.n6, self.n8 = (self.deployment.nodes[name] for name in ("N5", "N6", "N8"))

    def chunks(self) -> list[Envelope]:
        """N5 meets the marker: the state as it sets off."""
        sent = self.n5.step([self.enter["N5"]]).envelopes
        return [Envelope(e.path, e.message, 2) for e in sent if isinstance(e.message, StateChunk)]


@pytest.fixture
def moving():
    return Moving()


def test_a_prepare_that_comes_twice_is_answered_twice_and_changes_nothing(moving):
    assert moving.n6.step([moving.prepare["N6"]]).reports == [Prepared("N6", "q", 2)]
    assert list(moving.n6.awaiting) == [O4]


def test_a_prepare_of_an_earlier_generation_is_ignored(moving):
    moving.deployment.settle()
    late = moving.prepare["N5"]
    moving.n5.step([Prepare("q", 3, ())])
    assert moving.n5.step([late]).reports == []
    assert not moving.n5.contexts["q", 3] and ("q", 2) not in moving.n5.contexts


def test_a_prepare_forgets_what_earlier_generations_had_prepared(moving):
    moving.n6.step([Prepare("q", 3, ())])
    assert not moving.n6.awaiting and list(moving.n6.contexts) == [("q", 3)]


def test_a_marker_that_comes_twice_is_acted_on_once(moving):
    acted = Acted("N5", "q", 2, O4)
    assert moving.n5.step([moving.enter["N5"]]).reports == [acted]
    held = moving.n5.held[O4]
    assert moving.n5.step([moving.enter["N5"]]).reports == [acted], "the report may have been lost"
    assert moving.n5.held[O4] is held


def test_a_marker_of_an_update_that_comes_twice_is_reported_twice(moving):
    for _ in range(2):
        assert moving.n8.step([moving.enter["N8"]]).reports == [Acted("N8", "q", 2, O2)]
    assert moving.n8.running[O2].output.route == ("N8", "N6")


def test_state_is_installed_when_the_last_chunk_has_come_whatever_came_twice(moving):
    chunks = moving.chunks()
    assert len(chunks) > 3
    moving.n6.step(envelopes=[chunks[0], chunks[0], chunks[2], *chunks[1:-1]])
    assert O4 not in moving.n6.running
    out = moving.n6.step(envelopes=chunks[-1:])
    assert Installed("N6", "q", 2, O4) in out.reports and O4 in moving.n6.running
    late = moving.n6.step(envelopes=chunks[:1])
    assert late.envelopes[0].message.next == len(chunks), "N5 is told that all have come"


def test_a_damaged_snapshot_is_refused_and_sent_again(moving):
    chunks = moving.chunks()
    last = chunks[-1]
    damaged = StateChunk(O4, 2, last.message.number, last.message.count, last.message.data[:-1] + b"?")
    out = moving.n6.step(envelopes=[*chunks[:-1], Envelope(last.path, damaged, 2)])
    assert O4 not in moving.n6.running and O4 in moving.n6.awaiting
    assert "[M3011] the snapshot of a stage is damaged" in node_status(moving.n6).refusal
    assert out.envelopes[-1].message == StateCursor(O4, 2, 0), "all of it is to be sent again"
    moving.deployment.envelopes += out.envelopes
    moving.deployment.settle()
    assert moving.deployment.where(O4) == ["N6"]


def test_a_snapshot_whose_state_and_cursors_disagree_is_refused(moving):
    storage: dict[str, bytes] = {}
    store_node(moving.n5, storage)
    files = stored_stage(storage, O4)
    edges = msgspec.json.decode(files["edges"])
    edges["inputs"][0]["next_number"] += 1
    bad = ProvideState(O4, 2, files | {"edges": msgspec.json.encode(edges)})
    assert moving.n6.step([bad]).reports == []
    assert "is inconsistent" in node_status(moving.n6).refusal and O4 in moving.n6.awaiting
    assert Installed("N6", "q", 2, O4) in moving.n6.step([ProvideState(O4, 2, files)]).reports


def test_an_abort_before_the_state_has_come_keeps_the_stage_from_beginning(moving):
    chunks = moving.chunks()
    moving.n6.step(envelopes=chunks[:-1])
    assert moving.n6.step([Abort("q", 2, (O4,))]).reports == [Aborted("N6", "q", 2, O4)]
    moving.n6.step([moving.prepare["N6"]], envelopes=chunks)
    assert O4 not in moving.n6.running and O4 not in moving.n6.awaiting


def test_an_abort_of_a_stage_that_runs_is_refused(moving):
    moving.n6.step(envelopes=moving.chunks())
    assert moving.n6.step([Abort("q", 2, (O4,))]).reports == [Installed("N6", "q", 2, O4)]
    assert O4 in moving.n6.running


def test_an_abort_that_overtakes_its_prepare_makes_the_prepare_stale(moving):
    node = NodeRuntime("N6")
    node.step([Abort("q", 2, (O4,)), moving.prepare["N6"]])
    assert not node.awaiting


def test_a_held_stage_is_resumed_with_all_it_had(moving):
    moving.chunks()
    instance = moving.n5.held[O4].instance
    for _ in range(2):
        assert Resumed("N5", "q", 2, O4) in moving.n5.step([Resume("q", 2, O4)]).reports
    assert moving.n5.running[O4] is instance and not moving.n5.held


def test_a_stage_that_is_resumed_before_it_met_the_marker_is_not_ended_by_it(moving):
    moving.n5.step([Resume("q", 2, O4)])
    moving.n5.step([moving.enter["N5"]])
    assert O4 in moving.n5.running and O4 not in moving.n5.held


def test_a_commit_forgets_contexts_and_snapshots(moving):
    moving.chunks()
    assert moving.n5.step([Commit("q", 2)]).reports == [Committed("N5", "q", 2)]
    assert not moving.n5.held and not moving.n5.contexts
    assert moving.n5.step([Commit("q", 2)]).reports == [Committed("N5", "q", 2)]


def test_a_commit_leaves_other_queries_alone(moving):
    moving.chunks()
    moving.n5.step([Commit("other", 9)])
    assert O4 in moving.n5.held


def test_a_state_sent_on_another_path_begins_where_it_was_confirmed(moving):
    moving.chunks()
    other = ("N5", "N3", "N2", "N3", "N6")
    sent = moving.n5.step([RerouteState(O4, 2, other)]).envelopes
    assert {envelope.path for envelope in sent} == {other}
    assert [e.message.number for e in sent] == list(range(len(moving.n5.held[O4].chunks)))


def test_a_rescued_state_is_installed_once(moving):
    storage: dict[str, bytes] = {}
    store_node(moving.n5, storage)
    provided = ProvideState(O4, 2, stored_stage(storage, O4))
    assert Installed("N6", "q", 2, O4) in moving.n6.step([provided]).reports
    before = moving.n6.running[O4]
    moving.n6.step([provided])
    assert moving.n6.running[O4] is before


def test_an_envelope_for_another_node_is_passed_on(moving):
    (chunk, *_) = moving.chunks()
    passing = Envelope(chunk.path, chunk.message, 1)
    assert moving.deployment.nodes["N3"].step(envelopes=[passing]).envelopes == [chunk]
    with pytest.raises(AssertionError, match="wrong node"):
        moving.deployment.nodes["N3"].step(envelopes=[chunk])


def test_rows_of_a_stream_that_no_stage_reads_are_ignored(moving):
    moving.deployment.feed("N8", "a", (1, 1))
    assert not moving.deployment.envelopes


@pytest.mark.parametrize("size", [16, 17, 1000])
def test_chunks_are_as_large_as_said(size):
    chunks = chunks_of({"a": b"x" * 50, "b": b""}, size)
    assert all(len(chunk) == size for chunk in chunks[:-1]) and 0 < len(chunks[-1]) <= size
