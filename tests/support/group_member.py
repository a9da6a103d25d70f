"""A member of a consumer group as a process of its own: `python tests/support/group_member.py CONFIG TOPIC`.

It processes records one by one, commits after each poll, and says on stdout, a JSON line each, what it was given, what it
gave up and what it processed. It leaves cleanly when its stdin ends. Kill it to see what a group does then.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

POLL_S = 0.2
BATCH = 50


def say(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, "at": time.monotonic(), **facts}), flush=True)


def main() -> None:
    config: dict[str, Any] = json.loads(sys.argv[1])
    topic = sys.argv[2]
    leaving = threading.Event()

    def until_told() -> None:
        sys.stdin.read()
        leaving.set()

    threading.Thread(target=until_told, daemon=True).start()
    consumer = Consumer(config)

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        say("assigned", partitions=[one.partition for one in partitions])

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        say("revoked", partitions=[one.partition for one in partitions])

    def lost(_: Consumer, partitions: list[TopicPartition]) -> None:
        say("lost", partitions=[one.partition for one in partitions])

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
    while not leaving.is_set():
        records = [record for record in consumer.consume(BATCH, POLL_S) if record.error() is None]
        for record in records:
            say(
                "processed",
                partition=record.partition(),
                offset=record.offset(),
                value=(record.value() or b"").decode(),
            )
        if records:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                say("refused", error=error.args[0].name())
    consumer.close()
    say("left")


if __name__ == "__main__":
    main()
