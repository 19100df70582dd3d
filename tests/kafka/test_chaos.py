"""A short form of ``python -m tests.kafka.chaos``: the broker dies, and the driver amid a micro-batch."""

import pytest

from tests.kafka.packages import Unreachable, broker_jars, connector_jars


def test_every_result_at_least_once_and_once_without_repeats_when_broker_and_driver_are_killed(tmp_path):
    try:
        broker_jars(), connector_jars()
    except Unreachable as reason:
        pytest.skip(str(reason))
    from tests.kafka.chaos import Conductor

    report = Conductor(tmp_path, ["broker", "amid"], seed=1).run()
    assert report["killed"] == {"broker": 1, "amid": 1}
    assert report["missing among messages"] == 0
    assert (report["missing"], report["repeated"], report["unexpected"]) == (0, 0, 0)
    assert report["messages"] > report["expected"] > 0
    assert report["bad messages counted"] == report["bad messages sent"]
    assert report["migrations"]
    assert report["late"] == 0
