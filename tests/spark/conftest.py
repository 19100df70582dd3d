"""What tests on a real Spark share. Its session is in ``tests/conftest.py``."""

import pytest


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
