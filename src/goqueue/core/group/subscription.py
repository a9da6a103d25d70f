"""What consumers put into a JoinGroup: Kafka's `ConsumerProtocolSubscription`, of which every version begins with an
int16 version and the array of topic names; then data of the assignor's own, and from version 1 on what the member owns.
The rest is between the clients."""

from __future__ import annotations

import struct

from goqueue.core.group.consumer_events import Partition
from goqueue.core.group.protocol_assignment import parse_partitions

CONSUMER_PROTOCOL_TYPE = "consumer"

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """In order of their names; None if these bytes are no subscription."""
    parsed = _topics(metadata)
    return None if parsed is None else sorted(parsed[0])


def owned_partitions(metadata: bytes) -> list[Partition]:
    """What the member says that it had when it joined; none where it does not say it."""
    parsed = _topics(metadata)
    if parsed is None:
        return []
    at = parsed[1]
    try:
        (version,) = _int16.unpack_from(metadata)
        (length,) = _int32.unpack_from(metadata, at)
        if version < 1:
            return []
        return parse_partitions(metadata, at + _int32.size + max(length, 0))[0]
    except (struct.error, UnicodeDecodeError):
        return []


def _topics(metadata: bytes) -> tuple[list[str], int] | None:
    """And where the rest begins."""
    try:
        (count,) = _int32.unpack_from(metadata, _int16.size)
        at = _int16.size + _int32.size
        if not 0 <= count <= len(metadata):
            return None
        topics: list[str] = []
        for _ in range(count):
            (length,) = _int16.unpack_from(metadata, at)
            at += _int16.size
            if length < 0 or at + length > len(metadata):
                return None
            topics.append(metadata[at : at + length].decode())
            at += length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics, at


def is_same_subscription(protocol_type: str, before: bytes, now: bytes) -> bool:
    """Consumers add what they own at the moment, which differs after a restart and is no change of subscription."""
    if before == now:
        return True
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    topics = subscribed_topics(before)
    return topics is not None and topics == subscribed_topics(now)
