"""What a batch has left behind that came before, when its records lived elsewhere (ADR 40).

A partition sends records on to where they live, and appends the rest of their batch when they are stored. If it fails in between, the
producer sends the batch again. If the topic has got more partitions or fewer meanwhile, those records live in yet another partition, which
has never heard of them. So before it takes a batch, the partition asks those where its records may have lived what they hold of it, and leaves
that out.

Whoever answers has applied the change that took the records away from it, so it takes none of them any more, and what it says of them stays true
until the next change, be it only another partition's fence: of a batch that comes after the newest that it holds of the producer it need not be
asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from goqueue.core.cluster.scaling import Scaling
from goqueue.core.producer import is_after, relayed_id
from goqueue.log.batch import NO_PRODUCER, BatchHeader
from goqueue.model.cluster_errors import HomeUndecided, ReplicationUnknown
from goqueue.model.errors import GoQueueError, InvalidRequest, PartitionNotFound, TimedOut
from goqueue.node.partition import Partition
from goqueue.node.scaling.held import offsets_held
from goqueue.node.scaling.homes import Homes
from goqueue.node.scaling.parts import Parts
from goqueue.node.scaling.ports import Held, HeldCall
from goqueue.node.tenure import Tenure

PATIENCE_S: Final = 30.0  # with a partition that nobody leads; then what it may hold is stored again
_ANSWER_S_MAX: Final = 1.0
_STEP_S_MAX: Final = 0.4  # of the two that whoever answers takes, so that its refusal comes in time
_FORGET_S: Final = 10.0  # after a time without answer: the next is another one
_COUNT_MAX: Final = 100_000  # answers to one partition; the oldest are forgotten

Question = tuple[int, int, int]  # producer id, epoch, and the partition that is asked


@dataclass(slots=True)
class _Answers:
    scaling: Scaling
    earlier: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by home
    newest: dict[Question, int | None] = field(default_factory=dict)

    def rules_out(self, header: BatchHeader, home: int) -> bool:
        """Whether the partition holds nothing of the batch."""
        question = _question(header, home)
        if question not in self.newest:
            return False
        newest = self.newest[question]
        return newest is None or is_after(header.base_sequence, newest)

    def note(self, header: BatchHeader, home: int, newest: int | None) -> None:
        self.newest[_question(header, home)] = newest
        if len(self.newest) > _COUNT_MAX:
            del self.newest[next(iter(self.newest))]


@dataclass(slots=True)
class _Silence:
    """Of a partition for which nobody answers."""

    since_s: float
    until_s: float


class Earlier:
    def __init__(self, homes: Homes, parts: Parts) -> None:
        self._homes = homes
        self._parts = parts
        self._answers: WeakKeyDictionary[Partition, _Answers] = WeakKeyDictionary()
        self._silences: WeakKeyDictionary[Partition, dict[int, _Silence]] = WeakKeyDictionary()

    # ---------------------------------------------------------------- asking

    def may_hold(
        self, partition: Partition, scaling: Scaling, header: BatchHeader, homes: Iterable[int]
    ) -> bool:
        """Whether something of a batch whose records live in these homes may be in partitions where they lived before."""
        return bool(self._unsure(partition, scaling, header, homes))

    async def find(
        self, partition: Partition, scaling: Scaling, header: BatchHeader, homes: Iterable[int]
    ) -> dict[int, tuple[int, int]]:
        """By position in the batch, where it is; HomeUndecided where that is not known for now."""
        unsure = self._unsure(partition, scaling, header, homes)
        # Also if one fails, for the time that is waited for each runs at once.
        answers = await asyncio.gather(
            *(self._ask(partition, scaling, header, home) for home in unsure), return_exceptions=True
        )
        found: dict[int, tuple[int, int]] = {}
        for home, held in zip(unsure, answers, strict=True):
            if isinstance(held, BaseException):
                raise held
            found.update({position: (home, offset) for position, offset in held.offsets.items()})
        return found

    def _unsure(
        self, partition: Partition, scaling: Scaling, header: BatchHeader, homes: Iterable[int]
    ) -> list[int]:
        if header.producer_id == NO_PRODUCER or header.is_transactional:  # those are not sent on
            return []
        known = self._known(partition, scaling)
        unsure: set[int] = set()
        for home in homes:
            if home not in known.earlier:
                known.earlier[home] = tuple(scaling.earlier_homes(partition.index, home))
            unsure.update(each for each in known.earlier[home] if not known.rules_out(header, each))
        return sorted(unsure)

    async def _ask(self, partition: Partition, scaling: Scaling, header: BatchHeader, home: int) -> Held:
        known = self._known(partition, scaling)
        call = HeldCall(
            topic=partition.topic,
            partition=home,
            producer_id=relayed_id(header.producer_id, partition.index),
            epoch=header.producer_epoch,
            sequence=header.base_sequence,
            applied_index=self._homes.applied_index,
        )
        try:
            async with asyncio.timeout(_ANSWER_S_MAX):
                held = await self._parts.held(call, self.held)
        except InvalidRequest:  # a version from before one could ask
            held = Held()
        except (GoQueueError, TimeoutError) as error:
            # What is held and not committed yet is not waited for in vain, however long it takes.
            is_held = isinstance(error, ReplicationUnknown)
            if is_held or self._silent_s(partition, home) < PATIENCE_S:
                reason = f"what partition {home} holds of the batch is not known: {error}"
                raise HomeUndecided(partition.topic, partition.index, reason) from error
            held = Held()
        else:
            self._silences.get(partition, {}).pop(home, None)
        known.note(header, home, held.newest)
        return held

    def _silent_s(self, partition: Partition, home: int) -> float:
        """For how long nobody has answered for a partition, whoever's batch it was about."""
        now_s = asyncio.get_running_loop().time()
        silences = self._silences.setdefault(partition, {})
        silence = silences.get(home)
        if silence is None or now_s - silence.until_s > _FORGET_S:
            silence = silences[home] = _Silence(now_s, now_s)
        silence.until_s = now_s
        return now_s - silence.since_s

    def _known(self, partition: Partition, scaling: Scaling) -> _Answers:
        known = self._answers.get(partition)
        if known is None or (known.scaling is not scaling and not known.scaling.decides_alike(scaling)):
            known = self._answers[partition] = _Answers(scaling)
        known.scaling = scaling  # the next time it is found to be the same without looking into it
        return known

    # ---------------------------------------------------------------- answering

    async def held(self, call: HeldCall) -> Held:
        """By a partition that this node leads, on enough disks. ReplicationUnknown where it is not on enough of them yet."""
        try:
            async with asyncio.timeout(_STEP_S_MAX):
                await self._homes.until_applied(call.applied_index)
        except TimeoutError:
            reason = "the node that is asked has not heard of it"
            raise HomeUndecided(call.topic, call.partition, reason) from None
        try:
            partition = self._homes.led(call.topic, call.partition)
        except PartitionNotFound as error:
            raise HomeUndecided(call.topic, call.partition, error.sentence) from error
        await partition.lead()
        tenure = Tenure(partition)
        newest = partition.newest_sequence(call.producer_id, call.epoch)
        offsets = await offsets_held(partition, call.producer_id, call.epoch, call.sequence)
        if offsets:
            await _until_settled(partition, max(offsets.values()) + 1, tenure)
        return Held(newest, offsets)


async def _until_settled(partition: Partition, end: int, tenure: Tenure) -> None:
    try:
        async with asyncio.timeout(_STEP_S_MAX):
            await partition.settled(end, under=tenure.leadership)
    except (TimeoutError, TimedOut) as error:
        raise ReplicationUnknown(
            f"partition {partition.index} of topic {partition.topic!r} holds the batch, and not on enough disks yet",
            topic=partition.topic,
            partition=partition.index,
        ) from error
    tenure.check()  # else what is settled may be another leader's


def _question(header: BatchHeader, home: int) -> Question:
    return header.producer_id, header.producer_epoch, home
