"""Traps of the specification that only a real process can prove, each from outside: over HTTP and on the disk."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.broker import Broker, command_line

from goqueue.api.http.routes import ROUTES
from goqueue.client.rest import ApiError, NewMessage, RestClient
from goqueue.model.acks import Acks


class Answer(NamedTuple):
    status: int
    body: dict[str, Any]  # JSON, which the tests look into


def call(broker: Broker, method: str, target: str, body: object = None) -> Answer:
    """One request, with the target on the wire exactly as it is written here."""
    connection = HTTPConnection(broker.address, timeout=30)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        content = b"" if body is None else json.dumps(body).encode()
        connection.putheader("content-length", str(len(content)))
        connection.endheaders(content)
        response = connection.getresponse()
        return Answer(response.status, json.loads(response.read()))
    finally:
        connection.close()


def metric(broker: Broker, name: str) -> float:
    """The sum of a metric over its labels, or of the one whose labels are in the name."""
    connection = HTTPConnection(broker.address, timeout=30)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    lines = [line for line in text.splitlines() if re.match(rf"{re.escape(name)}(\{{| )", line + " ")]
    if "{" in name:
        lines = [line for line in text.splitlines() if line.startswith(name)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def files_below(folder: Path) -> dict[str, int]:
    """Every path in a folder, and the sizes of the files."""
    return {
        str(path.relative_to(folder)): path.stat().st_size if path.is_file() else -1
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("is_killed", [False, True])
def test_trap_3_topic_settings_survive_a_restart(tmp_path: Path, is_killed: bool) -> None:
    with Broker(tmp_path / "data") as broker, RestClient(broker.url) as client:
        client.create_topic("orders", partition_count=5, config={"retention.ms": "86400000"})
        client.alter_topic("orders", {"segment.bytes": "1048576", "compression.type": "zstd"})
        client.create_topic("gone")
        client.delete_topic("gone")
        before = client.topic("orders")
        if is_killed:
            broker.kill9()
        else:
            assert broker.stop() == 0
    with Broker(tmp_path / "data") as broker, RestClient(broker.url) as client:
        assert client.topic("orders") == before
        assert before.overrides == {
            "retention.ms": "86400000",
            "segment.bytes": "1048576",
            "compression.type": "zstd",
        }
        assert [topic.name for topic in client.topics()] == ["orders"]


def _damaged_folder(data: Path, *, is_killed: bool) -> tuple[Path, int]:
    """A broker's folder with a flipped byte in the sixth of ten messages; the segment and the byte."""
    with Broker(data) as broker, RestClient(broker.url) as client:
        client.create_topic("orders", partition_count=1)
        for at in range(10):
            client.publish("orders", [NewMessage(b"message %d" % at)])
        if is_killed:
            broker.kill9()
        else:
            assert broker.stop() == 0
    segment = data / "logs/orders/0/00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    position = content.index(b"message 5")
    content[position] ^= 0x01
    segment.write_bytes(content)
    return segment, position


@pytest.mark.parametrize("is_killed", [False, True])
def test_trap_6_a_flipped_byte_is_named_and_never_served(tmp_path: Path, is_killed: bool) -> None:
    segment, position = _damaged_folder(tmp_path / "data", is_killed=is_killed)
    checked = subprocess.run(
        command_line("check", str(tmp_path / "data")), capture_output=True, text=True, check=False
    )
    assert checked.returncode == 1
    printed = " ".join(checked.stdout.split())
    assert "logs/orders/0/00000000000000000000.log" in printed
    batch_start = int(re.findall(r"byte (\d+)", printed)[0])
    assert batch_start < position < batch_start + 100

    with Broker(tmp_path / "data") as broker, RestClient(broker.url) as client:
        if is_killed:  # a clean stop vouches for the log, so a start after it does not read it again
            broker.stderr.wait_for("damage found topic=orders partition=0 .*00000000000000000000.log")
            assert metric(broker, "goqueue_storage_damage_total") == 1
        page = client.read("orders", 0)
        assert [message.value for message in page.messages] == [b"message %d" % at for at in range(5)]
        assert (page.next_offset, page.high_watermark) == (5, 10)
        answer = call(broker, "GET", "/topics/orders/partitions/0/messages?offset=5")
        assert (answer.status, answer.body["code"]) == (500, "DATA_CORRUPT")
        assert (answer.body["details"]["start"], answer.body["details"]["end"]) == (5, 6)
        assert answer.body["details"]["file"] == "logs/orders/0/00000000000000000000.log"
        assert answer.body["details"]["position"] == batch_start
        broker.stderr.wait_for("damage")
        page = client.read("orders", 0, offset=6)
        assert [message.value for message in page.messages] == [b"message %d" % at for at in range(6, 10)]
        assert client.publish("orders", [NewMessage(b"more")])[0].offset == 10
        assert broker.stop() == 0
    assert segment.exists()


def test_trap_24_a_duplicate_is_answered_with_its_first_offset_also_after_a_kill(tmp_path: Path) -> None:
    def send(broker: Broker, sequence: int, *values: str, epoch: int = 0) -> Answer:
        body = {
            "messages": [{"value": value, "partition": 0} for value in values],
            "producer_id": producer["producer_id"],
            "epoch": epoch,
            "sequence": sequence,
        }
        return call(broker, "POST", "/topics/orders/messages", body)

    def offsets(answer: Answer) -> list[int]:
        assert answer.status == 200, answer
        return [result["offset"] for result in answer.body["results"]]

    with Broker(tmp_path / "data") as broker, RestClient(broker.url) as client:
        client.create_topic("orders", partition_count=2)
        producer = call(broker, "POST", "/producers/init", {}).body
        client.publish("orders", [NewMessage(b"somebody else", partition=0)])
        assert offsets(send(broker, 0, "a", "b")) == [1, 2]
        assert offsets(send(broker, 0, "a", "b")) == [1, 2]
        assert send(broker, 5, "gap").body["code"] == "OUT_OF_ORDER_SEQUENCE"
        broker.kill9()
    with Broker(tmp_path / "data") as broker, RestClient(broker.url) as client:
        assert offsets(send(broker, 0, "a", "b")) == [1, 2]
        assert offsets(send(broker, 2, "c")) == [3]
        assert broker.stop() == 0
    with Broker(tmp_path / "data") as broker, RestClient(broker.url) as client:
        assert offsets(send(broker, 2, "c")) == [3]
        assert offsets(send(broker, 0, "new epoch", epoch=1)) == [4]
        assert send(broker, 3, "zombie").body["code"] == "PRODUCER_FENCED"
        values = [message.value for message in client.read("orders", 0).messages]
        assert values == [b"somebody else", b"a", b"b", b"c", b"new epoch"]
        other = call(broker, "POST", "/producers/init", {}).body
        assert other["producer_id"] > producer["producer_id"]


BAD_NAMES = ["..", ".", "", "a/b", "../../etc", "/etc", "x" * 300, "a\x00b", "a\nb", "\x7f", "%2e%2e", "a\\b"]
BAD_SEGMENTS = [
    "..",
    ".",
    "",
    "%2e%2e",
    "%2E%2E",
    "a%2fb",
    "..%2f..%2fetc",
    "x" * 300,
    "a%00b",
    "a%0ab",
    "%7f",
    "%252e%252e",
]
NAMED = [(route.method, route.path) for route in ROUTES if "{topic}" in route.path]


@pytest.fixture
def idle_broker(tmp_path: Path) -> Iterator[Broker]:
    """One that writes no files by itself."""
    hour = "3600000"
    env = {"GOQUEUE_LOG__CHECKPOINT_INTERVAL_MS": hour, "GOQUEUE_LOG__CLEANUP_INTERVAL_MS": hour}
    with Broker(tmp_path / "data", env=env) as running:
        yield running


def test_trap_32_a_name_that_could_leave_its_folder_is_refused_on_every_route(idle_broker: Broker) -> None:
    broker = idle_broker
    with RestClient(broker.url) as client:
        client.create_topic("orders", partition_count=1)
        client.publish("orders", [NewMessage(b"a")])
    outside = broker.data_dir.parent
    before = files_below(outside)
    for name in BAD_NAMES:
        answer = call(broker, "POST", "/topics", {"name": name})
        assert (answer.status, answer.body["code"]) == (400, "INVALID_NAME"), name
    assert len(NAMED) >= 6
    bodies = {
        "/topics/{topic}": {"config": {}},
        "/topics/{topic}/messages": {"messages": [{"value": "v"}]},
        "/admin/topics/{topic}/partitions": {"count": 9},
        "/topics/{topic}/redrive": {},
        "/topics/{topic}/recurring": {"name": "s", "every": "5m", "message": {"value": "v"}},
    }
    for method, path in NAMED:
        for segment in BAD_SEGMENTS:
            for prefix in ("", "/v1"):
                target = prefix + path.format(topic=segment, partition=0, offset=0, group="g", schedule="s")
                answer = call(
                    broker, method, target, bodies.get(path) if method in ("PATCH", "POST") else None
                )
                assert (answer.status, answer.body["code"]) == (400, "INVALID_NAME"), (method, target)
    assert files_below(outside) == before


def test_metrics_move_with_what_they_count(broker: Broker) -> None:
    with RestClient(broker.url) as client:

        def move(name: str, act: Callable[[], object]) -> float:
            before = metric(broker, name)
            act()
            return metric(broker, name) - before

        def publish(*values: bytes) -> None:
            client.publish("orders", [NewMessage(value, partition=0) for value in values])

        def read_missing() -> None:
            with pytest.raises(ApiError):
                client.publish("nowhere", [NewMessage(b"a"), NewMessage(b"b")])

        config = {"max.message.bytes": "2048"}
        assert move("goqueue_broker_topics", lambda: client.create_topic("orders", config=config)) == 1
        assert metric(broker, "goqueue_broker_partitions") == 3
        assert move("goqueue_broker_published_messages_total", lambda: publish(b"a", b"b", b"c")) == 3
        assert move("goqueue_broker_published_bytes_total", lambda: publish(b"x" * 1_000)) > 1_000
        assert move("goqueue_storage_sync_seconds_count", lambda: publish(b"a")) >= 1
        refused = "goqueue_broker_refused_messages_total"
        assert move(refused + '{code="MESSAGE_TOO_LARGE"}', lambda: publish(b"x" * 5_000, b"fits")) == 1
        assert move(refused + '{code="TOPIC_NOT_FOUND"}', read_missing) == 2
        assert move("goqueue_broker_read_messages_total", lambda: client.read("orders", 0, limit=2)) == 2
        assert move("goqueue_broker_read_bytes_total", lambda: client.read("orders", 0)) > 1_000

        producer = call(broker, "POST", "/producers/init", {}).body
        body = {
            "messages": [{"value": "once", "partition": 0}],
            "acks": Acks.LEADER.value,
            "sequence": 0,
            **producer,
        }
        send = partial(call, broker, "POST", "/topics/orders/messages", body)
        assert move("goqueue_broker_duplicate_batches_total", send) == 0
        assert move("goqueue_broker_duplicate_batches_total", send) == 1
        assert metric(broker, "goqueue_storage_disk_used_ratio") > 0
        assert metric(broker, "goqueue_storage_writes_refused") == 0
