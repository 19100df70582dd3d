"""The generated set-ups are the published ones: the text has the git blob id of the published file."""

from __future__ import annotations

import hashlib

import pytest

from midstream.deployment.placement.initial_placement import initial_placement
from midstream.deployment.placement.placement_amendment import amend
from midstream.deployment.topology.published_traces import SETUPS

BLOBS = {
    "stateless_2_sources_1_mobile": "19c08289d728da2e626bd2c8b7a53302c25c1c1f",
    "stateless_4_sources_1_mobile": "f5a57928b885adbe1ce71a5d9cb5f4fecdf1d96d",
    "stateless_8_sources_1_mobile": "b0c7792ed231fa0e5af44059d35ffbdba677e207",
    "stateless_16_sources_1_mobile": "2f6ce31e287acc27ea332f1734e45d3dcc8b5884",
    "stateless_8_sources_2_mobile": "5d2330697115e1c6f0ee70e45baf9c309d76b482",
    "stateless_8_sources_4_mobile": "84fd86b41be5127f86ce413f6d113f224c904169",
    "stateless_8_sources_8_mobile": "0098657f69a09300cf271cda965c11ab71db3974",
    "stateful_16_sources_2_mobile": "c4ee1a6df46588b6ecceaf50e74e430370cea269",
    "stateful_16_sources_4_mobile": "594f3e1430f7ff66f3b38a6420c81171257c80e3",
    "stateful_16_sources_8_mobile": "228c8459168e12ce4761e138d0e46387af1f74cf",
    "stateful_16_sources_16_mobile": "21c8fb910c650f1362bbb3ca5cf8d173893aef22",
    "topology_tree": "8e76f47bf52ba50777a7a9ef5cccc0c87407de41",
    "topology_full": "8e76f47bf52ba50777a7a9ef5cccc0c87407de41",
    "topology_circular": "8e76f47bf52ba50777a7a9ef5cccc0c87407de41",
    "intermediate_1": "4b3369f4ef1a69919bbc3e0b999eff9dff551395",
    "intermediate_2": "1d39ee4677e30651ca52e6b3390235d2977aacde",
    "intermediate_4": "381685fdf04eaccf897eb41051a399ee27651e91",
    "intermediate_8": "5f9fc298ed74d08b47e5cdc5fcd6df897e395f2f",
    "intermediate_16": "02afc0645fa2c0172821554c959ed091851f6339",
}


@pytest.mark.parametrize("name", BLOBS)
def test_the_generated_file_equals_the_published_one(name):
    content = SETUPS[name].updates_json().encode()
    assert hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == BLOBS[name]


def test_there_are_19():
    assert SETUPS.keys() == BLOBS.keys() and len(BLOBS) == 19


@pytest.mark.parametrize("name", SETUPS)
def test_devices_and_joins_move_from_edge_to_edge(name):
    setup = SETUPS[name]
    trace, plan = setup.trace(), setup.plan()
    placement = initial_placement(plan, trace.topology)
    for batch in trace.batches[:12]:
        amendment = amend(plan, trace.topology, placement, batch.events)
        assert len(amendment.queries) == 10 and not amendment.cut_off
        moved = list(amendment.moves)
        if setup.peers == "none":
            assert len(moved) == 10 * setup.mobile // (2 if setup.is_stateful else 1)
            assert all(trace.topology.nodes[move.target].kind == "edge" for move in moved)
        else:
            assert not moved, "rows find their way from edge node to edge node"
            assert len(amendment.rerouted) == 10 * setup.mobile
