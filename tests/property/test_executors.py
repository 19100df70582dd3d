"""Multi-way joins by fixed routing, eddies and STAIRs compute what trees of joins do.

Alone, as source and target of any migration, overlapped, and with all derived state thrown away in between."""

from hypothesis import given, settings

from midstream.testing import JOIN_OPERATORS, migration_cases

EXAMPLES = settings().max_examples


@settings(max_examples=EXAMPLES // 2)
@given(migration_cases(braces=True))
def test_any_migration_among_executors_equals_the_oracle(case):
    case.check()


@settings(max_examples=EXAMPLES // 2)
@given(migration_cases(braces=True, operators=JOIN_OPERATORS))
def test_joins_give_each_row_once_in_any_executor(case):
    case.check(case.scenario.expected_intervals())
