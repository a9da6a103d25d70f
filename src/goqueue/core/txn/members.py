"""The open members of every joint of a shard, by joint and batch, and how many there may be.

A verdict about a joint is one batch of the log, which has a limit. So it is kept what each member's verdict would take, and
a member that would make the whole too long is refused before it writes anything, not when all is to be committed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from goqueue.core.txn.events import JointBatch, TransactionSaved, TxnState, encoded_bytes
from goqueue.model.errors import LimitExceeded

VERDICT_BYTES_MAX = 8 * 1024 * 1024  # the log takes batches of 16 MiB
_GROWTH_BYTES = (
    256  # by which a member's verdict is longer than what it was before, with the record around it
)
OPEN = (TxnState.EMPTY, TxnState.ONGOING)


class OpenMembers:
    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._joints: dict[str, _Joint] = {}

    def joint_ids(self) -> Collection[str]:
        return self._joints.keys()

    def ids(self, joint_id: str, batch_id_start: int, batch_id_end: int) -> list[str]:
        """In an order that does not depend on how they came."""
        known = self._joints.get(joint_id, _NOBODY)
        batch_ids = [id for id in known.batches if batch_id_start <= id < batch_id_end]
        return sorted(id for batch_id in batch_ids for id in known.batches[batch_id])

    def check(self, joint: JointBatch, after: TransactionSaved, gone: Collection[TransactionSaved]) -> None:
        """Whether the joint may have this member, once those that are gone are."""
        known = self._joints.get(joint.joint_id, _NOBODY)
        sizes = [size for saved in gone if (size := known.size_of(saved)) is not None]
        count = known.count - len(sizes) + 1
        if count > self._count_max:
            raise LimitExceeded(
                f"joint {joint.joint_id!r} has {self._count_max} open members already, which is the limit; "
                "write each batch with fewer tasks",
                joint_id=joint.joint_id,
            )
        size = known.bytes - sum(sizes) + verdict_bytes(after)
        if size > VERDICT_BYTES_MAX:
            raise LimitExceeded(
                f"the verdict about joint {joint.joint_id!r} would take {size} bytes, {VERDICT_BYTES_MAX} are "
                "allowed; write each batch with fewer tasks or to fewer partitions",
                joint_id=joint.joint_id,
            )

    def follow(self, before: TransactionSaved | None, after: TransactionSaved | None) -> None:
        """A transactional id has changed."""
        if before is not None and before.joint is not None:
            self._remove(before.joint, before.transactional_id)
        if after is not None and after.joint is not None and after.state in OPEN:
            self._add(after.joint, after)

    def _add(self, joint: JointBatch, saved: TransactionSaved) -> None:
        known = self._joints.setdefault(joint.joint_id, _Joint())
        size = verdict_bytes(saved)
        known.batches.setdefault(joint.batch_id, {})[saved.transactional_id] = size
        known.count += 1
        known.bytes += size

    def _remove(self, joint: JointBatch, transactional_id: str) -> None:
        known = self._joints.get(joint.joint_id, _NOBODY)
        batch = known.batches.get(joint.batch_id, {})
        size = batch.pop(transactional_id, None)
        if size is None:
            return
        known.count -= 1
        known.bytes -= size
        if not batch:
            del known.batches[joint.batch_id]
        if not known.count:
            del self._joints[joint.joint_id]


@dataclass(slots=True)
class _Joint:
    batches: dict[int, dict[str, int]] = field(default_factory=dict)  # what each member's verdict takes
    count: int = 0
    bytes: int = 0

    def size_of(self, saved: TransactionSaved) -> int | None:
        if saved.joint is None:
            return None
        return self.batches.get(saved.joint.batch_id, {}).get(saved.transactional_id)


_NOBODY = _Joint()  # never added to


def verdict_bytes(saved: TransactionSaved) -> int:
    """What a verdict about it takes in the log, at most."""
    return encoded_bytes(saved) + _GROWTH_BYTES
