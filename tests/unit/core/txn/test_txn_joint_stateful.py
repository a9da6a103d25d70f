"""Drivers, their successors, tasks, retries, slow markers, timeouts and crashes in any order: of each batch exactly one set of
winners is ever committed, and nobody is left over."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.txns import Coordinator

from goqueue.core.txn import transitions
from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import ProducerEpoch, TopicPartition, TxnState
from goqueue.core.txn.joint import AlreadyCommitted, Winner
from goqueue.core.txn.outcome import MarkerWork
from goqueue.model.errors import GoQueueError, TransactionAbortable

CONFIG = TxnConfig()
PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 0)]
JOINTS = ["a", "b"]
_PICK = st.integers(0, 10_000)
_JOINT = st.sampled_from(JOINTS)
_BATCH = st.integers(0, 4)

Batch = tuple[str, int]


@dataclass(eq=False)
class Task:
    """Somebody who was enrolled, and goes on whatever became of it."""

    batch: Batch
    me: Winner
    wrote: set[TopicPartition] = field(default_factory=set)


class Joints(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(transitions, "EPOCH_MAX", 3)  # so that epochs run out
        self.coordinator = Coordinator(CONFIG)
        self.tasks: list[Task] = []
        self.open: dict[tuple[TopicPartition, int], Task] = {}  # what a partition holds of a producer
        self.last: dict[str, int] = {}  # what drivers were told is committed
        self.winners: dict[Batch, list[Task]] = {}
        self.verdicts: dict[Task, bool] = {}

    @rule(joint=_JOINT, batch=_BATCH, member=st.sampled_from("xyz"), timeout_ms=st.sampled_from([50, 1_000]))
    def enrol(self, joint: str, batch: int, member: str, timeout_ms: int) -> None:
        is_committed = batch <= self.last.get(joint, -1)
        try:
            reply = self.coordinator.enrol(member, joint=joint, batch=batch, timeout_ms=timeout_ms)
        except GoQueueError:
            assert not is_committed
            return
        assert isinstance(reply, AlreadyCommitted) == is_committed
        if not isinstance(reply, AlreadyCommitted):
            me = Winner(reply.transactional_id, reply.producer)
            assert all(task.me.producer != me.producer for task in self.tasks)
            self.tasks.append(Task((joint, batch), me))

    @rule(pick=_PICK)
    def enrol_again(self, pick: int) -> None:
        if self.tasks:
            task = self.tasks[pick % len(self.tasks)]
            self.enrol(*task.batch, task.me.transactional_id.rpartition("/")[2], 1_000)

    @rule(pick=_PICK, part=st.sampled_from(PARTITIONS))
    def write(self, pick: int, part: TopicPartition) -> None:
        if not self.tasks:
            return
        task = self.tasks[pick % len(self.tasks)]
        try:
            self.coordinator.add(task.me.producer, part, id=task.me.transactional_id)
        except GoQueueError:
            return
        assert task not in self.verdicts
        producer_id = task.me.producer.producer_id
        assert self.open.setdefault((part, producer_id), task) is task
        task.wrote.add(part)

    @rule(joint=_JOINT, batch=_BATCH, picks=st.lists(_PICK, max_size=3))
    def commit(self, joint: str, batch: int, picks: list[int]) -> None:
        candidates = [task for task in self.tasks if task.batch == (joint, batch)]
        winners = (
            list(dict.fromkeys(candidates[pick % len(candidates)] for pick in picks)) if candidates else []
        )
        is_sound = all(self._is_sound(task) for task in winners)
        try:
            was_committed = self.coordinator.commit_joint(
                *(task.me for task in winners), joint=joint, batch=batch
            )
        except TransactionAbortable:
            assert not is_sound
            return
        assert was_committed == (batch <= self.last.get(joint, -1))
        if not was_committed:
            assert is_sound
            assert (joint, batch) not in self.winners
            self.winners[joint, batch] = winners
            self.last[joint] = batch
            for task in self.tasks:
                assert task.batch[0] != joint or task.batch[1] > batch or not self._is_sound(task)
        self._note_issued()
        if not was_committed:
            assert all(self.verdicts[task] for task in winners if task.wrote)

    @rule(pick=_PICK, picks=st.lists(_PICK, min_size=1, max_size=2))
    def commit_somebody(self, pick: int, picks: list[int]) -> None:
        if self.tasks:
            self.commit(*self.tasks[pick % len(self.tasks)].batch, picks)

    @rule(joint=_JOINT, batch=_BATCH)
    def abort(self, joint: str, batch: int) -> None:
        was_committed = self.coordinator.abort_joint(joint=joint, batch=batch)
        assert was_committed == (batch <= self.last.get(joint, -1))
        if not was_committed:
            for task in self.tasks:
                assert task.batch != (joint, batch) or not self._is_sound(task)

    @rule(pick=_PICK)
    def give_up(self, pick: int) -> None:
        if self.tasks:
            task = self.tasks[pick % len(self.tasks)]
            try:
                self.coordinator.end(task.me.producer, is_commit=False, id=task.me.transactional_id)
            except GoQueueError:
                pass
            assert not self._is_sound(task)

    @rule(pick=_PICK)
    def commit_alone(self, pick: int) -> None:
        if self.tasks:
            task = self.tasks[pick % len(self.tasks)]
            with pytest.raises(GoQueueError):
                self.coordinator.end(task.me.producer, id=task.me.transactional_id)

    @rule(pick=_PICK)
    def report_markers(self, pick: int) -> None:
        if self.coordinator.pending:
            self._note_issued()
            work = self.coordinator.pending.pop(pick % len(self.coordinator.pending))
            task = self._task(work)
            for part in work.partitions:
                assert self.open.pop((part, work.producer.producer_id), task) is task
            self.coordinator.written(work)

    @rule(after_ms=st.integers(0, 60))
    def let_time_pass(self, after_ms: int) -> None:
        self.coordinator.tick(after_ms)

    @rule()
    def crash(self) -> None:
        self.coordinator.crash()

    @invariant()
    def one_verdict_each_and_only_winners_are_committed(self) -> None:
        self._note_issued()
        for task, is_commit in self.verdicts.items():
            assert is_commit == (task in self.winners.get(task.batch, ()))

    @invariant()
    def what_is_open_in_a_partition_will_end(self) -> None:
        for (part, _), task in self.open.items():
            saved = self.coordinator.saved(task.me.transactional_id)
            assert saved.holds(*part)
            assert saved.producer_id == task.me.producer.producer_id

    @invariant()
    def replayed_state_is_live_state(self) -> None:
        again, live = self.coordinator.check_replay(), self.coordinator.shard
        for joint in JOINTS:
            commits = [shard.joints.commit(joint, 4, [], 0) for shard in (again, live)]
            assert commits[0] == commits[1]

    def teardown(self) -> None:
        """However it came: once time has passed nobody is left, and every batch that is not committed can be."""
        try:
            self.coordinator.tick(1_000)
            while self.coordinator.pending:
                self.report_markers(0)
            self.one_verdict_each_and_only_winners_are_committed()
            assert self.coordinator.shard.transactions() == []
            assert self.open == {}
            for joint in JOINTS:
                batch = self.last.get(joint, -1) + 1
                winner = self.coordinator.enrolled("x", PARTITIONS[0], joint=joint, batch=batch)
                assert self.coordinator.commit_joint(winner, joint=joint, batch=batch) is False
                assert self.coordinator.complete(id=winner.transactional_id).is_commit
        finally:
            self.patch.undo()

    def _is_sound(self, task: Task) -> bool:
        for saved in self.coordinator.shard.transactions():
            if saved.transactional_id == task.me.transactional_id:
                is_open = saved.state in (TxnState.EMPTY, TxnState.ONGOING)
                return is_open and saved.producer == task.me.producer
        return False

    def _note_issued(self) -> None:
        for work in self.coordinator.pending:
            task = self._task(work)
            assert self.verdicts.setdefault(task, work.is_commit) == work.is_commit
            assert set(work.partitions) == task.wrote

    def _task(self, work: MarkerWork) -> Task:
        """Whose it was: the epoch of a marker is one above."""
        producer = ProducerEpoch(work.producer.producer_id, work.producer.epoch - 1)
        (task,) = [task for task in self.tasks if task.me == (work.transactional_id, producer)]
        return task


TestJoints = Joints.TestCase
TestJoints.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
