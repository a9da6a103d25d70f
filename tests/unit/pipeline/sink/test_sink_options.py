"""Options of a write: defaults, values, and every contradiction with a sentence."""

from __future__ import annotations

import pickle

import pytest

from goqueue.log.compression import Codec
from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.sink.options import BadRows, Guarantee, SinkOptions, sink_options


def parse(**options: str) -> SinkOptions:
    return sink_options(
        {"bootstrap.servers": "localhost:9092", **{k.replace("_", "."): v for k, v in options.items()}}
    )


def test_write_is_exactly_once_unless_asked_for_less() -> None:
    options = parse()
    assert options.guarantee is Guarantee.EXACTLY_ONCE
    assert options.is_transactional
    assert (options.acks, options.batch_bytes, options.timeout_ms) == ("all", 1024 * 1024, 900_000)
    assert options.bad_rows is BadRows.FAIL
    assert options.topic is None
    assert not options.makes_topics


def test_every_option_is_read() -> None:
    options = sink_options(
        {
            "kafka.bootstrap.servers": "a:1,b:2",
            "topic": "orders",
            "partition": "3",
            "guarantee": "at_least_once",
            "acks": "1",
            "batch.size": "65536",
            "compression.type": "zstd",
            "transaction.timeout.ms": "2h",
            "schema.id": "7",
            "createTopics": "true",
            "badRows": "dead_letter",
            "deadLetterTopic": "graveyard",
            "reportPath": "report.json",
            "checkpointLocation": "somewhere",
        }
    )
    assert options.connection.bootstrap == "a:1,b:2"
    assert (options.topic, options.partition, options.acks, options.batch_bytes) == (
        "orders",
        3,
        "leader",
        65536,
    )
    assert (options.codec, options.timeout_ms, options.schema_id) == (Codec.ZSTD, 7_200_000, 7)
    assert options.makes_topics
    assert (options.dead_letter_topic, options.report_path) == ("graveyard", "report.json")
    assert not options.is_transactional


def test_bad_rows_have_a_second_name() -> None:
    assert parse(mode="skip").bad_rows is BadRows.SKIP


def test_options_cross_to_the_tasks() -> None:
    options = parse(topic="orders")
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"acks": "1"}, "needs acks=all"),
        ({"guarantee": "per_task", "acks": "0"}, "needs acks=all"),
        ({"guarantee": "twice"}, "exactly_once or per_task or at_least_once"),
        ({"deadLetterTopic": "graves"}, "badRows=dead_letter"),
        ({"badRows": "dead_letter", "deadLetterTopic": "orders", "topic": "orders"}, "a topic of their own"),
        ({"badRows": "dead_letter", "deadLetterTopic": "no spaces"}, "deadLetterTopic cannot be"),
        ({"topic": "__consumer_offsets"}, "internal"),
        ({"txnAppId": "app"}, "belong together"),
        ({"txnVersion": "1"}, "belong together"),
        ({"txnAppId": "{app}", "txnVersion": "1"}, "without braces"),
        ({"txnAppId": "a", "txnVersion": "1", "guarantee": "per_task"}, "works with exactly_once"),
        ({"batch.size": "10"}, "at least 1024"),
        ({"compression.type": "brotli"}, "none or gzip or snappy or lz4 or zstd"),
        ({"transaction.timeout.ms": "0"}, "1 ms"),
        ({"schema.id": "-1"}, "at least 0"),
        ({"topc": "orders"}, "did you mean topic"),
        ({"partition": "-1"}, "at least 0"),
    ],
)
def test_option_that_cannot_be_is_refused_with_what_would_be_right(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        sink_options({"bootstrap.servers": "localhost:9092", **options})


def test_write_without_a_broker_is_refused() -> None:
    with pytest.raises(OptionError, match=r"bootstrap\.servers is needed"):
        sink_options({"topic": "orders"})
