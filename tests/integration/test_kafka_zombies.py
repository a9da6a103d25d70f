"""Trap 18: a member that was given up for dead, and speaks again, cannot move the offsets of its successor.

Its commit is on its way when the network stops; it arrives when another member has its partition already.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import CommitFailedError
from tests.support.broker import Broker
from tests.support.kafka_clients import TIMEOUT_S, Confluent, Record, confluent, new_topic, until
from tests.support.kafka_members import REBALANCING
from tests.support.tcp_proxy import TcpProxy

SESSION_MS = 3_000
ZOMBIE = "the-zombie"
SETTINGS = {
    "GOQUEUE_GROUPS__SESSION_MS_MIN": "1000",
    "GOQUEUE_GROUPS__CONSUMER_SESSION_MS": str(SESSION_MS),
    "GOQUEUE_GROUPS__CONSUMER_HEARTBEAT_MS": "300",
}
CLASSIC = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 300}
PROTOCOLS: dict[str, dict[str, object]] = {
    "eager": {"partition.assignment.strategy": "range", **CLASSIC},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky", **CLASSIC},
    "kip848": {"group.protocol": "consumer"},
}
REFUSALS = {
    confluent.KafkaError.UNKNOWN_MEMBER_ID,
    confluent.KafkaError.ILLEGAL_GENERATION,
    confluent.KafkaError.STALE_MEMBER_EPOCH,
    confluent.KafkaError._TIMED_OUT,  # it gave up waiting for the answer
    confluent.KafkaError._TRANSPORT,
}


def consumer_of(kafka: str, settings: dict[str, object]) -> Any:  # a library whose types are wrong
    return confluent.Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "haunted",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )


def take_over(kafka: str, topic: str, settings: dict[str, object]) -> Any:
    """Another member, once it has the partition, read it and committed 5."""
    successor = consumer_of(kafka, settings)
    successor.subscribe([topic])
    until(lambda: successor.poll(0.1) is not None, "the successor reads")
    until(lambda: has_committed(successor, topic), "the successor commits")
    return successor


def has_committed(consumer: Any, topic: str) -> bool:
    """Not where it has missed its own session, as on a machine that is busy otherwise: it has to join again."""
    try:
        consumer.commit(offsets=[confluent.TopicPartition(topic, 0, 5)], asynchronous=False)
    except confluent.KafkaException as error:
        if error.args[0].code() not in REBALANCING:
            raise
        consumer.poll(0.1)
        return False
    return True


def committed(consumer: Any, topic: str) -> int:
    (place,) = consumer.committed([confluent.TopicPartition(topic, 0)], timeout=TIMEOUT_S)
    offset: int = place.offset
    return offset


def served_through(proxy: TcpProxy, folder: Path) -> Broker:
    broker = Broker(folder, env={**SETTINGS, "GOQUEUE_KAFKA_ADVERTISED": proxy.address})
    proxy.point_at(broker.kafka)
    return broker


@pytest.mark.parametrize("settings", PROTOCOLS.values(), ids=PROTOCOLS)
def test_a_zombies_commit_is_refused(tmp_path: Path, settings: dict[str, object]) -> None:
    with TcpProxy() as proxy, served_through(proxy, tmp_path) as broker:
        topic = new_topic(broker)
        Confluent(proxy.address).send(topic, [Record(b"%d" % at) for at in range(10)])
        answers: list[Any] = []
        zombie = consumer_of(
            proxy.address,
            {**settings, "client.id": ZOMBIE, "on_commit": lambda error, _: answers.append(error)},
        )
        zombie.subscribe([topic])
        until(lambda: zombie.poll(0.1) is not None, "the member reads")
        proxy.hold(ZOMBIE)
        zombie.commit(offsets=[confluent.TopicPartition(topic, 0, 1)], asynchronous=True)
        successor = take_over(proxy.address, topic, settings)
        proxy.release()

        def is_answered() -> bool:
            successor.poll(0)
            zombie.poll(0.1)
            return bool(answers)

        until(is_answered, "the zombie hears of its commit")
        assert answers[0] is not None
        assert answers[0].code() in REFUSALS
        assert committed(successor, topic) == 5
        zombie.close()
        successor.close()


def test_a_zombies_commit_is_refused_to_aiokafka(tmp_path: Path) -> None:
    with TcpProxy() as proxy, served_through(proxy, tmp_path) as broker:
        topic = new_topic(broker)
        Confluent(proxy.address).send(topic, [Record(b"%d" % at) for at in range(10)])
        successor = asyncio.run(_haunt_with_aiokafka(proxy, topic))
        assert committed(successor, topic) == 5
        successor.close()


async def _haunt_with_aiokafka(proxy: TcpProxy, topic: str) -> Any:
    zombie = AIOKafkaConsumer(
        topic,
        bootstrap_servers=proxy.address,
        group_id="haunted",
        client_id=ZOMBIE,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=300,
        request_timeout_ms=8_000,
    )
    await zombie.start()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await zombie.getone()
        proxy.hold(ZOMBIE)
        commit = asyncio.create_task(zombie.commit({AioPartition(topic, 0): 1}))
        await asyncio.sleep(0)
        # Its own assignor is the only one it offers; nobody else is in the group by the time the other joins.
        successor = await asyncio.to_thread(
            take_over, proxy.address, topic, {"partition.assignment.strategy": "roundrobin", **CLASSIC}
        )
        proxy.release()
        with pytest.raises(CommitFailedError):
            async with asyncio.timeout(TIMEOUT_S):
                await commit
        return successor
    finally:
        await zombie.stop()


@pytest.mark.parametrize("settings", [CLASSIC, PROTOCOLS["kip848"]], ids=["classic", "kip848"])
def test_a_member_that_left_cannot_commit_by_its_static_name(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    """Two processes with one `group.instance.id`: the group listens to one of them."""
    with Broker(tmp_path, env=SETTINGS) as broker:
        topic = new_topic(broker)
        Confluent(broker.kafka).send(topic, [Record(b"%d" % at) for at in range(10)])
        static = {**settings, "group.instance.id": "the-one", "log_level": 0}
        first = consumer_of(broker.kafka, static)
        first.subscribe([topic])
        until(lambda: first.poll(0.1) is not None, "the first reads")
        first.commit(offsets=[confluent.TopicPartition(topic, 0, 3)], asynchronous=False)
        second = consumer_of(broker.kafka, static)
        second.subscribe([topic])
        codes: set[int] = set()

        def is_refused() -> bool:
            for one in (first, second):
                message = one.poll(0.1)
                if message is not None and message.error() is not None:
                    codes.add(message.error().code())
            return bool(codes)

        until(is_refused, "one of the two is refused")
        assert codes <= {
            confluent.KafkaError._FATAL,
            confluent.KafkaError.FENCED_INSTANCE_ID,
            confluent.KafkaError.UNRELEASED_INSTANCE_ID,
        }
        second.close()
        first.close()
