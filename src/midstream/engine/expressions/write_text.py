"""Numbers, truth values and moments written as text, in the form that reads back as the same value.

- whole numbers ``-12``, decimals with all digits of their scale ``0.50``, floats with the fewest digits that identify
  them: ``0.1``, ``1e+16``, ``nan``, ``-inf``
- ``true``, ``false``
- dates ``2024-02-29``; timestamps ``2024-02-29 10:20:30.5``, followed by ``+00`` if they are instants

>>> write_text(pa.array([1.0, 1e16, None])).to_pylist()
['1.0', '1e+16', None]
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from midstream.engine.expressions.arrow_values import Values, null_rows, values
from midstream.engine.expressions.temporal import days_of

__all__ = ["write_text"]


def write_text(array: pa.Array) -> pa.Array:
    """The values as text (the type string)."""
    if pat.is_floating(array.type):
        return _strings(_shortest(values(array)), array)
    if pat.is_decimal(array.type):
        return _write_decimal(array)
    if pat.is_date(array.type):
        return _strings(np.datetime_as_string(days_of(array).astype("M8[D]")), array)
    if pat.is_timestamp(array.type):
        return _write_timestamp(array)
    return pc.cast(array, pa.string())


def _strings(texts: Values, array: pa.Array) -> pa.Array:
    # An empty NumPy array of text becomes an array without a type.
    return pa.array(texts, pa.string(), mask=null_rows(array)) if len(array) else pa.array([], pa.string())


def _shortest(numbers: Values) -> Values:
    if numbers.dtype == np.float32:
        # The digits that identify a float32, in the layout of a double: 16777216.0, not 1.6777216e+07.
        numbers = numbers.astype(str).astype(np.float64)
    return numbers.astype(str)


def _write_decimal(array: pa.Array) -> pa.Array:
    # Arrow writes a decimal with a scale as 1.00E-8 when it is small, without one as plain digits.
    precision, scale, bits = array.type.precision, array.type.scale, array.type.bit_width
    whole = pa.decimal128(precision, 0) if bits == 128 else pa.decimal256(precision, 0)
    digits = pc.cast(array.view(whole), pa.string())
    if scale == 0:
        return digits
    sign = pc.if_else(pc.starts_with(digits, pattern="-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, characters="-"), width=scale + 1, padding="0")
    before = pc.utf8_slice_codeunits(digits, start=0, stop=-scale)
    after = pc.utf8_slice_codeunits(digits, start=-scale)
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, before, ""), after, ".")


def _write_timestamp(array: pa.Array) -> pa.Array:
    unit = array.type.unit
    moments = np.ascontiguousarray(values(array)).view(f"M8[{unit}]")
    texts = pc.replace_substring(_strings(np.datetime_as_string(moments), array), pattern="T", replacement=" ")
    if unit != "s":
        texts = pc.replace_substring_regex(texts, pattern=r"\.?0+$", replacement="")
    # The least int64 is no moment to NumPy.
    texts = pc.if_else(pc.equal(texts, "Na "), pa.scalar(None, pa.string()), texts)
    return texts if array.type.tz is None else pc.binary_join_element_wise(texts, "+00", "")
