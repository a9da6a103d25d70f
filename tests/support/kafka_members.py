"""Members of a consumer group, one thread each, with the library of the test's choice.

A member reads, remembers what it read, and commits after every poll, until it is told to leave.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, IllegalStateError
from tests.support.kafka_admins import kafka_python
from tests.support.kafka_clients import TIMEOUT_S, confluent, until

HEARTBEAT_MS = 300  # how soon a member hears of a rebalance
Run = Callable[["Member"], None]


class Member(threading.Thread):
    def __init__(self, run: Run) -> None:
        super().__init__(daemon=True)
        self._work = run
        self.assigned: frozenset[int] = frozenset()
        self.changes = 0  # of its assignment
        self.values: list[bytes] = []
        self.failure: BaseException | None = None
        self.leaving = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            self._work(self)
        except BaseException as error:  # noqa: BLE001 - the test sees it in `leave`
            self.failure = error

    def leave(self) -> None:
        self.leaving.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive(), "a member does not end"
        if self.failure is not None:
            raise self.failure

    def take(self, partitions: frozenset[int]) -> None:
        self.assigned = partitions
        self.changes += 1


def confluent_member(kafka: str, group: str, topic: str, **settings: object) -> Member:
    """Settings are given as `group_protocol="consumer"`."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    if named.get("group.protocol") != "consumer":
        named = {"heartbeat.interval.ms": HEARTBEAT_MS, **named}

    def run(member: Member) -> None:
        consumer = confluent.Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **named,
            }
        )
        cooperates = "consumer" in named.values() or "cooperative-sticky" in named.values()

        def on_assign(_: Any, places: list[Any]) -> None:
            new = frozenset(one.partition for one in places)
            member.take(member.assigned | new if cooperates else new)

        def on_revoke(_: Any, places: list[Any]) -> None:
            member.take(member.assigned - {one.partition for one in places})

        consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
        is_behind = False  # what was read is not committed
        while not member.leaving.is_set() or is_behind:
            found = consumer.consume(100, 0.1)
            member.values += [one.value() for one in found if one.error() is None]
            if is_behind or any(one.error() is None for one in found):
                try:
                    consumer.commit(asynchronous=False)
                    is_behind = False
                except confluent.KafkaException as error:
                    if error.args[0].code() not in REBALANCING:
                        raise
                    is_behind = error.args[0].code() in BEHIND
        consumer.close()

    return Member(run)


# What a commit may meet while the group changes: the records come again to whoever owns the partition then.
REBALANCING = {
    confluent.KafkaError.ILLEGAL_GENERATION,
    confluent.KafkaError.UNKNOWN_MEMBER_ID,
    confluent.KafkaError.REBALANCE_IN_PROGRESS,
    confluent.KafkaError.STALE_MEMBER_EPOCH,
    confluent.KafkaError._NO_OFFSET,
    confluent.KafkaError._ASSIGNMENT_LOST,
}


# After these it may still own what it has read.
BEHIND = {confluent.KafkaError.REBALANCE_IN_PROGRESS, confluent.KafkaError.STALE_MEMBER_EPOCH}


def kafka_python_member(kafka: str, group: str, topic: str, **settings: object) -> Member:
    def run(member: Member) -> None:
        consumer = kafka_python.KafkaConsumer(
            bootstrap_servers=kafka,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=1_000,
            **settings,
        )
        # A leader that joins before it knows the topic gives nobody anything, and may not notice when it does.
        consumer.partitions_for_topic(topic)
        consumer.subscribe([topic])
        while not member.leaving.is_set():
            found = consumer.poll(timeout_ms=100)
            member.values += [one.value for batch in found.values() for one in batch]
            _note(member, consumer)
            if found:
                try:
                    consumer.commit()
                except (kafka_python.errors.CommitFailedError, kafka_python.errors.RebalanceInProgressError):
                    continue
        consumer.close()

    return Member(run)


def aiokafka_member(kafka: str, group: str, topic: str, **settings: object) -> Member:
    def run(member: Member) -> None:
        asyncio.run(_aiokafka_run(member, kafka, group, topic, settings))

    return Member(run)


async def _aiokafka_run(
    member: Member, kafka: str, group: str, topic: str, settings: dict[str, object]
) -> None:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=HEARTBEAT_MS,
        **settings,
    )
    await consumer.start()
    try:
        while not member.leaving.is_set():
            found = await consumer.getmany(timeout_ms=100)
            member.values += [one.value for batch in found.values() for one in batch]
            _note(member, consumer)
            if found:
                try:
                    await consumer.commit()
                except (CommitFailedError, IllegalStateError):
                    continue
    finally:
        await consumer.stop()


def _note(member: Member, consumer: Any) -> None:
    now = frozenset(one.partition for one in consumer.assignment())
    if now != member.assigned:
        member.take(now)


def until_shared(members: list[Member], partition_count: int) -> None:
    """Until each partition has one owner, and every member something if there is enough."""
    least = min(1, partition_count // len(members))

    def is_shared() -> bool:
        for member in members:
            if member.failure is not None:
                raise member.failure
        owned = [partition for member in members for partition in member.assigned]
        return sorted(owned) == list(range(partition_count)) and all(
            len(member.assigned) >= least for member in members
        )

    until(is_shared, f"{partition_count} partitions shared by {len(members)} members")
