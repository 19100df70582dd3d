"""What a site reads: every file of its feeds and inbox, once, whatever times the files have."""

import os
import time

import pyarrow as pa
import pytest

from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.sites.message_file import CONTROL, MessageRow, write_messages
from midstream.deployment.topology.topology import Node, Topology
from midstream.spark.cell_keys import cell_keys
from midstream.spark.site import site_rows

DAY = 24 * 60 * 60
SITES = {"s": ["n 1"], "other": ["aside"]}


@pytest.fixture
def read(spark, tmp_path):
    """The names of the files that a site has read so far, in a directory with a space in its name."""
    directory = DeploymentDirectory.create(tmp_path / "my run", Topology([Node("n 1"), Node("aside")]), SITES)
    for node in ("n 1", "aside"):
        directory.feed(node, "rows").mkdir(parents=True)
    rows = site_rows(spark, directory, "s", cell_keys(1))
    query = (
        rows.writeStream.format("memory")
        .queryName("site_rows")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )

    def names():
        query.processAllAvailable()
        return sorted(row.origin.rpartition("/")[2] for row in spark.table("site_rows").collect())

    yield directory, names
    query.stop()


def put(directory, number, days=0):
    """A file of rows and one of messages, which are so many days old when they get their names."""
    feed, inbox = directory.feed("n 1", "rows"), directory.inbox("s", "site")
    directory.write_feed("aside", "rows", number, pa.table({"ts": [number]}))
    made = directory.feed("aside", "rows") / f"{number:010d}.parquet"
    write_messages(inbox / f"_{number}", [MessageRow(CONTROL, "n 1", b"message")])
    for path, name in ((made, feed / made.name), (inbox / f"_{number}", inbox / f"{number}.parquet")):
        os.utime(path, (time.time() - days * DAY,) * 2)
        path.rename(name)


def files(*numbers):
    return sorted(name for number in numbers for name in (f"{number}.parquet", f"{number:010d}.parquet"))


@pytest.mark.parametrize("days", [[0, 30], [-30, 0], [0, 30, 60, 0]])
def test_files_that_are_older_by_more_than_a_week_are_read(read, days):
    directory, names = read
    for number, old in enumerate(days):
        put(directory, number, old)
        assert names() == files(*range(number + 1))


def test_files_that_were_taken_are_removed_when_the_next_micro_batch_begins(read):
    directory, names = read
    for number in range(3):
        put(directory, number)
        names()
    inbox = [path.name for path in directory.inbox("s", "site").iterdir()]
    feed = [path.name for path in directory.feed("n 1", "rows").iterdir()]
    assert "2.parquet" in inbox and "0.parquet" not in inbox
    assert sorted(feed) == [f"{number:010d}.parquet" for number in range(3)]
