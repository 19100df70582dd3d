"""Every example runs as it stands, and shows what it promises.

They run in this process, and those on Spark get the session that the tests share: a script that asks for one is given
the one there is.
"""

import re
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
ON_SPARK = {"join_on_spark_with_migration", "kafka_results_once", "sinks_delta_and_kafka"}
WITH_KAFKA = {"kafka_results_once"}
PROMISES = {
    "join_on_spark_with_migration": [
        r"The plan at the start:\n(.*\n)+.*orders AS o(.*\n)+.*payments AS p(.*\n)+[1-9]\d* results so far",
        r"The plan now, completed after \d+ micro-batches:",
        r"[\d,]{3,} results of 18,000 rows: 0 missing, 0 repeated",
    ],
    "sensor_alarm": [
        r"by day,   \(h t\) l: +\d{2,} pairs",
        r"at night, \(l t\) h: +\d{1,2} pairs",
        r"'room': 42, .*'valid_from': 1\d\d\d, ",
        r"\d+ alarms; the same without the change: True",
    ],
    "adapting_to_seasons": [
        r"January: The plan \"d e l\" was kept\.",
        r"(June|July): The plan was changed from \"d l e\" to \"d e l\" by .* takes .* instead of ",
        r"the join of d and l makes [\d,]{5,} rows \([\d,]+ at the previous decision\)",
        r"[2-9] changes, 21,350,990 results, [\d,]+ pairs",
        r"(always .* pairs; as many results every week: True\n){2}",
    ],
    "kafka_results_once": ["200 messages, 100 results of 100 orders"],
    "just_in_time": ["just-in-time processing on: 12693 results", "at least about 421,668 partial results avoided"],
    "trains_between_edge_nodes": [
        r"minute 4: train 1 passes from edge 1 to edge 2",
        r"on edge 3: train1/join-1",
        r"boardings: (\d{4}) with moves, \1 without",
    ],
    "late_rows": [
        r"late so far: {'asks': 0, 'bids': 1}",
        r"a heartbeat, 150: watermark 150",
        r"late so far: {'asks': 1, 'bids': 1}",
        r"bid at 141: \[\(2, 120, 140\)\]",
    ],
    "distinct_push_down_with_gen_mig": [
        r"At first:\nDistinct\n",
        r"Then:\nProject (.*\n)+.*Distinct\n",
        r"[\d,]+ pages at an instant, the same without the change: True",
    ],
    "sinks_delta_and_kafka": [
        r"written to delta:",
        r" +2 +23\.01\d* +300 +600",
    ],
}


def test_every_example_is_here():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(PROMISES)


@pytest.mark.parametrize("name", PROMISES)
def test_an_example_shows_what_it_promises(name, capsys, request, monkeypatch):
    if name in ON_SPARK:
        request.getfixturevalue("spark")
    if name in WITH_KAFKA:
        request.getfixturevalue("connector")
        monkeypatch.setenv("KAFKA_SERVERS", request.getfixturevalue("broker").address)
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    for promise in PROMISES[name]:
        assert re.search(promise, printed), f"{promise} in:\n{printed}"


@pytest.mark.parametrize("name", PROMISES)
def test_an_example_is_short_and_says_what_to_look_at(name):
    text = (FOLDER / f"{name}.py").read_text()
    assert len(text.splitlines()) < 60
    assert "Look at" in text
