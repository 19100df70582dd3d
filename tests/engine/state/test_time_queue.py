"""Time queues: entries come out once, when they are due, in order."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.engine.state.time_queue import TimeQueue

examples = settings(derandomize=True, deadline=None, max_examples=100, database=None)

ticks = st.one_of(st.integers(-20, 20), st.sampled_from([-(2**63), -(2**62), 2**62, 2**63 - 2, 2**63 - 1]))


def pushed(queue: TimeQueue, entries: list[tuple[int, int]]) -> None:
    times = np.array([time for time, _ in entries], np.int64)
    payload = np.array([(number, -number) for _, number in entries], np.int64).reshape(-1, 2)
    queue.push(times, payload)


@examples
@given(st.lists(st.tuples(st.lists(ticks, max_size=12), st.one_of(st.none(), ticks)), max_size=15))
def test_entries_come_out_once_when_they_are_due_in_order_of_time(steps):
    queue = TimeQueue(2)
    waiting: list[tuple[int, int]] = []
    number = 0
    for times, frontier in steps:
        entries = [(time, number + i) for i, time in enumerate(times)]
        number += len(times)
        pushed(queue, entries)
        waiting += entries
        if frontier is not None:
            out_times, out = queue.pop_until(frontier)
            due = [entry for entry in waiting if entry[0] <= frontier]
            waiting = [entry for entry in waiting if entry[0] > frontier]
            assert out.shape == (len(due), 2)
            assert (np.diff(out_times.astype(object)) >= 0).all()
            assert sorted(zip(out_times.tolist(), out[:, 0].tolist(), strict=True)) == sorted(due)
            assert (out[:, 1] == -out[:, 0]).all()
        assert len(queue) == len(waiting)
    assert len(queue.pop_until(2**63 - 1)[0]) == len(waiting)
    assert len(queue) == 0


def test_an_entry_is_due_at_its_time_and_not_before():
    queue = TimeQueue(2)
    pushed(queue, [(10, 1)])
    assert queue.pop_until(9)[0].tolist() == []
    assert queue.pop_until(10)[1].tolist() == [[1, -1]]
    assert queue.pop_until(10)[0].tolist() == []


def test_entries_of_one_push_and_one_time_keep_their_order():
    queue = TimeQueue(2)
    pushed(queue, [(5, 1), (3, 2), (5, 3), (3, 4)])
    assert queue.pop_until(5)[1][:, 0].tolist() == [2, 4, 1, 3]


def test_an_empty_queue_gives_empty_arrays_of_its_width():
    times, payload = TimeQueue(3).pop_until(0)
    assert times.shape == (0,)
    assert payload.shape == (0, 3)


def test_a_push_does_not_change_the_arrays_it_was_given():
    queue = TimeQueue(1)
    times, payload = np.array([3, 1, 2]), np.array([[3], [1], [2]])
    queue.push(times, payload)
    queue.push(np.array([0]), np.array([[0]]))
    assert times.tolist() == [3, 1, 2]
    assert payload.tolist() == [[3], [1], [2]]


def test_many_small_pushes_are_kept_in_few_runs_and_taken_out_memory_is_given_back():
    queue = TimeQueue(1)
    for i in range(1000):
        queue.push(np.array([1000 - i]), np.array([[i]]))
    assert len(queue._runs) <= 11
    assert queue.pop_until(500)[0].tolist() == list(range(1, 501))
    assert len(queue) == 500
    assert queue.pop_until(1000)[0].tolist() == list(range(501, 1001))
    assert queue.bytes == 0
