"""The faults of ``breakages`` can be put into the code as it is: each text stands in its file exactly once."""

import ast

import pytest

from tests.deployment.breakages import BREAKAGES
from tests.property.breakages import sources


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.name)
def test_a_breakage_is_put_into_code_that_stays_python(breakage):
    assert breakage.wrong != breakage.right
    ast.parse(sources(breakage))


def test_breakages_have_names_of_their_own():
    assert len({breakage.name for breakage in BREAKAGES}) == len(BREAKAGES) >= 30
