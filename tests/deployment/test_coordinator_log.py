"""The coordinator's log: what was told comes back, and a torn last line does not hurt."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.deployment.protocol.coordinator import Coordinator
from midstream.deployment.protocol.coordinator_log import CoordinatorLog
from midstream.deployment.protocol.coordinator_requests import (
    ChangeTopology,
    DeployQuery,
    InitialTopology,
    ReplacePlans,
    TakeReport,
    handle,
    request_from_json,
    request_to_json,
)
from midstream.deployment.protocol.messages import Prepared
from midstream.deployment.simulation import Simulation
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import AddLink, RemoveLink
from midstream.errors import AlreadyRunning, MalformedMessage, NotRunning, SinkUnreachable
from tests.deployment.random_messages import PLANS, events, links, nodes, reports
from tests.deployment.test_coordinator import known

EDGES = ["e1", "e2"]
DEVICES = ["d1", "d2", "d3"]
TOPOLOGY = Topology(
    [Node(name) for name in ["cloud", *EDGES, *DEVICES]],
    [*(Link(edge, "cloud") for edge in EDGES), *(Link(device, "e1") for device in DEVICES)],
)
MOVE = ChangeTopology((RemoveLink("d1", "e1"), AddLink(Link("d1", "e2"))))
MOVE_BACK = ChangeTopology((RemoveLink("d1", "e2"), AddLink(Link("d1", "e1"))))

told = st.one_of(
    st.builds(InitialTopology, st.lists(nodes, max_size=3).map(tuple), st.lists(links, max_size=3).map(tuple)),
    st.just(DeployQuery(tuple(PLANS))),
    st.just(ReplacePlans(tuple(PLANS), "moving-state", {"share": 2})),
    st.builds(ChangeTopology, st.lists(events, max_size=3).map(tuple)),
    st.builds(TakeReport, reports),
)


@settings(deadline=None)
@given(told)
def test_what_is_told_comes_back_as_it_was(entry):
    assert request_from_json(request_to_json(entry)) == entry


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"type":"deploy"}',
        b'{"type":"deploy","plans":[],"columns":[]}',
        b'{"type":"report","report":{"kind":"Commit","message":{}}}',
    ],
)
def test_what_is_no_request_is_refused(data):
    with pytest.raises(MalformedMessage, match="cannot be read"):
        request_from_json(data)


def test_a_report_is_not_a_control_message():
    commit = b'{"type":"report","report":{"kind":"Commit","message":{"query":"q","generation":1}}}'
    with pytest.raises(MalformedMessage, match="a Commit is not kept as JSON"):
        request_from_json(commit)


def logged(path):
    """A coordinator that was told three things, which are in its log."""
    with CoordinatorLog.open(path) as log:
        log.append([("", InitialTopology.of(TOPOLOGY))])
        coordinator = Coordinator(InitialTopology.of(TOPOLOGY).topology())
        told = [DeployQuery(tuple(PLANS)), TakeReport(Prepared("e1", "q", 1)), MOVE]
        for number, entry in enumerate(told):
            handle(coordinator, entry)
            log.append([(f"request {number}", entry)])
    return coordinator


def test_a_replayed_coordinator_asks_what_the_first_would_ask(tmp_path):
    coordinator = logged(tmp_path / "log")
    with CoordinatorLog.open(tmp_path / "log") as log:
        assert log.origins == {"", "request 0", "request 1", "request 2"}
        assert log.entries == 4
        assert log.replay().ask_again(everything=True) == coordinator.ask_again(everything=True) != []


@pytest.mark.parametrize("torn", [1, 20, 60])
def test_a_torn_last_line_is_removed(tmp_path, torn):
    path = tmp_path / "log"
    logged(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-torn])
    with CoordinatorLog.open(path) as log:
        assert log.entries == 3 and "request 2" not in log.origins
        log.append([("request 2", MOVE)])
    assert path.read_bytes() == whole


def test_damage_before_the_last_line_is_refused(tmp_path):
    path = tmp_path / "log"
    logged(path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"d1", b"d2", 1)
    path.write_bytes(b"".join(lines))
    with pytest.raises(MalformedMessage, match="log is damaged") as problem:
        CoordinatorLog.open(path)
    assert problem.value.detail.startswith("Line 2: ")


def test_queries_that_are_deployed_or_are_not_are_refused():
    coordinator = Coordinator(InitialTopology.of(TOPOLOGY).topology())
    with pytest.raises(NotRunning, match='query "q" is not deployed'):
        handle(coordinator, ReplacePlans(tuple(PLANS)))
    handle(coordinator, DeployQuery(tuple(PLANS)))
    asked = coordinator.ask_again(everything=True)
    with pytest.raises(AlreadyRunning, match='query "q" is deployed already'):
        handle(coordinator, DeployQuery(tuple(PLANS)))
    assert coordinator.ask_again(everything=True) == asked


def test_a_refused_request_changes_nothing():
    coordinator = Coordinator(Topology([Node(name) for name in ["cloud", *DEVICES]]))
    with pytest.raises(SinkUnreachable):
        handle(coordinator, DeployQuery(tuple(PLANS)))
    assert coordinator.ask_again() == []


def test_a_coordinator_that_crashes_again_and_again_goes_on_from_its_log():
    simulation = Simulation(InitialTopology.of(TOPOLOGY).topology(), seed=3)
    simulation.deploy(PLANS)
    for number in range(10):
        old, new = EDGES if number % 2 == 0 else reversed(EDGES)
        simulation.change_topology([RemoveLink("d1", old), AddLink(Link("d1", new))])
        for _ in range(40):
            simulation.run_until(simulation.now + 3.3)
            simulation.crash_coordinator(back_after=0.5)
    simulation.run_until_quiet()
    assert simulation.coordinator.committed > 5


def test_a_log_is_compacted_to_what_the_coordinator_knows(tmp_path):
    simulation = Simulation(InitialTopology.of(TOPOLOGY).topology(), seed=3)
    simulation.deploy(PLANS)
    simulation.run_until_quiet()
    simulation.change_topology(list(MOVE.events))
    simulation.run_until_quiet()
    coordinator = simulation.coordinator
    with CoordinatorLog.open(tmp_path / "log") as log:
        log.append([(f"request {number}", MOVE) for number in range(50)])
        log.compact(coordinator)
        assert log.entries == 50 and log.lines == 0 and not log.origins
        log.append([("after it", MOVE_BACK)])
    size = (tmp_path / "log").stat().st_size
    handle(coordinator, MOVE_BACK)
    with CoordinatorLog.open(tmp_path / "log") as log:
        assert log.entries == 51 and log.lines == 1 and log.origins == {"", "after it"}
        again = log.replay()
        assert known(again) == known(coordinator)
        assert again.ask_again(everything=True) == coordinator.ask_again(everything=True) != []
        assert not again.can_be_compacted, "a generation is under way"
    assert size < 20_000


def test_a_damaged_snapshot_of_the_coordinator_is_refused(tmp_path):
    simulation = Simulation(InitialTopology.of(TOPOLOGY).topology())
    simulation.deploy(PLANS)
    simulation.run_until_quiet()
    path = tmp_path / "log"
    with CoordinatorLog.open(path) as log:
        log.append([("", InitialTopology.of(TOPOLOGY))])
        log.compact(simulation.coordinator)
    path.write_bytes(path.read_bytes().replace(b"d1", b"d2", 1))
    with pytest.raises(MalformedMessage, match="log is damaged"):
        CoordinatorLog.open(path)


def test_the_log_of_a_long_simulation_is_bounded():
    simulation = Simulation(InitialTopology.of(TOPOLOGY).topology())
    simulation.deploy(PLANS)
    for number in range(30):
        simulation.change_topology(list((MOVE if number % 2 == 0 else MOVE_BACK).events))
        simulation.run_until_quiet()
        simulation.run_until(simulation.now + 100)
        simulation.crash_coordinator(back_after=0.5)
        simulation.run_until(simulation.now + 100)
    assert simulation.coordinator.committed == 31
    assert simulation._log.lines < 60 < simulation._log.entries
    assert not any(i.output.messages for node in simulation.nodes.values() for i in node.running.values())
