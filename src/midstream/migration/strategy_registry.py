"""The migration strategies by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from midstream.errors import MigrationRefused, did_you_mean, quoted
from midstream.migration.gen_mig import GenMig
from midstream.migration.jisc import JustInTimeStateCompletion
from midstream.migration.moving_state import MovingState
from midstream.migration.parallel_track import ParallelTrack
from midstream.migration.pause_drain_resume import PauseDrainResume
from midstream.migration.strategy import Strategy

__all__ = ["STRATEGIES", "strategy_named", "strategy_options"]

STRATEGIES: dict[str, type[Strategy]] = {
    strategy.name: strategy
    for strategy in (PauseDrainResume, MovingState, ParallelTrack, GenMig, JustInTimeStateCompletion)
}


def strategy_named(name: object, options: Mapping[str, Any]) -> Strategy:
    """The strategy with its options; raises ``MigrationRefused`` for unknown names and options."""
    if not isinstance(name, str) or name not in STRATEGIES:
        raise MigrationRefused(
            f"there is no migration strategy {name!r}",
            detail=f"There are {quoted(STRATEGIES)}.",
            hint=did_you_mean(str(name), STRATEGIES),
        )
    chosen = STRATEGIES[name]
    known = [field.name for field in fields(chosen)]  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            raise MigrationRefused(
                f'strategy "{name}" has no option "{option}"',
                detail=f"It has {quoted(known)}." if known else "It has no options.",
                hint=did_you_mean(option, known)
                if option not in ("routing", "probe_orders")
                else f'It belongs to the plan: migrate(query.plan("{{a b c}}", {option}=...)).',
            )
    return chosen(**options)


def strategy_options(strategy: Strategy) -> dict[str, Any]:
    """The options of a strategy that are not the default.

    >>> strategy_options(strategy_named("gen-mig", {"shortened": True, "variant": "coalesce"}))
    {'shortened': True}
    """
    chosen = {field.name: getattr(strategy, field.name) for field in fields(strategy)}  # type: ignore[arg-type]
    defaults = type(strategy)()
    return {name: value for name, value in chosen.items() if value != getattr(defaults, name)}
