"""Helpers of the benchmarks of deployment on Spark sites: what they count, and the baselines' messages."""

import math
import time

import pyarrow as pa
import pytest

from benchmarks.isqd.holistic import Answered, Call
from benchmarks.isqd.moving_devices import STILL, Feeder, Latencies, MovingDevices, Outcome, summary
from benchmarks.isqd.on_spark_state import MIB, bytes_per_row, rows_of_a, topology
from midstream.deployment.protocol.messages import DeployStage
from midstream.deployment.protocol.wire_format import message_from_bytes, message_to_bytes


def table(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


def test_latencies_are_those_of_each_result_once():
    arose = {("q", 0): 10.0, ("q", 1): 11.0, ("q", 2): 12.0, (STILL, 0): 10.0}
    found = Latencies.of(arose, {"q": [(10.5, table(0)), (13.0, table(0, 1))], STILL: [(10.25, table(0))]})
    assert found.rows == {"q": [(10.0, 10.5), (11.0, 13.0)], STILL: [(10.0, 10.25)]}
    assert (found.missing, found.repeated) == (1, 1)
    assert found.between(10.5, 20.0, ["q"]) == [2.0]


def test_data_flow_again_when_the_slowest_query_has_a_result_of_a_later_row():
    latencies = Latencies(
        {"q": [(1.0, 1.5), (5.0, 9.0), (6.0, 8.5)], "r": [(1.0, 1.5), (5.5, 6.0)], STILL: [(5.0, 5.2)]}
    )
    outcome = Outcome.of(latencies, (0.0, 4.0), [(4.5, 7.0)], (6, 12))
    assert outcome.flows == [4.0]
    assert outcome.deployments == [2.5]
    assert outcome.quiet == [0.5, 0.5]
    assert sorted(outcome.during) == [0.5, 2.5, 4.0]
    assert [round(value, 3) for value in outcome.still_during] == [0.2]
    assert (outcome.touched, outcome.messages) == (6, 12)


def test_a_query_without_a_later_result_has_no_time_until_data_flow():
    outcome = Outcome.of(Latencies({"q": [(1.0, 1.5)], STILL: []}), (0.0, 2.0), [(4.0, 5.0)], (1, 1))
    assert math.isnan(outcome.flows[0])
    assert summary(outcome.still_quiet)["median"] is None


def test_a_change_moves_one_device_of_each_query_and_none_of_the_one_that_stays():
    devices = MovingDevices(3)
    assert len(devices.devices) == 4
    for change in range(3):
        moved = devices.moved(change)
        assert [len(moved & set(own)) for own in devices.devices.values()] == [1, 1, 1, 0]
    placed = [node for nodes in devices.sites().values() for node in nodes]
    assert len(placed) == len(set(placed))
    assert {device for own in devices.devices.values() for device in own} <= set(placed)


def test_both_rows_of_a_pair_arise_in_each_round():
    devices = MovingDevices(1)
    written = []
    feeder = Feeder(devices, lambda *row: written.append(row), 0.01)
    feeder.start()
    while len(feeder.arose) < 6:
        time.sleep(0.005)
    feeder.end()
    (query, own), _ = devices.devices.items()
    keys = {(device, number): rows["k"].to_pylist() for device, _, number, rows in written}
    assert [keys[device, 1] for device in own] == [[2], [2], [3], [3]]
    assert (query, 2) in feeder.arose


def test_a_state_has_the_size_that_is_asked_for():
    rows = rows_of_a(5, 100)
    assert rows["k"].to_pylist() == list(range(5, 105))
    assert 80 < bytes_per_row() < 140
    assert int(16 * MIB / bytes_per_row()) > 100_000
    assert topology().nodes["relay"].slots == 0


@pytest.mark.parametrize("with_contexts", [False, True])
def test_messages_of_the_holistic_baseline_pass_the_wire(with_contexts):
    import benchmarks.isqd.holistic_sites  # noqa: F401

    plans = MovingDevices(1).plans(STILL)
    contexts = tuple(DeployStage(plan, ("a", "b")) for plan in plans) if with_contexts else ()
    call = Call("q", 3, "register", "q#1", ("q/x",), contexts, 17)
    read = message_from_bytes(message_to_bytes(call))
    assert isinstance(read, Call)
    assert (read.stages, read.replay_from, len(read.contexts)) == (("q/x",), 17, len(contexts))
    assert [context.stage for context in read.contexts] == [context.stage for context in contexts]
    answered = Answered("n", "q", 3, "stop", "q#1", {"q/x": 4})
    assert message_from_bytes(message_to_bytes(answered)) == answered
