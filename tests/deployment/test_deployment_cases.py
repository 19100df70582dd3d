"""Random deployments: whatever happens to topology, nodes and coordinator, sinks get what the oracle says.

The cases are those of `make soak-deployment`, in the same code; here their seeds are always the same.
"""

from collections import Counter

from hypothesis import given

from midstream.testing import DeploymentCase
from midstream.testing.deployment_coverage import missing_kinds
from midstream.testing.generators_deployment import deployment_cases
from midstream.testing.soak_deployment import deployment_trials
from tests.examples import EXAMPLES, random_examples

CASES = 6 * EXAMPLES
"""So many are played, and more if it takes more to meet everything that can happen."""
MOST_CASES = 3 * CASES


def test_the_deployments_of_fixed_seeds_equal_the_oracle_and_meet_everything():
    met: Counter[str] = Counter()
    cases = 0
    for seed in range(MOST_CASES):
        if cases >= (MOST_CASES if missing_kinds(met) else CASES):
            break
        for trial in deployment_trials(f"fixed-{seed}", cases=3, oracle=seed % 4 == 0):
            assert trial.failure is None, f"{trial.failure.message}\n\n{trial.failure.code()}"
            met += trial.played.met
            cases += 1
    print(cases, dict(met))
    assert not missing_kinds(met)


@random_examples(15)
@given(deployment_cases())
def test_any_deployment_equals_the_oracle(case: DeploymentCase):
    case.check()
