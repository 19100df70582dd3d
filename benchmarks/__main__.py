"""Run the benchmarks named on the command line, or all of them."""

import argparse
import importlib

NAMES = [
    "j4",
    "window_growth",
    "many_way_join",
    "theta_join",
    "zhu_2004",
    "kraemer_2006",
    "jisc_2014",
    "yang_2008",
    "isqd",
    "adaptation",
    "executors",
    "flights",
    "output_during_migration",
    "deployment_planner",
    "spark_j4",
    "spark_long_stream",
    "latency",
]
FIGURES = {"zhu_2004", "kraemer_2006", "jisc_2014", "yang_2008", "isqd", "output_during_migration"}
"""Those that draw figures, of which the README has a table."""

parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
parser.add_argument("names", nargs="*", metavar="NAME", help=f"one or more of {', '.join(NAMES)}")
chosen = parser.parse_args().names or NAMES
for unknown in set(chosen) - set(NAMES):
    parser.error(f"there is no benchmark {unknown!r}; there are {', '.join(NAMES)}")
missed = [name for name in chosen if not importlib.import_module(f"benchmarks.{name}").main()]
if set(chosen) & FIGURES:
    from benchmarks.figures import write_readme_table

    write_readme_table()
if missed:
    parser.exit(1, f"bars missed in: {', '.join(missed)}\n")
