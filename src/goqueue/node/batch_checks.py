"""Whether a topic takes a batch as it came, and what it makes of it."""

from __future__ import annotations

from goqueue.log.batch import (
    ATTRIBUTE_LOG_APPEND_TIME,
    BatchHeader,
    as_validated,
    read_header,
    stamped,
)
from goqueue.log.compression import CODEC_OF_SETTING, codec_of
from goqueue.log.recompress import recompressed
from goqueue.model.cluster_errors import NotLeader
from goqueue.model.errors import InvalidTimestamp, MessageTooLarge, NotEnoughReplicas
from goqueue.model.settings import TimestampType, TopicSettings
from goqueue.node.partition import Partition


def check_replicas(partition: Partition, settings: TopicSettings) -> None:
    """Before anything is written: `acks=all` with too few replicas would only ever end in an error."""
    needed = settings.min_insync_replicas
    if partition.leadership is not None and partition.leadership.is_cut_off:
        raise NotLeader(partition.topic, partition.index)  # another may lead it by now
    if partition.is_solo:
        has_enough = needed <= 1
    else:
        has_enough = partition.leadership is None or partition.leadership.has_enough
    if not has_enough:
        raise NotEnoughReplicas(
            f"acks=all needs min.insync.replicas={needed} replicas of {partition.topic}-{partition.index} in sync; "
            "there are fewer",
            min_insync_replicas=needed,
        )


def as_the_topic_wants(
    header: BatchHeader, batch: bytes, settings: TopicSettings, now_ms: int
) -> tuple[BatchHeader, bytes]:
    """Compression and timestamps, where the topic and not the producer decides on them."""
    if header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
        raise InvalidTimestamp("only the broker may say that a batch has log-append time")
    header, batch = as_validated(batch, header)
    codec = CODEC_OF_SETTING.get(settings.compression_type)
    if codec is not None and codec is not codec_of(header.attributes):
        header, batch = recompressed(batch, header, codec)
        if len(batch) > settings.max_message_bytes:
            raise MessageTooLarge("the batch, recompressed,", len(batch), settings.max_message_bytes)
    if settings.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        batch = stamped(batch, now_ms)
        return read_header(batch), batch
    _check_timestamps(header, settings, now_ms)
    return header, batch


def _check_timestamps(header: BatchHeader, settings: TopicSettings, now_ms: int) -> None:
    """Of the first record and of the newest one; a batch without timestamps has -1."""
    late_ms, early_ms = settings.message_timestamp_after_max_ms, settings.message_timestamp_before_max_ms
    if header.max_timestamp - now_ms > late_ms or (
        header.base_timestamp >= 0 and now_ms - header.base_timestamp > early_ms
    ):
        raise InvalidTimestamp(
            f"the batch has timestamps from {header.base_timestamp} to {header.max_timestamp}; they must be at most "
            f"{early_ms} ms before now ({now_ms}) and {late_ms} ms after",
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
        )
