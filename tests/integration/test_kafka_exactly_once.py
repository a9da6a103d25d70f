"""Consume, transform, produce in transactions, while workers and the broker are killed with kill -9 again and again: what
comes out is what went in, each record once and in order.

`make soak CYCLES=50` kills as often as one likes; a few kills run with every test run.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.broker import Broker, Lines
from tests.support.group_beginnings import commit_beginnings

CYCLES = int(os.environ.get("GOQUEUE_SOAK_CYCLES", "2"))
TRANSFORMER = Path(__file__).parents[1] / "support" / "transformer.py"
PARTITION_COUNT = 4
WORKER_COUNT = 2
RECORDS_PER_CYCLE = 600
FINISH_TIMEOUT_S = 200.0


class Worker:
    def __init__(self, kafka: str, name: str, abort_rate: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(TRANSFORMER), kafka, name, str(abort_rate)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        self._lines = Lines(self._process.stdout, name)

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> str:
        self._process.kill()
        self._process.wait(30)
        return self._lines.join()


def create_topics(kafka: str) -> None:
    """With a client that is gone before the broker is: librdkafka 2.16 can spin for ever when it goes after it. Workers seek when they
    have aborted, so their group has a position before they begin."""
    admin = AdminClient({"bootstrap.servers": kafka})
    topics = [NewTopic(name, PARTITION_COUNT, 1) for name in ("in", "out")]
    for future in admin.create_topics(topics).values():
        future.result(30)
    commit_beginnings(kafka, "transformers", "in", PARTITION_COUNT)


def read_out(kafka: str) -> list[list[int]]:
    """Everything that is committed, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "checker",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition("out", index, 0) for index in range(PARTITION_COUNT)])
    values: list[list[int]] = [[] for _ in range(PARTITION_COUNT)]
    at_end: set[int] = set()
    deadline = time.monotonic() + FINISH_TIMEOUT_S
    while len(at_end) < PARTITION_COUNT:
        record: Any = consumer.poll(1.0)
        assert time.monotonic() < deadline, "a committed reader does not get to the end"
        if record is None:
            continue
        if record.error() is not None:
            at_end.add(record.partition())
        else:
            values[record.partition()].append(int(record.value()))
    consumer.close()
    return values


class Run:
    def __init__(self, folder: Path, abort_rate: float, rng: random.Random) -> None:
        self._folder = folder
        self._abort_rate = abort_rate
        self._rng = rng
        self.broker = Broker(folder)
        self.kafka = self.broker.kafka
        self.workers: list[Worker] = []
        self.sent = 0
        self.complaints: list[str] = []

    def begin(self) -> None:
        create_topics(self.kafka)
        self.workers = [self._worker(number) for number in range(WORKER_COUNT)]

    def _worker(self, number: int) -> Worker:
        return Worker(self.kafka, str(number), self._abort_rate)

    def feed(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.kafka, "enable.idempotence": True})
        for serial in range(self.sent, self.sent + count):
            producer.produce("in", str(serial), partition=serial % PARTITION_COUNT)
        assert producer.flush(60) == 0
        self.sent += count

    def out(self) -> list[list[int]]:
        """What is committed by now. Workers that have ended are started again, as a supervisor would."""
        for number, worker in enumerate(self.workers):
            if worker.is_over:
                self.complaints.append(worker.kill())
                self.workers[number] = self._worker(number)
        return read_out(self.kafka)

    def progress_from(self, before: int) -> None:
        """Until some more came out: a kill is to hit workers that work."""
        deadline = time.monotonic() + FINISH_TIMEOUT_S
        while sum(map(len, self.out())) <= before:
            assert time.monotonic() < deadline, f"nothing comes out any more; {self.what_happened()}"

    def kill_someone(self) -> None:
        if self._rng.random() < 0.5:
            number = self._rng.randrange(WORKER_COUNT)
            self.workers[number].kill()
            self.workers[number] = self._worker(number)
        else:
            self.broker.kill9()
            self.complaints.append(self.broker.stderr.text())
            self.broker = Broker(self._folder, kafka=self.kafka)

    def until_done(self) -> list[list[int]]:
        deadline = time.monotonic() + FINISH_TIMEOUT_S
        while sum(map(len, out := self.out())) < self.sent:
            assert time.monotonic() < deadline, f"{sum(map(len, out))} of {self.sent}; {self.what_happened()}"
        return out

    def stop(self) -> None:
        for worker in self.workers:
            self.complaints.append(worker.kill())
        self.broker.kill9()
        self.complaints.append(self.broker.stderr.text())

    def what_happened(self) -> str:
        return "\n".join(self.complaints)[-4_000:]


@pytest.mark.parametrize("abort_rate", [0.0, 0.2], ids=["commits", "aborts-too"])
def test_each_record_is_transformed_once_whoever_is_killed(tmp_path: Path, abort_rate: float) -> None:
    run = Run(tmp_path, abort_rate, random.Random(f"{abort_rate}-{CYCLES}"))
    try:
        run.begin()
        for _ in range(CYCLES):
            before = sum(map(len, read_out(run.kafka)))
            run.feed(RECORDS_PER_CYCLE)
            run.progress_from(before)
            run.kill_someone()
        out = run.until_done()
        run.progress_from(run.sent - 1)
        out = read_out(run.kafka)
    finally:
        run.stop()
    for partition, values in enumerate(out):
        expected = list(range(partition, run.sent, PARTITION_COUNT))
        missing = sorted(set(expected) - set(values))
        twice = sorted(value for value in set(values) if values.count(value) > 1)
        assert not missing, f"partition {partition} lacks {missing[:10]}\n{run.what_happened()}"
        assert not twice, f"partition {partition} has {twice[:10]} more than once\n{run.what_happened()}"
        assert values == expected, f"partition {partition} is out of order"
    print(f"\n{run.sent} records in, {sum(map(len, out))} out, each once, {CYCLES} kills")
