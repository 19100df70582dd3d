"""What a node stores: enough to go on, and damage is noticed."""

import pytest

from midstream.deployment.protocol.messages import EnterMarker, Prepare, StateChunk
from midstream.deployment.protocol.node_runtime import NodeRuntime
from midstream.deployment.protocol.node_storage import restored_node, store_node, stored_stage
from midstream.errors import MidstreamError
from tests.deployment.small_deployment import O2, O4, O5, SmallDeployment


@pytest.fixture
def moving():
    """Marked: N5 holds O4, and N6 waits for its state."""
    deployment = SmallDeployment(chunk_bytes=100)
    deployment.feed("N7", "a", (1, 1), (1, 2))
    deployment.feed("N8", "b", (1, 2), (2, 3))
    deployment.move()
    deployment.tell(Prepare)
    deployment.report()
    deployment.tell(EnterMarker)
    return deployment


def stored(node: NodeRuntime) -> dict[str, bytes]:
    storage: dict[str, bytes] = {}
    store_node(node, storage)
    return storage


@pytest.mark.parametrize("name", ["N3", "N5", "N6", "N8"])
def test_a_restored_node_stores_the_same(moving, name):
    storage = stored(moving.nodes[name])
    assert stored(restored_node(name, storage, 100)) == storage


def test_a_node_that_never_stored_anything_is_empty():
    node = restored_node("N9", {})
    assert not node.running and not node.held and not node.awaiting and not node.generations


def test_storing_again_drops_what_is_gone(moving):
    storage = stored(moving.nodes["N5"])
    assert any(key.startswith(f"running/{O4}") for key in storage)
    moving.settle()
    store_node(moving.nodes["N5"], storage)
    assert list(storage) == ["node"]


def test_a_snapshot_that_is_sent_is_not_written_again():
    deployment = SmallDeployment(chunk_bytes=100)
    deployment.feed("N8", "b", (1, 2), (2, 3))
    deployment.settle()
    node, storage = deployment.nodes["N5"], {}
    store_node(node, storage)
    segments = {key: data for key, data in storage.items() if "/segment" in key}
    deployment.move()
    deployment.tell(Prepare)
    deployment.report()
    deployment.tell(EnterMarker)
    store_node(node, storage)
    assert node.held[O4] and segments
    assert all(storage[key] is data for key, data in segments.items())


def test_a_stage_that_is_held_and_runs_again_is_stored_twice(moving):
    node = moving.nodes["N5"]
    held = node.held[O4]
    node.running[O4] = type(held.instance).restored(held.instance.plan, dict(held.instance.files))
    node.running[O4].installed_in = 7
    again = restored_node("N5", stored(node), 100)
    assert again.running[O4].installed_in == 7
    assert again.held[O4].instance.installed_in == held.instance.installed_in != 7


def test_chunks_do_not_depend_on_the_order_in_which_a_store_gives_its_pieces(moving):
    storage = stored(moving.nodes["N5"])
    backwards = dict(reversed(storage.items()))
    assert restored_node("N5", backwards, 100).held[O4].chunks == moving.nodes["N5"].held[O4].chunks


def test_the_snapshot_of_a_stage_can_be_rescued_where_it_ran_or_was_held(moving):
    assert stored_stage(stored(moving.nodes["N5"]), O4)
    assert stored_stage(stored(moving.nodes["N8"]), O2)
    assert stored_stage(stored(moving.nodes["N6"]), O4) is None, "N6 has only been told to expect it"


def test_a_held_snapshot_is_the_same_after_a_crash_although_messages_were_confirmed():
    deployment = SmallDeployment(chunk_bytes=100)
    deployment.feed("N8", "b", (1, 2), (2, 3))
    deployment.carry(lambda envelope: envelope.message.edge == O2)
    assert deployment.nodes["N5"].running[O4].output.messages, "nothing of it has reached N3 yet"
    deployment.move()
    deployment.tell(Prepare)
    deployment.report()
    deployment.tell(EnterMarker)
    chunks = deployment.nodes["N5"].held[O4].chunks
    deployment.carry(lambda envelope: not isinstance(envelope.message, StateChunk))
    deployment.crash("N5")
    assert deployment.nodes["N5"].held[O4].chunks == chunks, "N6 may have some of them already"


@pytest.mark.parametrize("key", ["node", f"running/{O5}\nedges", f"running/{O5}\ncell/progress"])
def test_damage_is_refused(moving, key):
    storage = stored(moving.nodes["N3"])
    key = next((name for name in storage if name.startswith(key)), key)
    for damaged in (b"", storage[key][:-3], b"{" + storage[key]):
        with pytest.raises(MidstreamError, match="M"):
            restored_node("N3", {**storage, key: damaged})


def test_a_missing_piece_is_refused(moving):
    storage = stored(moving.nodes["N3"])
    for key in storage:
        if key.endswith("edges"):
            with pytest.raises(MidstreamError):
                restored_node("N3", {name: data for name, data in storage.items() if name != key})
