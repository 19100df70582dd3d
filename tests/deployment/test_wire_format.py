"""Messages come back from bytes as they were, and damaged bytes are refused."""

import json
import struct
from dataclasses import fields, is_dataclass

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.deployment.protocol.wire_format import (
    CHECKSUM_BYTES,
    WIRE_FORMAT,
    _checksum,
    message_from_bytes,
    message_from_json,
    message_to_bytes,
    message_to_json,
)
from midstream.errors import MalformedMessage
from tests.deployment.random_messages import PLANS, events, messages, reports, whole


def same(one, other):
    """Whether two messages are equal, arrays included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if is_dataclass(one):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    return one == other


@settings(deadline=None, max_examples=200)
@given(messages)
def test_messages_come_back_as_they_were(message):
    assert same(message_from_bytes(message_to_bytes(message)), message)


@settings(deadline=None)
@given(reports | events | whole)
def test_messages_without_rows_come_back_from_json(message):
    assert message_from_json(json.loads(json.dumps(message_to_json(message)))) == message


@settings(deadline=None)
@given(messages, st.data())
def test_damaged_bytes_are_refused(message, data):
    written = bytearray(message_to_bytes(message))
    written[data.draw(st.integers(0, len(written) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MalformedMessage, match="a message"):
        message_from_bytes(bytes(written))


@settings(deadline=None)
@given(messages, st.data())
def test_bytes_that_are_cut_off_are_refused(message, data):
    written = message_to_bytes(message)
    with pytest.raises(MalformedMessage):
        message_from_bytes(written[: data.draw(st.integers(0, len(written) - 1))])


@pytest.mark.parametrize(
    "body",
    [
        (WIRE_FORMAT + 1, "Commit", {"query": "q", "generation": 1}),
        (WIRE_FORMAT, "Unknown", {}),
        (WIRE_FORMAT, "Commit", {"query": "q"}),
        (WIRE_FORMAT, "Commit", {"query": "q", "generation": "1"}),
        (WIRE_FORMAT, "Commit", None),
        (WIRE_FORMAT, "StagePlan", {"stage": {}}),
        (
            WIRE_FORMAT,
            "Envelope",
            {"path": ["a"], "place": 1, "kind": "Connect", "message": {"edge": "e", "generation": 0}},
        ),
        (
            WIRE_FORMAT,
            "Envelope",
            {"path": ["a"], "place": 0, "kind": "Commit", "message": {"query": "q", "generation": 0}},
        ),
        (WIRE_FORMAT, "Numbered", {"edge": "e", "generation": 0, "number": 0, "content": struct.pack("<II", 5, 5)}),
        (WIRE_FORMAT,),
    ],
)
def test_what_is_no_message_is_refused(body):
    written = msgspec.msgpack.encode(body)
    with pytest.raises(MalformedMessage, match="cannot be read"):
        message_from_bytes(_checksum(written) + written)
    assert len(_checksum(written)) == CHECKSUM_BYTES


def test_plans_of_stages_are_messages():
    for plan in PLANS:
        assert message_from_bytes(message_to_bytes(plan)) == plan
