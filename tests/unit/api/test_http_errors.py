"""Errors: every code has its status, no body can do more harm than a 400, and nothing inside is shown."""

from __future__ import annotations

import logging

import pytest
from tests.support.asgi import Client, Connection
from tests.support.rest_api import with_api, with_unstarted_api

from goqueue.api.http.errors import InternalError
from goqueue.model.cluster_errors import (
    HomeUndecided,
    NameTaken,
    NodeNotFound,
    NotController,
    NotLeader,
    WrongCluster,
)
from goqueue.model.codes import WIRE, Code
from goqueue.model.errors import (
    DataCorrupt,
    GoQueueError,
    InvalidVisibility,
    InvariantViolation,
    LeaseExpired,
    LeaseSuperseded,
    MessageSettled,
    MessageTooLarge,
    OffsetOutOfRange,
    PartitionNotFound,
    TopicExists,
    TopicNotFound,
)
from goqueue.model.limits import Limits
from goqueue.node.config import NodeConfig
from goqueue.node.node import Node
from goqueue.node.requests import ReadQuery, ReadResult, TopicFacts

PUBLISH = "/topics/orders/messages"
READ = "/topics/orders/partitions/0/messages"
BODY = b'{"messages":[{"value":"v"}]}'
SMALL = NodeConfig(limits=Limits(request_bytes_max=100))


class FailingReader:
    def __init__(self, error: Exception) -> None:
        self._error = error

    async def read(self, topic: str, partition: int, query: ReadQuery) -> ReadResult:
        raise self._error


class FailingTopics:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def get(self, name: str) -> TopicFacts:
        raise self._error


def all_errors() -> list[GoQueueError]:
    """One error of every class that the model has."""
    special: list[GoQueueError] = [
        TopicNotFound("t"),
        PartitionNotFound("t", 9, 3),
        TopicExists("t"),
        OffsetOutOfRange(9, earliest=1, latest=5),
        MessageTooLarge("the key", 9, 5),
        DataCorrupt(start=1, end=2, file="f", position=3, reason="crc"),
        LeaseExpired("g", 9),
        LeaseSuperseded("g", 9, 1, 2),
        MessageSettled("g", 9),
        InvalidVisibility(-1, 9),
        NotLeader("t", 1, 2),
        NotController("node-1"),
        WrongCluster("a", "b"),
        NodeNotFound("node-9"),
        NameTaken("node-9", "a:1", "b:1"),
        HomeUndecided("t", 1, "a reason"),
        InternalError(),
    ]
    built = {type(error) for error in special}
    plain = [
        kind("a sentence", value=1, names=["a"])
        for kind in GoQueueError.__subclasses__()
        if kind not in built
    ]
    return [*special, *plain]


def test_every_code_is_tried() -> None:
    assert {error.code for error in all_errors()} == set(Code)


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: error.code.value)
@pytest.mark.parametrize("target", [READ, "/topics/orders"])
def test_every_error_is_sent_with_its_own_status(error: GoQueueError, target: str) -> None:
    async def main(client: Client, node: Node) -> None:
        node.reader = FailingReader(error)  # type: ignore[assignment]  # fakes with the one method that is used
        node.topics = FailingTopics(error)  # type: ignore[assignment]
        response = await client.get(target)
        assert response.status == WIRE[error.code].http
        assert response.headers["content-type"] == "application/json"
        assert response.json() == {
            "error": error.sentence,
            "code": error.code.value,
            "status": response.status,
            "details": error.details,
        }

    with_api(main)


def test_a_broken_invariant_ends_the_node(caplog: pytest.LogCaptureFixture) -> None:
    async def main(client: Client, node: Node) -> None:
        node.reader = FailingReader(InvariantViolation("secret"))  # type: ignore[assignment]  # as above
        response = await client.get(READ)
        assert (response.status, response.json()["code"]) == (500, "INTERNAL")
        assert node.failed.is_set()
        assert not node.health().is_live

    with_api(main)
    (record,) = caplog.records
    assert record.levelno == logging.CRITICAL


@pytest.mark.parametrize("error", [RuntimeError("secret"), KeyError("secret")])
def test_a_bug_is_500_logged_once_and_shows_nothing(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(client: Client, node: Node) -> None:
        node.reader = FailingReader(error)  # type: ignore[assignment]  # a fake with the one method that is used
        response = await client.get(READ)
        assert (response.status, response.json()["code"]) == (500, "INTERNAL")
        assert "secret" not in response.body.decode()

    with caplog.at_level(logging.WARNING):
        with_api(main)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[1] is error


@pytest.mark.parametrize("target", [PUBLISH, "/topics", "/producers/init"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b"5",
        b'"text"',
        b"{",
        b"{}}",
        b'{"name":"a",}',
        b"{'name':'a'}",
        b'{"name":NaN}',
        b'{"name":Infinity,"messages":NaN}',
        b'{"name":"a","messages":[{"value":"\\ud800"}]}',
        b'{"name":"\\udc00","messages":[{"value":"\\udc00"}]}',
        b'{"name":"\xff","messages":[{"value":"\xff"}]}',
        b'{"messages":[{"value":"\xff"}]}',
        b'{"\xff":1}',
        b"\xef\xbb\xbf{}",
        b"\x00",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"messages":[{"headers":' + b'{"a":[' * 50_000,
        b'{"config":' + b"[" * 100_000,
        b'{"unknown":1}',
    ],
)
def test_a_malformed_body_is_400(target: str, body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.request("POST", target, body)
        assert (response.status, response.json()["code"]) == (400, "INVALID_REQUEST")

    with_api(main)
    assert not caplog.records


def test_an_unknown_field_is_named() -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.request("POST", "/topics", b'{"name":"a","colour":"red"}')
        assert "`colour`" in response.json()["error"]

    with_api(main)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/health"),
        ("GET", "/topics"),
        ("POST", "/topics"),
        ("DELETE", "/topics/orders"),
        ("GET", "/openapi.json"),
    ],
)
def test_an_unknown_query_parameter_is_named_everywhere(method: str, target: str) -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.request(method, f"{target}?colour=red")
        assert (response.status, response.json()["details"]) == (400, {"parameter": "colour"})

    with_api(main)


@pytest.mark.parametrize("target", [PUBLISH, "/topics"])
def test_an_announced_body_that_is_too_large_is_not_read(target: str) -> None:
    async def main(client: Client, node: Node) -> None:
        for length in ("101", "9" * 5_000):
            connection = Connection([])
            await client.run(connection, "POST", target, headers={"Content-Length": length})
            assert connection.response().status == 413
            assert connection.response().json()["code"] == "REQUEST_TOO_LARGE"
            assert not connection.is_watched.is_set()

    with_api(main, config=SMALL)


@pytest.mark.parametrize("target", [PUBLISH, "/topics"])
@pytest.mark.parametrize("chunks", [(b"x" * 101,), (b"x" * 60, b"x" * 60), (b"x" * 60, b"x" * 60, b"x" * 60)])
def test_a_body_that_grows_too_large_is_refused(target: str, chunks: tuple[bytes, ...]) -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.request("POST", target, *chunks)
        assert (response.status, response.json()["details"]) == (413, {"bytes_max": 100})

    with_api(main, config=SMALL)


def test_a_body_may_come_in_pieces() -> None:
    async def main(client: Client, node: Node) -> None:
        pieces = [BODY[at : at + 1] for at in range(len(BODY))]
        assert (await client.request("POST", PUBLISH, *pieces, b"")).status == 200

    with_api(main, config=SMALL)


def test_a_client_that_goes_away_before_its_body_is_complete_gets_nothing() -> None:
    async def main(client: Client, node: Node) -> None:
        connection = Connection([BODY[:5]], is_complete=False)
        connection.close()
        await client.run(connection, "POST", PUBLISH)
        assert connection.sent == []

    with_api(main)


def test_a_node_that_has_not_started_takes_no_requests() -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.request("POST", "/topics", b'{"name":"a"}')
        assert (response.status, response.json()["code"]) == (503, "NOT_READY")
        await node.start()

    with_unstarted_api(main)


def test_a_draining_node_refuses_writes_and_still_answers_reads() -> None:
    async def main(client: Client, node: Node) -> None:
        await client.request("POST", PUBLISH, BODY)
        await node.drain()
        assert (await client.request("POST", PUBLISH, BODY)).status == 503
        assert (await client.request("POST", "/producers/init", b"{}")).status == 503
        assert (await client.get(READ)).status == 200

    with_api(main)
