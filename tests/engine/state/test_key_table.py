"""Key tables: one slot per different key, for exactly as long as somebody holds it, whatever the codes do."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.engine.codes import is_exact
from midstream.engine.state import key_table
from midstream.engine.state.key_table import KeyTable

examples = settings(derandomize=True, deadline=None, max_examples=40, database=None)

NULL_CODE = int(key_table._NULL_CODE)


def canonical(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Keys as a dict compares them: NaN is one value."""
    return tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in key)


class Reference:
    """A table beside a dict that says what it must hold."""

    def __init__(self, *types: pa.DataType) -> None:
        self.types = types
        self.table = KeyTable(types)
        self.slots: dict[tuple[Any, ...], int] = {}
        self.holds: Counter[tuple[Any, ...]] = Counter()

    def hold(self, keys: list[tuple[Any, ...]]) -> None:
        columns = [pa.array([key[i] for key in keys], t) for i, t in enumerate(self.types)]
        # A slice of something longer, so that offsets matter.
        columns = [pa.concat_arrays([c[:1], c, c[:1]]).slice(min(1, len(c)), len(c)) for c in columns]
        slots = self.table.hold(columns, len(keys))
        assert slots.shape == (len(keys),)
        for key, slot in zip(map(canonical, keys), slots.tolist(), strict=True):
            assert self.slots.setdefault(key, slot) == slot, "two slots for one key"
            self.holds[key] += 1
        self.check()

    def let_go(self, keys: list[tuple[Any, ...]]) -> None:
        keys = [canonical(key) for key in keys]
        self.holds.subtract(keys)
        expected = {self.slots[key] for key in keys if self.holds[key] == 0}
        released = self.table.let_go(np.array([self.slots[key] for key in keys], np.int64))
        assert sorted(released.tolist()) == sorted(expected)
        for key in set(keys):
            if self.holds[key] == 0:
                del self.slots[key], self.holds[key]
        self.check()

    def held(self) -> list[tuple[Any, ...]]:
        """One entry for each holder."""
        return [key for key, count in self.holds.items() for _ in range(count)]

    def check(self) -> None:
        assert len(self.table) == len(self.slots)
        assert len(set(self.slots.values())) == len(self.slots), "one slot for two keys"
        slots = np.array(list(self.slots.values()), np.int64)
        assert (slots < self.table.capacity).all()
        assert self.table.holds[slots].tolist() == [self.holds[key] for key in self.slots]
        columns = [self.table.gather(i, slots).to_pylist() for i in range(len(self.types))]
        stored = list(zip(*columns, strict=True)) if columns else [()] * len(slots)
        assert [canonical(key) for key in stored] == list(self.slots)


numbers = st.one_of(st.none(), st.integers(-200, 200), st.sampled_from([NULL_CODE, 0, -(2**63), 2**63 - 1]))
texts = st.one_of(st.none(), st.integers(0, 200).map(str), st.just(""))
floats = st.one_of(
    st.none(), st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf]), st.integers(0, 99).map(float)
)
KINDS = {
    "no column": ((), st.just(())),
    "int64": ((pa.int64(),), st.tuples(numbers)),
    "float64": ((pa.float64(),), st.tuples(floats)),
    "text": ((pa.string(),), st.tuples(texts)),
    "text and number": ((pa.string(), pa.int64()), st.tuples(texts, numbers)),
    "number, float, text": ((pa.int64(), pa.float64(), pa.string()), st.tuples(numbers, floats, texts)),
}


def histories(key, most=150):
    """Steps: keys to hold, then what share of the holders to let go."""
    return st.lists(st.tuples(st.lists(key, max_size=most), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])), max_size=6)


def run_history(types: tuple[pa.DataType, ...], steps: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    reference = Reference(*types)
    for keys, share in steps:
        reference.hold(keys)
        held = reference.held()
        chosen = random.random(len(held)) < share
        reference.let_go([key for key, goes in zip(held, chosen, strict=True) if goes])


@pytest.mark.parametrize("kind", KINDS)
@examples
@given(data=st.data(), seed=st.integers(0, 100))
def test_slots_are_those_of_a_dictionary(kind, data, seed):
    types, key = KINDS[kind]
    run_history(types, data.draw(histories(key)), seed)


@pytest.fixture(params=[1, 3], ids=["one code for all", "three codes"])
def colliding_codes(request, monkeypatch):
    """All keys of inexact types share one or a few codes."""
    encode, combine = key_table.encode, key_table.combine_codes
    monkeypatch.setattr(
        key_table,
        "encode",
        lambda array: encode(array) if is_exact(array.type) else (encode(array)[0] % request.param, encode(array)[1]),
    )
    monkeypatch.setattr(key_table, "combine_codes", lambda parts: combine(parts) % request.param)


@pytest.mark.parametrize("kind", ["text", "text and number", "number, float, text"])
def test_slots_are_those_of_a_dictionary_although_codes_collide(kind, colliding_codes):
    types, key = KINDS[kind]

    @settings(examples, max_examples=10)
    @given(histories(key, most=40), st.integers(0, 100))
    def check(steps, seed):
        run_history(types, steps, seed)

    check()


@pytest.mark.parametrize("before", [0, 40, 64])
@pytest.mark.parametrize("types", [(pa.string(),), (pa.string(), pa.int64())], ids=["text", "text and number"])
def test_duplicates_of_one_key_get_one_slot_when_the_table_grows_among_collisions(types, before, colliding_codes):
    reference = Reference(*types)
    keys = [(str(i) if i else None, i % 7 or None)[: len(types)] for i in range(80)]
    reference.hold(keys[:before])
    # Every key twice, far apart: while the later one is looked for, the table grows.
    reference.hold([*keys, *reversed(keys)])
    reference.let_go([*keys, *keys, *keys[:before]])
    assert len(reference.table) == 0


def test_growing_in_the_middle_of_a_search_misses_no_key(monkeypatch):
    """One chain of keys is short, the other long: the short one's end makes the table grow while the other is walked.

    Slots are used again in another order before, so that growing changes the order of the long chain.
    """
    encode = key_table.encode
    monkeypatch.setattr(
        key_table,
        "encode",
        lambda array: (np.array([text.startswith("long") for text in array.to_pylist()], np.int64), encode(array)[1]),
    )
    random = np.random.default_rng(0)
    for _ in range(2):
        reference = Reference(pa.string())
        keys = [(f"long {i}",) for i in range(63)]
        reference.hold([*keys, ("short",)])
        for _ in range(3):
            chosen = [keys[i] for i in random.permutation(63)[:30]]
            reference.let_go(chosen)
            reference.hold([chosen[i] for i in random.permutation(30)])
        assert len(reference.table) == reference.table.capacity == 64
        reference.hold([("another short",), *keys])
        assert reference.table.capacity > 64


@pytest.mark.parametrize("kind", KINDS)
def test_slots_are_those_of_a_dictionary_over_a_long_time(kind):
    types, _ = KINDS[kind]
    random = np.random.default_rng(1)

    def key() -> tuple[Any, ...]:
        number = int(random.integers(0, 500))
        return tuple({pa.int64(): number, pa.string(): str(number), pa.float64(): number / 2}[t] for t in types)

    sizes, shares = (20, 5, 150, 30, 600, 10, 100), (0.9, 0.3, 0.95, 0.5, 0.9, 1.0)
    steps = [([key() for _ in range(sizes[i % 7])], shares[i % 6]) for i in range(25)]
    run_history(types, steps, seed=2)


def test_null_is_not_the_value_that_has_its_code():
    reference = Reference(pa.int64())
    reference.hold([(NULL_CODE,), (None,), (NULL_CODE,), (None,), (0,)])
    assert len(reference.slots) == 3
    reference.let_go([(None,), (None,)])
    reference.hold([(NULL_CODE,), (None,)])


def test_nulls_are_equal_to_each_other_in_every_column():
    reference = Reference(pa.string(), pa.int64())
    reference.hold([(None, None), (None, 0), ("", None), ("", 0), (None, None), (None, 0), ("", None), ("", 0)])
    assert len(reference.slots) == 4


def test_nan_is_one_key_and_the_zeros_are_one_key():
    table = KeyTable([pa.float64(), pa.float64()])
    columns = [pa.array([math.nan, -math.nan, 0.0, -0.0]), pa.array([0.0, -0.0, math.nan, math.nan])]
    slots = table.hold(columns, 4).tolist()
    assert slots[0] == slots[1] != slots[2] == slots[3]


def test_slots_of_forgotten_keys_are_used_again():
    table = KeyTable([pa.string()])
    for round_ in range(50):
        keys = pa.array([f"{round_}-{i}" for i in range(60)])
        slots = table.hold([keys], 60)
        assert sorted(table.let_go(slots).tolist()) == sorted(slots.tolist())
    assert table.capacity == 64


def test_a_key_that_returns_after_it_was_forgotten_is_found_by_all_its_rows():
    reference = Reference(pa.string())
    for _ in range(5):
        reference.hold([("a",), ("b",), ("a",)])
        reference.let_go([("a",), ("a",)])
        reference.let_go([("b",)])


def test_memory_follows_the_keys_alive_not_those_ever_seen():
    reference = Reference(pa.int64(), pa.string())
    reference.hold([(i, "stays") for i in range(10)])
    sizes = []
    for round_ in range(40):
        keys = [(round_ * 100 + i, "x" * 50) for i in range(100)]
        reference.hold(keys)
        reference.let_go(keys)
        sizes.append(reference.table.bytes)
    assert max(sizes[20:]) <= max(sizes[:20])
    assert len(reference.table._keys) <= 4 * 10 + 4 * 64


def test_releasing_the_same_slot_twice_at_once_forgets_it_once():
    table = KeyTable([pa.int64()])
    slots = table.hold([pa.array([7, 7, 8])], 3)
    assert table.let_go(slots[:1]).tolist() == []
    assert table.let_go(np.array([], np.int64)).tolist() == []
    assert table.let_go(slots[1:]).tolist() == sorted(set(slots.tolist()))
    assert len(table) == 0
