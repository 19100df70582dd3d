"""The user learns while the query runs that rows are dropped, why, and what to do."""

import pytest

from midstream.cli.late_rows import LateRowsWarning
from midstream.cli.output import Output
from midstream.cli.sources import StreamSource


def metrics(**streams: tuple[int, int]) -> dict:
    return {"streams": {name: {"rows": rows, "late": late} for name, (rows, late) in streams.items()}}


@pytest.fixture
def warned(capsys: pytest.CaptureFixture[str]):
    """A function that checks the metrics and gives what the user is told."""
    sources = [StreamSource("trips", "csv", "in/trips", lateness="12 hours"), StreamSource("clicks", "kafka")]
    warning = LateRowsWarning(sources, Output())

    def check(**streams: tuple[int, int]) -> str:
        warning.check(metrics(**streams))
        return " ".join(capsys.readouterr().err.split())

    return check


def test_a_share_of_up_to_five_percent_is_no_reason_to_warn(warned) -> None:
    assert warned(trips=(0, 0), clicks=(100, 5)) == ""


def test_each_stream_is_warned_of_once_with_cause_and_remedy(warned) -> None:
    told = warned(trips=(8832, 5032), clicks=(10, 0))
    assert told.startswith('warning: 57% of the rows of stream "trips" so far were late and have been dropped')
    assert "(5,032 of 8,832)" in told and "its lateness (12 hours)" in told and "--lateness trips=" in told
    assert "files with equal times in any order" in told and "trips.maxFilesPerTrigger" in told
    assert warned(trips=(9000, 6000), clicks=(10, 0)) == ""
    told = warned(trips=(9000, 6000), clicks=(10, 1))
    assert "a lateness of 0" in told and "files" not in told
