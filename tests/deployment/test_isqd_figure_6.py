"""Figure 6 of ISQD, panel by panel, on real nodes and a real coordinator: the train N8 moves from N5 to N6.

Two things differ from the paper. The marker goes on to N3 before the state has been sent, not after. And N6 begins
when it has its state, without waiting for N3: what it makes waits in its outbox.
"""

from __future__ import annotations

import pytest

from midstream.deployment.protocol.messages import (
    Acted,
    Commit,
    Connect,
    DeployStage,
    DrainStage,
    EnterMarker,
    Installed,
    Marker,
    Numbered,
    Prepare,
    StateChunk,
    StateCursor,
    UpdateStage,
)
from tests.deployment.small_deployment import MOVE_BACK, O1, O2, O3, O4, O5, SINK, SmallDeployment


def is_state(envelope):
    return isinstance(envelope.message, StateChunk | StateCursor)


class Figure6:
    """The example, up to a panel."""

    def __init__(self, panel: str) -> None:
        # Rows have passed, and k = 2 is in the state of O4.
        self.deployment = SmallDeployment()
        self.deployment.feed("N7", "a", (1, 1), (1, 2))
        self.deployment.feed("N8", "b", (1, 2), (2, 3))
        self.deployment.settle()
        self.versions = {id: f.version for id, f in self.deployment.coordinator.deployed("q").fragments.items()}
        for name, step in (("b", self.contexts), ("c", self.marker), ("d", self.n8_and_n5), ("e", self.marker_at_n3)):
            if panel >= name:
                step()
        if panel >= "f":
            self.deployment.carry(is_state)
            self.deployment.report()
        if panel >= "g":
            self.deployment.carry()
            self.deployment.report()

    def contexts(self) -> None:
        self.deployment.move()
        self.prepared = self.deployment.tell(Prepare)

    def marker(self) -> None:
        self.deployment.report()
        self.entered = [i for i in self.deployment.control if isinstance(i[1], EnterMarker)]

    def n8_and_n5(self) -> None:
        self.deployment.tell(EnterMarker)
        self.deployment.feed("N8", "b", (3, 1))

    def marker_at_n3(self) -> None:
        self.deployment.carry(lambda e: isinstance(e.message, Numbered) and e.message.edge in (O4, O5))


def test_figure_6a_all_stages_run_where_figure_2_has_them():
    deployment = Figure6("a").deployment
    placed = {O1: ["N7"], O2: ["N8"], O3: ["N4"], O4: ["N5"], O5: ["N3"], SINK: ["N1"]}
    assert {stage: deployment.where(stage) for stage in placed} == placed


def test_figure_6b_contexts_are_prepared_and_nothing_changes_yet():
    figure = Figure6("b")
    contexts = {node: [(type(c), c.stage) for c in message.contexts] for node, message in figure.prepared}
    assert contexts == {
        "N3": [(UpdateStage, O5)],
        "N5": [(DrainStage, O4)],
        "N6": [(DeployStage, O4)],
        "N8": [(UpdateStage, O2)],
    }
    drain = figure.deployment.nodes["N5"].contexts["q", 2][O4]
    assert drain == DrainStage(O4, ("N5", "N3", "N6"))
    assert figure.deployment.where(O4) == ["N5"], "N5 goes on until the marker comes"
    assert O4 in figure.deployment.nodes["N6"].awaiting


def test_figure_6c_the_marker_enters_at_n5_and_n8_when_all_are_prepared():
    figure = Figure6("c")
    assert {node: message.stages for node, message in figure.entered} == {"N5": (O4,), "N8": (O2,)}


def test_figure_6c_the_marker_does_not_enter_before_all_are_prepared():
    figure = Figure6("b")
    missing = next(r for r in figure.deployment.reports if r.node == "N6")
    figure.deployment.reports.remove(missing)
    figure.deployment.report()
    assert not any(isinstance(message, EnterMarker) for _, message in figure.deployment.control)


def test_figure_6d_n8_updates_and_buffers_what_follows():
    deployment = Figure6("d").deployment
    output = deployment.nodes["N8"].running[O2].output
    assert output.route == ("N8", "N6")
    assert not output.is_connected and len(output.messages) >= 1, "rows wait until N6 answers"
    on_the_way = [e.message for e in deployment.envelopes if e.origin == "N8"]
    assert on_the_way == [Connect(O2, 2)], "and no marker is passed on along a new route"


def test_figure_6d_n5_flushes_ends_and_passes_the_marker_on():
    deployment = Figure6("d").deployment
    n5 = deployment.nodes["N5"]
    assert deployment.where(O4) == [] and n5.held[O4].generation == 2
    sent = [e.message for e in deployment.envelopes if e.origin == "N5"]
    assert any(isinstance(m, Numbered) and isinstance(m.content, Marker) for m in sent)
    assert any(isinstance(m, StateChunk) for m in sent), "the state is on its way at once"


def test_figure_6e_n3_updates_and_the_marker_goes_no_further():
    deployment = Figure6("e").deployment
    reports = deployment.report()
    assert Acted("N3", "q", 2, O5) in reports
    assert deployment.nodes["N3"].running[O5].acted_in == 2
    assert deployment.nodes["N1"].running[SINK].last_marker == 0, "N2 and N1 have nothing to do"


def test_figure_6f_n6_begins_with_the_state_and_without_n3():
    deployment = Figure6("e").deployment
    before = deployment.nodes["N5"].held[O4].instance
    deployment.carry(is_state)
    assert Installed("N6", "q", 2, O4) in deployment.report()
    assert deployment.where(O4) == ["N6"] and O4 in deployment.nodes["N5"].held
    after = deployment.nodes["N6"].running[O4]
    assert after.inputs[O2].next_number == before.inputs[O2].next_number, "cursors go with the state"
    assert after.output.next_number == before.output.next_number, "the numbers of messages go on"


def test_figure_6g_n8_and_n6_connect_and_what_was_buffered_passes():
    deployment = Figure6("g").deployment
    assert deployment.nodes["N8"].running[O2].output.is_connected
    assert not deployment.nodes["N8"].running[O2].output.messages
    assert deployment.nodes["N6"].running[O4].output.is_connected
    assert {node for node, m in deployment.control if isinstance(m, Commit)} == {"N3", "N5", "N6", "N8"}
    assert O4 in deployment.nodes["N5"].held, "until the commit it could be called back"


def test_figure_6h_after_the_commit_only_what_was_touched_has_changed():
    figure = Figure6("g")
    figure.deployment.settle()
    assert O4 not in figure.deployment.nodes["N5"].held
    fragments = figure.deployment.coordinator.deployed("q").fragments
    assert {f.node: f.version for f in fragments.values()} == {"N7": 1, "N4": 1, "N8": 2, "N3": 2, "N1": 1, "N6": 1}
    assert figure.deployment.end() == [1, 2]


@pytest.mark.parametrize("panel", "bcdefg")
@pytest.mark.parametrize("node", ["N3", "N5", "N6", "N8"])
def test_figure_6_a_crash_of_any_node_in_any_panel_changes_nothing(panel, node):
    deployment = Figure6(panel).deployment
    deployment.crash(node)
    deployment.settle()
    assert deployment.end() == ([1, 2] if panel >= "d" else [2])


@pytest.mark.parametrize("panel", "bcdefg")
def test_figure_6_the_train_moves_back_in_any_panel(panel):
    deployment = Figure6(panel).deployment
    deployment.move(MOVE_BACK)
    deployment.settle()
    assert deployment.end() == ([1, 2] if panel >= "d" else [2])
