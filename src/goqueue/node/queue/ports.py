"""What the queue of one node wants of the others: `goqueue.peer` carries it over the wire."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

from msgspec import Struct

from goqueue.core.lease.events import Target
from goqueue.model.errors import GoQueueError


class RemoteAppends(Protocol):
    """Records that are moved to partitions which other nodes lead."""

    async def append(
        self, node: str, target: Target, producer: tuple[int, int], batch: bytes | None
    ) -> int | None:
        """Put a batch there, once, and give the newest sequence that the partition has of the producer (id and epoch); None
        if it knows nothing of it. Without a batch, only that. It is all committed when this returns; an error means that
        this is not known."""


class LedgerAction(IntEnum):
    """What a group's coordinator wants of the ledgers that the group has elsewhere, and the leader of a partition that goes."""

    CHECK = 0  # whether it could be forgotten
    FORGET = 1
    DESCRIBE = 2
    SEEK = 3
    MOVES = 4  # whether records are on their way to a partition that goes; of no group


class LedgerWant(Struct, frozen=True):
    topic: str
    partition: int
    offset: int = -1  # to seek to
    target: Target | None = None  # the partition that goes


class LedgerAnswer(Struct, frozen=True):
    """Of one partition. `start` is where the group is; None if it has not read there."""

    topic: str
    partition: int
    error: GoQueueError | None = None
    start: int | None = None
    leader_epoch: int = -1
    lag: int | None = None
    is_moving: bool = False


class RemoteLedgers(Protocol):
    async def group_settings(self, node: str, group_id: str) -> dict[str, str]:
        """What a group has set, as the node that coordinates it has it."""

    async def member_left(self, node: str, group_id: str, member_id: str) -> None:
        """What the member holds there may go to others."""

    async def ask(
        self, node: str, group_id: str, action: LedgerAction, wants: Sequence[LedgerWant]
    ) -> list[LedgerAnswer]:
        """An answer for each, in order."""
