"""Names of packages are loaded when they are used, and processes that Spark only asks load little."""

import pkgutil
import subprocess
import sys

import pytest

import midstream
import midstream.spark

ASKED = ("midstream.spark.file_source", "midstream.spark.cell_operator")
"""What Spark loads to ask a data source and an operator about themselves."""
HEAVY = ("duckdb", "deltalake", "midstream.query", "midstream.runtime.pack", "numba", "pandas", "pyarrow.parquet")


def loaded_by(*modules):
    """The modules that a new process has loaded after it has imported these."""
    script = f"import sys\nimport {', '.join(modules)}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_what_spark_only_asks_loads_little():
    before = loaded_by("pyspark.sql.datasource", "pyspark.sql.streaming.stateful_processor")
    assert not (loaded_by(*ASKED) - before) & set(HEAVY)


@pytest.mark.parametrize("package", [midstream, midstream.spark])
def test_every_public_name_is_there_and_no_module_hides_it(package):
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    for name in package.__all__:
        assert name in dir(package)
        found = getattr(package, name)
        assert found.__name__ == name
        assert name not in modules or found is midstream.spark.session


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(AttributeError, match="module 'midstream' has no attribute 'ContinousQuery'"):
        midstream.ContinousQuery  # noqa: B018
