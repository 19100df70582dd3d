"""How a query adapts: the thresholds of its decisions, each with a default that is meant to fit."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from midstream.errors import BadOption, did_you_mean, quoted
from midstream.migration.strategy_registry import STRATEGIES
from midstream.planning.cost.coefficients import CostCoefficients, finite_number, shown_number

__all__ = ["AdaptMode", "Adaptation"]

AdaptMode = Literal["off", "advise", "auto"]
_MODES = ("off", "advise", "auto")
_LARGEST = 2**63 - 1


class Adaptation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a running query measures its streams, and when it changes its plan.

    What is measured:

    - ``sample_rows``: how many new rows of each input are drawn in a measurement.
    - ``measure_every``: a measurement takes place when so large a share of the rows in their windows has arrived since
      the last one. At the start windows are small, and measurements frequent.
    - ``measure_share``: measurements may take this share of the time that the rows take. Where it does not suffice,
      they become rarer.
    - ``least_rows``: nothing is decided on fewer rows than this.

    What is decided:

    - ``deviations``: a saving counts only as far as it exceeds its uncertainty: so many standard errors are subtracted.
    - ``least_gain``: how many times as fast the part of the plan that changes must become.
    - ``least_saving``: the share of the whole plan's time that a change must save.
    - ``regret``: a change is made when the time that was lost by not making it exceeds what it costs by this factor.
    - ``strategies``: the migration strategies it may choose from; the one with the least expected cost is taken.
    - ``longest_pause``: how many seconds a migration may keep results waiting, by its cost model.
    - ``most_state_bytes``: how many bytes the states of the joins may take (on Spark, those of one cell), beside the
      rows in their windows; None: as many as they like. By the cost model. A plan that takes more is not chosen if
      another one takes less, and is changed at once if another one fits or takes much less (``least_gain``).

    ``coefficients`` are the seconds per step of the cost model; None: measured on this machine when the query starts.
    The same rows in the same pushes with the same ``seed`` and coefficients give the same decisions.
    """

    mode: AdaptMode = "auto"
    sample_rows: int = 256
    measure_every: float = 0.25
    measure_share: float = 0.01
    least_rows: int = 1_000
    deviations: float = 2.0
    least_gain: float = 1.2
    least_saving: float = 0.02
    regret: float = 1.0
    strategies: tuple[str, ...] = ("jisc", "moving-state", "gen-mig")
    longest_pause: float = 0.2
    most_state_bytes: float | None = None
    coefficients: CostCoefficients | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise _unknown_mode(self.mode)
        for name, least in (("sample_rows", 16), ("least_rows", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise BadOption(f"{name} must be a whole number of at least {least}, not {shown_number(value)}")
            if value > _LARGEST:
                # A policy is stored, and numbers beyond 64 bits cannot be.
                raise BadOption(f"{name} must be a whole number below 2^63, not {shown_number(value)}")
        for name, least_value in (
            ("measure_every", 0.0), ("measure_share", 0.0), ("deviations", 0.0), ("least_gain", 1.0),
            ("least_saving", 0.0), ("regret", 0.0), ("longest_pause", 0.0), ("most_state_bytes", 0.0),
        ):  # fmt: skip
            if getattr(self, name) is None and name == "most_state_bytes":
                continue
            number = finite_number(getattr(self, name))
            if number is None or number < least_value:
                given = shown_number(getattr(self, name))
                raise BadOption(f"{name} must be a number of at least {least_value:g}, not {given}")
            # A policy is the same after it was stored.
            msgspec.structs.force_setattr(self, name, number)
        if not isinstance(self.strategies, tuple) or not self.strategies:
            raise BadOption(
                f"strategies must name at least one migration strategy, as a tuple, not {self.strategies!r}",
                hint='Write strategies=("jisc",).',
            )
        for strategy in self.strategies:
            if not isinstance(strategy, str) or strategy not in STRATEGIES:
                raise BadOption(
                    f"there is no migration strategy {strategy!r}",
                    detail=f"There are {quoted(STRATEGIES)}.",
                    hint=did_you_mean(str(strategy), STRATEGIES),
                )
        if self.coefficients is not None and not isinstance(self.coefficients, CostCoefficients):
            raise BadOption(f"coefficients must be CostCoefficients(...), not {self.coefficients!r}")

    @classmethod
    def chosen(cls, value: str | Adaptation | None) -> Adaptation | None:
        """What a user gives: a mode, or all options; None and "off" for a query that keeps its plan."""
        if value is None or (isinstance(value, str) and value == "off"):
            return None
        if isinstance(value, cls):
            return None if value.mode == "off" else value
        if isinstance(value, str) and value in _MODES:
            return cls(mode=value)  # type: ignore[arg-type]
        raise _unknown_mode(value)


def _unknown_mode(value: Any) -> BadOption:
    hint = did_you_mean(value, _MODES) if isinstance(value, str) else None
    return BadOption(
        f"adapt cannot be {value!r}", detail=f"There are {quoted(_MODES)}, and Adaptation(...).", hint=hint
    )
