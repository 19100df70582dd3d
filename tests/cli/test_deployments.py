"""``midstream deploy``, ``topology`` and ``deployment``: what they read, show and refuse, without starting a site."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from midstream.cli.deploy import _Processes
from midstream.deployment.protocol.coordinator_log import CoordinatorLog
from midstream.deployment.sites.coordinator_process import CoordinatorProcess
from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.sites.deployment_file import read_deployment
from midstream.deployment.sites.durable_files import held_lock
from midstream.errors import AlreadyRunning
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
    assert "has reported nothing yet" in call("deployment", "status", tmp_path / "run").out


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


def begun_and_known(files: Path, directory: Path) -> DeploymentDirectory:
    """The directory of the example, with what its coordinator has reported."""
    found = begun(files, directory)
    with CoordinatorLog.open(found.log) as log:
        CoordinatorProcess(found, log).look()
    return found


def test_the_status_says_what_does_not_run(files, tmp_path):
    directory = begun_and_known(files, tmp_path / "run")
    shown = call("deployment", "status", directory.path).out
    assert "the coordinator is not running" in shown and 'sites "track", "centre"' in shown and "--resume" in shown
    with held_lock(directory.lock("coordinator"), "a"), held_lock(directory.lock("track"), "b"):
        shown = call("deployment", "status", directory.path).out
        assert 'not running: site "centre"' in shown and "--only centre" in shown and "coordinator is" not in shown
        document = call("deployment", "status", directory.path, "--json").document
        assert document["running"] == {"coordinator": True, "track": True, "centre": False}
        directory.given_up("centre").touch()
        assert "not running" not in call("deployment", "status", directory.path).out


def test_the_status_says_which_rows_were_refused(files, tmp_path):
    directory = begun_and_known(files, tmp_path / "run")
    node = {
        "name": "train",
        "kind": None,
        "slots": None,
        "running": [],
        "held": [],
        "awaited": [],
        "buffered_rows": 0,
        "unclaimed_rows": 7,
    }
    node["refusal"] = '[M4001] column "id" is missing\n  detail: more'
    directory.node_status("track").write_text(json.dumps([node]))
    shown = call("deployment", "status", directory.path).out
    assert 'train refused a file of rows: [M4001] column "id" is missing' in shown and "more" not in shown
    assert "train  0     0     0        7" in shown


def test_the_watch_ends_when_the_directory_is_gone(files, tmp_path, monkeypatch):
    directory = begun_and_known(files, tmp_path / "run")
    monkeypatch.setattr("midstream.cli.deployment_status.time.sleep", lambda _: shutil.rmtree(directory.path))
    ended = call("deployment", "status", directory.path, "--watch")
    assert ended.code == 1 and "there is no deployment in" in ended.err


@pytest.mark.parametrize(
    "command", [["deployment", "status"], ["deployment", "status", "--watch"], ["topology", "show"]]
)
def test_what_is_no_deployment_is_said(tmp_path, command):
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "nothing", tmp_path / "file"):
        refused = call(*command, place)
        assert refused.code == 1 and refused.err.startswith("[M") and len(refused.err.splitlines()) <= 3, place


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000])
def test_a_damaged_status_is_said(files, tmp_path, content):
    directory = begun_and_known(files, tmp_path / "run")
    directory.status.write_bytes(content)
    refused = call("deployment", "status", directory.path)
    assert refused.code == 1 and "status.json is damaged" in refused.err


def test_what_runs_already_is_not_started_beside(files, tmp_path):
    directory = begun(files, tmp_path / "run")
    with held_lock(directory.lock("track"), "track"):
        refused = call("deploy", "--resume", directory.path)
        assert refused.code == 1 and "[M5007] track of" in refused.err and f"process {os.getpid()} on" in refused.err
        with (
            pytest.raises(AlreadyRunning, match="a second one") as problem,
            held_lock(directory.lock("track"), "a second one"),
        ):
            pass
        assert f"process {os.getpid()} on " in str(problem.value)


def test_a_deployment_that_is_begun_has_its_queries_from_the_beginning(files, tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.cli.deploy._run_one", lambda paths, name, remove_feeds: 0)
    assert call("deploy", files / "trains.toml", tmp_path / "run", "--only", "coordinator").code == 0
    directory = DeploymentDirectory(tmp_path / "run")
    with CoordinatorLog.open(directory.log) as log:
        CoordinatorProcess(directory, log).look()
    assert [query["name"] for query in call("deployment", "status", directory.path, "--json").document["queries"]] == [
        "boarding"
    ]


def test_a_site_that_was_given_up_is_not_started_again(files, tmp_path, monkeypatch):
    directory = begun(files, tmp_path / "run")
    directory.given_up("track").touch()
    started = []
    monkeypatch.setattr(_Processes, "_start", lambda self, name: started.append(name))
    processes = _Processes(directory)
    processes.start()
    assert started == ["coordinator", "centre"]


def test_what_a_large_log_has_is_put_aside_while_its_process_appends_to_it(files, tmp_path, monkeypatch):
    directory = begun(files, tmp_path / "run")
    monkeypatch.setattr("midstream.cli.deploy.LARGEST_LOG", 10)
    monkeypatch.setattr(_Processes, "_start", lambda self, name: None)
    processes = _Processes(directory)
    processes.start()
    logs = directory.path / "logs"
    logs.mkdir()
    with open(logs / "track.log", "ab", buffering=0) as log:
        for number in range(3):
            log.write(b"a long log, %d" % number)
            processes.bound_logs()
            assert (logs / "track.old.log").read_text() == f"a long log, {number}"
        log.write(b"short")
        processes.bound_logs()
    assert {path.name: path.read_text() for path in logs.iterdir()} == {
        "track.log": "short",
        "track.old.log": "a long log, 2",
    }
