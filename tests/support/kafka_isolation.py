"""What readers of committed records and readers of everything find."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.kafka_clients import TIMEOUT_S, Confluent, confluent

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


def ends(kafka: str, topic: str, isolation: str, partitions: Iterable[int] = (0,)) -> dict[int, int]:
    """The high watermarks, or the last stable offsets if committed records are asked for."""
    consumer = confluent.Consumer(
        {"bootstrap.servers": kafka, "group.id": "ends", "isolation.level": isolation}
    )
    try:
        places = [confluent.TopicPartition(topic, index) for index in partitions]
        return {
            place.partition: consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)[1] for place in places
        }
    finally:
        consumer.close()


def values(
    kafka: str, topic: str, isolation: str = COMMITTED, partitions: Iterable[int] = (0,)
) -> list[bytes | None]:
    """What a reader gets up to the last stable offsets, or up to the high watermarks."""
    found = Confluent(kafka).read(topic, ends(kafka, topic, isolation, partitions), isolation=isolation)
    return [row.value for row in found]
