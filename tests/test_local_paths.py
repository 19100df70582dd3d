"""Paths mean what their users meant, or are refused."""

import os
from pathlib import Path

import pytest

from midstream.delta.location import TableLocation
from midstream.errors import BadOption
from midstream.local_paths import absolute_path


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/data/t", "/data/t"),
        (Path("/data/t"), "/data/t"),
        ("file:/data/t", "/data/t"),
        ("file:///data/a%20b#c?d", "/data/a b#c?d"),
        ("file://localhost/data", "/data"),
        ("s3://bucket/t", "s3://bucket/t"),
        ("~", os.path.expanduser("~")),
    ],
)
def test_a_path_is_absolute_and_a_url_elsewhere_stays(given, path):
    assert absolute_path(given, "a table") == path


@pytest.mark.parametrize(
    "given", [None, 3, "", b"x", Path("s3://bucket/t"), "dbfs:/t", "file://in", "file://host/x", "file:"]
)
def test_what_would_be_another_place_is_refused(given):
    with pytest.raises(BadOption, match="of a table"):
        absolute_path(given, "a table")


@pytest.mark.parametrize("path", ["/data/a%20b", "/data/a\\b"])
def test_a_table_is_not_where_delta_rs_would_look_elsewhere(path):
    with pytest.raises(BadOption, match="a table cannot be in"):
        TableLocation.of(path)
