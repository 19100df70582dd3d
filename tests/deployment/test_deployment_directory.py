"""The directory of a deployment: which names and places it takes, and what an interrupted creation leaves."""

from __future__ import annotations

import pytest

import midstream.deployment.sites.deployment_directory as module
from midstream.deployment.protocol.coordinator_log import CoordinatorLog
from midstream.deployment.protocol.coordinator_requests import ChangeTopology
from midstream.deployment.sites.coordinator_process import CoordinatorProcess, run_coordinator
from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.sites.durable_files import unique_name, write_whole
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import AddNode, RemoveLink
from midstream.errors import BadTopology, PathProblem

REQUEST = ChangeTopology((RemoveLink("a", "b"),))
ODD = ["../x", "a/b", ".", "..", "~", "_x", "*", "a b", "é" * 30, "日本", "%2e", "-", "a=b", "con", "x" * 180]
REFUSED = ["x" * 181, "é" * 31, "a\nb", "\x00", "\u2028"]


def topology():
    return Topology([Node("a"), Node("b")], [Link("a", "b")])


def create(path, sites=None, requests=()):
    return DeploymentDirectory.create(path, topology(), sites or {"s": ["a", "b"]}, requests=requests)


@pytest.mark.parametrize("name", ODD)
def test_files_of_odd_names_stay_inside_the_directory(tmp_path, name):
    sites = {name: [name], "other": ["a"]}
    directory = DeploymentDirectory.create(tmp_path / "run", Topology([Node(name), Node("a")]), sites)
    for path in (directory.feed(name, name), directory.inbox("other", name), directory.results(name)):
        write_whole(path / "0.parquet", b"")
        assert path.resolve().is_relative_to(tmp_path / "run") and len(path.relative_to(tmp_path / "run").parts) >= 2
    assert directory.layout().site_of(name) == name
    directory.check_site(name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


@pytest.mark.parametrize("name", REFUSED)
def test_names_that_make_no_good_files_are_refused(tmp_path, name):
    for nodes, sites in (([name], {"s": [name]}), (["a"], {name: ["a"]})):
        with pytest.raises(BadTopology, match="the name of a"):
            DeploymentDirectory.create(tmp_path / "run", Topology([Node(node) for node in nodes]), sites)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("nodes", "sites"),
    [
        (["a", "A"], {"s": ["a", "A"]}),
        (["a", "b"], {"west": ["a"], "West": ["b"]}),
        (["a"], {"Coordinator": ["a"]}),
        (["straße", "STRASSE"], {"s": []}),
    ],
)
def test_names_that_differ_only_by_case_are_refused(tmp_path, nodes, sites):
    with pytest.raises(BadTopology, match="differ only by case"):
        DeploymentDirectory.create(tmp_path / "run", Topology([Node(node) for node in nodes]), sites)


@pytest.mark.parametrize("name", [*REFUSED, "A"])
def test_nodes_that_come_later_have_good_names_too(tmp_path, name):
    directory = create(tmp_path / "run")
    with CoordinatorLog.open(directory.log) as log:
        coordinator = CoordinatorProcess(directory, log)
        asked = directory.submit(ChangeTopology((AddNode(Node(name)),)))
        coordinator.look()
        assert directory.outcome(asked).startswith("[M6001]")
        assert log.entries == 1


@pytest.mark.parametrize("name", ["a*", "a[1]", "{a}", "a?", "a:b", "a\\b"])
def test_directories_that_spark_takes_for_patterns_are_refused(tmp_path, name):
    with pytest.raises(PathProblem, match="Spark cannot read files below"):
        create(tmp_path / name / "run")
    assert not (tmp_path / name).exists()


def test_a_directory_with_other_files_is_refused_and_they_stay(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "requests").mkdir()
    (tmp_path / "run" / "requests" / "mine.json").write_text("mine")
    with pytest.raises(PathProblem, match="is not empty"):
        create(tmp_path / "run")
    assert (tmp_path / "run" / "requests" / "mine.json").read_text() == "mine"
    (tmp_path / "file").write_text("")
    with pytest.raises(PathProblem, match="Not a directory"):
        create(tmp_path / "file")


def test_an_empty_directory_is_taken(tmp_path):
    (tmp_path / ".hidden").touch()
    assert create(tmp_path, requests=[REQUEST]).layout().sites == {"s": ["a", "b"]}
    with pytest.raises(PathProblem, match="already"):
        create(tmp_path)


def test_a_creation_that_was_interrupted_at_any_file_begins_anew(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    for files in range(4):
        path, written = tmp_path / str(files), []

        def killed(*given, files=files, written=written):
            if len(written) == files:
                raise Killed
            written.append(given)
            write_whole(*given)

        monkeypatch.setattr(module, "write_whole", killed)
        with pytest.raises(Killed) if files < 3 else pytest.raises(PathProblem):
            create(path, requests=[REQUEST, REQUEST])
            create(path)
        monkeypatch.undo()
        if files < 3:
            with pytest.raises(PathProblem, match="there is no deployment"):
                run_coordinator(path, stop=lambda: True)
            directory = create(path, {"other": ["a", "b"]}, requests=[REQUEST])
            assert len(list(directory.requests.glob("*.json"))) == 1
        assert not (path / "_unfinished").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"null", b'{"type": "change", "events": [{"a": 1}]}', b"9" * 9_999],
)
def test_requests_that_cannot_be_read_are_refused_and_the_coordinator_goes_on(tmp_path, content):
    directory = create(tmp_path / "run")
    with CoordinatorLog.open(directory.log) as log:
        coordinator = CoordinatorProcess(directory, log)
        write_whole(directory.requests / "wrong.json", content)
        (directory.requests / "folder.json").mkdir()
        good = directory.submit(REQUEST)
        coordinator.look()
        assert directory.outcome("wrong") and directory.outcome(good) == ""


def test_a_site_goes_on_under_the_path_by_which_it_first_ran(tmp_path):
    directory = create(tmp_path / "run")
    assert directory.at_place_of("s").path == tmp_path / "run"
    (tmp_path / "link").symlink_to("run")
    assert DeploymentDirectory(tmp_path / "link").at_place_of("s").path == tmp_path / "run"
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    with pytest.raises(PathProblem, match="the deployment was moved from"):
        DeploymentDirectory(tmp_path / "elsewhere").at_place_of("s")
    (tmp_path / "run").symlink_to("elsewhere")
    assert DeploymentDirectory(tmp_path / "elsewhere").at_place_of("s").path == tmp_path / "run"


def test_only_the_latest_requests_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.deployment.sites.coordinator_process.KEPT_REQUESTS", 3)
    directory = create(tmp_path / "run")
    with CoordinatorLog.open(directory.log) as log:
        coordinator = CoordinatorProcess(directory, log)
        names = []
        for node in range(6):
            names.append(directory.submit(ChangeTopology((AddNode(Node(f"n{node // 2}")),))))
            coordinator.look()
        outcomes = [directory.outcome(name) for name in names]
        assert outcomes[:3] == [None] * 3 and outcomes[4] == "" and "exists already" in outcomes[5]
        assert len(list(directory.requests.iterdir())) == 3
    with CoordinatorLog.open(directory.log) as log:
        assert set(CoordinatorProcess(directory, log).coordinator.topology.nodes) == {"a", "b", "n0", "n1", "n2"}


def test_nothing_is_written_to_a_site_that_was_given_up_and_no_node_is_added_to_it(tmp_path):
    directory = create(tmp_path / "run", {"first": ["a"], "second": ["b"]})
    with CoordinatorLog.open(directory.log) as log:
        coordinator = CoordinatorProcess(directory, log)
        write_whole(directory.given_up("first"), b"")
        before = {site: len(list(directory.inbox(site, "coordinator").iterdir())) for site in ("first", "second")}
        refused = directory.submit(ChangeTopology((AddNode(Node("c")),)))
        taken = directory.submit(ChangeTopology((RemoveLink("a", "b"),)))
        coordinator.look()
        assert 'would run on site "first", which was given up' in directory.outcome(refused)
        assert directory.outcome(taken) == ""
        after = {site: len(list(directory.inbox(site, "coordinator").iterdir())) for site in ("first", "second")}
        assert after == {"first": before["first"], "second": before["second"] + 1}


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("midstream.deployment.sites.durable_files.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "folder" / "file", b"content")
    assert list((tmp_path / "folder").iterdir()) == []


def test_names_of_files_ascend_though_the_clock_does_not(monkeypatch):
    moments = iter([2**62 + 5, 2**62 + 5, 2**62 + 1, 2**62 + 9])
    monkeypatch.setattr("midstream.deployment.sites.durable_files.time.time_ns", lambda: next(moments))
    monkeypatch.setattr("midstream.deployment.sites.durable_files._last_moment", 0)
    names = [unique_name() for _ in range(4)]
    assert names == sorted(set(names))
