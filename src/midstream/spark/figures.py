"""How figures of cells come to the driver: by an accumulator, when a task ends."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.accumulators import AccumulatorParam

__all__ = ["Figures"]


class Figures(AccumulatorParam[list[str]]):
    """How figures come to the driver: gathered in a task, and handed on there instead of being kept."""

    def __init__(self, take: Callable[[list[str]], None] | None = None) -> None:
        self._take = take

    def __reduce__(self) -> tuple[type[Figures], tuple[()]]:
        return Figures, ()

    def zero(self, value: list[str]) -> list[str]:
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:
        if self._take is None:
            return value1 + value2
        if value2:
            self._take(value2)
        return []
