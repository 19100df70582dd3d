"""The names a part of the query can see: the relations in FROM and their columns.

Names in quotes are taken as written. Others are matched exactly first, else without regard to case if that leaves one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from midstream.algebra.expressions import Column
from midstream.algebra.plan import Plan
from midstream.cql.dialect import start
from midstream.errors import AmbiguousColumn, DuplicateName, UnknownColumn, UnknownStream, did_you_mean, quoted

__all__ = ["Relation", "Scope", "unique_match"]


@dataclass(frozen=True)
class Relation:
    """One item of FROM. ``title`` is how messages call it: ``stream "bids"`` or ``subquery "q"``."""

    alias: str
    title: str
    plan: Plan

    @cached_property
    def columns(self) -> dict[str, Column]:
        return {field.name: field.column for field in self.plan.schema}


class Scope:
    """The relations of one FROM, in the order they were added."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._relations: dict[str, Relation] = {}
        self._exact: defaultdict[str, list[Column]] = defaultdict(list)
        self._folded: defaultdict[str, list[Column]] = defaultdict(list)

    @property
    def relations(self) -> list[Relation]:
        return list(self._relations.values())

    def add(self, relation: Relation, position: int) -> None:
        """One more relation; a repeated alias is refused at the position."""
        if relation.alias in self._relations:
            raise DuplicateName(
                f'"{relation.alias}" is in FROM twice',
                hint="Give each its own alias: FROM bids [NOW] a, bids [NOW] b.",
                text=self._text,
                position=position,
            )
        self._relations[relation.alias] = relation
        for column in relation.columns.values():
            self._exact[column.name].append(column)
            self._folded[column.name.lower()].append(column)

    def relation(self, name: exp.Identifier) -> Relation:
        """The relation of that alias."""
        found = unique_match(name, self._relations)
        if found is not None:
            return self._relations[found]
        hint = did_you_mean(name.name, list(self._relations))
        for relation in self._relations.values():
            if relation.title.lower() == f'stream "{name.name.lower()}"':
                hint = f'Its alias here is "{relation.alias}".'
        raise UnknownStream(
            f'"{name.name}" is not in FROM',
            detail=f"FROM has {quoted(self._relations)}.",
            hint=hint,
            text=self._text,
            position=start(name),
        )

    def column(self, node: exp.Column) -> Column:
        """The column that a reference in the text means."""
        name, table = node.this, node.args.get("table")
        if table is not None:
            return self._qualified(name, self.relation(table))
        candidates = self._exact.get(name.name, [])
        if not candidates and not name.quoted:
            candidates = self._folded.get(name.name.lower(), [])
        if len(candidates) == 1:
            return candidates[0]
        if not candidates:
            raise self._unknown(name, self.relations)
        owners = [column.relation for column in candidates]
        raise AmbiguousColumn(
            f'column "{name.name}" is ambiguous',
            detail=f"It exists in {quoted(dict.fromkeys(owners))}.",
            hint=f"Write which one, as in {candidates[0]}.",
            text=self._text,
            position=start(node),
        )

    def _qualified(self, name: exp.Identifier, relation: Relation) -> Column:
        found = unique_match(name, relation.columns)
        if found is None:
            raise self._unknown(name, [relation])
        return relation.columns[found]

    def _unknown(self, name: exp.Identifier, relations: Sequence[Relation]) -> UnknownColumn:
        names = list(dict.fromkeys(column for relation in relations for column in relation.columns))
        if len(relations) == 1:
            message = f'column "{name.name}" does not exist in {relations[0].title}'
            detail = f"The {relations[0].title.split()[0]} has the columns {quoted(names)}."
        else:
            message = f'column "{name.name}" does not exist'
            shown = [f"{relation.alias}({', '.join(relation.columns)})" for relation in relations[:8]]
            more = f" and {len(relations) - 8} more" if len(relations) > 8 else ""
            detail = f"FROM has {', '.join(shown)}{more}."
        return UnknownColumn(
            message, detail=detail, hint=did_you_mean(name.name, names), text=self._text, position=start(name)
        )


def unique_match(name: exp.Identifier, candidates: Collection[str]) -> str | None:
    """The candidate the name means, if there is exactly one."""
    if name.name in candidates:
        return name.name
    if name.quoted:
        return None
    folded = [candidate for candidate in candidates if candidate.lower() == name.name.lower()]
    return folded[0] if len(folded) == 1 else None
