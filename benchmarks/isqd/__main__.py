"""Run the parts named on the command line, or all of them."""

from benchmarks.figures import run_parts
from benchmarks.isqd import main

run_parts(main)
