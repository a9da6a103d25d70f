"""What hostile and broken clients do. Each attack is decided by its random numbers alone, so that it can be repeated."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from random import Random

from tests.fuzz.messages import Messages, frame, framed
from tests.fuzz.target import CONNECTION_COUNT_MAX, FRAME_BYTES_MAX, Broken, Peer, Target, read_answer
from tests.support.logs import plain_batch

from goqueue.api.kafka.connection import WAITING_BYTES_MAX, WAITING_COUNT_MAX
from goqueue.wire.codec import Malformed, Output, request_writer
from goqueue.wire.schema import request_schema

Attack = Callable[[Random, Target], Awaitable[None]]

# A client of these may have to wait for others, or for data, so nothing is asked after them.
_MAY_WAIT = ("fetch", "join_group", "sync_group")
_CHUNK_BYTES = 64 * 1024  # what asyncio reads at a time is less than four of these


async def garbage(random: Random, target: Target) -> None:
    """Bytes that mean nothing."""
    peer = await target.connect()
    for _ in range(random.randrange(1, 5)):
        await _send(target, peer, random.randbytes(random.choice((1, 4, 40, 4_000))))
    await _leave(random, peer)


async def garbage_in_frames(random: Random, target: Target) -> None:
    """The length is right, and a version that exists: the rest means nothing."""
    peer = await target.connect()
    for _ in range(random.randrange(1, 5)):
        api = random.choice(target.apis)
        version = random.randint(api.first, api.last)
        body = bytes(
            random.choices((0, 1, 2, 3, 0x7F, 0x80, 0xFF, random.randrange(256)), k=random.randrange(300))
        )
        await _send(target, peer, frame(api.name, version, 1, body))
    await _leave(random, peer)


async def mutated(random: Random, target: Target) -> None:
    """Requests that were valid until a few of their bytes changed."""
    peer = await target.connect()
    messages = Messages(random, target.likely())
    for _ in range(random.randrange(1, 6)):
        api = random.choice(target.apis)
        version = random.randint(api.first, api.last)
        data = bytearray(frame(api.name, version, 1, messages.request(api.name, version)))
        for _ in range(random.randrange(1, 6)):
            at = random.randrange(4 if random.random() < 0.9 else 0, len(data))
            data[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        if random.random() < 0.3:
            del data[random.randrange(5, len(data)) :]
            data[:4] = struct.pack(">i", len(data) - 4)
        await _send(target, peer, bytes(data))
    await _leave(random, peer)


async def unknown(random: Random, target: Target) -> None:
    """Good headers of APIs and versions that nobody serves."""
    peer = await target.connect()
    served = {api.name: api for api in target.apis}
    key = random.choice((random.randint(-32_768, 32_767), random.randint(0, 100), 18))
    version = random.choice((random.randint(-32_768, 32_767), 0, 99))
    known = [api for api in served.values() if api.name != "api_versions"]
    if random.random() < 0.5:
        api = random.choice(known)
        version = random.choice((api.first - 1, api.last + 1))
        await _send(target, peer, _with_tags(api.name, version))
        if await peer.answer() is not None:
            raise Broken(f"{api.name} version {version} was answered")
    else:
        await _send(target, peer, framed(struct.pack(">hhih", key, version, 5, -1) + random.randbytes(20)))
        if key == 18 and not 0 <= version <= served["api_versions"].last:
            found = await peer.answer()
            if found is None or read_answer("api_versions", 0, found).error_code != 35:
                raise Broken(f"ApiVersions {version} was answered with {found!r}")
    await _leave(random, peer)


async def valid(random: Random, target: Target) -> None:
    """Well-formed requests of any API and version, several under way: each gets a well-formed answer, in order."""
    peer = await target.connect()
    messages = Messages(random, target.likely(), likely_rate=random.choice((0.0, 0.5, 0.9, 1.0)))
    wanted: list[tuple[str, int, int]] = []
    for id in range(random.randrange(1, 12)):
        api = random.choice(target.apis)
        version = random.randint(api.first, api.last)
        message = messages.make(request_schema(api.name), version)
        out = Output()
        request_writer(api.name, version)(out, message)
        if not (api.name == "produce" and message.acks == 0):
            wanted.append((api.name, version, id))
        await _send(target, peer, frame(api.name, version, id, bytes(out)))
        if api.name in _MAY_WAIT:
            break
    for name, version, id in wanted:
        if name in ("join_group", "sync_group"):
            break
        await _take(peer, name, version, id)
    await _leave(random, peer)


async def flood(random: Random, target: Target) -> None:
    """Many requests before the first answer is read; no more than a few may wait in the broker."""
    peer = await target.connect()
    messages = Messages(random, target.likely(), likely_rate=1.0)
    apis = [api for api in target.apis if api.name in ("metadata", "list_offsets", "produce", "api_versions")]
    sent: list[tuple[str, int, int]] = []
    for id in range(random.choice((100, 600))):
        api = random.choice(apis)
        version = random.randint(api.first, api.last)
        message = messages.make(request_schema(api.name), version)
        if api.name == "produce":
            message.acks = random.choice((1, -1))
        out = Output()
        request_writer(api.name, version)(out, message)
        peer.push(frame(api.name, version, id, bytes(out)))
        sent.append((api.name, version, id))
    if random.random() < 0.3:
        peer.abort()
        return
    for at, (name, version, id) in enumerate(sent):
        await _take(peer, name, version, id)
        if at % 50 == 0:
            _check_bounds(target)
    await _leave(random, peer)


async def half_frames(random: Random, target: Target) -> None:
    """Frames that never end, or take long to."""
    peers = [await target.connect() for _ in range(random.randrange(1, 20))]
    for peer in peers:
        length = random.choice((1, 100, FRAME_BYTES_MAX))
        await _send(target, peer, struct.pack(">i", length)[: random.randrange(1, 5)])
        if random.random() < 0.7:
            await _send(target, peer, random.randbytes(random.randrange(length)))
    for peer in peers:
        await _leave(random, peer)


async def deaf(random: Random, target: Target) -> None:
    """Asks for much and reads nothing."""
    fill = await target.connect()
    await fill.ask("produce", 7, _produce(random, size=600_000))
    await fill.close()
    peer = await target.connect(read_bytes_max=1)
    fetch = request_schema("fetch").classes
    partition = fetch["FetchPartition"](partition=0, fetch_offset=0, partition_max_bytes=2**31 - 1)
    topic = fetch["FetchTopic"](topic="events", partitions=[partition])
    out = Output()
    request_writer("fetch", 11)(out, fetch["FetchRequest"](max_bytes=2**31 - 1, min_bytes=1, topics=[topic]))
    for id in range(200):
        peer.push(frame("fetch", 11, id, bytes(out)))
    other = await target.connect()
    for _ in range(5):  # by when the broker has done what it can for the first
        schema = request_schema("metadata")
        await other.ask("metadata", 4, schema.classes[schema.root](topics=None))
        _check_bounds(target)
    await other.close()
    peer.abort()


async def crowd(random: Random, target: Target) -> None:
    """More clients than may come."""
    peers = await asyncio.gather(*(target.connect() for _ in range(CONNECTION_COUNT_MAX + 20)))
    for peer in peers:
        peer.push(framed(struct.pack(">hhih", 18, 0, 1, -1)))
    answers = await asyncio.gather(*(peer.answer() for peer in peers))
    served = sum(answer is not None for answer in answers)
    if served != CONNECTION_COUNT_MAX:
        raise Broken(f"{served} clients were served")
    for peer in peers:
        if random.random() < 0.5:
            peer.abort()
    await asyncio.gather(*(peer.close() for peer in peers))


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (garbage, garbage_in_frames, mutated, unknown, valid, flood, half_frames, deaf, crowd)
}
# How often each comes up: those that find most, most often.
WEIGHTS = {"valid": 12, "mutated": 8, "garbage_in_frames": 6, "unknown": 3, "flood": 1, "deaf": 1, "crowd": 1}


def chosen(random: Random) -> Attack:
    names = list(ATTACKS)
    return ATTACKS[random.choices(names, [WEIGHTS.get(name, 2) for name in names])[0]]


async def _send(target: Target, peer: Peer, data: bytes) -> None:
    target.sent.append(data)
    await peer.send(data)


async def _take(peer: Peer, api: str, version: int, id: int) -> None:
    found = await peer.answer()
    if found is None:
        raise Broken(f"a valid {api} version {version} was not answered")
    if struct.unpack_from(">i", found)[0] != id:
        raise Broken(f"{api} version {version} is answered out of turn")
    try:
        read_answer(api, version, found)
    except Malformed as error:
        raise Broken(f"the answer to {api} version {version} is malformed: {error}") from None


async def _leave(random: Random, peer: Peer) -> None:
    if random.random() < 0.3:
        peer.abort()
        return
    if random.random() < 0.3:
        try:
            peer.end_of_sending()
        except (OSError, RuntimeError):
            pass
    await peer.close()


def _check_bounds(target: Target) -> None:
    for connection in target.connections():
        held = connection._waiting_bytes
        if held > WAITING_BYTES_MAX + 4 * _CHUNK_BYTES + FRAME_BYTES_MAX:
            raise Broken(f"a connection holds {held} bytes of requests")
        if len(connection._answers) > WAITING_COUNT_MAX:
            raise Broken(f"a connection has {len(connection._answers)} answers under way")
        transport = connection._transport
        unsent = 0 if transport is None else transport.get_write_buffer_size()
        if unsent > 4 * FRAME_BYTES_MAX:
            raise Broken(f"a connection has {unsent} bytes of answers that its client does not take")


def _with_tags(api: str, version: int) -> bytes:
    try:
        return frame(api, version, 1, b"\0")
    except KeyError:  # there is no such version
        return (
            frame(api, request_schema(api).versions()[0][0], 1, b"\0")[:6]
            + struct.pack(">h", version)
            + bytes(20)
        )


def _produce(random: Random, size: int) -> object:
    made = request_schema("produce").classes
    partition = made["PartitionProduceData"](index=0, records=plain_batch(random.randbytes(size)))
    topic = made["TopicProduceData"](name="events", partition_data=[partition])
    return made["ProduceRequest"](acks=1, timeout_ms=1_000, topic_data=[topic])
