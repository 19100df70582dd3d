"""Choices from Hypothesis, from a seed and from a recording make the same cases; recordings shrink."""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, find, settings
from hypothesis import strategies as st

from midstream import Stream
from midstream.testing import HypothesisChoices, MigrationCase, ReplayedChoices, Scenario, SeededChoices, random_case
from midstream.testing.choices import Choices, Draw, Rejected, shrunk
from midstream.testing.generators_migrations import random_changes
from midstream.testing.migration_cases import Migrate


def made(seed: str) -> tuple[str, list[int]]:
    """The first case that a seed makes, and its recording."""
    for number in range(50):
        choices = SeededChoices(f"{seed}-{number}")
        try:
            return repr(random_case(choices)), choices.recording
        except Rejected:
            continue
    raise AssertionError("fifty seeds made no case")


@pytest.mark.parametrize("seed", ["a", "b", "c", "d", "e"])
def test_a_seed_and_its_recording_make_the_same_case(seed: str) -> None:
    text, recording = made(seed)
    assert made(seed) == (text, recording)
    again = ReplayedChoices(recording)
    assert repr(random_case(again)) == text
    assert again.recording == recording


def test_any_recording_makes_a_legal_case_or_none() -> None:
    _, recording = made("cut")
    for place in range(0, len(recording), 7):
        for cut in (recording[:place], recording[place:], [0] * place + recording[place:]):
            choices = ReplayedChoices(cut)
            try:
                case = random_case(choices)
            except Rejected:
                continue
            assert any(isinstance(change, Migrate) for change in case.changes)


def test_choices_beyond_a_recording_are_the_simplest() -> None:
    choices = ReplayedChoices([])
    assert (choices.number(4, 9), choices.pick("xyz"), choices.chance(2)) == (4, "x", False)
    assert choices.recording == [0, 0, 0]


def test_a_recorded_choice_that_no_longer_fits_is_the_nearest_one() -> None:
    choices = ReplayedChoices([9])
    assert choices.number(0, 3) == 3
    assert choices.recording == [3]


def rows(choices: Choices) -> list[tuple[int, int]]:
    return [(choices.number(0, 9), choices.number(0, 99)) for _ in range(choices.number(0, 30))]


def test_a_failure_shrinks_to_what_it_needs() -> None:
    def fails(choices: ReplayedChoices) -> bool:
        found = rows(choices)
        return any(k == 7 for k, _ in found) and any(v >= 42 for _, v in found)

    for seed in range(200):
        choices = SeededChoices(seed)
        rows(choices)
        if fails(ReplayedChoices(choices.recording)):
            assert shrunk(choices.recording, fails) == [1, 7, 42]
            return
    raise AssertionError("no seed fails")


def test_a_rejected_case_is_no_failure() -> None:
    def fails(choices: ReplayedChoices) -> bool:
        if choices.number(0, 9) < 5:
            raise Rejected
        return True

    assert shrunk([9, 1, 2, 3], fails) == [5]


def test_shrinking_ends_when_its_time_is_over() -> None:
    assert shrunk([9, 9, 9], lambda choices: choices.number(0, 9) > 0, seconds=-1) == [9, 9, 9]


def test_hypothesis_makes_and_shrinks_cases() -> None:
    """The smallest list of changes with a gen-mig migration has that migration alone, at once."""
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    scenario = Scenario.from_rows(
        "SELECT a.k FROM s [RANGE 5] a, s [RANGE 9] b, s [RANGE 4] c WHERE a.k = b.k AND b.k = c.k",
        [Stream("s", schema, "ts")],
        [{"s": [(1, 7)]}, {"s": [(2, 7)]}],
    )

    @st.composite
    def cases(draw: Draw) -> MigrationCase:
        return random_changes(HypothesisChoices(draw), scenario)

    case = find(
        cases(),
        lambda case: any(isinstance(change, Migrate) and change.strategy == "gen-mig" for change in case.changes),
        settings=settings(derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)),
    )
    assert case.changes == [Migrate(0, 1, "gen-mig")]
