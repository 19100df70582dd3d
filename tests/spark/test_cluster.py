"""The same query on a standalone cluster: a master and two workers of one core, whose executor is killed once."""

from tests.spark.chaos import Conductor


def test_a_cluster_gives_the_same_results_also_when_an_executor_is_killed(tmp_path):
    report = Conductor(tmp_path, "cluster", kills=1, seed=2, victims=["executor"]).run()
    assert report["killed"] == {"executor": 1}
    assert (report["missing"], report["repeated"]) == (0, 0)
    assert report["results"] > 0
