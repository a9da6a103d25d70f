"""What must be true of transactions in a cluster, whichever nodes coordinate them and lead their partitions."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from goqueue.sim.kafka.checkers import (
    AcknowledgedWritesSurvive,
    FencedProducersAreRefused,
    KafkaChecker,
    OneValuePerOffset,
    OnlyCommittedIsSeen,
    ReadsStayBelowTheirEnd,
    StoredOnce,
    TransactionsAreWhole,
)
from goqueue.sim.kafka.group_checkers import CommittedOffsetsHold, ExactlyOnce, OneOwner, ZombiesAreRefused
from goqueue.sim.kafka.history import KafkaHistory, Part, Read


class NothingStaysOpen:
    """When all is over readers of committed records come as far as all others: nothing is kept from them but what was
    aborted, and every transaction has come to its end."""

    def check(self, history: KafkaHistory) -> None:
        for part, log in history.final.items():
            visible = set(log.committed.values())
            for offset, value in log.uncommitted.items():
                txn = history.txn_of.get(value)
                if value not in visible and (txn is None or txn.outcome.value == "committed"):
                    history.violate(
                        f"{value!r} at {part}, {offset} counts and is not seen by committed readers"
                    )


class LastStableOffsetNeverGoesBack:
    """Where as much is committed no less is stable, whichever leader or replica tells it and when: the last stable offset waits until
    markers are committed, so a new leader takes nothing of it back. (It may not know yet how far all is committed; then it tells
    less of both.) Nor is more stable where no more is committed: that could be taken back."""

    def check(self, history: KafkaHistory) -> None:
        told: dict[Part, list[Read]] = defaultdict(list)
        for read in history.reads:
            told[read.part].append(read)
        for part, reads in told.items():
            for one, other in pairwise(sorted(reads, key=_by_ends)):
                if other.last_stable_offset < one.last_stable_offset:
                    history.violate(
                        f"{part} is stable up to {one.last_stable_offset} where {one.high_watermark} are committed, as {one.reader} "
                        f"was told at {one.answered_s:.3f} s, and up to {other.last_stable_offset} where "
                        f"{other.high_watermark} are, as {other.reader} was told at {other.answered_s:.3f} s"
                    )


def _by_ends(read: Read) -> tuple[int, int]:
    return read.high_watermark, -read.last_stable_offset


def transaction_checkers(*, source: str, target: str) -> tuple[KafkaChecker, ...]:
    return (
        OnlyCommittedIsSeen(),
        TransactionsAreWhole(),
        FencedProducersAreRefused(),
        NothingStaysOpen(),
        ExactlyOnce(source, target),
        AcknowledgedWritesSurvive(),
        StoredOnce(),
        ReadsStayBelowTheirEnd(),
        LastStableOffsetNeverGoesBack(),
        OneValuePerOffset(),
        CommittedOffsetsHold(),
        ZombiesAreRefused(),
        OneOwner(),
    )
