"""Patience: the questions become rarer, and an answer makes them frequent again."""

from itertools import pairwise

from midstream.deployment.protocol.patience import LONGEST, Patience


def questions(patience: Patience, looks: int) -> list[int]:
    return [look for look in range(looks) if patience.is_over()]


def test_the_time_between_two_questions_grows_to_a_limit():
    asked = questions(Patience(), 1000)
    gaps = [later - earlier for earlier, later in pairwise(asked)]
    assert gaps == sorted(gaps) and gaps[0] == 3 and gaps[-1] == LONGEST


def test_an_answer_makes_patience_short_again():
    patience = Patience()
    questions(patience, 500)
    patience.answered()
    assert questions(patience, 2) == [1]
