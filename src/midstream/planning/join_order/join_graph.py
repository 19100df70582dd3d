"""The join graph of a block of joins: what is joined on what, apart from any order.

A block is a maximal tree of joins and the selections among them. Its graph has

- **leaves**: the inputs of the joins, each with the conditions that read it alone;
- **equality classes**: expressions that the equalities make equal. ``a.k = b.k AND b.k = c.k`` is the class
  ``{a.k, b.k, c.k}``, so a and c can be joined directly. Members are whole expressions, casts included: comparing an
  integer with a float puts ``CAST(a.i AS double)`` into the class, not ``a.i``, because comparison across types is not
  transitive;
- **residual conditions**: everything else that reads several leaves (``a.x < b.y``, an OR across them).

:meth:`JoinGraph.build` turns the graph and an order into a plan. Each condition goes to the lowest join that has all
its relations. Of each class, the following holds at every node: *all members that the node can compute are equal
there*. A join therefore needs one equality per class to connect the members of its two sides, and one more for each
member that only both sides together can compute::

    class {a.k, b.k, c.k, a.x + b.y}          ⋈  a.k = c.k
                                             ╱ ╲
          a.k = b.k AND a.k = a.x + b.y     ⋈   c
                                           ╱ ╲
                                          a   b

Two members on one leaf (``a.x = b.k AND a.y = b.k``) are made equal by a selection on that leaf at once. What a set of
leaves joins to thus depends on the set only, not on the order: states of different plans can be matched.

Sets of leaves are bit masks (bit i is leaf i), so that questions about 100 leaves are a few machine words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_

from midstream.algebra.expressions import Expression, conjunction, conjuncts
from midstream.algebra.identity import selections
from midstream.algebra.plan import Join, MultiJoin, Plan, Select
from midstream.errors import BadJoinOrder, quoted
from midstream.planning.join_order.equality_classes import Condition, connections, sort_conditions
from midstream.planning.join_order.join_order import JoinOrder
from midstream.planning.join_order.probe_orders import probe_orders

__all__ = ["JoinGraph", "bits", "block_joins", "is_join_block", "select"]

_KEPT = "join_graph"
"""The attribute of a plan in which its graph is kept."""


@dataclass(frozen=True)
class JoinGraph:
    """See the module. ``order`` is that of the plan the graph was taken from; names are the leaves' aliases."""

    names: tuple[str, ...]
    bases: tuple[Plan, ...]
    selections: tuple[tuple[Expression, ...], ...]
    classes: tuple[tuple[Condition, ...], ...]
    residuals: tuple[Condition, ...]
    order: JoinOrder

    @staticmethod
    def of(plan: Plan, conditions: Iterable[Expression] = ()) -> JoinGraph:
        """The graph of the block on top of the plan, further conditions included; one leaf if there is no join.

        A plan never changes, so its graph is kept with it, as its cached properties are.
        """
        if conditions != ():
            return _extract(plan, conditions)
        kept: JoinGraph | None = vars(plan).get(_KEPT)
        if kept is None:
            vars(plan)[_KEPT] = kept = _extract(plan, ())
        return kept

    @staticmethod
    def of_parts(parts: Sequence[Plan], conditions: Iterable[Expression]) -> JoinGraph:
        """The graph whose leaves are the parts, whatever they are made of."""
        names = tuple(_name(part) for part in parts)
        leaf_of = {field.relation: position for position, part in enumerate(parts) for field in part.schema}
        separate = [(part, None) for condition in conditions for part in conjuncts(condition)]
        classes, own, residuals = sort_conditions(separate, leaf_of, len(parts))
        order = JoinOrder.braces(JoinOrder.leaf(name) for name in names)
        return JoinGraph(names, tuple(parts), own, classes, residuals, order)

    @cached_property
    def leaves(self) -> tuple[Plan, ...]:
        """The inputs of the joins, under their own selections."""
        return tuple(select(base, parts) for base, parts in zip(self.bases, self.selections, strict=True))

    def with_leaves(self, leaves: Sequence[Plan]) -> JoinGraph:
        """The graph over other plans of the leaves, which already include the leaves' selections."""
        return replace(self, bases=tuple(leaves), selections=((),) * len(leaves))

    @cached_property
    def everything(self) -> int:
        """The set of all leaves."""
        return (1 << len(self.names)) - 1

    def mask_of(self, order: JoinOrder) -> int:
        """The leaves of an order, as a set."""
        return sum(1 << self._positions[alias] for alias in order.aliases)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    # Conditions

    def predicates(self, left: int, right: int) -> list[Expression]:
        """The conditions of a join of two disjoint sets of leaves."""
        found: list[Expression] = []
        for members, mask in zip(self.classes, self._class_masks, strict=True):
            if mask & left and mask & right:
                found += connections(members, left, right)
        both = left | right
        for residual in self.residuals:
            mask = residual.mask
            if mask & left and mask & right and not mask & ~both:
                found.append(residual.expression)
        return found

    def linking_classes(self, left: int, right: int) -> tuple[int, ...]:
        """The equality classes by which two disjoint sets of leaves find each other: the key of their states."""
        return tuple(
            number
            for number, members in enumerate(self.classes)
            if any(not m.mask & ~left for m in members) and any(not m.mask & ~right for m in members)
        )

    def build(self, order: JoinOrder, replaced: Mapping[int, Plan] | None = None) -> Plan:
        """The plan that joins the leaves in this order. ``replaced`` gives other plans for some sets of leaves."""
        if sorted(order.aliases) != sorted(self.names):
            raise BadJoinOrder(
                f'join order "{order}" does not name each alias once', detail=f"The query joins {quoted(self.names)}."
            )
        given = replaced or {}
        done: list[tuple[int, Plan]] = []
        pending: list[tuple[JoinOrder, bool]] = [(order, False)]
        while pending:
            node, ready = pending.pop()
            if ready:
                inputs = done[-len(node.inputs) :]
                whole = reduce(or_, (mask for mask, _ in inputs))
                done[-len(inputs) :] = [(whole, given.get(whole) or self._joined(node, inputs))]
            elif node.alias is not None:
                position = self._positions[node.alias]
                done.append((1 << position, given.get(1 << position) or self.leaves[position]))
            else:
                pending += [(node, True), *((part, False) for part in reversed(node.inputs))]
        ((_, plan),) = done
        return plan

    def _joined(self, order: JoinOrder, inputs: Sequence[tuple[int, Plan]]) -> Plan:
        """A join of two sets of leaves, or a multi-way join of several."""
        masks, plans = zip(*inputs, strict=True)
        predicates: list[Expression] = []
        for place in range(1, len(masks)):
            predicates += self.predicates(reduce(or_, masks[:place]), masks[place])
        if order.parts is None:
            left, right = plans
            return Join(left, right, tuple(predicates))
        orders = probe_orders(self, order, masks) if order.routing == "fixed" else ()
        return MultiJoin(plans, tuple(predicates), order.routing, orders)

    # Connectivity

    @cached_property
    def neighbours(self) -> tuple[int, ...]:
        """For each leaf, the leaves it shares a condition of just the two with."""
        result = list(self._equal_neighbours)
        for residual in self.residuals:
            if residual.mask.bit_count() == 2:
                for position in bits(residual.mask):
                    result[position] |= residual.mask
        return tuple(mask & ~(1 << position) for position, mask in enumerate(result))

    @cached_property
    def _wide_classes(self) -> list[tuple[Condition, ...]]:
        return [members for members in self.classes if not all(member.is_of_one_leaf for member in members)]

    @cached_property
    def _wide_residuals(self) -> list[int]:
        return [residual.mask for residual in self.residuals if residual.mask.bit_count() > 2]

    @cached_property
    def _widely_read(self) -> int:
        result = 0
        for mask in [*self._wide_residuals, *(member.mask for members in self._wide_classes for member in members)]:
            result |= mask
        return result

    def neighbourhood(self, leaves: int) -> int:
        """The leaves outside that share a condition of two leaves with one inside."""
        result = 0
        for position in bits(leaves):
            result |= self.neighbours[position]
        return result & ~leaves

    def are_linked(self, left: int, right: int) -> bool:
        """Whether a join of the two sets has a condition, so that it is no cross product."""
        if left.bit_count() > right.bit_count():
            left, right = right, left
        if any(self.neighbours[position] & right for position in bits(left)):
            return True
        both = left | right
        return any(mask & left and mask & right and not mask & ~both for mask in self._wide_residuals) or any(
            connections(members, left, right) for members in self._wide_classes
        )

    def visitable(self, visited: int, inputs: Mapping[int, int]) -> list[int]:
        """Where tuples of a multi-way join that have these leaves may go next: to inputs that a condition links with
        them, or to all if there are none.

        ``inputs`` are those left, by their places: the leaves of each.
        """
        linked = [place for place, leaves in inputs.items() if self.are_linked(visited, leaves)]
        return linked or list(inputs)

    def are_linked_by_equality(self, left: int, right: int) -> bool:
        """Whether a join of the two sets has an equality between them, so that it can look up its partners."""
        if left.bit_count() > right.bit_count():
            left, right = right, left
        if any(self._equal_neighbours[position] & right for position in bits(left)):
            return True
        return any(
            any(mask & ~left == 0 for mask in masks) and any(mask & ~right == 0 for mask in masks)
            for masks in self._wide_member_masks
        )

    @cached_property
    def _equal_neighbours(self) -> list[int]:
        """For each leaf, the leaves that have something equal to something of it."""
        result = [0] * len(self.names)
        for members in self.classes:
            single = reduce(or_, (member.mask for member in members if member.is_of_one_leaf), 0)
            for position in bits(single):
                result[position] |= single & ~(1 << position)
        return result

    @cached_property
    def _class_masks(self) -> list[int]:
        """For each class, the leaves that its members read."""
        return [reduce(or_, (member.mask for member in members)) for members in self.classes]

    @cached_property
    def _wide_member_masks(self) -> set[frozenset[int]]:
        """The leaves that each member of a wide class reads; once for all classes that are alike in this."""
        return {frozenset(member.mask for member in members) for members in self._wide_classes}

    def components(self, leaves: int) -> list[int]:
        """The largest parts of a set that can be joined without a cross product, lowest leaf first.

        Growing the parts greedily finds them: whatever links two sets also links the larger sets around them.
        """
        parts: list[int] = []
        rest = leaves
        while rest:
            part, fringe = 0, rest & -rest
            while fringe:
                part |= fringe
                fringe = self.neighbourhood(fringe) & leaves & ~part
            parts.append(part)
            rest &= ~part
        # Only parts that a condition of three and more leaves reads can still grow together.
        loose = [part for part in parts if part & self._widely_read]
        parts = [part for part in parts if not part & self._widely_read] + self._merge_linked(loose)
        return sorted(parts, key=lambda part: part & -part)

    def _merge_linked(self, parts: list[int]) -> list[int]:
        for i, left in enumerate(parts):
            for j in range(i + 1, len(parts)):
                if self.are_linked(left, parts[j]):
                    return self._merge_linked([left | parts[j], *parts[:i], *parts[i + 1 : j], *parts[j + 1 :]])
        return parts

    def is_connected(self, leaves: int) -> bool:
        """Whether the set can be joined without a cross product."""
        return len(self.components(leaves)) == 1


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits that are set, lowest first.

    >>> list(bits(0b1010))
    [1, 3]
    """
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def select(plan: Plan, conditions: Sequence[Expression]) -> Plan:
    """The plan's rows for which all conditions hold, each tested once."""
    return Select(plan, conjunction(dict.fromkeys(conditions))) if conditions else plan


def is_join_block(plan: Plan) -> bool:
    """Whether the plan is a join, perhaps under selections."""
    while isinstance(plan, Select):
        plan = plan.input
    return isinstance(plan, Join | MultiJoin)


def block_joins(block: Plan) -> Iterator[tuple[Join | MultiJoin, JoinOrder]]:
    """The joins of a block, the topmost first, each with the order of the leaves below it."""
    pending = [block]
    while pending:
        node = pending.pop()
        if isinstance(node, Join | MultiJoin):
            yield node, JoinGraph.of(node).order
            pending += node.inputs
        elif isinstance(node, Select):
            pending.append(node.input)


def _extract(plan: Plan, extra: Iterable[Expression]) -> JoinGraph:
    bases: list[Plan] = []
    # Each condition with the leaf it was found on, or None: that is where one without columns stays.
    conditions: list[tuple[Expression, int | None]] = [(part, None) for c in extra for part in conjuncts(c)]
    orders: list[JoinOrder] = []
    pending: list[tuple[Plan, bool]] = [(plan, False)]
    # Leaves by their number, and joins after all their inputs.
    shape: list[int | Join | MultiJoin] = []
    while pending:
        node, is_done = pending.pop()
        if isinstance(node, Join | MultiJoin):
            if is_done:
                shape.append(node)
                continue
            conditions += [(predicate, None) for predicate in node.predicates]
            pending += [(node, True), *((child, False) for child in reversed(node.inputs))]
        else:
            below, selected = selections(node)
            if isinstance(below, Join | MultiJoin):
                conditions += [(part, None) for part in selected]
                pending.append((below, False))
                continue
            conditions += [(part, len(bases)) for part in selected]
            shape.append(len(bases))
            bases.append(below)
    names = tuple(_name(base) for base in bases)
    for step in shape:
        if isinstance(step, int):
            orders.append(JoinOrder.leaf(names[step]))
        else:
            count = len(step.inputs)
            orders[-count:] = [_order_of(step, orders[-count:])]
    (order,) = orders
    leaf_of = {field.relation: position for position, base in enumerate(bases) for field in base.schema}
    classes, own, residuals = sort_conditions(conditions, leaf_of, len(bases))
    return JoinGraph(names, tuple(bases), own, classes, residuals, order)


def _order_of(join: Join | MultiJoin, inputs: Sequence[JoinOrder]) -> JoinOrder:
    """The order of a join over inputs in these orders."""
    if isinstance(join, Join):
        left, right = inputs
        return JoinOrder.join(left, right)
    first = [part.aliases[0] for part in inputs]
    probes = zip(first, join.probe_orders, strict=False)
    named = tuple((name, tuple(first[place] for place in order)) for name, order in probes)
    return JoinOrder.braces(inputs, join.routing, named)


def _name(leaf: Plan) -> str:
    """The leaf's alias; all of them where a rewrite has made one leaf of several."""
    return "+".join(dict.fromkeys(field.relation for field in leaf.schema))
