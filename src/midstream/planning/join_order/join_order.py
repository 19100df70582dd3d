"""Join orders: trees over aliases, and the text that names them.

>>> order = parse_join_order("(a b) (c d)", ["a", "b", "c", "d"])
>>> order.aliases
('a', 'b', 'c', 'd')
>>> str(order)
'a b (c d)'

Aliases stand side by side; parentheses group. Without parentheses the order is left-deep: ``a b c`` is ``(a b) c``.
Braces join all that is inside at once, without intermediate results: ``{a b c} d`` is a multi-way join of a, b and c,
whose results are joined with d. ``{a b c}:eddy d`` says who routes rows inside the braces. An alias that is no plain
word is written in double quotes. A text names all aliases of one SELECT's FROM clause, each once; which SELECT it
speaks of in a query with several is in ``planning/join_order/plan_with_join_order``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import cast, get_args

from midstream.algebra.plan import Routing
from midstream.errors import BadJoinOrder, BadOption, did_you_mean, quoted

__all__ = ["JoinOrder", "known_alias", "named_aliases", "parse_join_order"]

_TOKEN = re.compile(r'"(?:[^"]|"")*"|}(?::[^\s(){}"]*)?|[(){]|[^\s(){}"]+|"')
_PLAIN = re.compile(r'[^\s(){}"]+')
_CLOSES = {")": "(", "}": "{"}
_BRACKETS = {"(": ("a parenthesis", "parentheses"), "{": ("a brace", "braces")}

ProbeOrders = tuple[tuple[str, tuple[str, ...]], ...]
"""For inputs of a multi-way join, named by one of their aliases: the others, in the order in which they are probed."""


@dataclass(frozen=True)
class JoinOrder:
    """A leaf (``alias``), a join of two orders (``sides``), or a multi-way join of several (``parts``).

    Sides matter for equality: see :meth:`without_sides`.
    """

    alias: str | None = None
    sides: tuple[JoinOrder, JoinOrder] | None = None
    parts: tuple[JoinOrder, ...] | None = None
    routing: Routing = "fixed"
    """Of a multi-way join."""
    probe_orders: ProbeOrders = ()
    """Of a multi-way join with fixed routing; for inputs that are not named here, the planner chooses."""

    def __post_init__(self) -> None:
        assert [self.alias, self.sides, self.parts].count(None) == 2

    @staticmethod
    def leaf(alias: str) -> JoinOrder:
        return JoinOrder(alias=alias)

    @staticmethod
    def join(left: JoinOrder, right: JoinOrder) -> JoinOrder:
        return JoinOrder(sides=(left, right))

    @staticmethod
    def braces(parts: Iterable[JoinOrder], routing: Routing = "fixed", probe_orders: ProbeOrders = ()) -> JoinOrder:
        """All parts joined at once."""
        return JoinOrder(parts=tuple(parts), routing=routing, probe_orders=probe_orders)

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
            if node.alias is not None:
                found.append(node.alias)
            pending.extend(reversed(node.inputs))
        return tuple(found)

    @property
    def inputs(self) -> tuple[JoinOrder, ...]:
        """What is joined: two orders, several of a multi-way join, or none."""
        return self.sides or self.parts or ()

    @property
    def aliases_in_braces(self) -> frozenset[str]:
        """The aliases that a multi-way join combines."""
        if self.parts is not None:
            return frozenset(self.aliases)
        return frozenset[str]().union(*(part.aliases_in_braces for part in self.inputs))

    def routed(self, routing: Routing | None, probe_orders: ProbeOrders = ()) -> JoinOrder:
        """The order with this routing in all its braces, if one is given, and with probe orders.

        Each order is that of the innermost braces around its alias.
        """
        if self.alias is not None:
            return self
        inputs = tuple(part.routed(routing, probe_orders) for part in self.inputs)
        if self.sides is not None:
            return JoinOrder.join(*inputs)
        further_in = frozenset[str]().union(*(part.aliases_in_braces for part in inputs))
        own = tuple(item for item in probe_orders if item[0] in self.aliases and item[0] not in further_in)
        chosen = routing or self.routing
        if own and chosen != "fixed":
            raise BadOption(f"probe orders are for fixed routing: {chosen} routing chooses them while the query runs")
        return JoinOrder.braces(inputs, chosen, own)

    @property
    def is_left_deep(self) -> bool:
        """Whether the right side of every join is a single alias."""
        node = self
        while node.sides is not None:
            if node.sides[1].alias is None:
                return False
            node = node.sides[0]
        return node.alias is not None

    @property
    def is_right_deep(self) -> bool:
        """Whether the left side of every join is a single alias."""
        node = self
        while node.sides is not None:
            if node.sides[0].alias is None:
                return False
            node = node.sides[1]
        return node.alias is not None

    def without_sides(self) -> JoinOrder:
        """The order with the sides of each join in alphabetical order: equal for orders that differ in sides only.

        >>> str(parse_join_order("c (b a)", "abc").without_sides())
        'a b c'
        """
        return self._sorted()[1]

    def _sorted(self) -> tuple[str, JoinOrder]:
        if self.alias is not None:
            return self.alias, self
        inputs = sorted((part._sorted() for part in self.inputs), key=lambda pair: pair[0])
        orders = tuple(order for _, order in inputs)
        if self.sides is not None:
            return inputs[0][0], JoinOrder.join(*orders)
        return inputs[0][0], replace(self, parts=orders)

    def __str__(self) -> str:
        if self.alias is not None:
            return self.alias if _PLAIN.fullmatch(self.alias) else '"' + self.alias.replace('"', '""') + '"'
        texts = [str(part) if part.sides is None else f"({part})" for part in self.inputs]
        if self.sides is not None:
            return f"{self.sides[0]} {texts[1]}"
        return "{" + " ".join(texts) + "}" + (f":{self.routing}" if self.routing != "fixed" else "")


def parse_join_order(text: str, aliases: Sequence[str]) -> JoinOrder:
    """The order that the text describes; a :class:`BadJoinOrder` unless it names each alias exactly once."""
    groups: list[list[JoinOrder]] = [[]]
    opened: list[str] = []
    seen: set[str] = set()
    for token in _TOKEN.findall(text):
        if token in _BRACKETS:
            groups.append([])
            opened.append(token)
        elif token[0] in _CLOSES:
            bracket = _CLOSES[token[0]]
            one, several = _BRACKETS[bracket]
            if not opened or opened[-1] != bracket:
                raise BadJoinOrder(f'join order "{text}" closes {one} that it did not open')
            opened.pop()
            closed = groups.pop()
            if not closed:
                raise BadJoinOrder(f'join order "{text}" has {several} around nothing')
            if bracket == "{" and len(closed) == 1:
                raise BadJoinOrder(
                    f'join order "{text}" has braces around a single input', hint="Join at least two in braces."
                )
            if bracket == "{":
                groups[-1].append(JoinOrder.braces(closed, _routing(token, text)))
            else:
                groups[-1].append(JoinOrder.left_deep(closed))
        else:
            alias = known_alias(token, f'join order "{text}"', aliases)
            if alias in seen:
                raise BadJoinOrder(
                    f'join order "{text}" names "{alias}" twice', hint="Name each alias of the query once."
                )
            seen.add(alias)
            groups[-1].append(JoinOrder.leaf(alias))
    if opened:
        one, several = _BRACKETS[opened[-1]]
        count = opened.count(opened[-1])
        raise BadJoinOrder(f'join order "{text}" does not close {one if count == 1 else f"{count} {several}"}')
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


def _routing(token: str, text: str) -> Routing:
    """The routing that a closing brace names."""
    name = token[2:] if len(token) > 1 else "fixed"
    if name not in get_args(Routing):
        raise BadJoinOrder(
            f'join order "{text}" asks for the routing "{name}", which does not exist',
            detail=f"There are {quoted(get_args(Routing))}.",
            hint=did_you_mean(name, get_args(Routing)),
        )
    return cast(Routing, name)


def named_aliases(text: str, named_in: str, aliases: Sequence[str]) -> tuple[str, ...]:
    """The aliases that a text names one after the other, written as in a join order.

    >>> named_aliases('C "my a"', "the probe order", ["my a", "b", "c"])
    ('c', 'my a')
    """
    return tuple(known_alias(token, named_in, aliases) for token in _TOKEN.findall(text))


def known_alias(token: str, named_in: str, aliases: Sequence[str]) -> str:
    """The alias that a word of a join order means; ``named_in`` says in an error where it stands."""
    if token == '"':
        raise BadJoinOrder(f"{named_in} has a quote that does not end")
    name = token[1:-1].replace('""', '"') if token.startswith('"') else token
    if name in aliases:
        return name
    # Query text does not care about case either; two aliases that differ in case only must be written exactly.
    alike = [alias for alias in aliases if alias.lower() == name.lower()]
    if len(alike) == 1 and token == name:
        return alike[0]
    if name.startswith(":"):
        raise BadJoinOrder(
            f'{named_in} has "{name}" where no brace closes',
            hint='Write the routing right after a closing brace, as in "{a b c}:eddy d".',
        )
    raise BadJoinOrder(
        f'{named_in} names "{name}", which is no alias of the query',
        detail=f"The query joins {quoted(aliases)}.",
        hint=did_you_mean(name, aliases) or 'Write aliases, parentheses and braces, as in "(a b) c" or "{a b c} d".',
    )
