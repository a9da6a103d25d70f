"""A transactional producer as Kafka's clients have it, in the old style and in that of KIP-890.

Old: partitions and groups are added to the transaction before they are written to, and an epoch lasts. New: the broker
adds them when it is written to, and every end gives the next epoch. It repeats a request until there is an answer, and
believes only what it is told.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from goqueue.model.record import Producer
from goqueue.sim.kafka.asking import ask
from goqueue.sim.kafka.batches import new_batch
from goqueue.sim.kafka.client import requests
from goqueue.sim.kafka.history import (
    Enrolment,
    Epoch,
    EpochGiven,
    JointBatch,
    KafkaHistory,
    OffsetCommit,
    Outcome,
    Part,
    Txn,
    Write,
    now_ms,
    now_s,
)
from goqueue.sim.kafka.world import World

# Refusals that end a transaction: somebody else took over, or the broker has aborted it.
_ENDING = frozenset({47, 48, 49, 90, 120})
# Refusals of a group that end it too: the member does not own what it has read any more.
_MEMBER_GONE = frozenset({22, 25, 27, 82, 110, 113})


class TxnOver(Exception):
    """The transaction cannot be committed by this producer any more."""


class TxnProducer:
    def __init__(self, world: World, name: str, transactional_id: str, *, is_new_style: bool) -> None:
        self._history: KafkaHistory = world.history
        self._rng: Random = world.child()
        self._client = world.client(name)
        self._name = name
        self._transactional_id = transactional_id
        self._is_new_style = is_new_style
        self._timeout_ms = self._rng.choice((1_500, 4_000, 10_000))
        self._producer = Epoch(-1, -1)
        self._sequences: dict[Part, int] = {}
        self._joined: set[Part | str] = set()
        self._txn: Txn | None = None
        self._txn_count = 0

    @property
    def transactional_id(self) -> str:
        return self._transactional_id

    @property
    def timeout_s(self) -> float:
        return self._timeout_ms / 1_000

    def close(self) -> None:
        self._client.close()

    async def init(self) -> None:
        """Own the transactional id; whoever had it is fenced, what was open is aborted."""
        answer = await self._ask(
            "init_producer_id",
            4,
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._timeout_ms,
        )
        if answer.error_code:
            self._history.violate(f"{self._name}: InitProducerId gave {answer.error_code}")
            raise TxnOver
        self._become(Epoch(answer.producer_id, answer.producer_epoch))
        self._txn = None

    async def enrol(self, of: JointBatch, member: str) -> Epoch | None:
        """Become a member of a joint's batch, unless that is committed. Whoever has the same name in it is fenced."""
        sent_s = now_s()
        answer = await self._ask(
            "enrol_in_joint",
            0,
            joint_id=of.joint,
            batch_id=of.batch,
            member=member,
            timeout_ms=self._timeout_ms,
        )
        if answer.error_code:
            self._history.violate(f"{self._name}: EnrolInJoint gave {answer.error_code}")
            raise TxnOver
        self._history.enrolments.append(Enrolment(of, self._name, answer.is_committed, sent_s))
        if answer.is_committed:
            return None
        self._transactional_id = answer.transactional_id
        self._become(Epoch(answer.producer_id, answer.producer_epoch))
        return self._producer

    def begin(self) -> Txn:
        self._txn_count += 1
        self._joined.clear()
        self._txn = self._history.begin(f"{self._name}.{self._txn_count}", self._producer)
        return self._txn

    async def send(self, part: Part, values: list[str]) -> None:
        txn = self._open_txn()
        self._history.send(values, part, txn)
        if not self._is_new_style and part not in self._joined:
            await self._add_partition(part)
        sequence = self._sequences.get(part, 0)
        producer = Producer(*self._producer, sequence)
        batch = new_batch(values, producer, now_ms(), is_transactional=True)
        sent_s = now_s()
        kinds = requests("produce")
        answer = await self._ask(
            "produce",
            12 if self._is_new_style else 11,
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[
                kinds.TopicProduceData(
                    name=part.topic,
                    partition_data=[kinds.PartitionProduceData(index=part.partition, records=batch)],
                )
            ],
        )
        result = answer.responses[0].partition_responses[0]
        self._require(result.error_code, "Produce")
        self._sequences[part] = sequence + len(values)
        self._history.writes.append(
            Write(part, result.base_offset, tuple(values), self._producer, sent_s, now_s())
        )

    async def send_offsets(
        self, group: str, member_id: str, generation: int, offsets: dict[Part, tuple[int, int]]
    ) -> None:
        """Offset and leader epoch for each partition; they count if the transaction does."""
        txn = self._open_txn()
        if not self._is_new_style:
            answer = await self._ask("add_offsets_to_txn", 3, **self._claim(), group_id=group)
            self._require(answer.error_code, "AddOffsetsToTxn")
        commits = []
        for part, (offset, _) in offsets.items():
            commit = OffsetCommit(
                self._history.new_commit_id(),
                group,
                part,
                offset,
                member_id,
                generation,
                now_s(),
                txn,
                self._producer,
            )
            self._history.commit(commit)
            commits.append(commit)
        kinds = requests("txn_offset_commit")
        answer = await self._ask(
            "txn_offset_commit",
            5 if self._is_new_style else 4,
            **self._claim(),
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            topics=[
                kinds.TxnOffsetCommitRequestTopic(
                    name=commit.part.topic,
                    partitions=[
                        kinds.TxnOffsetCommitRequestPartition(
                            partition_index=commit.part.partition,
                            committed_offset=commit.offset,
                            committed_leader_epoch=offsets[commit.part][1],
                            committed_metadata=commit.id,
                        )
                    ],
                )
                for commit in commits
            ],
        )
        codes = [one.error_code for topic in answer.topics for one in topic.partitions]
        for commit in commits:
            commit.answered_s = now_s()
            commit.is_refused = any(codes)
        for code in codes:
            self._require(code, "TxnOffsetCommit", _ENDING | _MEMBER_GONE)

    async def end(self, *, is_commit: bool) -> None:
        txn = self._open_txn()
        if is_commit:
            txn.commit_asked_s = now_s()
        else:
            txn.outcome = Outcome.ABORTED  # it is never asked for anything else
        self._txn = None
        answer = await self._ask(
            "end_txn", 5 if self._is_new_style else 4, **self._claim(), committed=is_commit
        )
        self._require(answer.error_code, "EndTxn")
        txn.answered_s = now_s()
        if is_commit:
            txn.outcome = Outcome.COMMITTED
        if self._is_new_style:
            self._become(Epoch(answer.producer_id, answer.producer_epoch))

    async def commit_and_die(self) -> None:
        """Ask for the end and perhaps not live to hear the answer: whether it counts nobody knows."""
        try:
            async with asyncio.timeout(self._rng.uniform(0.001, 0.03)):
                await self.end(is_commit=True)
        except TimeoutError:
            raise TxnOver("the producer died") from None

    def abandon(self) -> None:
        """Forget the transaction without a word, as a process that dies."""
        if self._txn is not None:
            self._txn.outcome = Outcome.ABORTED
            self._txn = None

    async def _add_partition(self, part: Part) -> None:
        kinds = requests("add_partitions_to_txn")
        answer = await self._ask(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer.producer_id,
            v3_and_below_producer_epoch=self._producer.epoch,
            v3_and_below_topics=[kinds.AddPartitionsToTxnTopic(name=part.topic, partitions=[part.partition])],
        )
        result = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        self._require(result.partition_error_code, "AddPartitionsToTxn")
        self._joined.add(part)

    def _claim(self) -> dict[str, object]:
        return {
            "transactional_id": self._transactional_id,
            "producer_id": self._producer.producer_id,
            "producer_epoch": self._producer.epoch,
        }

    def _open_txn(self) -> Txn:
        if self._txn is None:
            raise AssertionError(f"{self._name} has no open transaction")
        return self._txn

    def _become(self, producer: Epoch) -> None:
        if producer != self._producer:
            self._sequences.clear()
        self._producer = producer
        self._history.epochs.append(EpochGiven(producer, now_s()))

    def _require(self, code: int, what: str, ending: frozenset[int] = _ENDING) -> None:
        if code and code not in ending:
            self._history.violate(f"{self._name}: {what} gave {code}")
        if code:
            raise TxnOver(f"{what} gave {code}")

    async def _ask(self, api: str, version: int, /, **fields: Any) -> Any:
        return await ask(self._client, self._rng, api, version, **fields)
