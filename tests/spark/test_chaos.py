"""A short form of ``make chaos``: every kind of process dies once while the query migrates."""

import pytest

from tests.spark.chaos import Conductor


@pytest.mark.parametrize("victims", [["worker", "host", "before commit"]])
def test_nothing_is_lost_or_repeated_when_processes_are_killed(tmp_path, victims):
    """The driver is killed between the writing of a micro-batch's files and its commit."""
    report = Conductor(tmp_path, "local", len(victims), seed=1, victims=victims, sink="delta", source="files").run()
    assert report["killed"] == dict.fromkeys(victims, 1)
    assert (report["missing"], report["repeated"]) == (0, 0)
    assert report["results"] > 0
    assert report["drivers"] == 2
    assert (report["table"]["orphans left"], report["table"]["files lost"]) == (0, 0)
