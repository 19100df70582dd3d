"""Topics by name, headers of results, and how a consumer drops repeats; without a broker."""

import json
import random

import pytest

from midstream.errors import BadOption, MalformedMessage
from midstream.kafka import KafkaTopic, RepeatFilter, ResultId, result_id


def headers(batch, number, query="q"):
    return [
        ("trace", b"x"),
        ("midstream-query", query.encode()),
        ("midstream-batch", str(batch).encode()),
        ("midstream-result", str(number).encode()),
    ]


@pytest.mark.parametrize(
    ("text", "servers", "topic"),
    [
        ("localhost:9092/orders", "localhost:9092", "orders"),
        (" a:1, b:2/x.y_z-1 ", "a:1,b:2", "x.y_z-1"),
        ("[::1]:9092/t", "[::1]:9092", "t"),
    ],
)
def test_a_topic_is_named_with_its_brokers(text, servers, topic):
    assert KafkaTopic.parse(text) == KafkaTopic(servers, topic)
    assert KafkaTopic.parse(str(KafkaTopic.parse(text))) == KafkaTopic(servers, topic)


@pytest.mark.parametrize(
    "text", ["orders", "host/orders", "host:9092", "host:9092/", "host:99999/t", "h:1/a b", "h:1/..", "h:0/t", "", 7]
)
def test_what_names_no_topic_is_refused(text):
    with pytest.raises(BadOption, match="cannot read the topic"):
        KafkaTopic.parse(text)


def test_a_result_is_known_by_three_headers():
    assert result_id(headers(3, 9)) == ResultId("q", 3, 9)
    for lacking in ([], None, headers(3, 9)[:3], [*headers(3, 9)[:3], ("midstream-result", b"x")]):
        with pytest.raises(MalformedMessage, match="lacks the headers"):
            result_id(lacking)


def test_a_micro_batch_sent_again_any_number_of_times_counts_once():
    chance = random.Random(1)
    for _ in range(200):
        log, expected = [], []
        for batch in range(chance.randrange(1, 5)):
            numbers = chance.sample(range(20), chance.randrange(6))
            expected += [(batch, number) for number in numbers]
            for _ in range(chance.randrange(3)):
                # An attempt that was killed: some of its results arrived, in any order.
                log += [(batch, number) for number in chance.sample(numbers, chance.randrange(len(numbers) + 1))]
            log += [(batch, number) for number in chance.sample(numbers, len(numbers))]
            # A task that was thought dead sends what it has, late.
            earlier = [(one, number) for one, number in log if one <= batch]
            log += chance.sample(earlier, min(len(earlier), chance.randrange(3)))
        repeats, kept = RepeatFilter(), []
        for result in log:
            if chance.random() < 0.1:
                repeats = RepeatFilter(json.loads(json.dumps(repeats.state())))
            if repeats.is_new(0, headers(*result)):
                kept.append(result)
        assert sorted(kept) == sorted(expected)
        assert len(kept) == len(set(kept))


@pytest.mark.parametrize("state", ["x", {"latest": [[0, "q", 1]]}, {"latest": 3}, [1]])
def test_a_state_that_is_none_is_refused(state):
    with pytest.raises(BadOption, match="cannot read the state of a RepeatFilter"):
        RepeatFilter(state)


def test_partitions_and_queries_are_kept_apart():
    repeats = RepeatFilter()
    shown = [(0, 1, 0, "q"), (1, 0, 0, "q"), (0, 0, 0, "r"), (0, 1, 0, "q"), (1, 0, 0, "q"), (0, 0, 0, "r")]
    assert [repeats.is_new(partition, headers(batch, number, query)) for partition, batch, number, query in shown] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


def test_a_partition_that_moves_to_another_consumer_takes_what_is_known_along():
    before, after = RepeatFilter(), RepeatFilter()
    for partition in (0, 1):
        assert before.is_new(partition, headers(3, 7))
    after.load(json.loads(json.dumps(before.state(1))))
    before.drop(1)
    assert not after.is_new(1, headers(3, 7)) and not after.is_new(1, headers(2, 1))
    assert after.is_new(0, headers(3, 7)), "nothing was said of the other partition"
    assert not before.is_new(0, headers(3, 7)) and before.is_new(1, headers(3, 7))
