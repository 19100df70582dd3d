"""``python -m benchmarks.adaptation``: see the package."""

import sys

from benchmarks.adaptation.evaluation import main

sys.exit(0 if main(sys.argv[1:]) else 1)
