"""Any query, any input, any batching, migrated at any moment from any plan to any other by any strategy, overlapped,
and with all derived state thrown away in between: the result is what DuckDB says."""

from hypothesis import given, settings

from midstream.testing import JOIN_OPERATORS, migration_cases

EXAMPLES = settings().max_examples


@settings(max_examples=EXAMPLES // 2)
@given(migration_cases(rebuilds=False))
def test_any_migration_equals_the_oracle(case):
    case.check()


@settings(max_examples=EXAMPLES // 2)
@given(migration_cases(rebuilds=False, operators=JOIN_OPERATORS))
def test_joins_give_each_row_once_through_any_migration(case):
    case.check(case.scenario.expected_intervals())


@settings(max_examples=EXAMPLES // 2)
@given(migration_cases())
def test_derived_state_can_be_thrown_away_at_any_moment(case):
    case.check()


@settings(max_examples=EXAMPLES // 2)
@given(migration_cases(operators=JOIN_OPERATORS))
def test_joins_give_each_row_once_though_derived_state_is_thrown_away(case):
    case.check(case.scenario.expected_intervals())


@settings(max_examples=EXAMPLES // 3)
@given(migration_cases(emphasis="language"))
def test_queries_with_every_expression_can_be_migrated(case):
    case.check()
