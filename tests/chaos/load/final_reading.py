"""What there is in the end: every partition of a topic from its beginning to its end, as a reader of committed records sees it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from tests.chaos.history import Op, Phase, Place
from tests.chaos.load.job import QUICK, Hung, Job, Work, close, confluent

_BATCH: Final = 1_000
_POLL_S: Final = 1.0
_READ_S: Final = 120.0
_DECIDED_S: Final = 45.0  # longer than a transaction may take
_ASK_S: Final = 10.0
_LOOK_S: Final = 0.5


def final_works(job: Job) -> Mapping[str, Work]:
    """One for every topic that is there and is not internal."""
    client = _connect(job)
    topics: Mapping[str, Any] = client.list_topics(timeout=30.0).topics
    close(client)
    return {
        f"final-{name}": partial(_read_topic, job, name, sorted(topic.partitions))
        for name, topic in sorted(topics.items())
        if not name.startswith("__")
    }


def _read_topic(job: Job, topic: str, partitions: Sequence[int]) -> None:
    _wait_for_transactions(job, topic, partitions)
    client = _connect(job)
    client.assign([confluent.TopicPartition(topic, at, 0) for at in partitions])
    open_ends = set(partitions)
    deadline = time.monotonic() + _READ_S
    while open_ends:
        if time.monotonic() > deadline:
            raise Hung(f"the ends of {sorted(open_ends)} of {topic} were not reached in {_READ_S:.0f} s")
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
    close(client)


def _wait_for_transactions(job: Job, topic: str, partitions: Sequence[int]) -> None:
    """Whoever began one has committed or aborted it, or is gone for so long that the broker has."""
    committed, everything = _connect(job), _connect(job, isolation="read_uncommitted")
    deadline = time.monotonic() + _DECIDED_S
    for at in partitions:
        while (stable := _end(committed, topic, at)) < _end(everything, topic, at):
            if time.monotonic() > deadline:
                values = {"topic": topic, "partition": at, "offset": stable}
                job.recorder.record("final", Op.OPEN, Phase.OK, **values)
                break
            time.sleep(_LOOK_S)
    close(committed)
    close(everything)


def _end(client: Any, topic: str, partition: int) -> int:
    """Of a leader that may just be changing."""
    deadline = time.monotonic() + _DECIDED_S
    while True:
        try:
            place = confluent.TopicPartition(topic, partition)
            end: int = client.get_watermark_offsets(place, timeout=_ASK_S)[1]
            return end
        except confluent.KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_S)


def _told(job: Job, topic: str, partition: int, end: int, places: Sequence[Place]) -> None:
    values = {"partition": partition, "offset": end, "places": places, "is_committed_only": True}
    job.recorder.record("final", Op.FINAL, Phase.OK, topic=topic, **values)


def _connect(job: Job, *, isolation: str = "read_committed") -> Any:
    return confluent.Consumer(
        {
            "bootstrap.servers": job.kafka,
            "group.id": "final",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            **QUICK,
        }
    )
