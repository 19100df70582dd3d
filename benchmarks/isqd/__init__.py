"""ISQD's evaluation: figures 7 to 12 and section 7.2.3, simulated, the scale, and some on Spark sites.

``python -m benchmarks isqd`` runs all (about 40 minutes), ``python -m benchmarks.isqd figure_7 figure_12`` some. The
figures whose names end with ``_on_spark`` are measured on real Spark sites; they take about half of the time.
"""

from __future__ import annotations

__all__ = ["main"]


def main(*names: str) -> bool:
    """Whether all bars are met."""
    from benchmarks.isqd import on_spark_changes, on_spark_state, redeployment, scale, state_availability

    figures = {**state_availability.FIGURES, **redeployment.FIGURES, **scale.FIGURES}
    figures |= {**on_spark_state.FIGURES, **on_spark_changes.FIGURES}
    return all([figures[name]() for name in names or figures])
