"""An edge's log: whatever is lost, doubled or overtaken, each message is taken once and in order (I3, I4, I5, I7)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.deployment.protocol.logical_edge import ConsumerEnd, ProducerEnd
from midstream.deployment.protocol.messages import Data
from midstream.engine.state.window_store import ReceivedRows
from tests.deployment.small_deployment import O2, SmallDeployment
from tests.examples import random_examples

ROUTE, OTHER = ("a", "b"), ("a", "c")


def message(frontier: int = 0) -> Data:
    none = np.empty(0, np.int64)
    return Data(ReceivedRows(none, none, []), frontier)


def connected(messages: int = 0) -> ProducerEnd:
    end = ProducerEnd(ROUTE, 1)
    for frontier in range(messages):
        end.append(message(frontier))
    end.take_cursor(0, answers_connect=True)
    return end


def test_nothing_is_sent_before_the_consumer_has_said_where_to_begin():
    end = ProducerEnd(ROUTE, 1)
    end.append(message())
    assert list(end.unsent()) == []
    end.take_cursor(0, answers_connect=True)
    assert [number for number, _ in end.unsent()] == [0]
    assert list(end.unsent()) == [], "and only once"


def test_a_message_is_kept_until_it_has_been_taken():
    end = connected(3)
    assert [number for number, _ in end.unsent()] == [0, 1, 2]
    assert len(end.messages) == 3
    end.take_cursor(2, answers_connect=False)
    assert (end.first_number, len(end.messages)) == (2, 1)


def test_a_cursor_that_was_overtaken_changes_nothing():
    end = connected(3)
    end.take_cursor(2, answers_connect=False)
    end.take_cursor(1, answers_connect=False)
    assert (end.first_number, len(end.messages)) == (2, 1)
    end.take_cursor(1, answers_connect=True)
    assert [number for number, _ in end.unsent()] == [2]


def test_messages_can_be_kept_although_they_were_taken():
    end = connected(3)
    end.take_cursor(2, answers_connect=True, keeps=True)
    assert (end.first_number, len(end.messages)) == (0, 3)
    assert [number for number, _ in end.unsent()] == [2]


def test_nobody_has_taken_what_was_never_sent():
    with pytest.raises(AssertionError, match="I3"):
        connected(1).take_cursor(2, answers_connect=False)


def test_a_new_route_begins_where_the_consumer_is():
    end = connected(3)
    list(end.unsent())
    end.set_route(OTHER, 2)
    assert list(end.unsent()) == []
    end.take_cursor(1, answers_connect=True)
    assert [number for number, _ in end.unsent()] == [1, 2]
    with pytest.raises(AssertionError, match="generations never go back"):
        end.set_route(ROUTE, 1)


def test_an_unanswered_connection_is_found_broken_after_a_while():
    end = connected(1)
    list(end.unsent())
    end.check_connection()
    assert end.is_connected, "patience"
    end.check_connection()
    assert not end.is_connected and not end.has_asked


def test_a_connection_without_messages_is_never_found_broken():
    end = connected(0)
    for _ in range(9):
        end.check_connection()
    assert end.is_connected


def test_the_consumer_takes_only_the_number_that_it_expects():
    end = ConsumerEnd()
    end.receive(0, 1, message(1))
    assert not end.has_next
    end.receive(0, 0, message(0))
    assert (end.take().frontier, end.take().frontier) == (0, 1)
    end.receive(0, 0, message(0))
    assert not end.has_next and end.is_to_answer, "a repeat is answered, not taken"


def test_the_fence_keeps_out_messages_of_older_connections():
    end = ConsumerEnd(generation=2)
    end.receive(1, 0, message())
    assert not end.has_next
    end.receive(3, 0, message())
    assert end.has_next, "a newer producer may send before its connection is known"


def test_the_fence_keeps_out_older_connections():
    end = ConsumerEnd()
    end.connect(2, ("c", "a"))
    end.is_to_answer = False
    end.connect(1, ("b", "a"))
    assert (end.generation, end.way_back, end.is_to_answer) == (2, ("c", "a"), False)


def test_a_frontier_never_moves_back():
    end = ConsumerEnd()
    end.receive(0, 0, message(5))
    end.take()
    assert end.frontier == 5
    end.receive(0, 1, message(4))
    with pytest.raises(AssertionError, match="I7"):
        end.take()


@random_examples(60)
@given(st.lists(st.sampled_from(["append", "send", "lose", "double", "swap", "answer", "crash", "move", "wait"])))
def test_whatever_the_way_does_each_message_is_taken_once_and_in_order(steps):
    producer, consumer = ProducerEnd(ROUTE, 1), ConsumerEnd()
    way: list[tuple[int, int, Data]] = []
    made, taken = 0, []

    def answer(connect: bool) -> None:
        if connect and not producer.is_connected:
            consumer.connect(producer.generation, ROUTE[::-1])
        if consumer.is_to_answer and consumer.generation == producer.generation:
            producer.take_cursor(consumer.next_number, consumer.answers_connect)
            consumer.is_to_answer = consumer.answers_connect = False

    def deliver() -> None:
        for generation, number, content in way:
            consumer.receive(generation, number, content)
        way.clear()
        while consumer.has_next:
            taken.append(consumer.take().frontier)

    for step in [*steps, "end"]:
        match step:
            case "append":
                producer.append(message(made))
                made += 1
            case "send":
                way.extend((producer.generation, number, content) for number, content in producer.unsent())
            case "lose":
                way[:1] = []
            case "double":
                way.extend(way[:1])
            case "swap":
                way.reverse()
            case "answer":
                answer(connect=True)
            case "crash":
                producer.is_connected = False
                consumer.waiting.clear()
            case "move":
                producer.set_route(OTHER, producer.generation + 1)
            case "wait":
                deliver()
            case "end":
                deliver()
                producer.is_connected = False
                answer(connect=True)
                way.extend((producer.generation, number, content) for number, content in producer.unsent())
                deliver()
    assert taken == list(range(made))


def test_an_outbox_is_trimmed_by_acknowledgements_and_so_is_what_is_stored_of_it():
    deployment = SmallDeployment()
    for number in range(50):
        deployment.feed("N8", "b", (number, number % 3))
        deployment.settle()
    source = deployment.nodes["N8"].running[O2]
    assert source.output.next_number >= 50 and not source.output.messages
    assert not [key for key in source.save() if key.startswith("message/")]
