"""``midstream deploy``, ``topology`` and ``deployment``: what they read, show and refuse, without starting a site."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from midstream.deployment.protocol.coordinator_log import CoordinatorLog
from midstream.deployment.sites.coordinator_process import CoordinatorProcess
from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.sites.deployment_file import read_deployment
from tests.cli.commanding import call

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "two_sites"


@pytest.fixture
def files(tmp_path):
    return Path(shutil.copytree(EXAMPLE, tmp_path / "files"))


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def begun(files: Path, directory: Path) -> DeploymentDirectory:
    """The directory of the example, as ``midstream deploy`` makes it."""
    asked = read_deployment(files / "trains.toml")
    return DeploymentDirectory.create(directory, asked.topology, asked.sites)


def test_the_example_can_be_deployed():
    asked = read_deployment(EXAMPLE / "trains.toml")
    assert [query.name for query in asked.queries] == ["boarding"]
    assert {stage.stage.id for stage in asked.queries[0].stages()} == {
        "boarding/d@train",
        "boarding/t@platform",
        "boarding/join-1",
        "boarding/sink",
    }
    assert set(asked.sites) == {"track", "centre"}


def test_a_topology_is_shown_as_a_tree_and_drawn(tmp_path):
    shown = call("topology", "show", EXAMPLE / "topology.toml", "--picture", tmp_path / "t.png")
    assert shown.code == 0
    assert shown.out.splitlines() == [
        "cloud",
        "  edge 1",
        "    platform (1 slot)",
        "    train (1 slot)",
        "  edge 2",
    ]
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


REFUSED = {
    "a column of an unknown type": ('ts = "int64"', 'ts = "int65"', "M1011"),
    "an unknown setting": ('sink = "cloud"', 'sink = "cloud"\nspeed = 3', "M6010"),
    "a source that does not exist": ('sources = ["train"]', 'sources = ["tram"]', "M6002"),
    "a sink that cannot be reached": ('sink = "cloud"', 'sink = "edge 2"', "M6006"),
    "a query with an error": ("d.id = t.id", "d.id = t.nr", "M1004"),
    "a node on two sites": ('centre = ["cloud"]', 'centre = ["cloud", "train"]', "M6010"),
    "a node on no site": ('"edge 1", "edge 2"]', '"edge 1"]', "M6010"),
    "a topology that is not there": ("topology.toml", "other.toml", "M5002"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_deployment_file_that_does_not_fit_is_refused_and_nothing_is_made(name, files, tmp_path):
    old, new, code = REFUSED[name]
    changed(files / "trains.toml", old, new)
    refused = call("deploy", files / "trains.toml", tmp_path / "run")
    assert refused.code == 1
    assert f"[{code}]" in refused.err
    assert not (tmp_path / "run").exists()


def test_a_deployment_is_not_begun_twice(files, tmp_path):
    begun(files, tmp_path / "run")
    refused = call("deploy", files / "trains.toml", tmp_path / "run")
    assert refused.code == 1 and "there is a deployment in" in refused.err
    assert call("deploy", tmp_path / "run").code == 2
    assert call("deploy", "--resume", tmp_path / "nothing").code == 1


def test_events_wait_for_the_coordinator(files, tmp_path):
    begun(files, tmp_path / "run")
    waits = call("topology", "apply", tmp_path / "run", files / "moves.toml", "--timeout", "0.3", "--json")
    assert waits.code == 3
    assert json.loads(waits.out)["batches"][0]["state"] == "submitted"
    assert "no report yet" in call("deployment", "status", tmp_path / "run").out


def test_the_status_is_what_the_coordinator_knows(files, tmp_path):
    directory = begun(files, tmp_path / "run")
    with CoordinatorLog.open(directory.log) as log:
        CoordinatorProcess(directory, log).look()
    shown = call("deployment", "status", tmp_path / "run", "--json")
    assert shown.code == 0
    assert json.loads(shown.out)["queries"] == []
    assert "edge 2" in call("topology", "show", tmp_path / "run").out


def test_files_with_events_are_checked_before_anything_is_submitted(files, tmp_path):
    directory = begun(files, tmp_path / "run")
    changed(files / "moves.toml", '"remove_link"', '"cut_link"')
    refused = call("topology", "apply", tmp_path / "run", files / "moves.toml")
    assert refused.code == 1 and "[M6001]" in refused.err
    assert not list(directory.requests.glob("*"))
