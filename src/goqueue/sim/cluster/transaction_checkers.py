"""What must be true of transactions in a cluster, whichever nodes coordinate them and lead their partitions."""

from __future__ import annotations

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
from goqueue.sim.kafka.history import KafkaHistory


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
        OneValuePerOffset(),
        CommittedOffsetsHold(),
        ZombiesAreRefused(),
        OneOwner(),
    )
