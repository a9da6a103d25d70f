"""What there is in the end: every partition of a topic from its beginning to its end, as a reader of committed records sees it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.chaos.history import Op, Phase, Place
from tests.chaos.load.job import QUICK, Job, confluent

_BATCH: Final = 1_000
_POLL_S: Final = 1.0
_READ_S: Final = 120.0


class NotRead(Exception):
    """The end of a partition was not reached in time."""


def read_all(job: Job) -> None:
    """Every topic that is there and is not internal."""
    client = _connect(job)
    topics: Mapping[str, Any] = client.list_topics(timeout=30.0).topics
    for name, topic in sorted(topics.items()):
        if not name.startswith("__"):
            _read_topic(client, job, name, sorted(topic.partitions))
    client.close()


def _read_topic(client: Any, job: Job, topic: str, partitions: Sequence[int]) -> None:
    client.assign([confluent.TopicPartition(topic, at, 0) for at in partitions])
    open_ends = set(partitions)
    deadline = time.monotonic() + _READ_S
    while open_ends:
        if time.monotonic() > deadline:
            raise NotRead(f"{topic}: {sorted(open_ends)}")
        found: dict[int, list[Place]] = {at: [] for at in partitions}
        for one in client.consume(_BATCH, _POLL_S):
            if one.error() is None:
                value = (one.value() or b"").decode()
                found[one.partition()].append(Place(one.partition(), one.offset(), value))
            elif one.error().code() == confluent.KafkaError._PARTITION_EOF:
                open_ends.discard(one.partition())
                _told(job, topic, one.partition(), one.offset(), [])
        for partition, places in found.items():
            if places:
                _told(job, topic, partition, places[-1].offset + 1, places)
    client.unassign()


def _told(job: Job, topic: str, partition: int, end: int, places: Sequence[Place]) -> None:
    values = {"partition": partition, "offset": end, "places": places, "is_committed_only": True}
    job.recorder.record("final", Op.FINAL, Phase.OK, topic=topic, **values)


def _connect(job: Job) -> Any:
    return confluent.Consumer(
        {
            "bootstrap.servers": job.kafka,
            "group.id": "final",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            **QUICK,
        }
    )
