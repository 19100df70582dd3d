"""The faults of ``breakages`` can be put into the code as it is: each text stands in its file exactly once."""

import ast

import pytest

from tests.delta import breakages as delta_breakages
from tests.migration import executor_breakages
from tests.property.breakages import ROOT, sources
from tests.runtime import adaptation_breakages, breakages

ALL = (*breakages.ALL, *adaptation_breakages.ALL, *executor_breakages.ALL, *delta_breakages.ALL)


@pytest.mark.parametrize("breakage", ALL, ids=lambda breakage: breakage.name)
def test_a_breakage_is_put_into_code_that_stays_python_and_the_tests_for_it_are_there(breakage):
    assert breakage.wrong != breakage.right
    ast.parse(sources(breakage))
    assert breakage.tests
    for file, _, test in (name.partition("::") for name in breakage.tests):
        assert f"def {test}" in (ROOT / file).read_text()


def test_breakages_have_names_of_their_own():
    assert len({breakage.name for breakage in ALL}) == len(ALL) >= 40
