"""How many examples the property tests try: MIDSTREAM_EXAMPLES sets it, MIDSTREAM_SOAK makes them random."""

import os

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "midstream",
    max_examples=int(os.environ.get("MIDSTREAM_EXAMPLES", "150")),
    derandomize="MIDSTREAM_SOAK" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    print_blob=False,
)
settings.load_profile("midstream")
