"""Adaptation that fails: it is logged, counted and paused, and the query goes on with the right results."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from midstream.adaptation import pause
from midstream.adaptation.controller import Controller
from midstream.adaptation.measuring import Measuring
from midstream.adaptation.statistics import QueryStatistics
from midstream.errors import MigrationRefused
from midstream.runtime.local_run import LocalRun
from tests.adaptation.test_adapting_run import POLICY, played, tables
from tests.adaptation.test_sampling import chain


def failing(*_, **__):
    raise ZeroDivisionError("simulated")


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (QueryStatistics, "follow"),
        (QueryStatistics, "measure"),
        (Measuring, "_reason"),
        (Controller, "_compared"),
        (Controller, "_objection"),
    ],
)
def test_a_failing_measurement_does_not_fail_the_push(monkeypatch, caplog, kind, method):
    # Another kind of error than the one that a fault in the tests of tests lets through.
    monkeypatch.setattr(kind, method, lambda *_, **__: [][1])
    with caplog.at_level(logging.WARNING):
        run, results = played(POLICY)
    _, expected = played("off")
    in_order = [(name, "ascending") for name in results.schema.names]
    assert results.sort_by(in_order).equals(expected.sort_by(in_order))
    failures = run.decisions()
    # After 16 pushes it is tried again; 24 pushes are two attempts at most.
    assert 1 <= len(failures) <= 2
    assert all(decision.outcome == "kept" and decision.failure == decision.reason for decision in failures)
    assert "IndexError: list index out of range" in failures[0].reason
    assert "pauses for 16 pushes" in failures[0].reason
    assert [record.levelname for record in caplog.records] == ["WARNING"] * len(failures)
    assert run.history() == []


def test_adaptation_goes_on_after_the_pause(monkeypatch):
    monkeypatch.setattr(pause, "_FIRST", 2)
    measure, calls = QueryStatistics.measure, []

    def once(*arguments, **options):
        calls.append(1)
        return failing() if len(calls) == 1 else measure(*arguments, **options)

    monkeypatch.setattr(QueryStatistics, "measure", once)
    run, _ = played(POLICY)
    first, *others = run.decisions()
    assert first.failure is not None and all(decision.failure is None for decision in others)
    assert any(decision.outcome == "changed" for decision in others)
    assert others[0].push >= first.push + 2
    assert run.statistics().sizes is not None
    assert [decision.number for decision in run.decisions()] == list(range(1, len(others) + 2))


def test_pauses_become_longer():
    waiting = pause.Pause()
    lengths = []
    push = 0
    for _ in range(12):
        waiting.begin(ValueError("x"), push)
        start = push
        while not waiting.is_over(push):
            push += 1
        lengths.append(push - start)
    assert lengths == [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096, 4096, 4096]


def test_a_change_that_is_refused_is_withdrawn(monkeypatch):
    def refuse(*_, **__):
        raise MigrationRefused("it is refused here")

    monkeypatch.setattr(LocalRun, "_migrate", refuse)
    run = chain(window=400).run_locally("a b c d", adapt=POLICY)
    generator = np.random.default_rng(3)
    for push in range(12):
        run.push(tables(generator, push, "x"))
    assert run.history() == []
    assert any("it is refused here" in decision.reason for decision in run.decisions())
    assert {decision.outcome for decision in run.decisions()} == {"kept"}
