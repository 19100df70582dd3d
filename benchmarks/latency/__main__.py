"""Run a part, and only print what comes of it; without options all of it."""

import argparse
import signal
import sys

from benchmarks.latency.comparison import RATES, compare
from benchmarks.latency.competitors import COMPETITORS
from benchmarks.latency.load import MEASURED_SECONDS, WARM_UP_SECONDS

parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
parser.add_argument("--only", choices=[competitor.name for competitor in COMPETITORS])
parser.add_argument("--rate", type=int, help=f"rows per second of all streams; default: {RATES}")
parser.add_argument("--warm-up", type=float, default=WARM_UP_SECONDS, help="seconds that are not counted")
parser.add_argument("--measured", type=float, default=MEASURED_SECONDS, help="seconds that are")
chosen = parser.parse_args()
# Ended from outside, it must still end what it started.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
rates = RATES if chosen.rate is None else (chosen.rate,)
is_met = compare(rates, chosen.only, chosen.warm_up, chosen.measured)
sys.exit(0 if is_met else 1)
