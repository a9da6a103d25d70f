"""Archive: topics into a lake, from where the last run ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from pyspark.sql import SparkSession
from tests.support.broker import Broker

from goqueue.client.rest import RestClient
from goqueue.pipeline.errors import DataLoss, OptionError, PipelineError
from goqueue.pipeline.jobs import archive, archive_stream
from goqueue.pipeline.jobs.archive import ArchiveRequest
from goqueue.pipeline.lake.manifest import Gap, Table
from goqueue.pipeline.lake.reading import read_lake
from goqueue.pipeline.origin import Origin

confluent: Any = confluent_kafka  # its types and its documentation disagree
DAY_MS = 86_400_000
FIRST_MS = 20_000 * DAY_MS


def _produce(broker: Broker, topic: str, first: int, count: int, *, partitions: int = 2) -> None:
    """Record n has value n, and time FIRST_MS plus n hours."""
    producer = confluent.Producer(
        {"bootstrap.servers": broker.kafka, "linger.ms": 5, "compression.type": "lz4"}
    )
    for index in range(first, first + count):
        producer.produce(
            topic,
            key=b"k%d" % (index % 7),
            value=b"%d" % index,
            partition=index % partitions,
            headers=[("n", b"%d" % index), ("gq-priority", b"1")],
            timestamp=FIRST_MS + index * 3_600_000,
        )
    producer.flush()


def _create(broker: Broker, topic: str, partitions: int = 2) -> None:
    with RestClient(broker.url) as client:
        client.create_topic(topic, partition_count=partitions, config={"retention.ms": "-1"})


def _values(spark: SparkSession, lake: Path, topic: str) -> list[int]:
    rows = read_lake(spark, str(lake), topic).select("value").collect()
    return sorted(int(row.value) for row in rows)


def test_every_record_is_archived_once_however_often_it_runs(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    _create(shared_broker, topic)
    request = ArchiveRequest(Origin(shared_broker.kafka), [topic], str(tmp_path), step_records=30, merge_at=0)
    _produce(shared_broker, topic, 0, 100)
    report = archive.run(spark, request)
    assert report.counts["records"] == 100
    assert archive.run(spark, request).counts["records"] == 0
    _produce(shared_broker, topic, 100, 60)
    assert archive.run(spark, request).counts["records"] == 60
    assert _values(spark, tmp_path, topic) == list(range(160))


def test_archive_holds_what_a_read_of_the_topic_gives(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    _create(shared_broker, topic)
    _produce(shared_broker, topic, 0, 50)
    origin = Origin(shared_broker.kafka)
    archive.run(spark, ArchiveRequest(origin, [topic], str(tmp_path)))
    order = ["partition", "offset"]
    archived = read_lake(spark, str(tmp_path), topic).drop("date").orderBy(*order)
    read = origin.read(spark, [topic], columns="*").orderBy(*order)
    assert archived.schema == read.schema
    assert archived.collect() == read.collect()
    listed = spark.read.parquet(f"{tmp_path}/{topic}")  # as anybody reads a folder of Parquet files
    assert listed.count() == 50
    assert [str(row.date) for row in listed.select("date").distinct().orderBy("date").collect()] == [
        "2024-10-04",
        "2024-10-05",
        "2024-10-06",
    ]


def test_small_files_are_merged_and_nothing_changes_for_readers(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    _create(shared_broker, topic)
    request = ArchiveRequest(Origin(shared_broker.kafka), [topic], str(tmp_path), merge_at=3)
    for run in range(4):
        _produce(shared_broker, topic, 6 * run, 6)
        report = archive.run(spark, request)
        assert report.counts["merged_files"] == (3 if run == 3 else 0)  # those of earlier runs
    assert len(list((tmp_path / topic / "date=2024-10-04").glob("*.parquet"))) == 2
    assert _values(spark, tmp_path, topic) == list(range(24))


def test_records_that_are_gone_stop_the_archive_or_leave_a_note(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    _create(shared_broker, topic, partitions=1)
    origin = Origin(shared_broker.kafka)
    _produce(shared_broker, topic, 0, 10, partitions=1)
    archive.run(spark, ArchiveRequest(origin, [topic], str(tmp_path)))
    _produce(shared_broker, topic, 10, 10, partitions=1)
    admin = confluent.admin.AdminClient({"bootstrap.servers": shared_broker.kafka})
    cut = confluent.TopicPartition(topic, 0, 15)
    for future in admin.delete_records([cut]).values():
        future.result(30)
    with pytest.raises(DataLoss, match=rf"{topic}/0: offsets 10 to 14 are gone"):
        archive.run(spark, ArchiveRequest(origin, [topic], str(tmp_path)))
    report = archive.run(spark, ArchiveRequest(origin, [topic], str(tmp_path), fails_on_loss=False))
    assert report.notes == [f"{topic}/0: offsets 10 to 14 were gone before they were archived"]
    assert _values(spark, tmp_path, topic) == [*range(10), *range(15, 20)]


def test_loss_of_all_that_was_new_is_noted_once(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    _create(shared_broker, topic, partitions=1)
    request = ArchiveRequest(Origin(shared_broker.kafka), [topic], str(tmp_path), fails_on_loss=False)
    _produce(shared_broker, topic, 0, 5, partitions=1)
    archive.run(spark, request)
    _produce(shared_broker, topic, 5, 5, partitions=1)
    admin = confluent.admin.AdminClient({"bootstrap.servers": shared_broker.kafka})
    for future in admin.delete_records([confluent.TopicPartition(topic, 0, 10)]).values():
        future.result(30)
    notes = [archive.run(spark, request).notes for _ in range(2)]
    assert notes == [[f"{topic}/0: offsets 5 to 9 were gone before they were archived"], []]
    assert Table(str(tmp_path), topic).open().gaps == (Gap(0, 5, 10),)


def test_topic_made_anew_is_not_appended_to_the_archive_of_the_old_one(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    origin = Origin(shared_broker.kafka)
    _create(shared_broker, topic)
    _produce(shared_broker, topic, 0, 10)
    archive.run(spark, ArchiveRequest(origin, [topic], str(tmp_path)))
    with RestClient(shared_broker.url) as client:
        client.delete_topic(topic)
    _create(shared_broker, topic)
    with pytest.raises(DataLoss, match="another topic of the same name"):
        archive.run(spark, ArchiveRequest(origin, [topic], str(tmp_path)))


def test_archive_into_a_format_of_sparks_own_is_incremental_too(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    _create(shared_broker, topic)
    request = archive_stream.StreamRequest(Origin(shared_broker.kafka), [topic], str(tmp_path), "json")
    for first in (0, 20):
        _produce(shared_broker, topic, first, 20)
        assert archive_stream.run(spark, request).counts == {"records": 20}
    assert spark.read.json(f"{tmp_path}/{topic}").count() == 40
    with pytest.raises(PipelineError, match="cannot write format 'delta'"):
        archive_stream.run(
            spark,
            archive_stream.StreamRequest(Origin(shared_broker.kafka), [topic], f"{tmp_path}/d", "delta"),
        )


def test_request_that_makes_no_sense_is_refused(
    spark: SparkSession, shared_broker: Broker, tmp_path: Path
) -> None:
    origin = Origin(shared_broker.kafka)
    with pytest.raises(OptionError, match="compression is 'zip'; it must be one of zstd"):
        ArchiveRequest(origin, ["a"], str(tmp_path), compression="zip")
    with pytest.raises(OptionError, match="at least one topic"):
        ArchiveRequest(origin, [], str(tmp_path))
    with pytest.raises(PipelineError, match="there is no topic 'nowhere'"):
        archive.run(spark, ArchiveRequest(origin, ["nowhere"], str(tmp_path)))
    with pytest.raises(PipelineError, match="no archive of topic 'nowhere'"):
        read_lake(spark, str(tmp_path), "nowhere")
