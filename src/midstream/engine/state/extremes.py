"""The smallest of a group's arguments as rows come and go: a heap per group, in one pool of nodes.

A node is (key, end, left, right): an argument and when its row goes. Heaps are skew heaps, which need no balance
data and merge in logarithmic amortised time. Rows that have gone are not searched for: they are passed over when
they reach the top, and swept out when more than half of a heap is gone. The largest is the smallest of the
complements.

A heap is four words: its root plus one (0: empty), its number of nodes, whether it has an argument whose row never
goes, and the smallest of these: rows that never go need no node each.
"""

from __future__ import annotations

import numpy as np

from midstream.algebra.window_spec import NEVER
from midstream.engine.kernels import compiled

__all__ = ["drop_heap", "heap_add", "heap_first", "heap_trim"]


@compiled
def _merge(nodes, first, second):  # type: ignore[no-untyped-def]
    if first < 0:
        return second
    if second < 0:
        return first
    if nodes[second, 0] < nodes[first, 0]:
        first, second = second, first
    root = first
    while True:
        # Exchange the children, then continue with what was the right one.
        below = nodes[first, 3]
        nodes[first, 3] = nodes[first, 2]
        if below < 0:
            nodes[first, 2] = second
            return root
        if nodes[second, 0] < nodes[below, 0]:
            below, second = second, below
        nodes[first, 2] = below
        first = below


@compiled
def heap_add(nodes, free, free_count, heap, key, end):  # type: ignore[no-untyped-def]
    if end == NEVER:
        heap[3] = min(heap[3], key) if heap[2] else key
        heap[2] = 1
        return
    free_count[0] -= 1
    node = free[free_count[0]]
    nodes[node, 0] = key
    nodes[node, 1] = end
    nodes[node, 2] = -1
    nodes[node, 3] = -1
    heap[0] = _merge(nodes, heap[0] - 1, node) + 1
    heap[1] += 1


@compiled
def heap_first(nodes, free, free_count, heap, now):  # type: ignore[no-untyped-def]
    """The smallest key of the rows that have not gone by now; 0 if there is none."""
    root = heap[0] - 1
    while root >= 0 and nodes[root, 1] <= now:
        free[free_count[0]] = root
        free_count[0] += 1
        heap[1] -= 1
        root = _merge(nodes, nodes[root, 2], nodes[root, 3])
    heap[0] = root + 1
    if root >= 0 and heap[2]:
        return min(nodes[root, 0], heap[3])
    return nodes[root, 0] if root >= 0 else heap[3]


@compiled
def _take_apart(nodes, heap):  # type: ignore[no-untyped-def]
    """The nodes of a heap, which is empty afterwards."""
    members = np.empty(heap[1], np.int64)
    count = 0
    if heap[0] > 0:
        members[0] = heap[0] - 1
        count = 1
    done = 0
    while done < count:
        for side in (2, 3):
            below = nodes[members[done], side]
            if below >= 0:
                members[count] = below
                count += 1
        done += 1
    heap[0] = 0
    heap[1] = 0
    return members[:count]


@compiled
def drop_heap(nodes, free, free_count, heap):  # type: ignore[no-untyped-def]
    for node in _take_apart(nodes, heap):
        free[free_count[0]] = node
        free_count[0] += 1


@compiled
def heap_trim(nodes, free, free_count, heap, alive, now):  # type: ignore[no-untyped-def]
    """Sweep out the rows that have gone, if they are the larger part."""
    if heap[1] <= 2 * alive + 16:
        return
    for node in _take_apart(nodes, heap):
        if nodes[node, 1] <= now:
            free[free_count[0]] = node
            free_count[0] += 1
        else:
            nodes[node, 2] = -1
            nodes[node, 3] = -1
            heap[0] = _merge(nodes, heap[0] - 1, node) + 1
            heap[1] += 1
