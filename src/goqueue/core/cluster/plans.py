"""A plan to move partitions: what is to move where, how far it has come, and how much of the network it may take.

One plan is carried out at a time. Its moves begin a few at a time, each when one before it is complete, and all of it is in the
catalogue: whoever becomes the controller goes on where the one before was.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

MOVE_COUNT_MAX = 10_000  # of one plan
PARALLEL_MAX = 1_000
FINISHED_COUNT_MAX = 10  # plans that are over and still known

Key = tuple[str, int]  # topic, partition


class PlanState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"  # nothing begins, and what has begun is not copied
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"  # something could not be moved; the rest is done

    @property
    def is_active(self) -> bool:
        return self in (PlanState.RUNNING, PlanState.PAUSED)


class MoveState(StrEnum):
    WAITING = "waiting"
    MOVING = "moving"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Move(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    topic: str
    partition: int
    before: tuple[int, ...]  # replicas
    after: tuple[int, ...]
    state: MoveState = MoveState.WAITING
    reason: str = ""  # why it was cancelled or failed, if not with its plan

    @property
    def key(self) -> Key:
        return self.topic, self.partition


class MoveChange(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    index: int  # in the plan
    state: MoveState
    reason: str = ""


class Plan(Struct, frozen=True, forbid_unknown_fields=True):
    id: int
    moves: tuple[Move, ...]
    state: PlanState
    parallel: int
    throttle: int | None  # bytes per second that each node may copy; None: no limit
    created_ms: int
    ended_ms: int | None = None
