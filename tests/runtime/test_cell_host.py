"""The directory of the cell hosts: connections to them carry data, so nobody else may stand behind it. And messages
on these connections, which may end at any moment."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import pytest

from midstream.runtime import cell_host
from midstream.runtime.cell_host import HostFailure, Work


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"midstream-{cell_host.os.getuid()}"


def test_the_directory_is_made_for_this_user_alone(place):
    assert cell_host._directory() == cell_host._directory() == place
    assert place.stat().st_mode & 0o777 == 0o700


def test_a_link_is_not_followed_even_to_an_own_directory(place, tmp_path):
    target = tmp_path / "elsewhere"
    target.mkdir(mode=0o700)
    place.symlink_to(target)
    with pytest.raises(HostFailure, match="only this user can use"):
        cell_host._directory()
    target.rmdir()
    with pytest.raises(HostFailure, match="only this user can use"):
        cell_host._directory()


def test_a_file_or_a_directory_open_to_others_is_refused(place):
    place.mkdir(mode=0o700)
    place.chmod(0o750)
    with pytest.raises(HostFailure, match="only this user can use"):
        cell_host._directory()
    place.rmdir()
    place.touch(mode=0o600)
    with pytest.raises(HostFailure, match="only this user can use"):
        cell_host._directory()


def test_a_message_that_ends_early_is_not_taken_for_whole():
    """What is missing could be the end of a value that goes to the state store."""
    stream = io.BytesIO()
    cell_host._send(stream, Work("v1", []), [b"first", b"", b"last"])
    data = stream.getvalue()
    assert cell_host._receive(io.BytesIO(data)) == (Work("v1", []), [b"first", b"", b"last"])
    for length in range(len(data)):
        with pytest.raises(EOFError):
            cell_host._receive(io.BytesIO(data[:length]))
