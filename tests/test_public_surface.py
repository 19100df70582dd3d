"""The public names are few, and pinned."""

import midstream
import midstream.testing


def test_public_names_are_pinned():
    assert midstream.__all__ == ["ContinuousQuery", "JustInTime", "LocalRun", "MidstreamError", "Plan", "Stream"]


def test_every_public_name_exists_and_is_documented():
    for module in (midstream, midstream.testing):
        for name in module.__all__:
            assert getattr(module, name).__doc__, name
