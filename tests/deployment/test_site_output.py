"""What a site gives leaves it when its micro-batch is committed, and once."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.deployment.protocol.messages import Committed, Connect, Envelope, RescueState
from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.sites.file_names import file_name, name_of_file
from midstream.deployment.sites.message_file import CONTROL, MessageRow, read_messages, write_messages
from midstream.deployment.sites.node_group import GroupOutput
from midstream.deployment.sites.site_output import OUTPUT_SCHEMA, RESCUE, SiteOutput, group_output
from midstream.deployment.topology.topology import Node, Topology
from midstream.engine.state.window_store import ReceivedRows
from midstream.errors import MalformedMessage


@pytest.fixture
def directory(tmp_path):
    found = DeploymentDirectory.create(tmp_path, Topology([Node("e 1"), Node("cloud")]), {"w": ["e 1"], "c": ["cloud"]})
    found.write_columns("q", ["k"])
    (found.checkpoint("w") / "commits").mkdir(parents=True)
    return found


def output(directory, number):
    """An output with a message, a report, a result with this number and a question."""
    rows = ReceivedRows(np.array([1]), np.array([5]), [pa.array([number])])
    out = GroupOutput(
        [Envelope(("e 1", "cloud"), Connect("edge", number))],
        [Committed("e 1", "q", number)],
        [("q", rows), ("q", rows)],
        [("e 1", RescueState("s", 1, "cloud"))],
    )
    found = group_output(out, directory.layout())
    return pa.Table.from_pylist([vars(row) for row in found], schema=OUTPUT_SCHEMA)


def published(directory):
    """Everything that has left the site."""
    paths = [directory.inbox("c", "w"), directory.reports("w"), directory.results("q")]
    return {path.name: path.read_bytes() for folder in paths for path in folder.glob("[!_]*.parquet")}


def test_nothing_leaves_before_the_micro_batch_is_committed(directory):
    site = SiteOutput(directory, "w")
    site.stage(0, output(directory, 1))
    assert list(site.publish()) == [] and published(directory) == {}
    (directory.checkpoint("w") / "commits" / "0").touch()
    assert [row.kind for row in site.publish()] == [RESCUE]
    assert directory.read_results("q").to_pydict() == {"k": [1, 1], "valid_from": [1, 1], "valid_to": [5, 5]}
    assert [row.node for row in read_messages(directory.inbox("c", "w") / "000000000000.parquet")] == ["cloud"]
    assert len(read_messages(directory.reports("w") / "000000000000.parquet")) == 1


def test_a_second_attempt_replaces_what_the_first_had_staged(directory):
    SiteOutput(directory, "w").stage(0, output(directory, 1))
    site = SiteOutput(directory, "w")
    site.stage(0, output(directory, 2))
    site.stage(1, output(directory, 3))
    site.stage(1, OUTPUT_SCHEMA.empty_table())
    for batch in "01":
        (directory.checkpoint("w") / "commits" / batch).touch()
    assert len(list(site.publish())) == 1
    assert directory.read_results("q")["k"].to_pylist() == [2, 2]


def test_what_is_published_again_is_the_same(directory):
    site = SiteOutput(directory, "w")
    site.stage(0, output(directory, 1))
    (staged,) = directory.staged("w").iterdir()
    content = staged.read_bytes()
    (directory.checkpoint("w") / "commits" / "0").touch()
    list(site.publish())
    before = published(directory)
    # As if the process had been killed before it removed the staged file.
    staged.write_bytes(content)
    list(SiteOutput(directory, "w").publish())
    assert published(directory) == before != {}
    assert list(directory.staged("w").iterdir()) == []


def test_what_is_published_late_is_published_though_spark_has_removed_its_commit(directory):
    site = SiteOutput(directory, "w")
    for batch in range(3):
        site.stage(batch, output(directory, batch))
    # As after more than a hundred micro-batches; with a checksum, and a file that is being written.
    for name in ("1", ".2.crc", "2.tmp"):
        (directory.checkpoint("w") / "commits" / name).touch()
    assert len(list(site.publish())) == 2
    assert directory.read_results("q")["k"].to_pylist() == [0, 0, 1, 1]


def test_a_file_that_has_no_messages_is_refused(tmp_path):
    write_messages(tmp_path / "0.parquet", [MessageRow(CONTROL, "e 1", b"x")])
    assert read_messages(tmp_path / "0.parquet") == [MessageRow(CONTROL, "e 1", b"x")]
    (tmp_path / "1.parquet").write_bytes(b"no")
    with pytest.raises(MalformedMessage, match=r"1\.parquet is no file of messages"):
        read_messages(tmp_path / "1.parquet")


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_names_come_back_from_names_of_files(name):
    assert name_of_file(file_name(name)) == name
    assert file_name(name)[0] not in "_." and not set(file_name(name)) & set("/=%*?[]{}\\ \n")
