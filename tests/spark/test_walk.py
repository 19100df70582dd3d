"""The way of a micro-batch from Spark's source to its sink is the one that ``docs/architecture.md`` describes."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path
from types import FrameType

import pyarrow as pa

from midstream import Stream
from tests.spark.simulated import SimulatedCluster

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})


def documented() -> list[str]:
    """The functions of the table, as ``folder/file.name``."""
    section = PAGE.partition("## The way of a micro-batch")[2].partition("\n## ")[0]
    return re.findall(r"^\| \d+ \| `([^`]+)` \|", section, re.MULTILINE)


def called() -> list[str]:
    """Every function of midstream's that a micro-batch of a join calls, when it is called first."""
    cluster = SimulatedCluster(
        "SELECT a.ts FROM a [RANGE 9], b [RANGE 9] WHERE a.k = b.k", [Stream(name, SCHEMA, "ts") for name in "ab"]
    )
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("midstream."):
            path = module.removeprefix("midstream.").replace(".", "/")
            found.setdefault(f"{path}.{frame.f_code.co_qualname}")

    tables = {name: pa.table({"ts": [1, 2], "k": [1, 1]}, schema=SCHEMA) for name in "ab"}
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        results = cluster.run(tables)
    finally:
        sys.setprofile(before)
    assert results.num_rows == 4
    return list(found)


def test_a_micro_batch_takes_the_way_that_is_documented():
    names = documented()
    way = [name for name in called() if name in names]
    assert way == names


def test_the_hops_and_crossings_are_counted_right():
    names = documented()
    folders = [name.partition("/")[0] for name in names]
    crossings = sum(one != other for one, other in pairwise(folders))
    assert f"{len(names)} functions and {crossings} times into another folder" in PAGE
