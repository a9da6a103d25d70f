"""What any client may rely on before it knows which versions there are, byte by byte over a socket."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.fuzz.messages import framed
from tests.fuzz.target import Peer, Target, read_answer
from tests.support.kafka_sockets import TIMEOUT_S

from goqueue.wire.codec import response_reader
from goqueue.wire.schema import api_key, request_schema, response_schema

Main = Callable[[Target, Peer], Awaitable[None]]
TAG = b"\x01\xce\x10\x03abc"  # one tagged field, number 2126, three bytes


def header(api: str, version: int, *, tags: bytes = b"") -> bytes:
    return struct.pack(">hhih", api_key(api), version, 77, 4) + b"test" + tags


def with_target(folder: Path, main: Main) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(TIMEOUT_S), Target(folder) as target:
            peer = await target.connect()
            await main(target, peer)
            await peer.close()
            await target.check()

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [5, 99, 32_767, -1])
def test_unknown_version_of_api_versions_is_answered_in_version_0(version: int, tmp_path: Path) -> None:
    async def main(target: Target, peer: Peer) -> None:
        await peer.send(framed(header("api_versions", version, tags=b"\0\x05whatever")))
        answer = await peer.answer()
        assert answer is not None
        assert struct.unpack_from(">ih", answer) == (77, 35)
        ranges = {
            one.api_key: (one.min_version, one.max_version)
            for one in response_reader("api_versions", 0)(answer, 4).api_keys
        }
        assert ranges[api_key("api_versions")] == (0, 4)
        await peer.send(framed(header("api_versions", 0)))  # the connection goes on
        assert await peer.answer() is not None

    with_target(tmp_path, main)


@pytest.mark.parametrize("version", range(5))
def test_response_header_of_api_versions_has_no_tags_in_any_version(version: int, tmp_path: Path) -> None:
    async def main(target: Target, peer: Peer) -> None:
        body = b"\x02a\x02b\0" if version >= 3 else b""
        await peer.send(framed(header("api_versions", version, tags=b"\0" if version >= 3 else b"") + body))
        answer = await peer.answer()
        assert answer is not None
        assert struct.unpack_from(">ih", answer) == (77, 0)
        found = response_reader("api_versions", version)(answer, 4)
        assert len(found.api_keys) == len(target.apis)

    with_target(tmp_path, main)


def test_produce_is_advertised_from_0_and_refused_before_3(tmp_path: Path) -> None:
    async def main(target: Target, peer: Peer) -> None:
        await peer.send(framed(header("api_versions", 0)))
        answer = await peer.answer()
        assert answer is not None
        keys = read_answer("api_versions", 0, answer).api_keys
        assert [one.min_version for one in keys if one.api_key == 0] == [0]
        for version in (0, 1, 2):
            old = await target.connect()
            await old.send(framed(header("produce", version) + struct.pack(">hii", 1, 1_000, 0)))
            assert await old.answer() is None
            await old.close()

    with_target(tmp_path, main)


def test_tagged_fields_that_nobody_knows_are_skipped(tmp_path: Path) -> None:
    async def main(target: Target, peer: Peer) -> None:
        topic = bytes(16) + b"\x07orders" + TAG
        await peer.send(framed(header("metadata", 12, tags=TAG) + b"\x02" + topic + b"\0\0" + TAG))
        answer = await peer.answer()
        assert answer is not None
        assert struct.unpack_from(">ib", answer) == (77, 0)  # a flexible response begins with its tags
        [found] = read_answer("metadata", 12, answer).topics
        assert (found.name, found.error_code, len(found.partitions)) == ("orders", 0, 2)

    with_target(tmp_path, main)


@pytest.mark.parametrize(
    "tags", [b"", b"\x01", b"\x01\x00\x7f", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff\x01"]
)
def test_broken_tags_of_a_header_end_the_connection(tags: bytes, tmp_path: Path) -> None:
    async def main(target: Target, peer: Peer) -> None:
        await peer.send(framed(header("metadata", 12, tags=tags)))
        assert await peer.answer() is None

    with_target(tmp_path, main)


def test_client_id_may_be_null_or_empty_but_not_longer_than_the_frame(tmp_path: Path) -> None:
    async def main(target: Target, peer: Peer) -> None:
        for length in (-1, 0):
            await peer.send(framed(struct.pack(">hhih", 18, 0, 1, length)))
            assert await peer.answer() is not None
        await peer.send(framed(struct.pack(">hhih", 18, 0, 1, 1)))
        assert await peer.answer() is None

    with_target(tmp_path, main)


def test_every_version_that_is_served_has_a_layout(tmp_path: Path) -> None:
    """A range that reaches beyond the schemas would be found out by its first client."""

    async def main(target: Target, peer: Peer) -> None:
        for api in target.apis:
            assert 0 <= api.first <= api.last
            for version in range(api.first, api.last + 1):
                request_schema(api.name).layout(version)
                response_schema(api.name).layout(version)

    with_target(tmp_path, main)
