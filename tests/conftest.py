"""The same examples in every run, and one Spark for all tests of a process.

Hypothesis would also draw constants from the modules that happen to be loaded, and so depend on which tests the same
process has run before.
"""

import pytest
from hypothesis.internal.conjecture import providers

if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """All tests on the shared Spark run in one process, whose Java is warm after the first; and begin at once."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.fixture(scope="session")
def spark():
    """Spark takes longer to start than most tests to run."""
    from midstream.spark import session

    spark = session("local[2]", settings={"spark.sql.timeType.enabled": "true"})
    yield spark
    spark.stop()
