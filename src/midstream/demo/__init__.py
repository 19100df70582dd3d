"""The demo behind ``make demo``: a query whose plan is replaced while it runs.

Four streams of a web shop are joined. Halfway through, a release of the shop turns the good join order into a bad one;
the query migrates to a better plan without stopping. At the end DuckDB computes the same join over the whole input: no
row may be missing, and none repeated. The report is a PNG and an HTML page.

    midstream demo --strategy gen-mig --no-spark
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from midstream.errors import PackageMissing
from midstream.installation import install_command

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["run_demo"]

OUTPUT = Path("midstream-demo")
"""The default directory of the report."""


def run_demo(
    strategy: str = "jisc", spark: bool = True, output: Path | None = None, console: Console | None = None
) -> int:
    """Run the demo and write its report to ``output``. Returns 0 if the results are exact, else 1.

    Raises an error of ``midstream.errors`` if the strategy refuses the migration or a package is not installed.
    """
    try:
        importlib.import_module("midstream.demo.report")
        show = importlib.import_module("midstream.demo.show")
        if spark:
            importlib.import_module("midstream.demo.on_spark")
    except ModuleNotFoundError as missing:
        raise PackageMissing(
            f"the demo needs a package that is not installed: {missing.name}",
            hint=f"Install everything it needs with {install_command('demo')}.",
        ) from None
    with tempfile.TemporaryDirectory(prefix="midstream-demo-", ignore_cleanup_errors=True) as folder:
        return int(show.show_demo(strategy, spark, OUTPUT if output is None else output, console, Path(folder)))
