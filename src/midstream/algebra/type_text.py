"""Arrow types and schemas as text and back: by name, or in Arrow's own binary form where a name does not say all.

>>> type_to_text(pa.timestamp("us", "UTC"))
'timestamp[us, tz=UTC]'
>>> type_from_text("decimal128(10, 2)")
Decimal128Type(decimal128(10, 2))
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache

import pyarrow as pa

from midstream.errors import BadPlan

__all__ = ["schema_from_text", "schema_to_text", "type_from_text", "type_to_text"]

_ARROW = "arrow:"


def type_to_text(data_type: pa.DataType) -> str:
    """The type's name where it says all; a :class:`BadPlan` where the type would not be the same when read again."""
    name = str(data_type)
    return name if _named_type(name) == data_type else schema_to_text(pa.schema([("", data_type)]))


def type_from_text(text: str) -> pa.DataType:
    """The type that :func:`type_to_text` gave the text for; a ``ValueError`` if there is none."""
    if text.startswith(_ARROW):
        schema = schema_from_text(text)
        if len(schema) != 1:
            raise ValueError(f"it is a schema of {len(schema)} columns, not of one")
        return schema.field(0).type
    named = _named_type(text)
    if named is None:
        raise ValueError(f"{text[:80]!r} is not the name of a type")
    return named


@lru_cache(maxsize=256)
def _named_type(name: str) -> pa.DataType | None:
    """The type that has the name as text, for types without parts: nested ones may have more to them than shows."""
    try:
        if matched := re.fullmatch(r"timestamp\[(s|ms|us|ns), tz=(.+)\]", name):
            return pa.timestamp(matched[1], matched[2])
        if matched := re.fullmatch(r"decimal(128|256)\((\d{1,2}), (-?\d{1,2})\)", name, re.ASCII):
            decimal = pa.decimal128 if matched[1] == "128" else pa.decimal256
            return decimal(int(matched[2]), int(matched[3]))
        return pa.type_for_alias(name)
    except ValueError:
        return None


def schema_to_text(schema: pa.Schema) -> str:
    """The schema in the form of Arrow's own messages."""
    text = _ARROW + base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")
    try:
        unchanged = schema_from_text(text) == schema
    except ValueError:
        unchanged = False
    if not unchanged:
        raise BadPlan(
            f"cannot write the type {', '.join(str(column.type) for column in schema)} as JSON",
            detail="It is not the same when it is read again.",
            hint="Register an extension type with pyarrow.",
        )
    return text


def schema_from_text(text: str) -> pa.Schema:
    """The schema that :func:`schema_to_text` gave the text for; a ``ValueError`` if there is none."""
    try:
        data = base64.b64decode(text.removeprefix(_ARROW), validate=True)
        if b"arrow.py_extension_type" in data:
            # Older versions of pyarrow can be configured to unpickle it.
            raise ValueError("a pickled type is not read")
        schema = pa.ipc.read_schema(pa.py_buffer(data))
        # Names that are not text, and extension types that refuse their parameters, are found when they are accessed.
        _ = [(column.name, column.type) for column in schema]
    # An extension type that is registered here reads its own parameters, and may raise anything.
    except Exception as error:
        raise ValueError(f"{text[:80]!r} is not an Arrow schema ({type(error).__name__}: {error})") from None
    return schema
