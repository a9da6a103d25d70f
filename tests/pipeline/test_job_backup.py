"""Backup and restore of real brokers: what a restored one serves is what the other had at the moment of the backup."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.backups import Held, ends_of, held_by, here
from tests.support.broker import Broker, Process
from tests.support.kafka_clients import Confluent, Record, confluent, until
from tests.support.kafka_transactions import ConfluentTransactions
from tests.support.rest_queue import Worker, call, create, publish

from goqueue.client.kafka import KafkaCluster
from goqueue.pipeline.backup.manifest import PIECES, Backups
from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.jobs import backup, restore
from goqueue.pipeline.jobs.backup import BackupRequest, back_up, verify
from goqueue.pipeline.jobs.restore import RestoreRequest
from goqueue.pipeline.origin import Origin

GROUPS = ("readers", "workers")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WAIT_S = 60.0


def _fill(broker: Broker, name: str) -> None:
    """Batches of all codecs, transactions of both ends, offsets, acknowledged, dead and delayed messages."""
    client = Confluent(broker.kafka)
    for at, codec in enumerate(CODECS):
        records = [
            Record(b"%s-%s-%d" % (name.encode(), codec.encode(), index), b"k%d" % index, partition=at % 3)
            for index in range(20)
        ]
        client.send("orders", records, codec=codec)
    sender = ConfluentTransactions(broker.kafka, f"sender-{name}")
    for ends_well in (True, False):
        sender.begin()
        for partition in range(3):
            sender.send("orders", f"{name}-{ends_well}".encode(), partition)
        sender.commit() if ends_well else sender.abort()
    with KafkaCluster(broker.kafka) as cluster:
        ends = ends_of(cluster, "orders", 3, committed=True)
        cluster.commit_group("readers", {("orders", index): end - 5 for index, end in ends.items()})
    publish(
        broker, {"value": f"{name}-later", "delay": "1h"}, *({"value": f"{name}-{at}"} for at in range(4))
    )
    worker = Worker(broker)
    first, second, *_ = worker.poll_all(4)
    worker.ack([first])
    assert worker.finish("reject", second, reason="poison").status == 200


def _until_dead(broker: Broker, count: int) -> None:
    deadline = time.monotonic() + WAIT_S
    with KafkaCluster(broker.kafka) as cluster:
        while (
            "tasks.dlq" not in cluster.topics() or ends_of(cluster, "tasks.dlq", 1, committed=True)[0] < count
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_broker_on_a_restored_folder_serves_what_there_was_at_either_backup(tmp_path: Path) -> None:
    place, held = str(tmp_path / "backups"), list[Held]()
    with Broker(tmp_path / "data") as broker:
        create(broker, "orders", 3, retention_ms="-1", max_message_bytes="2000000")
        create(broker, "tasks", 1)
        for number, name in enumerate(("first", "second"), 1):
            _fill(broker, name)
            _until_dead(broker, number)
            held.append(held_by(broker, GROUPS))
            report = back_up(here, BackupRequest(str(tmp_path / "data"), place))  # while it runs
            assert report.counts["backup"] == number
        broker.kill9()
    for number, expected in enumerate(held, 1):
        assert not verify(here, place, number).is_failure
        target = tmp_path / f"restored-{number}"
        restore.restore(here, RestoreRequest(place, str(target), number=number))
        with Broker(target) as broker:
            found = held_by(broker, GROUPS)
            assert found.rows == expected.rows
            assert found.settings == expected.settings
            assert found.offsets == expected.offsets
            assert found.delayed == expected.delayed
            assert "level=error" not in broker.stderr.text()
            assert "damage" not in broker.stderr.text()
            _fill(broker, "afterwards")  # under the same transactional ids and groups as well
            assert broker.stop() == 0


def test_some_topics_come_back_with_their_groups_and_the_others_are_gone(tmp_path: Path) -> None:
    place = str(tmp_path / "backups")
    with Broker(tmp_path / "data") as broker:
        create(broker, "orders", 3)
        create(broker, "tasks", 1)
        _fill(broker, "one")
        _until_dead(broker, 1)
        expected = held_by(broker, ["workers"])
        assert broker.stop() == 0
    back_up(here, BackupRequest(str(tmp_path / "data"), place))
    request = RestoreRequest(place, str(tmp_path / "again"), topics=["tasks"])
    report = restore.restore(here, request)
    assert sorted(note.split("'")[1] for note in report.notes) == ["orders", "tasks.dlq"]
    with Broker(tmp_path / "again") as broker:
        found = held_by(broker, ["workers"])
        assert set(found.settings) == {"tasks"}
        assert found.rows == {key: rows for key, rows in expected.rows.items() if key[0] == "tasks"}
        assert found.offsets["workers"]["offsets"]["tasks"] == expected.offsets["workers"]["offsets"]["tasks"]
        assert found.delayed["tasks"] == expected.delayed["tasks"]
        create(broker, "orders", 1)  # its name is free
        assert "damage" not in broker.stderr.text()


def test_a_time_brings_back_topics_records_and_offsets_of_that_time(tmp_path: Path) -> None:
    place = str(tmp_path / "backups")
    with Broker(tmp_path / "data") as broker:
        create(broker, "orders", 3)
        create(broker, "tasks", 1)
        _fill(broker, "early")
        _until_dead(broker, 1)
        early = held_by(broker, GROUPS)
        call(broker, "DELETE", "/topics/tasks.dlq")
        until_ms = int(time.time() * 1_000)
        while time.time() * 1_000 <= until_ms + 1:
            time.sleep(0.001)
        create(broker, "young", 1)
        _fill(broker, "late")
        assert broker.stop() == 0
    back_up(here, BackupRequest(str(tmp_path / "data"), place))
    report = restore.restore(here, RestoreRequest(place, str(tmp_path / "again"), until_ms=until_ms))
    assert report.counts["offsets_cut"] > 0
    with pytest.raises(OptionError, match=r"all of backup 1 is newer than 1970-01-21T.*; it was taken at 20"):
        restore.restore(here, RestoreRequest(place, str(tmp_path / "never"), until_ms=until_ms // 1_000))
    assert not (tmp_path / "never" / "logs").exists()
    with Broker(tmp_path / "again") as broker:
        found = held_by(broker, GROUPS)
        assert set(found.settings) == {"orders", "tasks"}
        for key, rows in found.rows.items():
            assert rows == early.rows[key]
        assert found.offsets == early.offsets
        assert found.delayed["tasks"] == early.delayed["tasks"]


# ---------------------------------------------------------------- a running broker


@contextmanager
def _busy(broker: Broker) -> Iterator[None]:
    """Exactly-once copying from one topic to another, and delayed messages that fall due, all the time."""
    stopped = threading.Event()
    failures: list[Exception] = []

    def copy() -> None:
        consumer = confluent.Consumer(
            {
                "bootstrap.servers": broker.kafka,
                "group.id": "copier",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        sender = ConfluentTransactions(broker.kafka, "copier")
        consumer.subscribe(["source"])
        try:
            while not stopped.is_set():
                values = [one.value() for one in consumer.consume(7, 0.2) if one.error() is None]
                sender.begin()
                for value in values:
                    sender.producer.produce("sink", value, partition=int(value) % 2)
                places = consumer.position(consumer.assignment())
                if values:
                    sender.producer.send_offsets_to_transaction(
                        places, consumer.consumer_group_metadata(), 30
                    )
                sender.commit()
        finally:
            consumer.close()

    def delay() -> None:
        number = 0
        while not stopped.is_set():
            publish(broker, *({"value": str(number + at), "delay": "30ms"} for at in range(5)), topic="due")
            number += 5

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it was, the test is told
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (copy, delay)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join(WAIT_S)
    assert failures == []


def test_backups_of_a_busy_broker_are_moments_that_a_crash_could_have_left(tmp_path: Path) -> None:
    """What was copied exactly once still is: as many committed records as the group's offset says. A delayed message was
    delivered, or waits; never both and never neither."""
    place = str(tmp_path / "backups")
    with Broker(tmp_path / "data") as broker:
        for topic, count in (("source", 1), ("sink", 2), ("due", 1)):
            create(broker, topic, count)
        Confluent(broker.kafka).send("source", [Record(b"%d" % at) for at in range(20_000)])
        with _busy(broker):
            for count in (0, 1, 100):  # that were copied before
                until(lambda count=count: _copied_count(broker) >= count, "it is busy")  # type: ignore[misc]  # bound now
                time.sleep(1.0)
                back_up(here, BackupRequest(str(tmp_path / "data"), place))
        broker.kill9()
    copied_counts = []
    for number in (1, 2, 3):
        assert not verify(here, place, number).is_failure
        restore.restore(here, RestoreRequest(place, str(tmp_path / str(number)), number=number))
        with Broker(tmp_path / str(number)) as broker:
            copied_counts.append(_check_copies(broker))
            _check_delays(broker)
            assert "damage" not in broker.stderr.text()
    assert copied_counts == sorted(copied_counts)
    assert copied_counts[-1] > 0


def _copied_of(cluster: KafkaCluster) -> int:
    return cluster.group_offsets("copier").get(("source", 0), 0)


def _copied_count(broker: Broker) -> int:
    with KafkaCluster(broker.kafka) as cluster:
        return _copied_of(cluster)


def _check_copies(broker: Broker) -> int:
    """A transaction whose end was decided is ended by the broker soon after its start."""
    deadline = time.monotonic() + WAIT_S
    while True:
        with KafkaCluster(broker.kafka) as cluster:
            offset = _copied_of(cluster)
            ends = ends_of(cluster, "sink", 2, committed=True)
        rows = Confluent(broker.kafka).read("sink", ends)
        if sorted(int(one.value or b"") for one in rows) == list(range(offset)):
            return offset
        assert time.monotonic() < deadline, f"{len(rows)} records for offset {offset}"
        time.sleep(0.2)


def _check_delays(broker: Broker) -> None:
    deadline = time.monotonic() + WAIT_S
    while call(broker, "GET", "/topics/due/delayed").body["count"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with KafkaCluster(broker.kafka) as cluster:
        ends = ends_of(cluster, "due", 1, committed=True)
    found = sorted(int(one.value or b"") for one in Confluent(broker.kafka).read("due", ends))
    assert found == list(range(len(found)))


# ---------------------------------------------------------------- on Spark


def test_jobs_on_spark_back_up_verify_and_restore_and_spark_reads_the_backup(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "backups")
    with Broker(tmp_path / "data") as broker:
        create(broker, "orders", 3)
        Confluent(broker.kafka).send(
            "orders", [Record(b"%d" % at * 500, partition=at % 3) for at in range(300)]
        )
        assert broker.stop() == 0
    request = BackupRequest(str(tmp_path / "data"), place, task_bytes=10_000)
    assert backup.run(spark, request).counts["backup"] == 1
    assert not backup.run_verify(spark, place).is_failure
    restore.run(spark, RestoreRequest(place, str(tmp_path / "again")))
    rows = Origin(path=place).read(spark, ["orders"]).select("partition", "offset", "value").collect()
    again = Origin(path=str(tmp_path / "again")).read(spark, ["orders"])
    assert len(rows) == 300
    assert sorted(rows) == sorted(again.select("partition", "offset", "value").collect())


def test_commands_list_backups_refuse_a_full_folder_and_fail_on_a_rotten_piece(tmp_path: Path) -> None:
    place = str(tmp_path / "backups")
    with Broker(tmp_path / "data") as broker:
        create(broker, "orders", 1)
        Confluent(broker.kafka).send("orders", [Record(b"x" * 5_000)])
        assert broker.stop() == 0
    back_up(here, BackupRequest(str(tmp_path / "data"), place))
    code, shown = _goqueue("backup", "list", place, "--output", "json")
    assert (code, '"backups": 1' in shown) == (0, True)
    code, shown = _goqueue("restore", place, "--to", str(tmp_path / "data"))
    assert (code, "is not empty" in shown) == (1, True)
    for piece in (tmp_path / "backups" / PIECES).rglob("*"):
        if piece.is_file():
            piece.write_bytes(b"rotten")
    code, shown = _goqueue("backup", "verify", place, "--master", "local[1]")
    assert (code, "is damaged" in shown) == (1, True)
    assert Backups(place).numbers() == [1]


def _goqueue(*args: str) -> tuple[int, str]:
    """Exit code, and everything it said."""
    with Process("pipeline", *args) as process:
        code = process.wait(timeout_s=180)
        return code, process.stdout.text() + process.stderr.text()
