"""Run the parts named on the command line, or all of them."""

import sys

from benchmarks.figures import write_readme_table
from benchmarks.isqd import main

is_met = main(*sys.argv[1:])
write_readme_table()
sys.exit(0 if is_met else 1)
