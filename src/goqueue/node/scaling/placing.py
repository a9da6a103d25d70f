"""Which partition a message goes to whose sender leaves that to the broker, or gives one that need not be its home."""

from __future__ import annotations

from goqueue.core.cluster.scaling import Scaling
from goqueue.model.partitioner import hash_key
from goqueue.node.topic_table import OpenTopic


def index_of(target: OpenTopic, scaling: Scaling | None, key: bytes, given: int | None) -> int:
    """Of a message with a key; straight to its home, where the topic has one for it."""
    hashed = hash_key(target.settings.partitioner, key)
    if scaling is None:
        return hashed % target.partition_count
    home = scaling.home(hashed % scaling.key_count if given is None else given, hashed)
    if home is None or home >= target.partition_count:
        return (
            hashed % scaling.old_count
        )  # not decided yet, or not open here: its old home knows what to do with it
    return home


def next_keyless(target: OpenTopic, scaling: Scaling | None) -> int:
    """For all messages of a request that have no key: round robin over the partitions that take such."""
    if scaling is None:
        return target.next_keyless()
    for _ in range(target.partition_count):
        index = target.next_keyless()
        if scaling.is_open(index):
            return index
    return 0
