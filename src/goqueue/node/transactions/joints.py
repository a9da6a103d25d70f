"""Joints: the use cases of those who write batches together (ADR 27)."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.joint import AlreadyCommitted, Enrolled, Winner, joint_key
from goqueue.core.txn.refusals import check_enrolment, check_joint
from goqueue.model.errors import ConcurrentTransactions
from goqueue.node.guard import Guard
from goqueue.node.metrics import Metrics
from goqueue.node.transactions.coordinator import TxnCoordinator
from goqueue.node.transactions.metrics import JointMetrics


class JointTransactions:
    def __init__(
        self, config: TxnConfig, coordinator: TxnCoordinator, guard: Guard, metrics: Metrics
    ) -> None:
        self._config = config
        self._coordinator = coordinator
        self._guard = guard
        self._metrics = JointMetrics(
            metrics.registry,
            open_count=lambda: sum(shard.state.joints.open_count for shard in coordinator.shards.all()),
            known_count=lambda: sum(shard.state.joints.known_count for shard in coordinator.shards.all()),
        )

    async def enrol(
        self, joint_id: str, batch_id: int, member: str, timeout_ms: int
    ) -> Enrolled | AlreadyCommitted:
        """Become a member: a transactional producer whose end is the joint's. Raises `ConcurrentTransactions` while what
        a member of the same name left open is being aborted: try again."""
        self._guard.admit_change()
        check_enrolment(joint_id, batch_id, member, timeout_ms, self._config)
        await self._coordinator.open()
        reply = await self._coordinator.decide(
            joint_key(joint_id),
            lambda shard, fresh, now_ms: shard.joints.enrol(
                joint_id, batch_id, member, timeout_ms, fresh_producer_id=fresh, now_ms=now_ms
            ),
        )
        if isinstance(reply, ConcurrentTransactions):
            raise reply
        if isinstance(reply, AlreadyCommitted):
            self._metrics.replays.inc()
        return reply

    async def commit(self, joint_id: str, batch_id: int, winners: Sequence[Winner]) -> bool:
        """What the winners wrote counts, and nothing else of the batch. Says whether it was committed before."""
        self._guard.admit_relief()  # also on a full disk: readers wait for the end
        check_joint(joint_id, batch_id)
        if self._coordinator.is_empty:  # a batch that nobody had to write anything for
            self._guard.admit_change()
            await self._coordinator.open()
        was_committed = await self._coordinator.decide(
            joint_key(joint_id),
            lambda shard, _, now_ms: shard.joints.commit(joint_id, batch_id, winners, now_ms),
        )
        self._count(was_committed, "committed")
        await self._carried_out(joint_id)
        return was_committed

    async def abort(self, joint_id: str, batch_id: int) -> bool:
        """Nothing of the batch counts so far. Says whether it was committed before: then it stays so."""
        self._guard.admit_relief()
        check_joint(joint_id, batch_id)
        if self._coordinator.is_empty:
            return False
        was_committed = await self._coordinator.decide(
            joint_key(joint_id), lambda shard, _, now_ms: shard.joints.abort(joint_id, batch_id, now_ms)
        )
        self._count(was_committed, "aborted")
        await self._carried_out(joint_id)
        return was_committed

    def _count(self, was_committed: bool, outcome: str) -> None:
        if was_committed:
            self._metrics.replays.inc()
        else:
            self._metrics.judged.labels(outcome).inc()

    async def _carried_out(self, joint_id: str) -> None:
        """Also what an earlier request decided: whoever hears of a commit finds what was committed."""
        await self._coordinator.completion(self._coordinator.completing(f"{joint_key(joint_id)}/"))
