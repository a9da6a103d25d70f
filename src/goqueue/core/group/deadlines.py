"""What a shard of groups waits for."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from goqueue.core.deadlines import Deadlines


class Kind(StrEnum):
    SESSION = "session"  # of a member, or of an id that was given and has not joined yet
    JOIN = "join"  # the end of a rebalance's first phase
    SYNC = "sync"  # the end of its second
    EXPIRY = "expiry"  # of what a group without members has committed, and of the group
    CONSUMER = "consumer"  # whatever a consumer group waits for
    SHARE = "share"  # the session of a share group's member
    PRODUCER = "producer"  # the memory of a producer's last transaction; `group_id` holds its id


class Key(NamedTuple):
    kind: Kind
    group_id: str
    member_id: str = ""


GroupDeadlines = Deadlines[Key]
