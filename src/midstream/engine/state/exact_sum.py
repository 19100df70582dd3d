"""Sums of floats that can be added to and subtracted from for ever without losing a bit.

A sliding sum adds rows as they come and subtracts them as they go. With ordinary floats the errors would stay
behind (1e300 + 1 − 1e300 is 0), and the result would depend on the order of arrival, and so on batching and plan.
Here a sum is an exact fixed-point number: 68 limbs of 32 bits, each in an int64 so that carries can wait, with the
lowest bit worth 2^-1074, the smallest float (the "small superaccumulator" of Neal 2015). It is rounded once, when
it is read.

NaN and infinities are counted, not added.
"""

from __future__ import annotations

import numpy as np

from midstream.engine.kernels import compiled

__all__ = ["LIMBS", "WORDS", "add_float", "read_float"]

LIMBS = 68
NAN, PLUS, MINUS, FIRST_LIMB = 0, 1, 2, 3
WORDS = LIMBS + 3
"""Words a sum takes: three counters (NaN, +inf, -inf), then the limbs, lowest first."""

_LOW = np.int64(0xFFFFFFFF)


@compiled
def add_float(words, bits, sign):  # type: ignore[no-untyped-def]
    """Add (sign 1) or subtract (sign -1) the float with these bits."""
    exponent = (bits >> np.int64(52)) & np.int64(2047)
    mantissa = bits & np.int64(0xFFFFFFFFFFFFF)
    if exponent == 2047:
        if mantissa != 0:
            words[NAN] += sign
        elif bits > 0:
            words[PLUS] += sign
        else:
            words[MINUS] += sign
        return
    if exponent == 0:
        exponent = np.int64(1)
    else:
        mantissa |= np.int64(1) << np.int64(52)
    if bits < 0:
        sign = -sign
    place = exponent - 1
    limb = FIRST_LIMB + (place >> 5)
    shift = np.uint64(place & 31)
    wide = np.uint64(mantissa)
    words[limb] += sign * (np.int64(wide << shift) & _LOW)
    words[limb + 1] += sign * (np.int64(wide >> (np.uint64(32) - shift)) & _LOW)
    if shift > np.uint64(11):
        words[limb + 2] += sign * np.int64(wide >> (np.uint64(64) - shift))


@compiled
def read_float(words):  # type: ignore[no-untyped-def]
    """The sum, rounded to the nearest float (ties to even), as bits."""
    infinity = np.int64(2047) << np.int64(52)
    lowest = np.int64(-0x8000000000000000)
    if words[NAN] > 0 or (words[PLUS] > 0 and words[MINUS] > 0):
        return infinity | (np.int64(1) << np.int64(51))
    if words[PLUS] > 0:
        return infinity
    if words[MINUS] > 0:
        return infinity | lowest
    digits = np.empty(LIMBS, np.int64)
    carry = np.int64(0)
    for i in range(LIMBS):
        total = words[FIRST_LIMB + i] + carry
        digits[i] = total & _LOW
        carry = total >> np.int64(32)
    negative = carry < 0
    if negative:
        carry = np.int64(1)
        for i in range(LIMBS):
            total = (digits[i] ^ _LOW) + carry
            digits[i] = total & _LOW
            carry = total >> np.int64(32)
    top = LIMBS - 1
    while top >= 0 and digits[top] == 0:
        top -= 1
    if top < 0:
        return np.int64(0)
    highest = 32 * top + 31
    while (digits[highest >> 5] >> np.int64(highest & 31)) & 1 == 0:
        highest -= 1
    sign = lowest if negative else np.int64(0)
    if highest <= 52:
        return sign | digits[0] | (digits[1] << np.int64(32))
    shift = highest - 52
    if shift > 2045:
        return sign | infinity
    limb = shift >> 5
    offset = np.int64(shift & 31)
    mantissa = digits[limb] >> offset
    mantissa |= digits[limb + 1] << (np.int64(32) - offset) if limb + 1 < LIMBS else np.int64(0)
    if offset > 11 and limb + 2 < LIMBS:
        mantissa |= digits[limb + 2] << (np.int64(64) - offset)
    mantissa &= (np.int64(1) << np.int64(53)) - 1
    half = shift - 1
    if (digits[half >> 5] >> np.int64(half & 31)) & 1:
        above_half = (digits[half >> 5] & ((np.int64(1) << np.int64(half & 31)) - 1)) != 0
        i = 0
        while not above_half and i < half >> 5:
            above_half = digits[i] != 0
            i += 1
        if above_half or mantissa & 1:
            mantissa += 1
    # A mantissa that was rounded up to 2^53 carries into the exponent, as it should.
    bits = (np.int64(shift) << np.int64(52)) + mantissa
    if bits >= infinity:
        return sign | infinity
    return sign | bits
