"""When a publish is answered."""

from __future__ import annotations

from enum import StrEnum


class Acks(StrEnum):
    NONE = "none"  # nothing is waited for
    LEADER = "leader"  # in the leader's log; flushed to disk within a second
    ALL = "all"  # on every in-sync replica, and fsynced
