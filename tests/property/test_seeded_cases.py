"""The migration cases of fixed seeds: each equals the oracle, and between them they cover what can happen.

The cases are those of `make soak`, in the same code; here their seeds are always the same. See
`midstream.testing.coverage` for what is counted.
"""

import os

from midstream.testing import Coverage
from midstream.testing.soak import trials

CASES = 8 * int(os.environ.get("MIDSTREAM_EXAMPLES", "150"))
"""So many are played, and as many more as it takes to cover what is asked for, up to three times as many."""


def test_the_cases_of_fixed_seeds_equal_the_oracle_and_cover_all_pairs():
    coverage, cases, seed = Coverage(), 0, 0
    while cases < CASES or (cases < 3 * CASES and (coverage.missing(2) or coverage.share(3) < 0.95)):
        # Few lists of changes for each scenario: most of what is counted differs between scenarios.
        for trial in trials(f"fixed-{seed}", cases=2):
            assert trial.failure is None, f"{trial.failure.message}\n\n{trial.failure.code()}"
            coverage.add(trial.played.migrations)
            cases += 1
        seed += 1
    print(f"{cases} cases of {seed} seeds\n{coverage.table()}")
    assert not coverage.contradictions(2) and not coverage.contradictions(3)
    assert not coverage.missing(2), coverage.table()
    assert coverage.share(3) >= 0.95, coverage.table()
