"""Parts of the bulk client that need no broker, and one connection against a broker that the test plays."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioCode
from tests.support.scripted_broker import Hold, Raw, Request, ScriptedBroker

from goqueue.client.kafka.brokers import parse_bootstrap
from goqueue.client.kafka.codes import RETRIABLE, ErrorCode, name_of
from goqueue.client.kafka.connection import KNOWN, Address, Connection, Dialler
from goqueue.client.kafka.errors import (
    KafkaError,
    NotUnderstood,
    OffsetOutOfRange,
    Unreachable,
    check,
    refused,
)
from goqueue.client.kafka.fetching import whole_batches
from goqueue.client.kafka.security import Security
from goqueue.log.batch import build_batch
from goqueue.model.record import NewRecord
from goqueue.wire.schema import api_key, request_schema, responses

BATCH = build_batch([NewRecord(b"k", b"v" * 30)], 1)


def test_error_codes_are_kafka_s() -> None:
    ours = {code.value: code.name for code in ErrorCode}
    assert ours == {code.value: code.name.upper() for code in KioCode}
    theirs = {code.value for code in KioCode if code.retriable}
    assert {int(code) for code in RETRIABLE} == theirs - {ErrorCode.CORRUPT_MESSAGE} | {
        ErrorCode.BROKER_NOT_AVAILABLE
    }
    assert name_of(9_999) == "ERROR_9999"


def test_errors_say_what_was_asked_and_survive_another_process() -> None:
    error = refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "fetching t-0 from offset 7", "ask another")
    assert str(error) == "fetching t-0 from offset 7: NOT_LEADER_OR_FOLLOWER: ask another"
    assert error.is_retriable
    check(ErrorCode.NONE, "nothing")
    for one in (error, Unreachable("gone"), NotUnderstood("what"), OffsetOutOfRange("t", 1, 5, 6, 9)):
        again = pickle.loads(pickle.dumps(one))  # noqa: S301 - our own
        assert (type(again), str(again), again.code) == (type(one), str(one), one.code)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1", [("a", 1)]),
        (" a:1, b.example:65535 ,", [("a", 1), ("b.example", 65_535)]),
        ("[::1]:9092,10.0.0.1:9", [("::1", 9_092), ("10.0.0.1", 9)]),
    ],
)
def test_bootstrap_names_brokers(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize(
    "text", ["", " , ", "a", "a:", ":1", "a:b", "a:0", "a:65536", "::1:9092", "[a]:1", "[]:1", "a:1²"]
)
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(KafkaError, match="HOST:PORT") as caught:
        parse_bootstrap(text)
    assert caught.value.name == "INVALID_CONFIG"


def test_addresses_are_written_as_they_are_read() -> None:
    assert str(Address("::1", 1)) == "[::1]:1"
    assert str(Address("a", 1)) == "a:1"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"protocol": "SASL_SSL"}, "SASL_SSL: the broker has no SASL; use PLAINTEXT"),
        ({"protocol": "SASL_PLAINTEXT"}, "no SASL"),
        ({"protocol": "ssl"}, "'ssl' is no security protocol"),
        ({"protocol": "SSL", "key_path": "k.pem"}, "the key 'k.pem' needs its certificate"),
        ({"ca_path": "ca.pem"}, "the protocol is not SSL"),
    ],
)
def test_security_that_cannot_be_had_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(KafkaError, match=reason):
        Security(**options)


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    with pytest.raises(KafkaError, match=r"cannot be read .*ca\.pem"):
        Security("SSL", ca_path=str(path)).context()
    path.write_text("no certificate")
    with pytest.raises(KafkaError, match=r"cannot be read .*ca\.pem"):
        Security("SSL", ca_path=str(path)).context()


def test_password_of_a_key_is_not_shown() -> None:
    assert "secret" not in repr(Security("SSL", cert_path="c", key_path="k", key_password="secret"))


def test_torn_batch_at_the_end_is_dropped_wherever_it_is_cut() -> None:
    size = len(BATCH)
    for cut in range(2 * size + 1):
        assert whole_batches(memoryview(BATCH + BATCH)[:cut]) == (
            cut // size * size,
            size if cut == 2 * size else 0,
        )


def test_batch_that_is_too_short_to_be_one_is_refused() -> None:
    with pytest.raises(NotUnderstood, match="claims to have 12 bytes"):
        whole_batches(memoryview(BATCH[:8] + bytes(4) + BATCH[12:]))


def test_every_version_that_the_client_speaks_has_a_layout() -> None:
    for api, (first, last) in KNOWN.items():
        for version in range(first, last + 1):
            request_schema(api).layout(version)


# -------------------------------------------------------------------- one connection


@contextmanager
def dialled(broker: ScriptedBroker, *, timeout_s: float = 20.0) -> Iterator[Connection]:
    dialler = Dialler(Security(), client_id="test", timeout_s=timeout_s)
    connection = dialler.dial(Address("127.0.0.1", broker.port))
    try:
        yield connection
    finally:
        connection.close()


def groups(request: Request) -> Any:
    kinds = responses("describe_configs")
    name = request.body.resources[0].resource_name
    return kinds.DescribeConfigsResponse(results=[kinds.DescribeConfigsResult(resource_name=name)])


def ask(connection: Connection, name: str) -> None:
    kinds = request_schema("describe_configs").classes
    connection.send("describe_configs", resources=[kinds["DescribeConfigsResource"](resource_name=name)])


def test_answers_come_in_the_order_of_the_requests() -> None:
    with ScriptedBroker(groups) as broker, dialled(broker) as connection:
        for at in range(4):
            ask(connection, str(at))
        assert connection.waiting_count == 4
        assert [connection.receive().results[0].resource_name for _ in range(4)] == ["0", "1", "2", "3"]
        assert connection.is_free


def test_newest_version_that_both_know_is_spoken() -> None:
    served = {"describe_configs": (0, 2)}
    with ScriptedBroker(groups, served=served) as broker, dialled(broker) as connection:
        ask(connection, "x")
        connection.receive()
        assert broker.seen[-1].version == 2
        assert connection.version("metadata") == KNOWN["metadata"][1]


def test_version_that_only_one_side_knows_is_an_error() -> None:
    served = {"fetch": (18, 30), "metadata": (0, 1)}
    with ScriptedBroker(groups, served=served) as broker, dialled(broker) as connection:
        with pytest.raises(KafkaError, match="serves fetch in versions 18 to 30; versions 4 to 12"):
            connection.version("fetch")
        with pytest.raises(KafkaError, match="serves metadata in versions 0 to 1"):
            connection.version("metadata")
        with pytest.raises(KafkaError, match="versions 13 to 12 are needed"):
            connection.version("produce", least=13)


def garbage(content: bytes) -> Iterator[str]:
    """A server that says this to whoever connects."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(1_000)
            client.sendall(content)
            try:
                client.recv(1_000)
            except ConnectionResetError:
                pass  # it hangs up on what is left

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        thread.join(20)
        listener.close()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", r"is no Kafka broker.*b'HTTP'"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "another security protocol"),
        (b"\xff\xff\xff\xff", "is no Kafka broker"),
        (b"\0\0\0\x04\0\0\0\x01", "is no Kafka broker"),
        (b"\0\0\0\x08\0\0\0\x63\0\0\0\0", "answers request 99; 1 was next"),
        (b"\0\0\0\x0a\0\0\0\x01\0\0\0\0\0\x09", "cannot be read"),
        (b"\0\0\0\x0a\0\0\0\x01\0\x23\0\0\0\0", "does not say what it serves: UNSUPPORTED_VERSION"),
    ],
)
def test_server_that_does_not_speak_kafka_is_named(content: bytes, reason: str) -> None:
    with contextmanager(garbage)(content) as address:
        dialler = Dialler(Security(), client_id="test", timeout_s=20)
        with pytest.raises(NotUnderstood, match=reason) as caught:
            dialler.dial(*parse_bootstrap(address))
        assert address in str(caught.value)
        assert not caught.value.is_retriable


def test_silence_and_closing_may_heal() -> None:
    hold = Hold()
    answers: list[Any] = [hold, None, Raw(b"\0\0\0\x50half")]
    with ScriptedBroker(lambda _: answers.pop(0)) as broker:
        with dialled(broker) as connection:
            connection._socket.settimeout(0.2)  # only now: it has taken as long as it likes to dial
            ask(connection, "x")
            with pytest.raises(Unreachable, match=r"silent for 0\.2 s"):
                connection.receive()
            assert not connection.is_free
        hold.set()
        for _ in range(2):
            with dialled(broker) as connection:
                ask(connection, "x")
                with pytest.raises(Unreachable, match="closed by the other side"):
                    connection.receive()


@pytest.mark.parametrize("address", [Address("a..b", 1), Address("x" * 70, 1), Address("127.0.0.1", 70_000)])
def test_address_that_cannot_be_dialled_is_named(address: Address) -> None:
    dialler = Dialler(Security(), client_id="test", timeout_s=5)
    with pytest.raises(KafkaError, match=str(address)):
        dialler.dial(address)


def test_client_id_has_a_limit() -> None:
    with pytest.raises(KafkaError, match="at most 32767 bytes"):
        Dialler(Security(), client_id="x" * 40_000, timeout_s=5)


def test_tags_in_the_header_of_an_answer_are_passed_over() -> None:
    body = b"\0\0\0\x02" + b"\x01\x05\x02ab" + b"\0\0\0\0\x01\0"
    with (
        ScriptedBroker(lambda _: Raw(len(body).to_bytes(4, "big") + body)) as broker,
        dialled(broker) as connection,
    ):
        ask(connection, "x")
        assert connection.receive().results == ()


@given(st.binary(max_size=200), st.sampled_from(sorted(KNOWN)))
@settings(max_examples=60, deadline=None)
def test_whatever_an_answer_holds_it_is_read_or_refused(content: bytes, api: str) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        connection = Connection(ours, Address("played", 1), "test")
        connection._served = {api_key(name): (0, 50) for name in KNOWN}
        connection.send(api)
        body = b"\0\0\0\x01" + content
        theirs.sendall(len(body).to_bytes(4, "big") + body)
        try:
            connection.receive()
        except NotUnderstood as error:
            assert "played:1" in str(error)  # noqa: PT017 - both outcomes are right
        finally:
            connection.close()


def test_client_needs_neither_arrow_nor_spark() -> None:
    code = (
        "import sys, goqueue.client.kafka; print(sorted({'pyarrow', 'pyspark', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
