"""Does a query that adapts beat static plans, and what does it cost when nothing changes?

    python -m benchmarks adaptation
    python -m benchmarks.adaptation --only steps drift
    python -m benchmarks.adaptation --resume

Each workload runs with adaptation, and with every plan without a cross product (of more than 15, a sample) as a static
plan, in the same process, one after the other. Times are processor times of the pushes, calibration not included
(it is done once per process). The regret is what adaptation takes beyond the best static plan of each phase, switching
included. Competitors beside static plans are a multi-way join with default probe orders, an eddy, STAIRs, and a
clairvoyant that migrates to the best static plan of each phase when it begins. What is done is kept part by part, so
that an interrupted run can be resumed.
"""

from benchmarks.adaptation.evaluation import main

__all__ = ["main"]
