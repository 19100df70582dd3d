"""A relation that stands in for the input of a join which is only asked to combine tuples that it is given."""

from __future__ import annotations

from collections.abc import Iterator

from midstream.engine.batch import Batch, Layout
from midstream.engine.operators.operator import Operator

__all__ = ["Relation"]


class Relation(Operator):
    """Tuples of some layout; it produces none."""

    def __init__(self, layout: Layout) -> None:
        super().__init__("Relation", layout, ())

    def push(self, *inputs: object) -> Iterator[Batch]:
        raise AssertionError("nothing is pushed to a stand-in")
