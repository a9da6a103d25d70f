"""`spark.read.format("goqueue")`: rows, columns, tasks, filters and errors, as a user of Spark sees them."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from tests.support.broker import Broker
from tests.support.spark_topics import Topics

from goqueue.pipeline.columns import ALL_COLUMNS, KAFKA_COLUMNS

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def topics(shared_broker: Broker, topic: str) -> Topics:
    """The topic has partitions with 300, 200 and no records."""
    topics = Topics(shared_broker)
    topics.create(topic, 3)
    for partition, count in enumerate((300, 200)):
        topics.send(
            topic,
            [f"{partition}/{index}".encode() for index in range(count)],
            partition=partition,
            timestamp_ms=1_000_000 + partition,
        )
    return topics


@pytest.fixture
def reader(spark: SparkSession, shared_broker: Broker, topic: str) -> DataFrameReader:
    return (
        spark.read.format("goqueue")
        .option("kafka.bootstrap.servers", shared_broker.kafka)
        .option("subscribe", topic)
    )


def test_rows_are_what_was_sent(reader: DataFrameReader, topics: Topics, topic: str) -> None:
    frame = reader.option("includeHeaders", "true").option("minPartitions", "4").load()
    assert frame.columns == [*KAFKA_COLUMNS, "headers"]
    assert frame.rdd.getNumPartitions() == 4
    rows = sorted(frame.collect(), key=lambda row: (row.partition, row.offset))
    assert [(row.partition, row.offset, bytes(row.value)) for row in rows] == [
        (partition, offset, f"{partition}/{offset}".encode())
        for partition, count in enumerate((300, 200))
        for offset in range(count)
    ]
    assert {row.topic for row in rows} == {topic}
    assert [None if row.key is None else bytes(row.key) for row in rows[:3]] == [b"k0", b"k1", None]
    assert [(header.key, header.value) for header in rows[1].headers] == [("n", b"1"), ("none", None)]
    assert rows[0].timestamp.timestamp() == 1_000
    assert {row.timestampType for row in rows} == {0}


def test_bounds_columns_and_schema_choose_what_is_read(
    reader: DataFrameReader, topics: Topics, topic: str
) -> None:
    bounds = reader.option("startingOffsets", f'{{"{topic}": {{"0": 290, "1": -2, "2": -2}}}}').option(
        "endingOffsets", f'{{"{topic}": {{"0": -1, "1": 3, "2": 0}}}}'
    )
    assert bounds.load().count() == 13
    every = bounds.option("columns", "*").load()
    assert tuple(every.columns) == ALL_COLUMNS
    assert (
        every.selectExpr("sum(offset)", "count(priority)", "count(traceparent)").collect()[0][0] == 2_945 + 3
    )
    chosen = bounds.schema("offset bigint, value binary").load()
    assert chosen.columns == ["offset", "value"]
    assert {row.offset for row in chosen.collect()} == {0, 1, 2, *range(290, 300)}


def test_topic_without_records_is_an_empty_table(
    spark: SparkSession, shared_broker: Broker, topic: str
) -> None:
    Topics(shared_broker).create(topic, 2)
    frame = (
        spark.read.format("goqueue")
        .option("bootstrap.servers", shared_broker.kafka)
        .option("subscribe", topic)
        .load()
    )
    assert frame.count() == 0


def test_open_and_aborted_transactions_are_left_out_unless_asked_for(
    reader: DataFrameReader, topics: Topics, topic: str
) -> None:
    topics.transaction(topic, [b"aborted"] * 5, partition=2).abort_transaction()
    topics.transaction(topic, [b"committed"] * 7, partition=2).commit_transaction()
    still_open = topics.transaction(topic, [b"open"] * 3, partition=2)

    def values(frame: DataFrame) -> list[bytes]:
        return [bytes(row.value) for row in frame.where("partition = 2").orderBy("offset").collect()]

    assert values(reader.load()) == [b"committed"] * 7
    everything = reader.option("isolation", "read_uncommitted").load()
    assert values(everything) == [b"aborted"] * 5 + [b"committed"] * 7 + [b"open"] * 3
    still_open.abort_transaction()


def test_filters_are_pushed_down_and_give_the_same_rows(
    spark: SparkSession, reader: DataFrameReader, topics: Topics
) -> None:
    condition = "partition = 0 and offset between 100 and 109 and timestamp >= timestamp_millis(999999) and key is not null"
    plain = reader.load().where(condition)
    spark.conf.set(PUSHDOWN, "true")
    try:
        pushed = reader.option("pushdown", "true").option("minPartitions", "100").load().where(condition)
        assert sorted(pushed.collect()) == sorted(plain.collect())
        assert pushed.count() == 7
        assert pushed.rdd.getNumPartitions() == 10  # one for each offset that is left
    finally:
        spark.conf.unset(PUSHDOWN)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "no-such-topic"}, "there is no topic no-such-topic; there are"),
        ({"startingOffsets": "latest"}, "a batch cannot begin at latest"),
        ({"columns": "colour"}, "columns has colour; there are key"),
        ({"bootstrap.servers": "127.0.0.1:9", "kafka.bootstrap.servers": "127.0.0.1:9", "request.timeout.ms": "1"}, "127.0.0.1:9"),
    ],
)  # fmt: skip
def test_error_is_one_sentence_that_reaches_the_user(
    reader: DataFrameReader, topics: Topics, options: dict[str, str], told: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        reader.options(**options).load().collect()
    assert told in str(caught.value)
