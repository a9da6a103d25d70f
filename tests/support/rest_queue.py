"""A member of a queue group over REST, for tests against a real broker."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection
from typing import Any, NamedTuple

from tests.support.broker import Broker

Json = Any  # what the broker answers; the tests look into it


class Answer(NamedTuple):
    status: int
    body: Json


def call(broker: Broker, method: str, target: str, body: object = None) -> Answer:
    connection = HTTPConnection(broker.address, timeout=60)
    try:
        connection.request(method, target, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return Answer(response.status, json.loads(response.read()))
    finally:
        connection.close()


def create(broker: Broker, topic: str = "tasks", partitions: int = 1, **config: Json) -> None:
    """Settings by their names with underscores."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    body = {"name": topic, "num_partitions": partitions, "config": settings}
    answer = call(broker, "POST", "/topics", body)
    assert answer.status == 201, answer


def publish(broker: Broker, *messages: Mapping[str, Json], topic: str = "tasks") -> list[Json]:
    answer = call(broker, "POST", f"/topics/{topic}/messages", {"messages": messages})
    assert answer.status == 200, answer
    return list(answer.body["results"])


class Worker:
    def __init__(
        self, broker: Broker, group: str = "workers", name: str = "anna", topics: Sequence[str] = ("tasks",)
    ) -> None:
        self._broker = broker
        self._group = group
        body = {"client_id": name, "member_id": name, "topics": topics, "mode": "queue"}
        joined = call(broker, "POST", f"/groups/{group}/join", body)
        assert joined.status == 200, joined
        self._member_id = joined.body["member_id"]

    def poll(self, limit: int = 100, *, timeout: str = "30s", visibility: str | None = None) -> list[Json]:
        """Messages; waits for some."""
        query = f"member_id={self._member_id}&limit={limit}&timeout={timeout}"
        if visibility is not None:
            query += f"&visibility={visibility}"
        answer = call(self._broker, "GET", f"/groups/{self._group}/poll?{query}")
        assert answer.status == 200, answer
        return list(answer.body["messages"])

    def poll_all(self, count: int, *, visibility: str | None = None) -> list[Json]:
        """So many messages, in as many polls as it takes."""
        messages: list[Json] = []
        while len(messages) < count:
            more = self.poll(min(1_000, count - len(messages)), visibility=visibility)
            assert more, f"{len(messages)} messages of {count} have come"
            messages += more
        return messages

    def finish(self, action: str, message: Json, **more: Json) -> Answer:
        body = {"receipt_handle": message["receipt_handle"], **more}
        return call(self._broker, "POST", f"/messages/{action}", body)

    def ack(self, messages: Sequence[Json]) -> list[Json]:
        body = {"receipt_handles": [message["receipt_handle"] for message in messages]}
        answer = call(self._broker, "POST", "/messages/ack/batch", body)
        assert answer.status == 200, answer
        return list(answer.body["results"])
