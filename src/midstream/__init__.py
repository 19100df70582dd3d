"""midstream: continuous queries whose plan can be replaced while they run."""

from typing import TYPE_CHECKING

from midstream.lazy_names import lazy_names

if TYPE_CHECKING:
    from midstream.algebra.plan import Plan
    from midstream.algebra.stream import Stream
    from midstream.errors import MidstreamError
    from midstream.execution.just_in_time import JustInTime
    from midstream.query import ContinuousQuery
    from midstream.runtime.local_run import LocalRun

__all__ = ["ContinuousQuery", "JustInTime", "LocalRun", "MidstreamError", "Plan", "Stream"]
__version__ = "0.1.0"

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ContinuousQuery": "midstream.query",
        "JustInTime": "midstream.execution.just_in_time",
        "LocalRun": "midstream.runtime.local_run",
        "MidstreamError": "midstream.errors",
        "Plan": "midstream.algebra.plan",
        "Stream": "midstream.algebra.stream",
    },
)
