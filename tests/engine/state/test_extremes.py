"""Extremes: the smallest of what has not gone, and no node is ever lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.engine.state.extremes import drop_heap, heap_add, heap_first, heap_trim

examples = settings(derandomize=True, deadline=None, max_examples=100, database=None)

LOWEST, HIGHEST = -(2**63), 2**63 - 1


class Heaps:
    """Several heaps in one pool, beside lists of all that was added to them."""

    def __init__(self, count: int, room: int = 400) -> None:
        self.nodes = np.zeros((room, 4), np.int64)
        self.free = np.arange(room)
        self.free_count = np.array([room])
        self.heaps = np.zeros((count, 4), np.int64)
        self.entries: list[list[tuple[int, int]]] = [[] for _ in range(count)]

    @property
    def pool(self):
        return self.nodes, self.free, self.free_count

    def add(self, heap: int, key: int, end: int) -> None:
        heap_add(*self.pool, self.heaps[heap], key, end)
        self.entries[heap].append((key, end))

    def check_first(self, heap: int, now: int) -> None:
        alive = [key for key, end in self.entries[heap] if end > now]
        assert heap_first(*self.pool, self.heaps[heap], now) == min(alive, default=0)

    def trim(self, heap: int, now: int) -> None:
        alive = sum(end > now for _, end in self.entries[heap])
        heap_trim(*self.pool, self.heaps[heap], alive, now)
        assert self.heaps[heap, 1] <= 2 * alive + 16

    def drop(self, heap: int) -> None:
        """As it is done when the last row of a group has gone: none is left that never goes."""
        if all(end < HIGHEST for _, end in self.entries[heap]):
            drop_heap(*self.pool, self.heaps[heap])
            self.entries[heap] = []
            assert self.heaps[heap].tolist() == [0, 0, 0, 0]

    def check_pool(self) -> None:
        """Every node is free, or in exactly one heap."""
        used: list[int] = []
        for root, size, *_ in self.heaps.tolist():
            members = [root - 1] if root else []
            for node in members:
                members += [child for child in self.nodes[node, 2:].tolist() if child >= 0]
                for child in self.nodes[node, 2:].tolist():
                    assert child < 0 or self.nodes[node, 0] <= self.nodes[child, 0]
            assert len(members) == size
            used += members
        free = self.free[: self.free_count[0]].tolist()
        assert sorted(used + free) == list(range(len(self.nodes)))


keys = st.one_of(st.integers(-5, 5), st.sampled_from([LOWEST, HIGHEST, 0]), st.integers(LOWEST, HIGHEST))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), keys, st.one_of(st.integers(0, 30), st.just(HIGHEST))),
        st.tuples(st.sampled_from(["first", "first", "first", "trim", "drop", "wait"]), st.integers(0, 2)),
    ),
    max_size=120,
)


@examples
@given(steps)
def test_the_first_is_the_smallest_that_has_not_gone(steps):
    heaps = Heaps(3)
    now = 0
    for step in steps:
        if step[0] == "add":
            heaps.add(step[1], step[2], now + step[3] if step[3] < HIGHEST else HIGHEST)
        elif step[0] == "first":
            heaps.check_first(step[1], now)
        elif step[0] == "trim":
            heaps.trim(step[1], now)
        elif step[0] == "drop":
            heaps.drop(step[1])
        else:
            now += step[1] * 5
        heaps.check_pool()
    for heap in range(3):
        heaps.check_first(heap, now)


@pytest.mark.parametrize("order", ["rising", "falling", "mixed"])
def test_long_heaps_give_their_keys_in_order(order):
    count = 300
    numbers = {"rising": range(count), "falling": range(count)[::-1], "mixed": [i * 7 % count for i in range(count)]}
    heaps = Heaps(1)
    # The smaller the key, the sooner it goes.
    for key in numbers[order]:
        heaps.add(0, key, key + 1)
    for now in range(count):
        heaps.check_first(0, now)
    heaps.check_pool()
    assert heap_first(*heaps.pool, heaps.heaps[0], count) == 0
    assert heaps.free_count[0] == 400


def test_what_has_gone_but_is_not_on_top_is_swept_out_by_a_trim():
    heaps = Heaps(1)
    heaps.add(0, -1, 1000)
    for i in range(200):
        heaps.add(0, i, 10)
    heaps.check_first(0, 10)
    assert heaps.heaps[0, 1] == 201
    heaps.trim(0, 10)
    assert heaps.heaps[0, 1] == 1
    heaps.check_first(0, 10)
    heaps.check_pool()


def test_a_heap_with_little_that_has_gone_is_not_swept():
    heaps = Heaps(1)
    for i in range(20):
        heaps.add(0, i, 10 if i % 2 else 1000)
    heaps.trim(0, 10)
    assert heaps.heaps[0, 1] == 20


def test_rows_that_never_go_need_no_node_each():
    heaps = Heaps(1)
    for key in (5, -3, 7):
        heaps.add(0, key, HIGHEST)
        heaps.check_first(0, 0)
    assert heaps.free_count[0] == 400
    heaps.add(0, -9, 10)
    heaps.check_first(0, 9)
    heaps.check_first(0, 10)
