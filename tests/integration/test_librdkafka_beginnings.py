"""What librdkafka does when a late answer says where a partition begins, and what keeps a consumer from it (docs/kafka.md).

The broker only answers; what comes late is held up between the two. The first test is of the client's mistake: when it fails after an
upgrade, the mistake is gone, and so may be `commit_beginnings`, whoever calls it, and what the docs say of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.broker import Broker
from tests.support.group_beginnings import commit_beginnings
from tests.support.kafka_clients import Confluent, Record, confluent, new_name, new_topic, until
from tests.support.tcp_proxy import TcpProxy

CLIENT: Final = "slow-way"
COUNT: Final = 100
SOUGHT: Final = 60
# What librdkafka tells at debug=topic when it asks where a partition begins.
ASKS: Final = "querying for logical"


class Telling(logging.Handler):
    """Hears what the client tells of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.asks = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if ASKS in record.getMessage():
            self.asks.set()


class Scene:
    """A topic of COUNT records, and a consumer whose words can be held up."""

    def __init__(self, proxy: TcpProxy, broker: Broker) -> None:
        self.proxy = proxy
        self.kafka = broker.kafka
        self.topic = new_topic(broker)
        self.group = new_name("g")
        self.told = Telling()
        Confluent(broker.kafka).send(self.topic, [Record(b"%d" % at) for at in range(COUNT)])

    def consumer(self) -> Any:  # as above
        logger = logging.getLogger(f"{__name__}.{self.group}")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(self.told)
        settings = {
            "bootstrap.servers": self.proxy.address,
            "client.id": CLIENT,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "debug": "topic",
        }
        return confluent.Consumer(settings, logger=logger)

    def seek(self, consumer: Any, offset: int) -> None:
        consumer.seek(confluent.TopicPartition(self.topic, 0, offset))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with TcpProxy() as proxy, Broker(tmp_path, env={"GOQUEUE_KAFKA_ADVERTISED": proxy.address}) as broker:
        proxy.point_at(broker.kafka)
        yield Scene(proxy, broker)


def offsets_until(consumer: Any, last: int) -> list[int]:
    """What it is given up to this offset."""
    found: list[int] = []

    def is_there() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message.offset())
        return found[-1:] == [last]

    until(is_there, f"{last} is read")
    return found


def test_a_seek_while_the_beginning_is_asked_for_is_undone_by_the_client(scene: Scene) -> None:
    consumer = scene.consumer()
    consumer.list_topics(scene.topic, timeout=60)  # so that it is connected
    scene.proxy.hold(CLIENT)
    consumer.assign([confluent.TopicPartition(scene.topic, 0, confluent.OFFSET_BEGINNING)])
    until(lambda: consumer.poll(0.05) is None and scene.told.asks.is_set(), "the beginning is asked for")
    scene.seek(consumer, SOUGHT)
    consumer.poll(0.1)
    scene.proxy.release()
    first = offsets_until(consumer, COUNT - 1)
    again = first if 0 in first else offsets_until(consumer, COUNT - 1)
    assert again[-COUNT:] == list(range(COUNT))  # though it sought another offset, and nobody else any
    consumer.close()


def test_who_has_committed_a_beginning_asks_for_none_and_goes_where_it_seeks(scene: Scene) -> None:
    commit_beginnings(scene.kafka, scene.group, scene.topic, 1)
    consumer = scene.consumer()
    consumer.subscribe([scene.topic])
    assert offsets_until(consumer, 9) == list(range(10))
    scene.proxy.hold(CLIENT)
    scene.seek(consumer, SOUGHT)
    consumer.poll(0.1)
    scene.proxy.release()
    assert offsets_until(consumer, COUNT - 1) == list(range(SOUGHT, COUNT))
    scene.seek(consumer, SOUGHT)
    assert offsets_until(consumer, COUNT - 1) == list(range(SOUGHT, COUNT))
    assert not scene.told.asks.is_set()
    consumer.close()
