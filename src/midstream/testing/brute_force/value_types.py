"""The types of the brute force, and at which one two values meet.

What can be compared without regard to Arrow's layout is one kind. Values are plain Python: `int`, `float`,
`Decimal`, `str`, `bytes`, `bool`; dates are days since 1970, and timestamps, durations and times of day are
nanoseconds. NULL is None in every type. Nested values are Arrow scalars, which are only carried along.
"""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

import pyarrow as pa

__all__ = [
    "BOOLEAN",
    "DATE",
    "DOUBLE",
    "EXACT",
    "INTEGER",
    "NANOSECONDS",
    "NULL",
    "TEXT",
    "Type",
    "common_type",
    "decimal_of",
    "fits",
    "type_of_arrow",
    "type_of_name",
]

EXACT = decimal.Context(prec=320, rounding=decimal.ROUND_HALF_UP, Emax=10**6, Emin=-(10**6))
"""Decimal arithmetic wide enough for every sum and product of decimals with 76 digits."""

NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_NUMBERS = ("integer", "unsigned", "decimal", "float")
_FINEST_FIRST = ("ns", "us", "ms", "s")


@dataclass(frozen=True)
class Type:
    """A type; which fields count depends on `kind`.

    Kinds are null, boolean, integer (`bits`; every one but uint64), unsigned (uint64), float (`bits`),
    decimal (`precision`, `scale`), text, binary, date, timestamp (`unit`, `zoned`), duration (`unit`),
    time (`unit`) and nested (`arrow`).
    """

    kind: str
    bits: int = 64
    precision: int = 0
    scale: int = 0
    unit: str = ""
    zoned: bool = False
    arrow: pa.DataType | None = None

    @property
    def is_number(self) -> bool:
        """Whether arithmetic takes values of this type."""
        return self.kind in _NUMBERS

    @property
    def is_exact(self) -> bool:
        """Whether this is a number that is no float."""
        return self.kind in ("integer", "unsigned", "decimal")

    @property
    def is_moment(self) -> bool:
        """Whether this is a date or a timestamp."""
        return self.kind in ("date", "timestamp")


NULL, BOOLEAN, TEXT, DATE = Type("null"), Type("boolean"), Type("text"), Type("date")
INTEGER, DOUBLE = Type("integer"), Type("float")
_CAST_TARGETS = {
    **dict.fromkeys(("INT", "INTEGER"), Type("integer", bits=32)),
    "TINYINT": Type("integer", bits=8),
    "SMALLINT": Type("integer", bits=16),
    "BIGINT": INTEGER,
    **dict.fromkeys(("REAL", "FLOAT"), Type("float", bits=32)),
    "DOUBLE": DOUBLE,
    **dict.fromkeys(("VARCHAR", "TEXT", "STRING"), TEXT),
    **dict.fromkeys(("BLOB", "BINARY", "VARBINARY"), Type("binary")),
    "BOOLEAN": BOOLEAN,
    "DATE": DATE,
    "TIMESTAMP": Type("timestamp", unit="us"),
    "TIMESTAMPTZ": Type("timestamp", unit="us", zoned=True),
}


def type_of_name(name: str, digits: tuple[int, ...]) -> Type | None:
    """The type that CAST calls so.

    >>> type_of_name("DECIMAL", (10, 2)).scale, type_of_name("REAL", ()).bits, type_of_name("JSON", ())
    (2, 32, None)
    """
    if name in ("DECIMAL", "NUMERIC") and digits:
        return Type("decimal", precision=digits[0], scale=digits[1] if len(digits) > 1 else 0)
    return _CAST_TARGETS.get(name) if not digits else None


@cache
def type_of_arrow(arrow: pa.DataType) -> Type:
    """The type of a column; dictionaries and runs are what their values are."""
    is_a = pa.types
    if is_a.is_dictionary(arrow) or is_a.is_run_end_encoded(arrow):
        return type_of_arrow(arrow.value_type)
    if is_a.is_uint64(arrow):
        return Type("unsigned")
    if is_a.is_integer(arrow):
        return Type("integer", bits=arrow.bit_width if is_a.is_signed_integer(arrow) else 64)
    if is_a.is_floating(arrow):
        return Type("float", bits=arrow.bit_width)
    if is_a.is_decimal(arrow):
        return Type("decimal", precision=arrow.precision, scale=arrow.scale)
    if is_a.is_timestamp(arrow):
        return Type("timestamp", unit=arrow.unit, zoned=arrow.tz is not None)
    if is_a.is_duration(arrow) or is_a.is_time(arrow):
        return Type("duration" if is_a.is_duration(arrow) else "time", unit=arrow.unit)
    if is_a.is_string(arrow) or is_a.is_large_string(arrow) or is_a.is_string_view(arrow):
        return TEXT
    if "binary" in str(arrow):
        return Type("binary")
    if is_a.is_date(arrow):
        return DATE
    if is_a.is_boolean(arrow):
        return BOOLEAN
    return NULL if is_a.is_null(arrow) else Type("nested", arrow=arrow)


def decimal_of(kind: Type) -> Type:
    """The decimal type that holds every value of an exact number type."""
    if kind.kind == "decimal":
        return kind
    return Type("decimal", precision=20 if kind.kind == "unsigned" else 19)


def common_type(left: Type, right: Type) -> Type | None:
    """The type at which values of both meet; None if they belong to different families.

    >>> common_type(Type("unsigned"), INTEGER).precision, common_type(INTEGER, DOUBLE).kind, common_type(TEXT, INTEGER)
    (20, 'float', None)
    """
    if left == right or right.kind == "null":
        return left
    if left.kind == "null":
        return right
    if left.is_number and right.is_number:
        return _common_number(left, right)
    if left.is_moment and right.is_moment:
        if left.zoned != right.zoned or "date" in (left.kind, right.kind):
            return None if left.zoned or right.zoned else left if right.kind == "date" else right
        return left if _FINEST_FIRST.index(left.unit) < _FINEST_FIRST.index(right.unit) else right
    if left.kind == right.kind and left.kind in ("duration", "time"):
        return left if _FINEST_FIRST.index(left.unit) < _FINEST_FIRST.index(right.unit) else right
    return None


def _common_number(left: Type, right: Type) -> Type:
    if "float" in (left.kind, right.kind):
        return DOUBLE
    if left.kind == right.kind == "integer":
        return INTEGER
    one, other = decimal_of(left), decimal_of(right)
    scale = max(one.scale, other.scale)
    whole = max(one.precision - one.scale, other.precision - other.scale)
    return Type("decimal", precision=min(whole + scale, 76), scale=scale)


def fits(value: Decimal, precision: int, scale: int) -> bool:
    """Whether the number has a place among the decimals of this shape, which it may have to be rounded for."""
    return value.copy_abs() < Decimal((0, (1,), precision - scale))
