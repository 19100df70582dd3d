"""The demo behind ``make demo``: a query that replaces its own plan while it runs.

Four streams of a web shop are joined. Halfway through, a release of the shop turns the good join order into a bad one.
The query measures its joins, decides that another order is worth a migration, says why, and migrates without stopping;
nobody calls ``migrate``. At the end DuckDB computes the same join over the whole input: no row may be missing, and none
repeated. The report is a PNG and an HTML page. With ``--no-adapt`` the demo calls ``migrate`` some batches after the
release.

    midstream demo --no-spark
    midstream demo --no-adapt --strategy gen-mig
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
    strategy: str | None = None,
    spark: bool = True,
    output: Path | None = None,
    console: Console | None = None,
    adapt: bool = True,
) -> int:
    """Run the demo and write its report to ``output``.

    ``strategy`` is the only one that the query may choose; without ``adapt``, the one that the demo asks for (by
    default jisc). Returns 0 if the results are exact and the plan was replaced after the release, else 1. Raises an
    error of ``midstream.errors`` if the strategy refuses the migration or a package is not installed.
    """
    try:
        importlib.import_module("midstream.demo.report")
        show = importlib.import_module("midstream.demo.show")
        policy = importlib.import_module("midstream.adaptation.policy").Adaptation() if adapt else None
        if spark:
            importlib.import_module("midstream.demo.on_spark")
    except ModuleNotFoundError as missing:
        raise PackageMissing(
            f"the demo needs a package that is not installed: {missing.name}",
            hint=f"Install everything it needs with {install_command('demo')}.",
        ) from None
    with tempfile.TemporaryDirectory(prefix="midstream-demo-", ignore_cleanup_errors=True) as folder:
        report = OUTPUT if output is None else output
        return int(show.show_demo(strategy, policy, spark, report, console, Path(folder)))
