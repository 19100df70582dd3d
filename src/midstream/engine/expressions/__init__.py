"""What each scalar function and cast computes, one file per kind of value.

Semantics are DuckDB's with every error a NULL, and DuckDB is the judge in the tests. Where midstream differs:

- ``%`` of the least int64 by -1 is 0, not an error. Decimal ``+ - *`` are exact up to 38 digits; DuckDB stops at 18
  digits when both operands have at most 18, and turns to doubles where ``%`` or a comparison needs more than 38.
- POWER of a negative number to a power that is not whole is NULL, not NaN. (SQRT, LN and zero to a negative power: as
  DuckDB with ``ieee_floating_point_ops = false``, its errors being NULL.)
- SUBSTRING takes positions and lengths of any size; DuckDB has an error beyond 32 bits.
- Text is no number if it is hexadecimal, binary or has underscores, and no date if it is ``epoch``, ``infinity``, BC or
  separated by anything but ``-``. A named time zone makes a timestamp unreadable.
- Text of a decimal below one keeps its zero (``0.50``, where DuckDB's DECIMAL(2,2) gives ``.50``), NaN has no sign,
  years before 1 are written as numbers (``-5``), and a decimal becomes the nearest double whatever its size.
- int64's ends are ordinary timestamps, where DuckDB keeps them for infinity.
"""
