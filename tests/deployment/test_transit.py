"""Messages that only pass through a site, and snapshots that leave a part at a time."""

from itertools import pairwise

from midstream.deployment.protocol.messages import Cursor, Envelope, StateChunk
from midstream.deployment.protocol.node_runtime import Held, NodeRuntime, chunks_of
from midstream.deployment.protocol.wire_format import message_from_bytes, message_to_bytes
from midstream.deployment.sites.connectivity import Connectivity
from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.sites.durable_files import write_whole
from midstream.deployment.sites.message_file import ENVELOPE, MessageRow, read_messages, write_messages
from midstream.deployment.sites.transit import Transit
from midstream.deployment.topology.topology import Link, Node, Topology

NODES = ["a", "b", "b2", "c", "d"]
SITES = {"west": ["a"], "middle": ["b", "b2"], "east": ["c"], "far": ["d"]}
WAY = Topology([Node(name) for name in NODES], [Link(*pair) for pair in pairwise(NODES)])


def passed_on(path, envelope, links=WAY):
    """What the site in the middle makes of a message that has come for one of its nodes: folders and messages."""
    directory = DeploymentDirectory.create(path, WAY, SITES)
    write_whole(directory.connectivity, Connectivity.of(1, links).to_bytes())
    came = directory.transit("middle", "west") / "1.parquet"
    write_messages(came, [MessageRow(ENVELOPE, envelope.node, message_to_bytes(envelope))])
    Transit(directory, "middle").pass_on()
    assert not came.exists()
    files = sorted((directory.path / "sites").glob("*/*/*/*.parquet"))
    return {
        str(file.parent.relative_to(directory.path / "sites")): [
            message_from_bytes(row.blob) for row in read_messages(file)
        ]
        for file in files
    }


def test_a_message_passes_through_all_nodes_of_a_site_at_once(tmp_path):
    cursor = Cursor("edge", 1, 7)
    found = passed_on(tmp_path, Envelope(("a", "b", "b2", "c"), cursor))
    assert found == {"east/inbox/middle": [Envelope(("a", "b", "b2", "c"), cursor, 3)]}


def test_what_has_further_to_go_stays_in_transit(tmp_path):
    cursor = Cursor("edge", 1, 7)
    found = passed_on(tmp_path, Envelope(("a", "b", "b2", "c", "d"), cursor))
    assert found == {"east/transit/middle": [Envelope(("a", "b", "b2", "c", "d"), cursor, 3)]}


def test_what_ends_on_another_node_of_the_site_goes_to_its_own_inbox(tmp_path):
    cursor = Cursor("edge", 1, 7)
    found = passed_on(tmp_path, Envelope(("a", "b", "b2"), cursor))
    assert found == {"middle/inbox/middle": [Envelope(("a", "b", "b2"), cursor, 2)]}


def test_a_link_that_is_not_there_carries_nothing(tmp_path):
    cut = Topology([Node(name) for name in NODES], [Link("a", "b"), Link("b", "b2")])
    assert passed_on(tmp_path, Envelope(("a", "b", "b2", "c"), Cursor("edge", 1, 7)), cut) == {}


def test_a_file_that_is_no_message_is_removed(tmp_path):
    directory = DeploymentDirectory.create(tmp_path, WAY, SITES)
    write_whole(directory.connectivity, Connectivity.of(1, WAY).to_bytes())
    came = directory.transit("middle", "west") / "1.parquet"
    write_whole(came, b"nothing")
    Transit(directory, "middle").pass_on()
    assert not came.exists()


def test_a_snapshot_leaves_a_part_per_step():
    node = NodeRuntime("a", chunk_bytes=100)
    node.chunks_at_once = 4
    chunks = chunks_of({"piece": bytes(950)}, 100)

    class Instance:
        is_sink = True

    node.held["stage"] = Held(Instance(), 1, ("a", "b"), chunks)  # type: ignore[arg-type]
    sent = []
    while node.has_more_to_send:
        step = [envelope.message for envelope in node.step().envelopes]
        assert 0 < len(step) <= 4
        sent += step
    assert [chunk.data for chunk in sent] == chunks
    assert all(isinstance(chunk, StateChunk) for chunk in sent)
    assert not node.step().envelopes
