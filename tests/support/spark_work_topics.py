"""What `spark_work` reads, and what must come of it on every Spark."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tests.support.broker import Broker
from tests.support.kafka_clients import Confluent, Record
from tests.support.sink_target import Target
from tests.support.spark_processes import Tree, python_command
from tests.support.spark_work import RESULT, Work, WorkRequest

RECORD_COUNT = 400
TIMEOUT_S = 280.0


def prepare(broker: Broker, topic: str, folder: Path) -> WorkRequest:
    """A topic with records, and two for what is written."""
    request = WorkRequest(broker.kafka, topic, f"{topic}-written", f"{topic}-streamed", str(folder))
    for name in (request.source, request.written, request.streamed):
        Target(broker, name).create()
    Confluent(broker.kafka).send(topic, [record(number) for number in range(RECORD_COUNT)])
    return request


def record(number: int) -> Record:
    headers = (("n", b"%d" % number),)
    return Record(b"%d" % number, b"k%d" % (number % 7), headers, partition=number % 3)


def run_elsewhere(request: WorkRequest, **env: str) -> Work:
    """In a process of its own: one has one session."""
    command = python_command("tests.support.spark_work", msgspec.json.encode(request).decode())
    with Tree(command, name="work", env=env) as tree:
        found = tree.output.wait_for(RESULT + "(.*)", timeout_s=TIMEOUT_S)
    return msgspec.json.decode(found[1], type=Work)


def check(broker: Broker, request: WorkRequest, done: Work) -> None:
    numbers = range(RECORD_COUNT)
    keys = sorted({f"k{number % 7}" for number in numbers})
    of_key = {key: [number for number in numbers if f"k{number % 7}" == key] for key in keys}
    assert done.counts == [(key, len(of_key[key]), sum(of_key[key])) for key in keys]
    sent = sorted((one.key, one.value, one.headers) for one in map(record, numbers))
    for name in (request.written, request.streamed):
        target = Target(broker, name)
        assert sorted((row.key, row.value, row.headers) for row in target.rows()) == sent
        assert target.is_settled
    if request.is_archived:
        assert done.archive_counts == {"records": RECORD_COUNT}
        assert done.archived == sorted(str(number) for number in numbers)
