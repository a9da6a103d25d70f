"""The Java client's KafkaShareConsumer and its admin client, which are Kafka's own word on share groups. One small program
of ours runs them; it is skipped where there is no Java compiler or no Maven repository to get the client from."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peers import apache_kafka
from bench.peers.maven import cache_folder, fetch_jars, read_pins
from bench.peers.peer import PeerAbsent
from tests.support.broker import Broker
from tests.support.kafka_clients import Confluent, Record, new_topic, quiet_broker
from tests.support.rest_queue import call

PROGRAM = Path(__file__).parent / "java" / "ShareClient.java"
PINS = Path(apache_kafka.__file__).with_suffix(".sha256")
NEEDED = ("org/apache/kafka/kafka-clients/", "org/slf4j/slf4j-api/")
TIMEOUT_S = 240
VALUES = (b"a", b"b", b"c", b"d")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with quiet_broker(tmp_path_factory.mktemp("data")) as broker:
        yield broker


@pytest.fixture(scope="module")
def class_path() -> str:
    if shutil.which("java") is None or shutil.which("javac") is None:
        pytest.skip("there is no Java compiler on this machine")
    pins = {name: digest for name, digest in read_pins(PINS).items() if name.startswith(NEEDED)}
    try:
        return ":".join(map(str, fetch_jars(pins, cache_folder())))
    except PeerAbsent as absent:
        pytest.skip(f"the Java client cannot be had: {absent}")


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    name = new_topic(broker)
    for group in ("explicit", "implicit"):
        settings = {"config": {"share.auto.offset.reset": "earliest"}}
        assert call(broker, "PATCH", f"/groups/{group}", settings).status == 200
    Confluent(broker.kafka).send(name, [Record(value) for value in VALUES])
    return name


@pytest.fixture(scope="module")
def said(broker: Broker, class_path: str, topic: str) -> dict[str, list[str]]:
    """What the program printed, by the first word of each line."""
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", class_path, str(PROGRAM), broker.kafka, topic]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines: dict[str, list[str]] = {}
    for line in ran.stdout.splitlines():
        what, _, how = line.partition(" ")
        lines.setdefault(what, []).append(how)
    return lines


def test_java_says_of_each_record_what_becomes_of_it(said: dict[str, list[str]]) -> None:
    assert said["explicit"] == ["0:a:1 1:b:1 2:c:1 3:d:1"]
    assert said["lock"] == ["30000"]
    (again,) = said["again"]
    assert sorted(again.split()) == ["1:b:2", "3:d:1"]  # released, and renewed: that one is still its own
    assert said["commit"][:2] == ["0:ok", "0:ok"]


def test_java_acknowledges_by_polling(broker: Broker, said: dict[str, list[str]], topic: str) -> None:
    assert said["implicit"] == ["0:a:1 1:b:1 2:c:1 3:d:1"]
    offsets = call(broker, "GET", "/groups/implicit/offsets").body["offsets"]
    assert (offsets[topic]["0"]["offset"], offsets[topic]["0"]["lag"]) == (4, 0)


def test_what_java_rejects_is_a_dead_letter(broker: Broker, said: dict[str, list[str]], topic: str) -> None:
    assert said["done"]
    letters = call(broker, "GET", f"/topics/{topic}.dlq/partitions/0/messages?offset=0").body["messages"]
    assert [letter["value"] for letter in letters] == ["c"]


def test_javas_admin_describes_and_lists_share_groups(said: dict[str, list[str]], topic: str) -> None:
    assert said["member"] == [f"Stable java:[{topic}-0]"]
    assert said["empty"] == ["Empty"]
    assert said["groups"] == ["{explicit=Share:Empty, implicit=Share:Empty}"]
    assert said["unknown"] == ["GroupIdNotFoundException: there is no group 'nobody'"]
    assert said["deleted"] == ["GroupIdNotFoundException: there is no group 'explicit'"]


def test_javas_admin_lists_moves_and_forgets_offsets(said: dict[str, list[str]]) -> None:
    assert said["busy"][0].startswith("GroupNotEmptyException: ")
    assert said["offset"] == ["4 lag 0"]
    assert said["altered"] == ["1 lag 3"]
    assert said["resumed"] == ["1:b:1 2:c:1 3:d:1"]
    assert said["beyond"][0].startswith("OffsetOutOfRangeException: offset 99")
    assert said["forgotten"] == ["none"]
