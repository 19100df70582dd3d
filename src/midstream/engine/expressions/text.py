"""Functions of text: LIKE, LOWER, UPPER, TRIM, LENGTH, SUBSTRING, CONCAT, ``||``, REPLACE, STARTS_WITH.

Text is counted in characters (Unicode code points), never in bytes.

>>> _substring([pa.array(["naïve", "ab"]), pa.scalar(-3), pa.scalar(2)], pa.string()).to_pylist()
['ïv', 'a']
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.engine.expressions.arrow_values import Datum, Kernel, Values, array_of, either_null, null_rows, values

__all__ = ["KERNELS"]

# What TRIM removes: the characters of Unicode's category Zs, as in DuckDB. A tab or line end is none of them.
_SPACES = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_FAR = 2**40  # further than any text is long


def _like(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    return _matcher(operands[1].as_py())(operands[0])


@functools.lru_cache(maxsize=1024)
def _matcher(pattern: str) -> Callable[[pa.Array], pa.Array]:
    """What a LIKE pattern tests: ``%`` stands for any text, ``_`` for one character, all else for itself."""
    inner = pattern.strip("%")
    if "%" not in inner and "_" not in inner:
        before, after = pattern.startswith("%"), pattern.endswith("%")
        if not inner and before:
            return lambda text: pc.match_substring(text, pattern="")
        if before and after:
            return lambda text: pc.match_substring(text, pattern=inner)
        if before:
            return lambda text: pc.ends_with(text, pattern=inner)
        if after:
            return lambda text: pc.starts_with(text, pattern=inner)
        return lambda text: pc.equal(text, pa.scalar(inner, text.type))
    expression = "(?s)^" + "".join(_regex_of(character) for character in pattern)
    return functools.partial(_match, expression)


def _match(expression: str, text: pa.Array) -> pa.Array:
    try:
        # To RE2, unlike to Python, $ is the end of the text and not a line end before it.
        return pc.match_substring_regex(text, pattern=expression + "$")
    except pa.ArrowInvalid:
        # RE2 refuses patterns of some hundred thousand characters.
        matches = re.compile(expression + r"\Z").match
        return pa.array([None if t is None else matches(t) is not None for t in text.to_pylist()], pa.bool_())


def _regex_of(character: str) -> str:
    if character in "%_":
        return ".*" if character == "%" else "."
    # RE2 takes a backslash before any ASCII punctuation, but has no such escape for a zero byte or a letter.
    if character == "\0":
        return r"\x00"
    return character if character.isalnum() or not character.isascii() or character.isspace() else "\\" + character


def _length(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    return pc.cast(pc.utf8_length(operands[0]), result)


def _concat(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    """All texts in a row, NULL counting as the empty text."""
    # Not null_handling="skip": Arrow then drops a row of NULLs from the result.
    return pc.binary_join_element_wise(*operands, "", null_handling="replace", null_replacement="")


def _concat_strictly(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    return pc.binary_join_element_wise(*operands, "", null_handling="emit_null")


def _substring(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    """As in DuckDB: counted from 1, a negative start counts from the end, a negative length goes to the left.

    What lies outside the text is cut off, so a start of 0 with length 2 gives the first character alone.
    """
    text, bounds = operands[0], operands[1:]
    if any(not isinstance(bound, pa.Scalar) for bound in bounds) or isinstance(text, pa.Scalar):
        return _substring_by_row(text, bounds)
    start = max(-_FAR, min(_FAR, bounds[0].as_py()))
    start = start - 1 if start >= 0 else start
    from_end = bounds[0].as_py() < 0
    if len(bounds) == 1:
        low, high = start, _FAR
    else:
        length = max(-_FAR, min(_FAR, bounds[1].as_py()))
        low, high = sorted((start, start + length))
    if not from_end:
        return pc.utf8_slice_codeunits(text, start=max(low, 0), stop=max(high, 0))
    # Counted from the end, as Arrow's (and Python's) negative positions; those from 0 on lie behind the text.
    return pc.utf8_slice_codeunits(text, start=low, stop=high) if high < 0 else pc.utf8_slice_codeunits(text, start=low)


def _substring_by_row(text: Datum, bounds: Sequence[Datum]) -> pa.Array:
    rows = max(len(d) for d in (text, *bounds) if not isinstance(d, pa.Scalar))
    text = array_of(text, rows)
    characters = values(pc.cast(pc.utf8_length(pc.fill_null(text, "")), pa.int64()))
    start = np.clip(values(bounds[0]), -_FAR, _FAR)
    first = np.where(start < 0, characters + start, start - 1)
    last = first + np.clip(values(bounds[1]), -_FAR, _FAR) if len(bounds) == 2 else np.full(rows, _FAR)
    low = np.clip(np.minimum(first, last), 0, characters)
    high = np.clip(np.maximum(first, last), 0, characters)
    return _cut(text, low, high, either_null(null_rows(text), *(null_rows(bound) for bound in bounds)))


def _cut(text: pa.Array, low: Values, high: Values, nulls: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Of each text the characters from low up to high, both within it."""
    text = pc.fill_null(text, "")
    offsets = np.frombuffer(text.buffers()[1], np.int32, len(text) + 1, text.offset * 4).astype(np.int64)
    data = text.buffers()[2]
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[: offsets[-1]]
    # Where each character begins: at every byte that does not continue one.
    begins = np.append(np.flatnonzero((content & 0xC0) != 0x80), len(content))
    first = np.searchsorted(begins, offsets[:-1])
    from_byte, to_byte = begins[first + low], begins[first + high]
    new_offsets = np.concatenate(([0], np.cumsum(to_byte - from_byte)))
    source = np.repeat(from_byte - new_offsets[:-1], to_byte - from_byte) + np.arange(new_offsets[-1])
    cut = pa.Array.from_buffers(
        pa.string(),
        len(text),
        [None, pa.py_buffer(new_offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(content[source]))],
    )
    return cut if nulls is None else pc.if_else(pa.array(nulls), pa.scalar(None, pa.string()), cut)


def _replace(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    """Every occurrence replaced, from the left; the empty text occurs nowhere."""
    text, pattern, replacement = operands
    if isinstance(pattern, pa.Scalar) and isinstance(replacement, pa.Scalar):
        if not pattern.as_py():
            return text
        return pc.replace_substring(text, pattern=pattern.as_py(), replacement=replacement.as_py())
    # Arrow has no kernel for patterns that differ from row to row.
    rows = max(len(d) for d in operands if not isinstance(d, pa.Scalar))
    columns = [array_of(operand, rows).to_pylist() for operand in operands]
    return pa.array(
        [
            None if None in row else row[0].replace(row[1], row[2]) if row[1] else row[0]
            for row in zip(*columns, strict=True)
        ],
        result,
    )


def _starts_with(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    text, prefix = operands
    if isinstance(prefix, pa.Scalar):
        return pc.starts_with(text, pattern=prefix.as_py())
    characters = pc.cast(pc.utf8_length(prefix), pa.int64())
    return pc.equal(_substring_by_row(text, [pa.scalar(1), characters]), prefix)


KERNELS: dict[str, Kernel] = {
    "like": _like,
    "lower": lambda operands, result: pc.utf8_lower(operands[0]),
    "upper": lambda operands, result: pc.utf8_upper(operands[0]),
    "trim": lambda operands, result: pc.utf8_trim(operands[0], characters=_SPACES),
    "ltrim": lambda operands, result: pc.utf8_ltrim(operands[0], characters=_SPACES),
    "rtrim": lambda operands, result: pc.utf8_rtrim(operands[0], characters=_SPACES),
    "length": _length,
    "substring": _substring,
    "concat": _concat,
    "||": _concat_strictly,
    "replace": _replace,
    "starts_with": _starts_with,
}
