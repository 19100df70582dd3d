"""A query that finds its own plan: statistics of any join subset, decisions by accumulated regret, their reasons."""

from midstream.adaptation.calibration import calibrate
from midstream.adaptation.decisions import ConsideredJoin, Decision
from midstream.adaptation.policy import Adaptation

__all__ = ["Adaptation", "ConsideredJoin", "Decision", "calibrate"]
