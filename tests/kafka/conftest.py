"""One broker for all tests with Kafka of a process, and the shared Spark with its connector."""

import pytest


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    from tests.kafka.packages import Unreachable, broker_jars

    try:
        broker_jars()
    except Unreachable as reason:
        pytest.skip(str(reason))
    from tests.kafka.broker import Broker

    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="session")
def connector(spark):
    """The shared Spark knows Kafka and Avro from now on."""
    from tests.kafka.packages import Unreachable, connector_jars

    try:
        jars = connector_jars()
    except Unreachable as reason:
        pytest.skip(str(reason))
    for jar in jars:
        spark.sql(f"ADD JAR '{jar}'")
    return jars
