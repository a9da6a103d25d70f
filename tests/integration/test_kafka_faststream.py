"""The FastStream example runs as a process of its own, and goes on where it was when it is started again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.broker import Broker, Lines, clean_environment
from tests.support.kafka_clients import Confluent, Record, confluent

ROOT = Path(__file__).parents[2]
STOP_TIMEOUT_S = 60.0
READ_TIMEOUT_S = 150.0


@contextmanager
def example(kafka: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "faststream", "run", "examples.faststream_app:app"],
        cwd=ROOT,
        env=clean_environment({"KAFKA": kafka}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    output = Lines(process.stdout, "the example")
    try:
        yield
    except BaseException as error:
        error.add_note(output.text())
        raise
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
            output.join()


def order(client: Confluent, numbers: range) -> None:
    orders = [{"id": number, "price": 7, "count": number} for number in numbers]
    client.send("orders", [Record(json.dumps(one).encode()) for one in orders])


def invoices(kafka: str, count: int) -> list[int]:
    """The orders that were billed, once there are so many; each bill is right."""
    consumer = confluent.Consumer(
        {"bootstrap.servers": kafka, "group.id": f"auditor-{count}", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe(["invoices"])
        found = [json.loads(message.value()) for message in consumer.consume(count, READ_TIMEOUT_S)]
    finally:
        consumer.close()
    assert all(one["total"] == 7 * one["order"] for one in found)
    return [one["order"] for one in found]


def test_the_faststream_example_handles_every_order_once(tmp_path: Path) -> None:
    with Broker(tmp_path, env={"GOQUEUE_DEFAULT_PARTITIONS": "1"}) as broker:
        client = Confluent(broker.kafka)
        order(client, range(10))
        client.send("invoices", [Record(b'{"order": 0, "total": 0}')])  # there before the reader asks
        with example(broker.kafka):
            assert invoices(broker.kafka, 11) == [0, *range(10)]
        order(client, range(10, 20))
        with example(broker.kafka):
            assert invoices(broker.kafka, 21) == [0, *range(20)]
