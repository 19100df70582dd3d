"""Join orders: binary trees over aliases, and the text that names them.

>>> order = parse_join_order("(a b) (c d)", ["a", "b", "c", "d"])
>>> order.aliases
('a', 'b', 'c', 'd')
>>> str(order)
'a b (c d)'

Aliases stand side by side; parentheses group. Without parentheses the order is left-deep: ``a b c`` is ``(a b) c``.
An alias that is no plain word is written in double quotes. A text names all aliases of one SELECT's FROM clause, each
once; which SELECT it speaks of in a query with several is in ``planning/join_order/plan_with_join_order``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from midstream.errors import BadJoinOrder, did_you_mean, quoted

__all__ = ["JoinOrder", "parse_join_order"]

_TOKEN = re.compile(r'"(?:[^"]|"")*"|[()]|[^\s()"]+|"')
_PLAIN = re.compile(r'[^\s()"]+')


@dataclass(frozen=True)
class JoinOrder:
    """A leaf (``alias``) or a join of two orders (``sides``). Sides matter for equality: see :meth:`without_sides`."""

    alias: str | None = None
    sides: tuple[JoinOrder, JoinOrder] | None = None

    def __post_init__(self) -> None:
        assert (self.alias is None) != (self.sides is None)

    @staticmethod
    def leaf(alias: str) -> JoinOrder:
        return JoinOrder(alias=alias)

    @staticmethod
    def join(left: JoinOrder, right: JoinOrder) -> JoinOrder:
        return JoinOrder(sides=(left, right))

    @staticmethod
    def left_deep(parts: Iterable[JoinOrder | str]) -> JoinOrder:
        """The parts joined one after the other.

        >>> str(JoinOrder.left_deep("abc"))
        'a b c'
        """
        return reduce(JoinOrder.join, (JoinOrder.leaf(part) if isinstance(part, str) else part for part in parts))

    @cached_property
    def aliases(self) -> tuple[str, ...]:
        """The aliases, left to right."""
        found: list[str] = []
        pending = [self]
        while pending:
            node = pending.pop()
            if node.sides is None:
                assert node.alias is not None
                found.append(node.alias)
            else:
                pending.extend(reversed(node.sides))
        return tuple(found)

    @property
    def is_left_deep(self) -> bool:
        """Whether the right side of every join is a single alias."""
        node = self
        while node.sides is not None:
            if node.sides[1].sides is not None:
                return False
            node = node.sides[0]
        return True

    @property
    def is_right_deep(self) -> bool:
        """Whether the left side of every join is a single alias."""
        node = self
        while node.sides is not None:
            if node.sides[0].sides is not None:
                return False
            node = node.sides[1]
        return True

    def without_sides(self) -> JoinOrder:
        """The order with the sides of each join in alphabetical order: equal for orders that differ in sides only.

        >>> str(parse_join_order("c (b a)", "abc").without_sides())
        'a b c'
        """
        return self._sorted()[1]

    def _sorted(self) -> tuple[str, JoinOrder]:
        if self.sides is None:
            assert self.alias is not None
            return self.alias, self
        (first, left), (second, right) = sorted((side._sorted() for side in self.sides), key=lambda pair: pair[0])
        return min(first, second), JoinOrder.join(left, right)

    def __str__(self) -> str:
        if self.sides is None:
            assert self.alias is not None
            return self.alias if _PLAIN.fullmatch(self.alias) else '"' + self.alias.replace('"', '""') + '"'
        left, right = self.sides
        return f"{left} {right}" if right.sides is None else f"{left} ({right})"


def parse_join_order(text: str, aliases: Sequence[str]) -> JoinOrder:
    """The order that the text describes; a :class:`BadJoinOrder` unless it names each alias exactly once."""
    groups: list[list[JoinOrder]] = [[]]
    seen: set[str] = set()
    for token in _TOKEN.findall(text):
        if token == "(":
            groups.append([])
        elif token == ")":
            if len(groups) == 1:
                raise BadJoinOrder(f'join order "{text}" closes a parenthesis that it did not open')
            closed = groups.pop()
            if not closed:
                raise BadJoinOrder(f'join order "{text}" has parentheses around nothing')
            groups[-1].append(JoinOrder.left_deep(closed))
        else:
            alias = _known_alias(token, text, aliases)
            if alias in seen:
                raise BadJoinOrder(
                    f'join order "{text}" names "{alias}" twice', hint="Name each alias of the query once."
                )
            seen.add(alias)
            groups[-1].append(JoinOrder.leaf(alias))
    if len(groups) > 1:
        raise BadJoinOrder(f'join order "{text}" does not close {_counted(len(groups) - 1)}')
    if not groups[0]:
        raise BadJoinOrder(
            "the join order is empty",
            detail=f"The query joins {quoted(aliases)}.",
            hint=f'Write for example "{JoinOrder.left_deep(aliases)}".',
        )
    missing = [alias for alias in aliases if alias not in seen]
    if missing:
        raise BadJoinOrder(
            f'join order "{text}" does not name {quoted(missing)}',
            detail=f"The query joins {quoted(aliases)}.",
            hint="Name each alias of the query once.",
        )
    return JoinOrder.left_deep(groups[0])


def _counted(parentheses: int) -> str:
    return "a parenthesis" if parentheses == 1 else f"{parentheses} parentheses"


def _known_alias(token: str, text: str, aliases: Sequence[str]) -> str:
    if token == '"':
        raise BadJoinOrder(f'join order "{text}" has a quote that does not end')
    name = token[1:-1].replace('""', '"') if token.startswith('"') else token
    if name in aliases:
        return name
    # Query text does not care about case either; two aliases that differ in case only must be written exactly.
    alike = [alias for alias in aliases if alias.lower() == name.lower()]
    if len(alike) == 1 and token == name:
        return alike[0]
    raise BadJoinOrder(
        f'join order "{text}" names "{name}", which is no alias of the query',
        detail=f"The query joins {quoted(aliases)}.",
        hint=did_you_mean(name, aliases) or 'Write aliases and parentheses, as in "(a b) c".',
    )
