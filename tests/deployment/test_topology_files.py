"""Topologies and events are read from TOML, JSON and the published format; what is wrong is named with its file."""

from __future__ import annotations

import gzip
import json
import tomllib

import pytest

from midstream.deployment.topology.published_traces import SETUPS, PublishedSetup
from midstream.deployment.topology.topology import Link, Node
from midstream.deployment.topology.topology_events import AddLink, AddNode, EventBatch, LoseNode, RemoveLink, RemoveNode
from midstream.deployment.topology.topology_files import read_batches, read_published_folder, read_topology
from midstream.errors import AlreadyInTopology, BadTopology, CyclicTopology, PathProblem, TopologyError, UnknownNode

TOML = """
nodes = [{id = "sensor", slots = 1, kind = "sensor"}, {id = "edge 1"}, {id = "edge 2"}, {id = "cloud"}]

[[links]]
child = "sensor"
parent = "edge 1"
latency_ms = 20
bandwidth_mbit_per_s = 250

[[links]]
child = "edge 1"
parent = "cloud"

[[links]]
child = "edge 1"
parent = "edge 2"
peer = true

[[batches]]
time_ms = 0
events = [
    {event = "remove_link", child = "sensor", parent = "edge 1"},
    {event = "add_link", child = "sensor", parent = "edge 2", latency_ms = 5},
]

[[batches]]
time_ms = 1000
events = [
    {event = "add_node", id = "edge 3", slots = 8},
    {event = "remove_node", id = "edge 1"},
    {event = "lose_node", id = "edge 2"},
]
"""


@pytest.fixture(params=["toml", "json"])
def path(request, tmp_path):

    path = tmp_path / f"small.{request.param}"
    path.write_text(TOML if request.param == "toml" else json.dumps(tomllib.loads(TOML)))
    return path


def test_a_topology_is_read(path):
    topology = read_topology(path)
    assert topology.nodes["sensor"] == Node("sensor", 1, "sensor")
    assert topology.nodes["cloud"] == Node("cloud", None, None)
    assert set(topology.links()) == {
        Link("sensor", "edge 1", 20, 250),
        Link("edge 1", "cloud"),
        Link("edge 1", "edge 2", is_peer=True),
    }


def test_batches_are_read(path):
    assert read_batches(path) == [
        EventBatch(0, (RemoveLink("sensor", "edge 1"), AddLink(Link("sensor", "edge 2", 5)))),
        EventBatch(1000, (AddNode(Node("edge 3", 8)), RemoveNode("edge 1"), LoseNode("edge 2"))),
    ]


@pytest.mark.parametrize(
    ("text", "error", "message", "detail"),
    [
        ("nodes = [", BadTopology, "is not TOML", "end of document"),
        ("nods = []", BadTopology, "is not a topology file", "unknown field `nods`"),
        ('nodes = [{id = "a", slot = 1}]', BadTopology, "is not a topology file", "unknown field `slot`"),
        ("nodes = [{id = 1}]", BadTopology, "is not a topology file", "Expected `str`, got `int` - at `$.nodes[0].id`"),
        ('nodes = [{id = "a", slots = -1}]', BadTopology, 'node "a" has -1 slots', "In "),
        ('links = [{child = "a", parent = "b"}]', UnknownNode, 'there is no node "a"', "In "),
        (
            'nodes = [{id = "a"}, {id = "b"}]\nlinks = [{child = "a", parent = "b"}, {child = "b", parent = "a"}]',
            AlreadyInTopology,
            'nodes "b" and "a" are linked already',
            "In ",
        ),
        (
            'nodes = [{id = "a"}, {id = "b"}, {id = "c"}]\nlinks = [{child = "a", parent = "b"}, '
            '{child = "b", parent = "c"}, {child = "c", parent = "a"}]',
            CyclicTopology,
            'link "c" → "a" would close a cycle',
            "In ",
        ),
    ],
)
def test_a_topology_file_that_is_wrong_is_refused(tmp_path, text, error, message, detail):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(error) as refusal:
        read_topology(path)
    assert message in refusal.value.message
    assert detail in refusal.value.detail
    assert "wrong.toml" in str(refusal.value)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ('[{time_ms = 0, events = [{event = "explode", id = "a"}]}]', "is not a topology file"),
        ('[{time_ms = 0, events = [{event = "remove_link", child = "a"}]}]', "is not a topology file"),
        ("[{time_ms = 5, events = []}, {time_ms = 4, events = []}]", "the batches are not in order of time"),
    ],
)
def test_batches_that_are_wrong_are_refused(tmp_path, batches, message):
    path = tmp_path / "wrong.toml"
    path.write_text(f"batches = {batches}")
    with pytest.raises(BadTopology, match=message):
        read_batches(path)


def test_a_missing_file_is_a_path_problem(tmp_path):
    with pytest.raises(PathProblem, match="No such file"):
        read_topology(tmp_path / "none.toml")
    with pytest.raises(PathProblem, match="No such file"):
        read_published_folder(tmp_path)


def write_published(folder, setup: PublishedSetup, packed: bool) -> None:
    """A folder as published, with the fixed nodes' ids lowered by the set-up's shift."""
    shift = setup.group_shift
    topology = setup.trace().topology
    fixed = [int(node.id) for node in topology.nodes.values() if node.kind == "edge"]
    children: dict[int, list[int]] = {number - shift: [] for number in fixed}
    for link in topology.links():
        child, parent = int(link.child), int(link.parent)
        if child in fixed and parent in fixed:
            children[parent - shift].append(child - shift)
            if link.is_peer:
                children[child - shift].append(parent - shift)
    content = {
        "nodes": {number - shift: [0.0, 0.0] for number in fixed},
        "slots": {number - shift: 65535 for number in fixed},
        "children": children,
    }
    (folder / "fixed_topology.json").write_text(json.dumps(content))
    (folder / "source_groups.json").write_text(json.dumps({d: [group] for d, group in setup.groups().items()}))
    if packed:
        (folder / "topology_updates.json.gz").write_bytes(gzip.compress(setup.updates_json().encode()))
    else:
        (folder / "topology_updates.json").write_text(setup.updates_json())


@pytest.mark.parametrize(
    "name", ["stateless_2_sources_1_mobile", "topology_tree", "topology_full", "topology_circular", "intermediate_4"]
)
def test_a_published_folder_is_read_as_it_is_generated(tmp_path, name):
    write_published(tmp_path, SETUPS[name], packed=name.startswith("topology"))
    read, generated = read_published_folder(tmp_path), SETUPS[name].trace()
    assert dict(read.topology.nodes) == dict(generated.topology.nodes)
    assert set(read.topology.links()) == set(generated.topology.links())
    assert (read.groups, read.batches) == (generated.groups, generated.batches)


WRONG = {
    "empty": ("json", b"", "is not JSON"),
    "not UTF-8": ("json", b'{"nodes": [{"id": "\xff"}]}', "is not JSON"),
    "TOML that is not UTF-8": ("toml", b"nodes = [] # \xff", "is not TOML"),
    "nested too deeply": ("json", b"[" * 200_000, "is not JSON"),
    "TOML that is nested too deeply": ("toml", b"nodes = " + b"[" * 200_000, "is not TOML"),
    "a number without an end": (
        "json",
        b'{"batches": [{"time_ms": ' + b"9" * 5_000 + b', "events": []}]}',
        "is not JSON",
    ),
    "a number that is too large": (
        "json",
        b'{"batches": [{"time_ms": 1' + b"0" * 400 + b', "events": []}]}',
        "is not a topology file",
    ),
    "a key twice": ("json", b'{"batches": [], "nodes": [], "batches": []}', "is not JSON"),
    "a time that is not a number": ("json", b'{"batches": [{"time_ms": NaN, "events": []}]}', "is at nan ms"),
    "a time without an end": ("toml", b"batches = [{time_ms = inf, events = []}]", "is at inf ms"),
    "a time before the beginning": ("toml", b"batches = [{time_ms = -1, events = []}]", "is at -1.0 ms"),
    "a list": ("json", b"[]", "is not a topology file"),
    "a name that is empty": (
        "toml",
        b'batches = [{time_ms = 0, events = [{event = "lose_node", id = ""}]}]',
        "no name",
    ),
    "a truncated archive": ("json.gz", gzip.compress(b'{"batches": []}')[:-9], "is not JSON"),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_of_events_that_cannot_be_are_refused_by_name(tmp_path, name):
    ending, content, message = WRONG[name]
    path = tmp_path / f"wrong.{ending}"
    path.write_bytes(content)
    with pytest.raises(BadTopology, match=message) as refusal:
        read_batches(path)
    assert "wrong" in str(refusal.value)


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"nodes": {"2": [0, 0]}, "slots": {}, "children": {}}, "is not a topology file"),
        ({"nodes": {"2": [0, 0]}, "slots": {"2": 1}, "children": {"2": [77]}}, 'there is no node "77"'),
        ({"nodes": {"2": [0, 0]}, "slots": {"2": -1}, "children": {}}, "has -1 slots"),
        ({"nodes": {"x": [0, 0]}, "slots": {}, "children": {}}, "is not a topology file"),
    ],
)
def test_a_published_folder_that_does_not_fit_together_is_refused(tmp_path, fixed, message):
    (tmp_path / "fixed_topology.json").write_text(json.dumps(fixed))
    (tmp_path / "source_groups.json").write_text("{}")
    (tmp_path / "topology_updates.json").write_text('{"initial_parents": [], "topology_updates": []}')
    with pytest.raises(TopologyError, match=message) as refusal:
        read_published_folder(tmp_path)
    assert str(tmp_path) in str(refusal.value)
