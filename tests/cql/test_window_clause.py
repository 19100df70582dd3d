"""Windows in square brackets: what each means, and what each refusal says."""

from __future__ import annotations

import pytest

from midstream.algebra.window_spec import WindowSpec
from midstream.cql import parse
from midstream.errors import MidstreamError
from tests.cql.declared import STREAMS, refusal

MINUTE = 60_000_000


def window(text: str, stream: str = "bids") -> WindowSpec:
    (leaf,) = parse(f"SELECT 1 FROM {stream} {text}", STREAMS).windows()
    return leaf.window


@pytest.mark.parametrize(
    ("unit", "microseconds"),
    [
        ("MICROSECOND", 1),
        ("MILLISECOND", 1_000),
        ("SECOND", 1_000_000),
        ("MINUTE", MINUTE),
        ("HOUR", 60 * MINUTE),
        ("DAY", 24 * 60 * MINUTE),
        ("WEEK", 7 * 24 * 60 * MINUTE),
    ],
)
def test_units_are_read_in_singular_plural_and_any_case(unit: str, microseconds: int) -> None:
    for text in (unit, f"{unit}S", unit.lower(), f"{unit.title()}s"):
        assert window(f"[RANGE 3 {text}]") == WindowSpec(3 * microseconds)


def test_range_of_an_integer_event_time_counts_ticks() -> None:
    assert window("[RANGE 5000]", "ticks") == WindowSpec(5000)


def test_now_is_a_range_of_zero() -> None:
    assert window("[NOW]") == window("[range 0 seconds]") == WindowSpec(0)


def test_unbounded_is_declared() -> None:
    assert window("[RANGE UNBOUNDED]") == WindowSpec(None, declared=True)


def test_no_window_is_unbounded_but_not_declared() -> None:
    assert window("") == WindowSpec(None, declared=False)


def test_slide_stands_behind_the_range() -> None:
    assert window("[RANGE 10 MINUTES SLIDE 1 MINUTE]") == WindowSpec(10 * MINUTE, MINUTE)
    assert window("[ range 10 slide 5 ]", "ticks") == WindowSpec(10, 5)


def test_window_stands_between_the_stream_and_its_alias() -> None:
    (leaf,) = parse("SELECT b.price FROM bids[NOW]AS b", STREAMS).windows()
    assert (leaf.stream.name, leaf.alias, leaf.window) == ("bids", "b", WindowSpec(0))


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("FROM bids [RANGE ⟦5]", "M1008", 'the window of stream "bids" needs a unit of time'),
        ("FROM ticks [RANGE ⟦5 SECONDS]", "M1008", 'the window of stream "ticks" cannot have a unit of time'),
        ("FROM bids [RANGE 5 SECONDS SLIDE ⟦1]", "M1008", 'the window of stream "bids" needs a unit of time'),
        ("FROM ticks [RANGE 5 SLIDE ⟦1 DAY]", "M1008", 'the window of stream "ticks" cannot have a unit of time'),
        ("FROM bids [RANGE ⟦5.5 MINUTES]", "M1008", "the length 5.5 is not a whole number"),
        ("FROM bids [RANGE ⟦9999999999999 WEEKS]", "M1008", "the window is too long"),
        ("FROM ticks [RANGE ⟦" + "9" * 5000 + "]", "M1008", "the window is too long"),
        ("FROM ticks ⟦[RANGE 5 SLIDE 0]", "M1008", "a window cannot slide by 0 ticks"),
        ("FROM ticks ⟦[RANGE UNBOUNDED SLIDE 5]", "M1008", "a window that never ends cannot slide"),
        ("FROM bids [RANGE 5 ⟦MINUTS]", "M1001", '"MINUTS" is not a unit of time'),
        ("FROM bids [RANGE 5 ⟦MONTHS]", "M1002", "the unit MONTHS is not supported"),
        ("FROM bids [⟦ROWS 5]", "M1002", "ROWS windows are not supported"),
        ("FROM bids [⟦PARTITION BY price ROWS 5]", "M1002", "PARTITION windows are not supported"),
        ("FROM bids [⟦]", "M1001", 'expected RANGE or NOW, found "]"'),
        ("FROM bids [⟦UNBOUNDED]", "M1001", "expected RANGE or NOW"),
        ("FROM bids [⟦5 MINUTES]", "M1001", 'expected RANGE or NOW, found "5"'),
        ("FROM bids [RANGE⟦", "M1001", "expected a number or UNBOUNDED, but the query ends"),
        ("FROM bids [RANGE ⟦-5 MINUTES]", "M1001", 'expected a number or UNBOUNDED, found "-"'),
        ("FROM bids [NOW ⟦SLIDE 5 SECONDS]", "M1001", 'expected "]", found "SLIDE"'),
        ("FROM bids [RANGE 5 MINUTES⟦", "M1001", 'expected SLIDE or "]", but the query ends'),
        ("FROM bids [RANGE 5 MINUTES ⟦PRECEDING]", "M1001", 'expected SLIDE or "]", found "PRECEDING"'),
        ("FROM bids b ⟦[NOW]", "M1001", "the window must come before the alias"),
        ("FROM (SELECT 1 FROM bids) ⟦[NOW] q", "M1002", "a window on a subquery is not supported"),
        ("FROM bids [NOW] ⟦[NOW]", "M1001", "a window must directly follow the stream's name"),
    ],
)
def test_bad_windows_are_refused_where_they_are_bad(query: str, code: str, message: str) -> None:
    error = refusal(f"SELECT 1 {query}")
    assert (error.code, error.message) == (code, message)


def test_refused_unit_names_the_close_one() -> None:
    assert str(refusal("SELECT 1\nFROM bids [RANGE 5 ⟦MINUTS]")) == (
        '[M1001] "MINUTS" is not a unit of time\n'
        "  line 2: FROM bids [RANGE 5 MINUTS]\n"
        "                             ^\n"
        "  detail: The units are MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS, WEEKS.\n"
        '  hint: Did you mean "MINUTES"?'
    )


def test_window_without_unit_says_what_the_event_time_is() -> None:
    error = refusal("SELECT 1 FROM bids [RANGE ⟦5]")
    assert error.detail == 'Its event time "ts" is of type timestamp[us].'
    assert error.hint == "Write a unit, as in [RANGE 5 SECONDS]."


def test_integer_and_timestamp_event_times_do_not_mix() -> None:
    error = refusal("SELECT 1 FROM bids [NOW] b, ⟦ticks [NOW] t")
    assert (error.code, error.message) == ("M1007", 'the event times of streams "bids" and "ticks" cannot meet')
    assert error.detail == '"ts" is a timestamp without time zone, "at" is a whole number.'


def test_naive_and_zoned_event_times_do_not_mix_even_in_a_union() -> None:
    error = refusal("SELECT 1 FROM zoned UNION ALL SELECT 1 FROM ⟦bids")
    assert (error.code, error.message) == ("M1007", 'the event times of streams "zoned" and "bids" cannot meet')


def test_unit_of_an_unknown_stream_is_not_judged_first() -> None:
    with pytest.raises(MidstreamError, match=r'\[M1003\] stream "bid" does not exist'):
        parse("SELECT 1 FROM bid [RANGE 5]", STREAMS)
