"""One Spark for all tests: it takes longer to start than most of them to run."""

import pytest

from midstream.spark import session


@pytest.fixture(scope="session")
def spark():
    spark = session("local[2]", settings={"spark.sql.timeType.enabled": "true"})
    yield spark
    spark.stop()


@pytest.fixture(autouse=True)
def _as_before(request):
    """What a test sets in the session is gone when it ends."""
    if "spark" not in request.fixturenames:
        yield
        return
    spark = request.getfixturevalue("spark")
    names = ["spark.sql.shuffle.partitions", "spark.sql.session.timeZone"]
    before = {name: spark.conf.get(name) for name in names}
    yield
    for name, value in before.items():
        spark.conf.set(name, value)
    assert not spark.streams.active
