"""How many random examples the tests try.

``make test`` tries few, always the same. MIDSTREAM_EXAMPLES sets another number, and MIDSTREAM_SOAK makes them new in
every run: ``make properties`` uses both, and ``make soak`` plays cases for as long as one likes.
"""

import os

from hypothesis import HealthCheck, Phase, settings

__all__ = ["EXAMPLES", "random_examples"]

EXAMPLES = int(os.environ.get("MIDSTREAM_EXAMPLES", "50"))


def random_examples(count: int = EXAMPLES) -> settings:
    """Settings for a property that is checked with so many examples."""
    return settings(
        max_examples=count,
        derandomize="MIDSTREAM_SOAK" not in os.environ,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        print_blob=False,
    )
