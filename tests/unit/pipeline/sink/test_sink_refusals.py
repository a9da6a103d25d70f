"""What a broker refuses, in words that name what to change."""

from __future__ import annotations

import pytest

from goqueue.client.kafka import KafkaError, Unreachable
from goqueue.pipeline.sink.live import told


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("TRANSACTION_ABORTABLE", "Raise transaction.timeout.ms"),
        ("PRODUCER_FENCED", "a later run of the same query has taken its place"),
        ("INVALID_TRANSACTION_TIMEOUT", "set the option transaction.timeout.ms"),
        ("UNKNOWN_TOPIC_OR_PARTITION", "the topic was deleted, or has fewer partitions"),
        ("MESSAGE_TOO_LARGE", "max.message.bytes of the topic"),
        ("NOT_ENOUGH_REPLICAS", "min.insync.replicas"),
        ("UNSUPPORTED_VERSION", "guarantee=at_least_once"),
    ],
)
def test_refusal_says_what_was_asked_and_what_to_change(name: str, said: str) -> None:
    sentence = str(told(KafkaError(name, 1, "producing to t-0: no", False), "here:9092"))
    assert "producing to t-0: no" in sentence
    assert said in sentence


def test_refusal_that_nobody_foresaw_is_told_as_it_is() -> None:
    assert str(told(KafkaError("POLICY_VIOLATION", 44, "no", False), "here:9092")) == "no"


def test_broker_that_cannot_be_reached_is_named() -> None:
    sentence = str(told(Unreachable("connection refused"), "here:9092"))
    assert sentence.startswith("no broker of here:9092 answers (connection refused)")
