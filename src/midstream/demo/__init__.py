"""A plan that changes while its query runs, to look at: ``make demo``.

Four streams of a web shop are joined. Halfway a release of the shop turns the plan's order, which was good, into a bad
one; the query is asked for a better plan, and goes on. At the end DuckDB computes the same over the whole input: no row
may be missing, and none repeated. A picture of the run is left as PNG and as a page.

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
"""Where the report goes if nothing else is said."""


def run_demo(
    strategy: str = "jisc", spark: bool = True, output: Path | None = None, console: Console | None = None
) -> int:
    """Run the demo and write its report into ``output``. 0 if the results are exact, else 1.

    Raises an error of ``midstream.errors`` if the strategy cannot make the change, or something is not installed.
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
