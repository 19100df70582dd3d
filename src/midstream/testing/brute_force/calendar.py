"""Dates and timestamps as numbers and as text; years may lie beyond what Python's datetime knows.

>>> date_of_day(-1), day_of_date(2020, 2, 29), day_of_date(2021, 2, 29)
((1969, 12, 31), 18321, None)
"""

from __future__ import annotations

import re

__all__ = ["DAY", "SECOND", "date_of_day", "date_text", "day_of_date", "read_moment", "timestamp_text"]

SECOND = 1_000_000_000
DAY = 86_400 * SECOND

_MONTH_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAYS_OF_400_YEARS = 146_097
_MOMENT = re.compile(
    r"""\s*(\d{1,6})-(\d{1,2})-(\d{1,2})
        (?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9})\d*)?)?
           \s*(?:(Z)|([+-])(\d{2}):?(\d{2})?)?)?\s*""",
    re.VERBOSE | re.ASCII,
)


def _month_length(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if leap and month == 2 else _MONTH_LENGTHS[month - 1]


def _days_before(year: int) -> int:
    """Days from the first day of the year 0 to the first day of this year."""
    before = year - 1
    return 365 * year + before // 4 - before // 100 + before // 400 + 1


_EPOCH = _days_before(1970)


def day_of_date(year: int, month: int, day: int) -> int | None:
    """The number of days since 1970, or None if there is no such date."""
    if not 1 <= month <= 12 or not 1 <= day <= _month_length(year, month):
        return None
    return _days_before(year) - _EPOCH + sum(_month_length(year, earlier) for earlier in range(1, month)) + day - 1


def date_of_day(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970."""
    rest = days + _EPOCH
    year = rest * 400 // _DAYS_OF_400_YEARS
    while _days_before(year) > rest:
        year -= 1
    while _days_before(year + 1) <= rest:
        year += 1
    rest -= _days_before(year)
    month = 1
    while rest >= _month_length(year, month):
        rest -= _month_length(year, month)
        month += 1
    return year, month, rest + 1


def date_text(days: int) -> str:
    """The date as YYYY-MM-DD."""
    year, month, day = date_of_day(days)
    return f"{year:04}-{month:02}-{day:02}"


def timestamp_text(moment: int, zoned: bool) -> str:
    """The timestamp as YYYY-MM-DD HH:MM:SS, with as many decimals as it needs.

    >>> timestamp_text(-1_000_000, False), timestamp_text(0, True)
    ('1969-12-31 23:59:59.999', '1970-01-01 00:00:00+00')
    """
    days, rest = divmod(moment, DAY)
    seconds, fraction = divmod(rest, SECOND)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    decimals = f".{fraction:09}".rstrip("0") if fraction else ""
    return f"{date_text(days)} {clock}{decimals}{'+00' * zoned}"


def read_moment(text: str) -> tuple[int, int] | None:
    """The wall clock time that the text says, and the offset of its zone from UTC, both in nanoseconds.

    >>> read_moment("1970-1-2"), read_moment("1970-01-01T00:00:01.5+01:00"), read_moment("1970-02-30")
    ((86400000000000, 0), (1500000000, 3600000000000), None)
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    days = day_of_date(year, month, day)
    fraction = int((match[7] or "").ljust(9, "0"))
    clock = hour * 3600 + minute * 60 + second
    # 24:00:00 is midnight of the next day.
    if days is None or minute > 59 or second > 59 or clock * SECOND + fraction > DAY:
        return None
    offset = int(match[10] or 0) * 3600 + int(match[11] or 0) * 60
    return days * DAY + clock * SECOND + fraction, (-offset if match[9] == "-" else offset) * SECOND
