"""A query that finds its own plan: statistics of any join subset, decisions by accumulated regret, their reasons."""

from midstream.adaptation.calibration import calibrate
from midstream.adaptation.decision_report import write_decision_report
from midstream.adaptation.decision_text import decision_text
from midstream.adaptation.decisions import ConsideredJoin, Decision
from midstream.adaptation.policy import Adaptation

__all__ = ["Adaptation", "ConsideredJoin", "Decision", "calibrate", "decision_text", "write_decision_report"]
