"""The same examples in every run, and one Spark, and one Kafka broker, for all tests of a process.

Hypothesis would also draw constants from the modules that happen to be loaded, and so depend on which tests the same
process has run before.
"""

import gc
import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis.internal.conjecture import providers
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parent.parent

if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants


SLOW = (
    "tests/cli/test_running.py",
    "tests/demo/test_demo_on_spark.py",
    "tests/planning/test_partitioning.py",
    "tests/property/",
    "tests/kafka/test_chaos.py",
    "tests/spark/test_chaos.py",
    "tests/spark/test_cluster.py",
    "tests/spark/test_sites.py",
    "tests/deployment/test_sites_without_spark.py",
    "tests/runtime/test_durable_cell.py",
    "tests/spark/test_sliding_cells.py",
    "tests/testing/",
)
"""Files whose tests take seconds each."""


LONGEST = (
    "tests/spark/test_cluster.py",
    "tests/spark/test_chaos.py",
    "tests/kafka/test_chaos.py",
    "tests/spark/test_sites.py",
    "tests/demo/test_demo_on_spark.py",
    "tests/property/test_seeded_cases.py",
)
"""Files whose tests take longest, most of the time waiting for processes of their own."""


def pytest_collection_modifyitems(items):
    """What takes long begins first: tests on the shared Spark, which run one after the other, then other slow ones."""
    items.sort(
        key=lambda item: (
            _company(item.nodeid) != "spark",
            not item.nodeid.startswith(LONGEST),
            not item.nodeid.startswith(SLOW),
        )
    )


def pytest_collection_finish():
    """What is loaded by now stays: looking through it for garbage takes a tenth of the time of tests."""
    gc.freeze()


def pytest_unconfigure():
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False
    return TogetherScheduling(config, log)


class TogetherScheduling(LoadScopeScheduling):
    """Tests of a file stay together, as do all on the shared Spark, whose Java is warm after the first; slow ones that
    share nothing are spread one by one."""

    def _split_scope(self, nodeid):
        return _company(nodeid)


def _company(nodeid):
    """What tests that run in one process have in common."""
    file = nodeid.partition("::")[0]
    if not Path(file).name.startswith("test_"):
        return file
    shares_spark, shares_more = _shared(file)
    return "spark" if shares_spark else nodeid if file.startswith(SLOW) and not shares_more else file


@cache
def _shared(file):
    """Whether tests of a file use the shared Spark, and whether they share something of their own."""
    text = (ROOT / file).read_text()
    uses_spark = re.search(r"^def \w+\(.*\bspark\b.*\):|getfixturevalue\(\"spark", text, re.M)
    return bool(uses_spark), 'fixture(scope="module")' in text


@pytest.fixture(scope="session", autouse=True)
def working_directory(tmp_path_factory):
    """Tests run in an empty directory of their own, and leave nothing in it: they depend on no other command."""
    before, directory = Path.cwd(), tmp_path_factory.mktemp("working-directory")
    os.chdir(directory)
    yield directory
    os.chdir(before)
    left = os.listdir(directory)
    assert not left, f"tests write to temporary directories, not to the working directory: {left}"


@pytest.fixture(scope="session", autouse=True)
def java_options(tmp_path_factory):
    """What every Java of the tests is started with, also in other processes.

    Most tests are over before Java's optimising compiler pays: without it, starting Spark and the first query take a
    quarter less processor time. Tables are kept in a temporary directory, not where a process runs.
    """
    quick = "-XX:TieredStopAtLevel=1"
    warehouse = tmp_path_factory.mktemp("warehouse")
    settings = f'-Dspark.executor.extraJavaOptions={quick} "-Dspark.sql.warehouse.dir={warehouse}"'
    options = {"SPARK_SUBMIT_OPTS": f"{quick} {settings}", "SPARK_DAEMON_JAVA_OPTS": quick}
    with pytest.MonkeyPatch.context() as patched:
        for name, value in options.items():
            patched.setenv(name, f"{os.environ.get(name, '')} {value}".strip())
        yield


@pytest.fixture(scope="session")
def warm_python(working_directory):
    """What is in the environment of a Spark whose Python processes are to start at once (``warm_python.py``)."""
    from tests.spark import warm_python

    searched = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "0"}
    # The name of a socket may not be long.
    with tempfile.TemporaryDirectory(prefix="midstream-") as folder:
        path = f"{folder}/socket"
        command = [sys.executable, warm_python.__file__, "--serve", path]
        server = subprocess.Popen(command, env={**os.environ, **searched}, stdin=subprocess.PIPE)
        yield {**searched, "PYSPARK_PYTHON": warm_python.client(folder), warm_python.SERVER: path}
        server.communicate()


@pytest.fixture(scope="session")
def spark(warm_python, java_options):
    """Spark takes longer to start than most tests to run."""
    from midstream.spark import session

    with pytest.MonkeyPatch.context() as patched:
        for name, value in warm_python.items():
            patched.setenv(name, value)
        spark = session("local[2]", settings={"spark.sql.timeType.enabled": "true"})
    yield spark
    spark.stop()


@pytest.fixture
def spark_in(spark, monkeypatch):
    """A function after which relative paths begin in a directory, for Python and for the shared Spark, whose JVM stays
    in the directory where it was started."""
    hadoop = spark.sparkContext._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.get(spark.sparkContext._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory()

    def enter(directory):
        files.setWorkingDirectory(hadoop.Path(str(directory)))
        monkeypatch.chdir(directory)

    yield enter
    for query in spark.streams.active:
        query.stop()
    files.setWorkingDirectory(before)


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    """A real broker (``tests/kafka``); where it cannot be resolved from Maven, tests are skipped."""
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
