"""REST members of a real broker: alone, beside Kafka's consumers in one group, and across kill -9."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.asgi import Json
from tests.support.broker import Broker
from tests.support.kafka_clients import (
    Confluent,
    Record,
    confluent,
    new_name,
    new_topic,
    quiet_broker,
    until,
)
from tests.support.kafka_members import HEARTBEAT_MS, Member, confluent_member

PARTITION_COUNT = 6
TIMEOUT_S = 40.0
KIP848 = {"group_protocol": "consumer"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    env = {"GOQUEUE_GROUPS__CONSUMER_HEARTBEAT_MS": str(HEARTBEAT_MS)}
    with quiet_broker(tmp_path_factory.mktemp("rest-groups"), **env) as running:
        yield running


def call(url: str, body: object | None = None) -> tuple[int, Json]:
    """Status and answer; with a body, of a POST."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=TIMEOUT_S) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


class RestMember(threading.Thread):
    """It polls and commits after every poll (or acknowledges everything, in a queue) until it is told to leave. Whatever
    happens to its broker, it goes on; who does not know it any more is joined again."""

    def __init__(self, url: str, group: str, topic: str, mode: str = "stream") -> None:
        super().__init__(daemon=True)
        self.url = url
        self.values: list[str] = []
        self.assigned: frozenset[int] = frozenset()
        self.leaving = threading.Event()
        self.failure: BaseException | None = None
        self._group, self._topic, self._mode = group, topic, mode
        self._id: str | None = None
        self._generation = 0
        self.start()

    def run(self) -> None:
        try:
            while not self.leaving.is_set():
                try:
                    self._turn()
                except (urllib.error.URLError, OSError, http.client.HTTPException):  # the broker is away
                    time.sleep(0.05)
            if self._id is not None:
                self._post("leave", {"member_id": self._id})
        except BaseException as error:  # noqa: BLE001 - the test sees it in `leave`
            self.failure = error

    def leave(self) -> None:
        self.leaving.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive(), "a member does not end"
        if self.failure is not None:
            raise self.failure

    def _turn(self) -> None:
        if self._id is None:
            joined = self._post("join", {"client_id": "test", "topics": [self._topic], "mode": self._mode})
            self._id, self._generation = joined["member_id"], joined["generation"]
        query = f"member_id={self._id}&generation={self._generation}&timeout=1s&limit=50"
        status, polled = call(f"{self.url}/groups/{self._group}/poll?{query}")
        if status in (404, 409):
            self._id = None
            return
        if status == 503:
            return
        assert status == 200, polled
        self._generation = polled["generation"]
        self.assigned = frozenset(one["partition"] for one in polled["assigned_partitions"])
        if polled["messages"]:
            self._finish(polled["messages"])

    def _finish(self, messages: Json) -> None:
        """What could not be committed or acknowledged comes again, to whoever has it then."""
        self.values += [one["value"] for one in messages]
        if self._mode == "queue":
            handles = [one["receipt_handle"] for one in messages]
            status, answer = call(f"{self.url}/messages/ack/batch", {"receipt_handles": handles})
            assert status in (200, 207, 404, 409, 503), answer
        else:
            offsets = {one["partition"]: one["offset"] + 1 for one in messages}
            body = {
                "member_id": self._id,
                "generation": self._generation,
                "offsets": {self._topic: offsets},
            }
            status, answer = call(f"{self.url}/groups/{self._group}/offsets", body)
            assert status in (200, 403, 409, 404, 503), answer

    def _post(self, what: str, body: object) -> Json:
        status, answer = call(f"{self.url}/groups/{self._group}/{what}", body)
        if status == 503:
            raise OSError("the broker starts or stops")
        assert status == 200, answer
        return answer


def send(broker: Broker, topic: str, numbers: range) -> set[str]:
    records = [Record(b"%d" % number, partition=number % PARTITION_COUNT) for number in numbers]
    Confluent(broker.kafka).send(topic, records)
    return {str(number) for number in numbers}


def patient_consumer(kafka: str, group: str, topic: str) -> Member:
    """A Kafka consumer that commits by itself and waits for a broker that is away."""

    def run(member: Member) -> None:
        consumer = confluent.Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        while not member.leaving.is_set():
            member.values += [one.value() for one in consumer.consume(100, 0.1) if one.error() is None]
        consumer.close()

    return Member(run)


def test_a_rest_member_and_a_kafka_consumer_are_in_one_group(served: Broker) -> None:
    topic, group = new_topic(served, partitions=PARTITION_COUNT), new_name("g")
    sent = send(served, topic, range(60))
    rest = RestMember(served.url, group, topic)
    until(lambda: len(rest.assigned) == PARTITION_COUNT, "the REST member has everything")
    kafka = confluent_member(served.kafka, group, topic, **KIP848)
    try:
        until(
            lambda: (
                sorted([*rest.assigned, *kafka.assigned]) == list(range(PARTITION_COUNT))
                and len(rest.assigned) == len(kafka.assigned) == 3
            ),
            "three partitions each",
        )
        sent |= send(served, topic, range(60, 180))
        until(
            lambda: {*rest.values, *(value.decode() for value in kafka.values)} == sent,
            "everything is read by one of them",
        )
        assert any(value.decode() in sent for value in kafka.values)
        status, described = call(f"{served.url}/groups/{group}")
        assert status == 200
        assert (described["type"], len(described["members"])) == ("consumer", 2)
        rest.leave()
        until(lambda: len(kafka.assigned) == PARTITION_COUNT, "the Kafka consumer has everything")
        sent |= send(served, topic, range(180, 240))
        until(
            lambda: {*rest.values, *(value.decode() for value in kafka.values)} == sent,
            "the Kafka consumer reads what is left",
        )
    finally:
        kafka.leave()
    _, found = call(f"{served.url}/groups/{group}/offsets")
    assert found["offsets"][topic] == {
        str(index): {"offset": 40, "lag": 0} for index in range(PARTITION_COUNT)
    }


def test_a_classic_group_of_kafka_is_shown_and_reset_over_rest(served: Broker) -> None:
    topic, group = new_topic(served, partitions=PARTITION_COUNT), new_name("g")
    send(served, topic, range(12))
    member = confluent_member(served.kafka, group, topic)
    until(lambda: len(member.values) == 12, "everything is read")
    _, described = call(f"{served.url}/groups/{group}")
    (one,) = described["members"]
    assert [place["partition"] for place in one["assigned_partitions"]] == list(range(PARTITION_COUNT))
    assert (described["type"], described["mode"], described["topics"]) == ("classic", "stream", [topic])
    join = {"client_id": "c", "topics": [topic]}
    assert call(f"{served.url}/groups/{group}/join", join)[0] == 409
    reset = {"to": "earliest", "topic": topic}
    assert call(f"{served.url}/groups/{group}/offsets/reset", reset)[0] == 409
    member.leave()
    status, done = call(f"{served.url}/groups/{group}/offsets/reset", reset)
    assert status == 200
    assert {(one["old_offset"], one["new_offset"]) for one in done["offsets"]} == {(2, 0)}
    again = confluent_member(served.kafka, group, topic)
    until(lambda: len(again.values) == 12, "everything is read again")
    again.leave()


def test_trap_16_an_idle_long_poll_ends_with_an_empty_200_on_a_real_connection(served: Broker) -> None:
    topic, group = new_topic(served, partitions=1), new_name("g")
    _, joined = call(f"{served.url}/groups/{group}/join", {"client_id": "c", "topics": [topic]})
    began = time.monotonic()
    status, polled = call(f"{served.url}/groups/{group}/poll?member_id={joined['member_id']}&timeout=2s")
    assert (status, polled["messages"]) == (200, [])
    assert time.monotonic() - began >= 1.9


def test_a_poll_whose_client_hangs_up_keeps_nothing_from_the_others(served: Broker) -> None:
    topic, group = new_topic(served, partitions=1), new_name("g")
    join = {"client_id": "c", "topics": [topic], "mode": "queue"}
    first = call(f"{served.url}/groups/{group}/join", join)[1]["member_id"]
    second = call(f"{served.url}/groups/{group}/join", join)[1]["member_id"]
    host, port = served.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
        path = f"/groups/{group}/poll?member_id={first}&timeout=30s"
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        until(lambda: call(f"{served.url}/stats")[1]["parked_reads"] >= 1, "the poll waits")
    until(lambda: call(f"{served.url}/stats")[1]["parked_reads"] == 0, "the poll is over")
    send(served, topic, range(0, PARTITION_COUNT, PARTITION_COUNT))
    _, polled = call(f"{served.url}/groups/{group}/poll?member_id={second}&timeout=30s")
    assert [one["value"] for one in polled["messages"]] == ["0"]


def test_a_stream_of_kafka_and_a_queue_of_rest_each_get_everything_while_the_broker_is_killed(
    tmp_path: Path,
) -> None:
    """With restarts on the same ports, as clients know them."""
    data, env = tmp_path / "data", {"GOQUEUE_TOPIC_DEFAULTS__VISIBILITY_MS": "2000"}
    with Broker(data, env=env) as broker:
        topic = new_topic(broker, partitions=PARTITION_COUNT)
        url, address, kafka = broker.url, broker.address, broker.kafka
        stream = patient_consumer(kafka, "stream", topic)
        queue = [RestMember(url, "queue", topic, "queue") for _ in range(2)]
        sent = send(broker, topic, range(120))
        broker.kill9()
    for life in range(1, 3):
        with Broker(data, env=env, http=address, kafka=kafka) as broker:
            sent |= send(broker, topic, range(life * 120, (life + 1) * 120))
            broker.kill9()
    with Broker(data, env=env, http=address, kafka=kafka) as broker:
        until(lambda: {value.decode() for value in stream.values} == sent, "the stream got everything")
        until(
            lambda: (
                {value for member in queue for value in member.values} == sent
                or any(member.failure for member in queue)
            ),
            "the queue got everything",
        )
        # What was got without its ack being taken (the broker was killed, the lease was over) comes again first.
        until(lambda: lags(broker, "queue", topic) == {0}, "everything is acknowledged")
        stream.leave()
        for member in queue:
            member.leave()
        assert lags(broker, "queue", topic) == {0}


def lags(broker: Broker, group: str, topic: str) -> set[int]:
    _, found = call(f"{broker.url}/groups/{group}/offsets")
    return {one["lag"] for one in found["offsets"][topic].values()}
