"""ISQD's evaluation: figures 7 to 12 and section 7.2.3, simulated, and how large a topology can be simulated.

``python -m benchmarks isqd`` runs all (about 20 minutes), ``python -m benchmarks.isqd figure_7 figure_12`` some.
"""

from __future__ import annotations

__all__ = ["main"]


def main(*names: str) -> bool:
    """Whether all bars are met."""
    from benchmarks.isqd import redeployment, scale, state_availability

    figures = {**state_availability.FIGURES, **redeployment.FIGURES, **scale.FIGURES}
    return all([figures[name]() for name in names or figures])
