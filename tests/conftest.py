"""The same examples in every run, and one Spark for all tests of a process.

Hypothesis would also draw constants from the modules that happen to be loaded, and so depend on which tests the same
process has run before.
"""

import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis.internal.conjecture import providers
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parent.parent

if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return TogetherScheduling(config, log)


class TogetherScheduling(LoadScopeScheduling):
    """Spreads tests one by one, except those that share something that is slow to start: they stay in one process.

    These are the tests on the shared Spark, whose Java is warm after the first, and those of the running command line.
    """

    def _split_scope(self, nodeid):
        file = Path(nodeid.partition("::")[0])
        return _company(ROOT / file) or nodeid


@cache
def _company(file):
    if file.suffix != ".py" or not file.name.startswith("test_"):
        return None
    text = file.read_text()
    shares_spark = re.search(r"^def test_\w+\(.*\bspark\b|getfixturevalue\(\"spark", text, re.M)
    return "spark" if shares_spark else str(file) if 'fixture(scope="module")' in text else None


@pytest.fixture(scope="session")
def spark():
    """Spark takes longer to start than most tests to run."""
    from midstream.spark import session

    spark = session("local[2]", settings={"spark.sql.timeType.enabled": "true"})
    yield spark
    spark.stop()
