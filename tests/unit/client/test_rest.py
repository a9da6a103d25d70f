"""The REST client against a scripted server: what it sends, what it retries, what it makes of answers."""

from __future__ import annotations

import json
import socket
import threading
from types import TracebackType
from typing import Self

import pytest

from goqueue.client.rest import ApiError, NewMessage, RestClient, Unreachable

TOPICS = b'{"topics": [{"name": "t", "partitions": 3, "created": "2026-01-31T12:00:00.000Z"}]}'


def answer(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


class Server:
    """Answers each connection with a script: one entry per request, None to close without an answer."""

    def __init__(self, *scripts: list[bytes | None]) -> None:
        self.requests: list[bytes] = []
        self.closed = [threading.Event() for _ in scripts]
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run, args=(scripts,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # closing alone does not wake a thread in accept()
        self._thread.join(20)
        self._socket.close()

    def _run(self, scripts: tuple[list[bytes | None], ...]) -> None:
        for script, closed in zip(scripts, self.closed, strict=True):
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                for reply in script:
                    self.requests.append(_read_request(connection))
                    if reply is None:
                        break
                    connection.sendall(reply)
            closed.set()


def _read_request(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        head = b""
        while (line := stream.readline()) not in (b"\r\n", b""):
            head += line
        length = next(
            (int(line[15:]) for line in head.splitlines() if line.lower().startswith(b"content-length:")), 0
        )
        return head + stream.read(length)


def test_one_connection_serves_many_requests() -> None:
    with Server([answer(TOPICS), answer(TOPICS)]) as server, RestClient(server.url) as client:
        assert [topic.name for topic in client.topics()] == ["t"]
        assert [topic.partitions for topic in client.topics()] == [3]


def test_a_connection_that_the_broker_closed_is_replaced_before_anything_is_sent() -> None:
    with Server([answer(TOPICS)], [answer(b'{"results": []}')]) as server, RestClient(server.url) as client:
        client.topics()
        assert server.closed[0].wait(10)
        assert client.publish("t", []) == []


def test_an_idempotent_request_is_sent_again_once_if_the_connection_closes_under_it() -> None:
    with Server([answer(TOPICS), None], [answer(TOPICS)]) as server, RestClient(server.url) as client:
        client.topics()
        client.topics()
        assert len(server.requests) == 3


def test_a_publish_is_never_sent_twice() -> None:
    with Server([answer(TOPICS), None], [answer(TOPICS)]) as server, RestClient(server.url) as client:
        client.topics()
        with pytest.raises(Unreachable) as caught:
            client.publish("t", [NewMessage(b"v")])
        assert caught.value.was_sent
        assert len(server.requests) == 2


def test_a_fresh_connection_that_closes_is_not_tried_again() -> None:
    with Server([None], [answer(TOPICS)]) as server, RestClient(server.url) as client:
        with pytest.raises(Unreachable):
            client.topics()
        assert len(server.requests) == 1


def test_a_broker_that_is_not_there_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        port = taken.getsockname()[1]
        with (
            RestClient(f"http://127.0.0.1:{port}") as client,
            pytest.raises(Unreachable, match=f":{port}: ") as caught,
        ):
            client.topics()
    assert not caught.value.was_sent


def test_a_broker_that_does_not_answer_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with RestClient(url, timeout_s=0.05) as client, pytest.raises(Unreachable, match="in time"):
            client.topics()


def test_an_error_of_the_broker_keeps_its_code_status_and_sentence() -> None:
    body = b'{"error": "topic \'t\' does not exist", "code": "TOPIC_NOT_FOUND", "status": 404, "details": {}}'
    with (
        Server([answer(body, 404)]) as server,
        RestClient(server.url) as client,
        pytest.raises(ApiError) as caught,
    ):
        client.topic("t")
    error = caught.value
    assert (error.code, error.status, error.sentence) == ("TOPIC_NOT_FOUND", 404, "topic 't' does not exist")


@pytest.mark.parametrize(("status", "body"), [(502, b"<html>"), (200, b"<html>"), (200, b"{}")])
def test_an_answer_that_is_not_from_a_broker_is_an_error(status: int, body: bytes) -> None:
    with Server([answer(body, status)]) as server, RestClient(server.url) as client, pytest.raises(ApiError):
        client.topics()


def test_results_are_given_back_also_when_every_message_was_refused() -> None:
    body = b'{"error": "no", "code": "MESSAGE_TOO_LARGE", "status": 413, "results": [{"error": "no", "code": "X"}]}'
    with Server([answer(body, 413)]) as server, RestClient(server.url) as client:
        [result] = client.publish("t", [NewMessage(b"v")])
    assert (result.error, result.code, result.offset) == ("no", "X", None)


def test_bytes_travel_as_text_where_they_are_text_and_as_base64_where_not() -> None:
    with Server([answer(b'{"results": []}')]) as server, RestClient(server.url) as client:
        client.publish(
            "a/b", [NewMessage(b"\xff", key=b"k", headers={"h": "1"}, partition=2), NewMessage(None)]
        )
    [request] = server.requests
    assert request.startswith(b"POST /topics/a%2Fb/messages ")
    assert json.loads(request.rpartition(b"\r\n")[2])["messages"] == [
        {"value_base64": "/w==", "key": "k", "headers": {"h": "1"}, "partition": 2},
        {"value": None},
    ]


def test_a_page_is_read_into_bytes() -> None:
    body = json.dumps(
        {
            "messages": [
                {
                    "offset": 4,
                    "timestamp": "x",
                    "key": "k",
                    "value": "é",
                    "headers": {"a": "1", "b": ["2", None]},
                },
                {
                    "offset": 5,
                    "timestamp": "x",
                    "key": None,
                    "value_base64": "/w==",
                    "headers_base64": {"c": "/g=="},
                },
            ],
            "next_offset": 6,
            "high_watermark": 9,
            "last_stable_offset": 9,
        }
    ).encode()
    with Server([answer(body)]) as server, RestClient(server.url) as client:
        page = client.read("t", 1, offset=4, wait_ms=250)
    assert b"/topics/t/partitions/1/messages?offset=4&limit=100&wait=250ms " in server.requests[0]
    first, second = page.messages
    assert (first.key, first.value) == (b"k", "é".encode())
    assert first.headers == (("a", b"1"), ("b", b"2"), ("b", None))
    assert (second.key, second.value, second.headers) == (None, b"\xff", (("c", b"\xfe"),))
    assert page.next_offset == 6


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://host", "http://", "http://host:99999"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        RestClient(url)
