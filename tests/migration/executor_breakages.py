"""Faults in executors without a tree that random cases do not come to, as those in ``tests.runtime.breakages``.

python -m tests.migration.executor_breakages
"""

from __future__ import annotations

import sys

from tests.runtime.breakages import fault, main

MULTI_JOIN, MATCHING, STAIRS = "engine/operators/multi_join.py", "migration/state_matching.py", "migration/stairs.py"
JOIN_TESTS, STAIRS_TESTS = "tests/engine/operators/test_multi_join.py", "tests/migration/test_stairs.py"

ALL = (
    fault(
        "an index that was made in an undone slice stays", MULTI_JOIN,
        "                    self._visits.drop_indexes_except(index_keys)", "                    pass",
        f"{JOIN_TESTS}::test_an_index_that_an_eddy_makes_in_a_slice_that_is_undone_has_no_row_twice",
    ),
    fault(
        "conditions on one input alone are not checked", MULTI_JOIN,
        "return batch if check is None else", "return batch if True else",
        f"{JOIN_TESTS}::test_conditions_on_one_input_may_stand_in_the_join",
    ),
    fault(
        "an incomplete state is adopted as an index", MATCHING,
        "if self._completion is Completion.EAGER or wanted or not state.may_lack_tuples:",
        "if self._completion is Completion.EAGER or wanted:",
        f"{JOIN_TESTS}::test_a_state_that_braces_adopt_is_completed_first",
    ),
    fault(
        "STAIRs change their order beside another plan", STAIRS,
        "if self.runs_alone and self._rows", "if self._rows",
        STAIRS_TESTS,
    ),
    fault(
        "final operators of STAIRs are taken in the order of the tree", STAIRS,
        "        self.final_operators = [by_place", "        list_ = [by_place",
        STAIRS_TESTS,
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], ALL))
