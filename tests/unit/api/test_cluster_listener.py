"""The cluster's listener: two protocols on one port, and what strangers and broken peers get there."""

from __future__ import annotations

import asyncio
import json
import logging
import struct
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.support.kafka_sockets import LOOPS, leave, next_frame, run_on
from tests.support.peers import KEY, NOW_MS, Station

from goqueue.api.cluster import app as cluster_app
from goqueue.api.cluster import listener as cluster_listener
from goqueue.api.kafka import connection as kafka_connection
from goqueue.core.raft.messages import AskVote, encode_message
from goqueue.model.cluster_errors import NotController
from goqueue.model.errors import InvariantViolation
from goqueue.node.cluster.ports import Beat
from goqueue.node.cluster.secret import Secret
from goqueue.sim.loop import SimLoop, run
from goqueue.wire.schema import api_key

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
pytestmark = pytest.mark.parametrize("loop", [*LOOPS, "simulated"])
VOTE = AskVote("n2", "n1", 2, 0, 0, is_pre=False, is_transfer=False)
BEAT = msgspec.json.encode(Beat("n2", "i", 4, is_ready=True))


def play(loop: str, main: Awaitable[None]) -> None:
    async def simulated(_: SimLoop) -> None:
        await main

    if loop == "simulated":
        run(simulated, seed=1)
    else:
        run_on(loop, main)


@asynccontextmanager
async def stationed(**options: Any) -> AsyncIterator[Station]:
    station = await Station("n1", **options).start()
    try:
        yield station
    finally:
        await station.stop()


@asynccontextmanager
async def connected(station: Station) -> AsyncIterator[Streams]:
    assert station.address is not None
    streams = await asyncio.open_connection(*station.address)
    try:
        yield streams
    finally:
        await leave(streams)


def http(method: str, path: str, body: bytes = b"", *, header: str = "", length: int | None = None) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "host: n1",
        f"content-length: {len(body) if length is None else length}",
    ]
    if header:
        lines.append(f"goqueue-peer: {header}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def signed(method: str, path: str, body: bytes = b"", **changes: Any) -> str:  # of whatever parameter
    values: dict[str, Any] = {
        "source": "n2",
        "target": "n1",
        "cluster_id": "c1",
        "timestamp_ms": NOW_MS,
        "nonce": "first",
    }
    key = changes.pop("key", KEY)
    return Secret(key).sign(method, path, body, **(values | changes))


async def answer(streams: Streams) -> tuple[int, dict[str, str], bytes]:
    head = (await streams[0].readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    body = await streams[0].readexactly(int(headers.get("content-length", 0)))
    return int(head[0].split()[1]), headers, body


async def ask(
    station: Station, method: str, path: str, body: bytes = b"", *, header: str = ""
) -> tuple[int, Any]:
    async with connected(station) as streams:
        streams[1].write(http(method, path, body, header=header))
        status, _, content = await answer(streams)
        return status, json.loads(content) if content else None


def test_signed_message_reaches_the_node(loop: str) -> None:
    async def main() -> None:
        body = encode_message(VOTE)
        async with stationed() as station:
            for path, nonce in (("/cluster/vote", "a"), ("/v1/cluster/append", "b")):
                header = signed("POST", path, body, nonce=nonce)
                assert await ask(station, "POST", path, body, header=header) == (204, None)
            assert station.service.received == [("n2", VOTE)] * 2

    play(loop, main())


def test_answer_is_signed(loop: str) -> None:
    async def main() -> None:
        async with stationed() as station, connected(station) as streams:
            header = signed("POST", "/cluster/heartbeat", BEAT)
            streams[1].write(http("POST", "/cluster/heartbeat", BEAT, header=header))
            status, headers, body = await answer(streams)
            assert status == 200
            assert json.loads(body)["controller"] == "n1"
            assert Secret(KEY).is_answer(header, status, body, headers["goqueue-peer-answer"])

    play(loop, main())


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/cluster/health"),
        ("POST", "/cluster/leave"),
        ("POST", "/nowhere"),
        ("GET", "/cluster/heartbeat"),
    ],
)
def test_header_of_another_request_gets_nothing_signed(loop: str, method: str, path: str) -> None:
    """Whoever holds that one back would give it to the one who waits, as the answer."""

    async def main() -> None:
        async with stationed() as station, connected(station) as streams:
            header = signed("POST", "/cluster/heartbeat", BEAT)
            streams[1].write(http(method, path, BEAT, header=header))
            status, headers, _ = await answer(streams)
            assert status == 401
            assert "goqueue-peer-answer" not in headers

    play(loop, main())


def test_second_answer_to_a_request_is_not_signed(loop: str) -> None:
    """It says that the request is refused, and the first time it was carried out."""

    async def main() -> None:
        async with stationed() as station:
            header = signed("POST", "/cluster/heartbeat", BEAT)
            found = []
            for _ in range(2):
                async with connected(station) as streams:
                    streams[1].write(http("POST", "/cluster/heartbeat", BEAT, header=header))
                    status, headers, _ = await answer(streams)
                    found.append((status, "goqueue-peer-answer" in headers))
            assert found == [(200, True), (401, False)]

    play(loop, main())


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [("GET", "/cluster/health", 200), ("POST", "/nowhere", 404), ("GET", "/cluster/leave", 405)],
)
def test_answer_to_an_admitted_request_is_signed_whatever_it_says(
    loop: str, method: str, path: str, expected: int
) -> None:
    async def main() -> None:
        async with stationed() as station, connected(station) as streams:
            header = signed(method, path)
            streams[1].write(http(method, path, header=header))
            status, headers, body = await answer(streams)
            assert status == expected
            assert Secret(KEY).is_answer(header, status, body, headers["goqueue-peer-answer"])

    play(loop, main())


@pytest.mark.parametrize("path", ["state", "metadata", "nodes"])
def test_nodes_may_look_and_strangers_may_not(loop: str, path: str) -> None:
    async def main() -> None:
        async with stationed() as station:
            route = f"/cluster/{path}"
            status, told = await ask(station, "GET", route, header=signed("GET", route))
            assert status == 200
            assert told
            status, told = await ask(station, "GET", route)
            assert (status, told["code"], told["status"]) == (401, "UNAUTHENTICATED", 401)

    play(loop, main())


def test_health_is_told_to_anybody(loop: str) -> None:
    async def main() -> None:
        async with stationed() as station:
            status, told = await ask(station, "GET", "/v1/cluster/health")
            assert (status, told["status"], told["voters_not_counting"]) == (200, "ok", ["n2"])

    play(loop, main())


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"key": b"another secret"}, 401, "UNAUTHENTICATED"),
        ({"key": b""}, 401, "UNAUTHENTICATED"),
        ({"target": "n9"}, 401, "UNAUTHENTICATED"),
        ({"timestamp_ms": 0}, 401, "UNAUTHENTICATED"),
        ({"cluster_id": "c2"}, 409, "WRONG_CLUSTER"),
        ({"source": "n3"}, 401, "UNAUTHENTICATED"),  # the beat is n2's
    ],
)
def test_request_of_a_liar_or_a_stranger_is_refused(
    loop: str, changes: dict[str, Any], status: int, code: str
) -> None:
    async def main() -> None:
        async with stationed() as station:
            path = "/cluster/heartbeat"
            header = signed("POST", path, BEAT, **changes)
            found, told = await ask(station, "POST", path, BEAT, header=header)
            assert (found, told["code"]) == (status, code)
            assert station.service.asked == []

    play(loop, main())


def test_message_that_names_another_source_or_target_is_refused(loop: str) -> None:
    async def main() -> None:
        async with stationed() as station:
            for message, expected in (
                (msgspec.structs.replace(VOTE, source="n3"), 401),
                (msgspec.structs.replace(VOTE, target="n3"), 400),
            ):
                body = encode_message(message)
                header = signed("POST", "/cluster/vote", body, nonce=message.source + message.target)
                status, told = await ask(station, "POST", "/cluster/vote", body, header=header)
                assert status == expected
                assert "'n3'" in told["error"]
            assert station.service.received == []

    play(loop, main())


def test_replayed_request_is_carried_out_once(loop: str) -> None:
    async def main() -> None:
        async with stationed() as station:
            path = "/cluster/heartbeat"
            header = signed("POST", path, BEAT)
            statuses = [(await ask(station, "POST", path, BEAT, header=header))[0] for _ in range(3)]
            assert statuses == [200, 401, 401]
            assert len(station.service.asked) == 1

    play(loop, main())


def test_wrong_cluster_names_both(loop: str) -> None:
    async def main() -> None:
        async with stationed() as station:
            header = signed("GET", "/cluster/state", cluster_id="c2")
            _, told = await ask(station, "GET", "/cluster/state", header=header)
            assert told["details"] == {"cluster_id": "c1", "other": "c2"}

    play(loop, main())


def test_errors_of_the_node_have_the_usual_form(loop: str) -> None:
    async def main() -> None:
        async with stationed() as station:
            path = "/cluster/heartbeat"
            for nonce, error, status, code in (
                ("a", NotController("n3"), 503, "NOT_CONTROLLER"),
                ("b", InvariantViolation("cannot be"), 500, "INTERNAL"),
                ("c", ValueError("a bug"), 500, "INTERNAL"),
            ):
                station.service.error = error
                header = signed("POST", path, BEAT, nonce=nonce)
                found, told = await ask(station, "POST", path, BEAT, header=header)
                assert (found, told["code"]) == (status, code)
                assert set(told) == {"error", "code", "status", "details"}
            assert [str(error) for error in station.broken] == ["cannot be"]

    play(loop, main())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"name":1}', b"\xff", b"[" * 100_000])
def test_signed_nonsense_is_a_bad_request(loop: str, body: bytes) -> None:
    async def main() -> None:
        async with stationed() as station:
            for path in ("vote", "append", "join", "heartbeat", "leave", "command"):
                route = f"/cluster/{path}"
                header = signed("POST", route, body, nonce=path)
                status, told = await ask(station, "POST", route, body, header=header)
                assert (status, told["code"]) == (400, "INVALID_REQUEST")

    play(loop, main())


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/cluster/vote", 405),
        ("POST", "/cluster/state", 405),
        ("GET", "/topics", 404),
        ("GET", "/", 404),
    ],
)
def test_other_paths_and_methods_are_told_apart(loop: str, method: str, path: str, status: int) -> None:
    async def main() -> None:
        async with stationed() as station:
            assert (await ask(station, method, path))[0] == status

    play(loop, main())


@pytest.mark.parametrize(("path", "length"), [("vote", 1 << 21), ("append", 1 << 29), ("append", 10**30)])
def test_announced_size_is_refused_before_the_body_comes(loop: str, path: str, length: int) -> None:
    async def main() -> None:
        async with stationed() as station, connected(station) as streams:
            route = f"/cluster/{path}"
            streams[1].write(http("POST", route, header=signed("POST", route), length=length))
            assert (await answer(streams))[0] in (400, 413)

    play(loop, main())


def test_stranger_is_refused_before_its_body_comes(loop: str) -> None:
    async def main() -> None:
        async with stationed() as station, connected(station) as streams:
            streams[1].write(http("POST", "/cluster/append", length=1 << 20))
            status, headers, _ = await answer(streams)
            assert status == 401
            assert headers["connection"] == "close"

    play(loop, main())


def test_body_that_comes_too_slowly_is_given_up(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_app, "BODY_S_MAX", 0.05)

    async def main() -> None:
        async with stationed() as station, connected(station) as streams:
            header = signed("POST", "/cluster/heartbeat", BEAT)
            streams[1].write(http("POST", "/cluster/heartbeat", BEAT[:5], header=header, length=len(BEAT)))
            status, _, body = await answer(streams)
            assert (status, json.loads(body)["code"]) == (504, "TIMEOUT")
            assert await streams[0].read() == b""

    play(loop, main())


def test_body_other_than_the_signed_one_is_refused(loop: str) -> None:
    async def main() -> None:
        async with stationed() as station:
            path = "/cluster/heartbeat"
            other = BEAT.replace(b"true", b"false")
            status, _ = await ask(station, "POST", path, other, header=signed("POST", path, BEAT))
            assert status == 401
            assert station.service.asked == []

    play(loop, main())


@pytest.mark.parametrize(
    "first", [b"\x16\x03\x01\x02\x00\x01", b"\xff\xff\xff\xff", b"garbage\r\n\r\n", b"\x80"]
)
def test_garbage_is_told_that_it_is_no_request_or_waits_in_vain(loop: str, first: bytes) -> None:
    async def main() -> None:
        async with stationed() as station, connected(station) as streams:
            streams[1].write(first + b"\r\n\r\n")
            assert (await answer(streams))[0] == 400

    play(loop, main())


def frame(api: str, version: int, body: bytes = b"", *, correlation_id: int = 1) -> bytes:
    content = struct.pack(">hhih", api_key(api), version, correlation_id, -1) + body
    return struct.pack(">i", len(content)) + content


def test_frames_are_answered_on_the_same_port(loop: str) -> None:
    async def main() -> None:
        async with stationed() as station, connected(station) as streams:
            streams[1].write(frame("api_versions", 0))
            served = await next_frame(streams)
            assert served is not None
            keys = struct.unpack_from(">i", served, 6)[0]
            assert keys == 3  # itself and the two of the login

    play(loop, main())


def test_frames_that_come_byte_by_byte_are_answered(loop: str) -> None:
    async def main() -> None:
        async with stationed() as station, connected(station) as streams:
            for byte in frame("api_versions", 0) * 2:
                streams[1].write(bytes([byte]))
                await streams[1].drain()
                await asyncio.sleep(0)
            assert await next_frame(streams) is not None
            assert await next_frame(streams) is not None

    play(loop, main())


def test_other_mechanisms_are_told_which_there_is(loop: str) -> None:
    async def main() -> None:
        async with stationed() as station, connected(station) as streams:
            streams[1].write(frame("sasl_handshake", 1, struct.pack(">h", 5) + b"PLAIN"))
            content = await next_frame(streams)
            assert content is not None
            assert struct.unpack_from(">h", content, 4)[0] == 33
            assert b"GOQUEUE-PEER" in content

    play(loop, main())


def test_proof_without_a_handshake_is_an_illegal_state(loop: str) -> None:
    async def main() -> None:
        async with stationed() as station, connected(station) as streams:
            streams[1].write(frame("sasl_authenticate", 0, struct.pack(">i", 1) + b"x"))
            content = await next_frame(streams)
            assert content is not None
            assert struct.unpack_from(">h", content, 4)[0] == 34

    play(loop, main())


@pytest.mark.parametrize(
    "data", [b"\0\xff\xff\xff" + b"x" * 10, b"\0\0\0\0", b"\0\0\0\x04abcd", frame("fetch", 12)]
)
def test_broken_or_unserved_frames_end_the_connection(loop: str, data: bytes) -> None:
    async def main() -> None:
        async with stationed() as station, connected(station) as streams:
            streams[1].write(data)
            assert await next_frame(streams) is None

    play(loop, main())


def test_truncated_frame_harms_nobody(loop: str) -> None:
    async def main() -> None:
        async with stationed() as station:
            async with connected(station) as streams:
                streams[1].write(frame("api_versions", 0)[:-1])
                await streams[1].drain()
            assert (await ask(station, "GET", "/cluster/health"))[0] == 200

    play(loop, main())


def test_stranger_that_sends_much_or_nothing_more_is_closed(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_connection, "LOGIN_S_MAX", 0.05)

    async def main() -> None:
        async with stationed() as station:
            async with connected(station) as streams:
                streams[1].write(frame("api_versions", 0))
                while await next_frame(streams) is not None:
                    pass
            async with connected(station) as streams:
                streams[1].write(struct.pack(">i", 1 << 19) + b"x" * (1 << 18))
                assert await next_frame(streams) is None

    play(loop, main())


def test_connection_that_says_nothing_is_closed(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_listener, "FIRST_BYTE_S_MAX", 0.05)

    async def main() -> None:
        async with stationed() as station, connected(station) as streams:
            assert await _rest(streams) == b""

    play(loop, main())


def test_silent_connections_have_a_bound_and_the_oldest_gives_way(
    loop: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever holds them open keeps no node out."""
    monkeypatch.setattr(cluster_listener, "SILENT_COUNT_MAX", 2)

    async def main() -> None:
        async with stationed() as station, AsyncExitStack() as stack:
            silent = [await stack.enter_async_context(connected(station)) for _ in range(6)]
            for one in silent[:4]:
                assert await _rest(one) == b""
            for one in silent[4:]:
                one[1].write(http("GET", "/cluster/health"))
                assert (await answer(one))[0] == 200

    with caplog.at_level(logging.WARNING):
        play(loop, main())
    assert len([one for one in caplog.messages if "sent nothing" in one]) == 1


def test_listener_stops_with_answers_given_and_silent_connections_closed(loop: str) -> None:
    async def main() -> None:
        station = await Station("n1").start()
        station.service.gate = asyncio.Event()
        async with connected(station) as silent, connected(station) as busy:
            header = signed("POST", "/cluster/heartbeat", BEAT)
            busy[1].write(http("POST", "/cluster/heartbeat", BEAT, header=header))
            await station.service.arrived.wait()
            stopping = asyncio.ensure_future(station.stop(10.0))
            assert await _rest(silent) == b""
            station.service.gate.set()
            assert (await answer(busy))[0] == 200
            await stopping

    play(loop, main())


async def _rest(streams: Streams) -> bytes:
    try:
        return await streams[0].read()
    except ConnectionError:
        return b""
