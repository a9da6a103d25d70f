"""What must be true of groups in a cluster, whichever node coordinates them. Most of it is what must be true of them on one broker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from goqueue.sim.kafka.checkers import AcknowledgedWritesSurvive, KafkaChecker, OneValuePerOffset, StoredOnce
from goqueue.sim.kafka.group_checkers import (
    CommittedOffsetsHold,
    NothingIsSkipped,
    OneOwner,
    OnlyMovedPause,
    ZombiesAreRefused,
)
from goqueue.sim.kafka.history import KafkaHistory, Part


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who believed to own what at two moments after everything had healed, more than a session apart."""

    group: str
    before: dict[Part, tuple[str, ...]]
    after: dict[Part, tuple[str, ...]]
    at_s: float

    @property
    def is_settled(self) -> bool:
        return self.before == self.after and all(len(owners) == 1 for owners in self.after.values())


class MembersSettle:
    """In a cluster where nothing fails, every partition has one owner, and keeps it."""

    def __init__(self, seen: Iterable[Ownership]) -> None:
        self._seen = seen

    def check(self, history: KafkaHistory) -> None:
        for one in self._seen:
            if not one.is_settled:
                history.violate(
                    f"the members of {one.group} do not settle: {one.before} became {one.after} by {one.at_s:.3f} s"
                )


def group_checkers(groups: Iterable[str], topic: str, seen: Iterable[Ownership]) -> tuple[KafkaChecker, ...]:
    return (
        CommittedOffsetsHold(),
        ZombiesAreRefused(),
        OneOwner(),
        OnlyMovedPause(),
        MembersSettle(seen),
        AcknowledgedWritesSurvive(),
        StoredOnce(),
        OneValuePerOffset(),
        *(NothingIsSkipped(group, topic) for group in groups),
    )
