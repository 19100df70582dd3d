"""The migration cases of fixed seeds: each equals the oracle, and between them they cover what can happen.

The cases are those of `make soak`, in the same code; here their seeds are always the same. See
`midstream.testing.coverage` for what is counted.
"""

import os

from midstream.testing import Coverage
from midstream.testing.soak import trials

CASES = 10 * int(os.environ.get("MIDSTREAM_EXAMPLES", "150"))


def test_the_cases_of_fixed_seeds_equal_the_oracle_and_cover_all_pairs():
    coverage, cases, seed = Coverage(), 0, 0
    while cases < CASES:
        for trial in trials(f"fixed-{seed}"):
            assert trial.failure is None, f"{trial.failure.message}\n\n{trial.failure.code()}"
            coverage.add(trial.played.migrations)
            cases += 1
        seed += 1
    print(coverage.table())
    assert not coverage.contradictions(2) and not coverage.contradictions(3)
    assert not coverage.missing(2), coverage.table()
    assert coverage.share(3) >= 0.95, coverage.table()
