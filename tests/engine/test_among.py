"""Which of many keys are among a few."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine.kernels import among

LOWEST, HIGHEST = -(2**63), 2**63 - 1
keys = st.lists(st.one_of(st.integers(-5, 5), st.integers(LOWEST, HIGHEST), st.sampled_from([LOWEST, HIGHEST])))


@given(keys, keys)
def test_keys_are_found_as_in_a_set(many, few):
    wanted = np.array(sorted(few), np.int64)
    found = among(np.array(many, np.int64), wanted)
    assert found.tolist() == [key in set(few) for key in many]
