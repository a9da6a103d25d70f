"""Deliberate mistakes that the simulation must find. Each shows that a checker can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple  # of options: handed on as they came
from unittest.mock import patch

from goqueue.core.group import consumer
from goqueue.core.group.consumer import ConsumerGroup
from goqueue.core.group.consumer_events import Assignment, MemberReconciled, MemberState
from goqueue.core.group.consumer_reconcile import reconcile
from goqueue.core.group.consumer_roster import Roster
from goqueue.core.group.membership import Membership
from goqueue.core.producer import FRESH, ProducerTable, Verdict
from goqueue.core.txn.events import ProducerEpoch, TransactionSaved
from goqueue.core.txn.shard import TxnShard
from goqueue.log import recovery
from goqueue.log.index import SegmentIndex
from goqueue.log.scan import Scanner
from goqueue.model.names import METADATA_TOPIC
from goqueue.model.record import Producer
from goqueue.node.commit import GroupCommit
from goqueue.node.partition import Partition
from goqueue.sim.cluster import keyed_mutants, shortening_mutants
from goqueue.sim.cluster import mutants as cluster_mutants
from goqueue.sim.cluster import queue_mutants as cluster_queue_mutants
from goqueue.sim.kafka import joint_mutants
from goqueue.sim.queue import mutants as queue_mutants


@contextmanager
def skip_fsync() -> Iterator[None]:
    """`acks=all` is answered without waiting for the fsync. (The metadata log is spared, or no broker would
    even come up again.)"""
    wait = GroupCommit.wait

    async def hasty(self: GroupCommit, end: int, *, since: float | None = None) -> None:
        if METADATA_TOPIC in self.folder:
            await wait(self, end, since=since)

    with patch.object(GroupCommit, "wait", hasty):
        yield


@contextmanager
def skip_recovery_crc() -> Iterator[None]:
    """Recovery believes every batch whose frame looks right."""

    class Trusting(Scanner):
        def __init__(self, *args: object, **options: object) -> None:
            options["check_crc"] = False
            super().__init__(*args, **options)  # type: ignore[arg-type]  # handed on as they came

    with patch.object(recovery, "Scanner", Trusting):
        yield


@contextmanager
def drop_time_index() -> Iterator[None]:
    """No entry is ever written to a time index."""
    with patch.object(SegmentIndex, "_note_time", lambda self: None):
        yield


@contextmanager
def ignore_producer_epochs() -> Iterator[None]:
    """Who has an older epoch is not fenced: not by the producer table of a partition, and not by the transaction
    coordinator, which would refuse most of it in time."""
    decide = ProducerTable.decide
    check_owner = TxnShard._check_owner

    def trusting_decide(
        self: ProducerTable, producer: Producer, record_count: int, *, is_transactional: bool = False
    ) -> Verdict:
        entry = self.entry(producer.id)
        if entry is not None and producer.epoch < entry.epoch:
            return FRESH
        return decide(self, producer, record_count, is_transactional=is_transactional)

    def trusting_check(self: TxnShard, saved: TransactionSaved, claim: ProducerEpoch) -> None:
        check_owner(self, saved, ProducerEpoch(claim.producer_id, max(claim.epoch, saved.epoch)))

    with (
        patch.object(ProducerTable, "decide", trusting_decide),
        patch.object(TxnShard, "_check_owner", trusting_check),
    ):
        yield


@contextmanager
def serve_past_lso() -> Iterator[None]:
    """Committed readers get everything up to the high watermark."""
    with patch.object(Partition, "last_stable_offset", property(lambda self: self.log.high_watermark)):
        yield


@contextmanager
def forget_markers() -> Iterator[None]:
    """A start does not go on with what was decided before it."""
    with patch.object(TxnShard, "resume", lambda self: []):
        yield


@contextmanager
def accept_zombie_commits() -> Iterator[None]:
    """Neither generation nor epoch nor membership is asked for when offsets are committed."""
    with ExitStack() as stack:
        for kind, name in (
            (Membership, "check_commit"),
            (Membership, "check_transactional_commit"),
            (ConsumerGroup, "check_commit"),
        ):
            stack.enter_context(patch.object(kind, name, lambda *args: None))
        yield


@contextmanager
def two_owners() -> Iterator[None]:
    """The broker assigns a partition before its owner has let go of it."""
    with patch.object(Roster, "is_held", lambda self, partition, *, beside: False):
        yield


@contextmanager
def revoke_everything() -> Iterator[None]:
    """Whenever there is another assignment a member has to give up all it has, and gets back what stays its own."""

    def stop_the_world(
        current: MemberReconciled, target: Assignment, epoch: int, **how: Any
    ) -> MemberReconciled:
        is_behind = current.epoch != epoch and current.state is not MemberState.PENDING_REVOKE
        return reconcile(current, () if is_behind and current.assigned else target, epoch, **how)

    with patch.object(consumer, "reconcile", stop_the_world):
        yield


class Mutant(NamedTuple):
    workload: str  # in which it must be caught
    break_it: Callable[[], AbstractContextManager[None]]
    first_seed: int = 0  # one that caught it: where to look first
    found_by: str = ""  # in what that seed brings to light, of those that docs/testing.md lists


MUTANTS: dict[str, Mutant] = {
    "skip-fsync": Mutant("rest", skip_fsync),
    "skip-recovery-crc": Mutant("rest", skip_recovery_crc, 27),
    "drop-time-index": Mutant("rest", drop_time_index, 13),
    "ignore-producer-epochs": Mutant("kafka", ignore_producer_epochs),
    "serve-past-lso": Mutant("kafka", serve_past_lso),
    "forget-markers": Mutant("kafka", forget_markers, 3),
    "accept-zombie-commits": Mutant("kafka", accept_zombie_commits),
    "two-owners": Mutant("kafka", two_owners, 2),
    "revokes-everything": Mutant("kafka", revoke_everything, 0, "had to pause"),
    "joint-forgets-its-batches": Mutant("kafka", joint_mutants.keep_last_batches_in_memory, 10),
    "joint-lets-in-after-commit": Mutant("kafka", joint_mutants.enrol_whenever_asked),
    "joint-spares-losers": Mutant("kafka", joint_mutants.leave_losers_open, 1),
    "joint-commits-everybody": Mutant("kafka", joint_mutants.commit_everybody),
    "joint-trusts-its-driver": Mutant("kafka", joint_mutants.take_any_winner, 5),
    "joint-judges-one-by-one": Mutant("kafka", joint_mutants.judge_one_by_one, 35),
    "lease-reused-after-expiry": Mutant("queue", queue_mutants.reuse_expired_leases, 1),
    "ack-not-persisted": Mutant("queue", queue_mutants.keep_acks_in_memory),
    "lane-cursor-skips": Mutant("queue", queue_mutants.skip_lane_cursors),
    "given-before-durable": Mutant("queue", queue_mutants.give_what_may_vanish, 14),
    "dead-letter-twice": Mutant("queue", queue_mutants.move_again_after_a_crash, 21),
    "delivered-early": Mutant("queue", queue_mutants.fire_early),
    "ordering-broken": Mutant("queue", queue_mutants.forget_busy_keys),
    "credit-not-freed": Mutant("queue", queue_mutants.keep_credit),
    "credit-not-asked": Mutant("queue", queue_mutants.give_without_limit, 3),
    "lanes-served-strictly": Mutant("queue", queue_mutants.serve_lanes_strictly),
    "damage-loses-records": Mutant("queue", queue_mutants.lose_what_damage_hit, 87),
    "damage-repeats-the-rest": Mutant("queue", queue_mutants.drop_what_follows_damage, 10),
    "votes-twice": Mutant("quorum", cluster_mutants.vote_twice, 1, "two leaders in term"),
    "forgets-its-vote": Mutant("quorum", cluster_mutants.forget_votes, 27, "two leaders in term"),
    "commits-older-terms": Mutant("quorum", cluster_mutants.commit_older_terms, 5, "without entry"),
    "acks-alone": Mutant("cluster", cluster_mutants.ack_alone, 0, "have them on disk"),
    "skips-truncation": Mutant("cluster", cluster_mutants.skip_truncation, 3, "in the batches at"),
    "serves-past-high-watermark": Mutant(
        "cluster", cluster_mutants.serve_past_high_watermark, 1, "though its transaction"
    ),
    "followers-show-everything": Mutant("racks", cluster_mutants.show_what_followers_have, 4),
    "leads-on": Mutant("cluster", cluster_mutants.lead_on, 7, "InvariantViolation: write to logs/"),
    "elects-anybody": Mutant("cluster", cluster_mutants.elect_anybody, 51, "gave 1 on"),
    "reports-unsynced": Mutant("cluster", cluster_mutants.report_unsynced),
    "two-coordinators": Mutant("cluster", cluster_mutants.coordinate_on, 0, "was told, but"),
    "tells-from-memory": Mutant("cuts", cluster_mutants.tell_from_memory, 16, "was told, but"),
    "stable-before-markers-are": Mutant(
        "cluster", cluster_mutants.settle_before_markers_are_committed, 1, "is stable up to"
    ),
    "leads-on-though-damaged": Mutant("cluster", cluster_mutants.keep_damage),
    "decides-alone": Mutant("elections", cluster_mutants.decide_alone),
    "loses-ledger-on-failover": Mutant("queues", cluster_queue_mutants.lose_ledger, 0, "had it until"),
    "keeps-lease-in-memory-only": Mutant("queues", cluster_queue_mutants.keep_leases_in_memory),
    "drops-acks-of-the-predecessor": Mutant("queues", cluster_queue_mutants.drop_acks),
    "settles-alone": Mutant("queues", cluster_queue_mutants.settle_alone),
    "timer-fires-twice": Mutant("queue", cluster_queue_mutants.forget_firing, 6, "is 2 times in"),
    "forgets-what-was-cancelled": Mutant("queues", cluster_queue_mutants.forget_cancelled),
    "moves-dead-letters-again": Mutant("queues", queue_mutants.move_again_after_a_crash, 36),
    "reassigns-before-caught-up": Mutant("queues", cluster_queue_mutants.reassign_early, 3, "of which only"),
    "drain-below-min-in-sync": Mutant("queues", cluster_queue_mutants.drain_replicas),
    "plan-dies-with-its-controller": Mutant("queues", cluster_queue_mutants.drop_plan_of_predecessor, 58),
    "ignores-gates": Mutant("keyed", keyed_mutants.ignore_gates, 3),
    "sends-on-as-the-producer": Mutant("keyed", keyed_mutants.send_on_as_the_producer),
    "sends-on-without-a-name": Mutant("keyed", keyed_mutants.send_on_without_a_name, 39),
    "lets-everybody-straight-in": Mutant("keyed", keyed_mutants.let_everybody_straight_in),
    "asks-nobody-where-keys-lived": Mutant("keyed", keyed_mutants.ask_nobody_where_keys_lived, 8000086),
    "believes-in-time-alone": Mutant("keyed", keyed_mutants.believe_in_time_alone, 8),
    "forgets-tombstones-early": Mutant("shortening", shortening_mutants.forget_tombstones_early, 52),
    "deletes-alone": Mutant("shortening", shortening_mutants.delete_alone, 9),
    "keeps-what-the-leader-deletes": Mutant("shortening", shortening_mutants.keep_what_the_leader_deletes),
}
