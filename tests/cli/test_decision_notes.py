"""The user learns while the query runs that its plan was changed, from what to what, and why."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from midstream.adaptation.decisions import Decision
from midstream.cli.decision_notes import DecisionNotes
from midstream.cli.output import Output


def decision(number: int, outcome: str, best: str = "a (b c)") -> Decision:
    return Decision(
        number=number, push=number, watermark=0, outcome=outcome, reason="It is cheaper.", plan="a b c", best=best,
        seconds_now=2.0, seconds_best=1.0, saving=1.0, regret=1.0, migration=0.5, strategy="jisc", joins=(),
    )  # fmt: skip


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]):
    """A function that lets the query decide, and gives what the user is told; one decision was made earlier."""
    made = [decision(1, "changed")]
    notes = DecisionNotes(SimpleNamespace(decisions=lambda: made), Output())

    def decide(*decisions: Decision) -> str:
        made.extend(decisions)
        notes.check()
        return " ".join(capsys.readouterr().err.split())

    return decide


def test_a_change_is_said_once_with_the_reason(told):
    assert told() == ""
    said = told(decision(2, "kept"), decision(3, "changed"))
    assert said == 'decision #3: The plan was changed from "a b c" to "a (b c)" by jisc. It is cheaper.'
    assert told() == ""


def test_advice_is_said_again_only_if_it_is_another(told):
    assert told(decision(2, "advised")).startswith("decision #2: The plan")
    assert told(decision(3, "advised")) == ""
    assert told(decision(4, "advised", "b a c")).startswith("decision #4")
    assert told(decision(5, "kept"), decision(6, "advised", "b a c")).startswith("decision #6")
