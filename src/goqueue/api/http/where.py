"""Where routes belong in a cluster: each says it, in the table of routes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, TypeVar

A = TypeVar("A")


class Where(Enum):
    ANYWHERE = auto()  # any node answers it, with the help of others if need be
    PARTITION = auto()  # the leader of the partition in the path
    GROUP = auto()  # the coordinator of the group in the path
    SCHEDULE = auto()  # the leader of the partition that the recurring schedule is in, or will be in
    DEAD_LETTERS = auto()  # one leader of the topic's partitions after the other
    TOPIC = auto()  # all leaders of the topic's partitions, merged
    EVERY_NODE = auto()  # merged
    COORDINATORS = auto()  # all nodes that coordinate groups, merged


@dataclass(frozen=True, slots=True)
class Merge(Generic[A]):
    """How the answers of several nodes become one. Where a route gives a page, `items` is the field that has it, in the
    order of `key`, and the query has `limit` and `skip`."""

    join: Callable[[Sequence[A], list[Any]], A]  # the answers, and all their items in order
    items: str = ""
    key: Callable[[Any], Any] | None = None  # of whatever the items are
