"""What strangers, and nodes that are broken, send to the port that is for the nodes of a cluster."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from random import Random

from tests.fuzz.cluster_target import NAME, ClusterTarget, authenticate
from tests.fuzz.messages import Messages, frame
from tests.fuzz.target import Broken, Peer, request_of

from goqueue.api.cluster.listener import SILENT_COUNT_MAX
from goqueue.api.kafka.connection import LOGIN_BYTES_MAX
from goqueue.model.cluster_errors import PeerUnreachable, Unauthenticated
from goqueue.node.cluster import exchange
from goqueue.node.cluster.login import MECHANISM
from goqueue.node.cluster.secret import WINDOW_MS, Secret

Attack = Callable[[Random, ClusterTarget], Awaitable[None]]

_ROUTES = (
    ("POST", exchange.VOTE),
    ("POST", exchange.APPEND),
    ("POST", exchange.JOIN),
    ("POST", exchange.HEARTBEAT),
    ("POST", exchange.LEAVE),
    ("POST", exchange.COMMAND),
    ("GET", exchange.STATE),
    ("GET", exchange.METADATA),
    ("GET", exchange.NODES),
    ("GET", exchange.CONFIRMED),
    ("GET", exchange.COPYING),
    ("POST", "/topics"),  # of clients of other nodes
    ("DELETE", "/topics/orders"),
    ("POST", "/topics/orders/messages"),
)
_ROUTES_OF_NODES = tuple(path for method, path in _ROUTES[:6])
_NONSENSE = (b"", b"{}", b"[]", b"null", b"[" * 20_000, b'"\xff"', b"1e999", b'{"type":"x"}', b'{"name":1}')


# -------------------------------------------------------------------- who does not know the secret


async def garbage(random: Random, target: ClusterTarget) -> None:
    """Bytes that mean nothing, as HTTP or as a frame."""
    peer = await target.connect()
    first = random.choice((b"\0", b"", b"GET ", b"POST /cluster/vote HTTP/1.1\r\n"))
    await _send(target, peer, first + random.randbytes(random.choice((1, 4, 40, 4_000, 70_000))))
    await _leave(random, peer)


async def mutated(random: Random, target: ClusterTarget) -> None:
    """A sound request until a few of its bytes changed: it is refused, or it asks for what it asked for before."""
    method, path = random.choice([route for route in _ROUTES if route[0] == "GET"])
    data = bytearray(_request(method, path, b"", target.sign(method, path, b"")))
    for _ in range(random.randrange(1, 6)):
        data[random.randrange(len(data))] = random.choice(
            (0, 9, 10, 13, 32, 0x7F, 0xFF, random.randrange(256))
        )
    if random.random() < 0.3:
        del data[random.randrange(1, len(data)) :]
    peer = await target.connect()
    await _send(target, peer, bytes(data))
    await _leave(random, peer)


async def unsigned(random: Random, target: ClusterTarget) -> None:
    method, path = random.choice(_ROUTES)
    header = random.choice(("", "x", ".", "a.b", "." * 5_000, random.randbytes(30).hex() + "." + "0" * 64))
    await _refused(target, method, path, random.choice(_NONSENSE), header)


async def forged(random: Random, target: ClusterTarget) -> None:
    """Signed, but for something else, by somebody else, or long ago."""
    method, path = random.choice(_ROUTES)
    body = b"" if method == "GET" else b"{}"
    late_ms = target.clock.now_ms() + random.choice((-1, 1)) * (WINDOW_MS + 60_000)
    header = random.choice(
        (
            target.sign(method, path, body, secret=Secret(random.randbytes(random.choice((0, 8))))),
            target.sign("PUT", path, body),
            target.sign(method, path + "x", body),
            target.sign(method, path, body + b"x"),
            target.sign(method, path, body, target="node-2"),
            target.sign(method, path, body, cluster_id="another"),
            target.sign(method, path, body, timestamp_ms=late_ms),
            target.sign(method, path, body, source=""),
            target.sign(method, path, body, source="n" * 300),
            target.sign(method, path, body, nonce="n" * 300),
        )
    )
    await _refused(target, method, path, body, header)


async def replayed(random: Random, target: ClusterTarget) -> None:
    """What was overheard is sent once more."""
    header = target.sign("GET", exchange.STATE, b"")
    link = await target.http()
    answer = await link.ask("GET", exchange.STATE, b"", {exchange.SIGNATURE_HEADER: header})
    link.abort()
    if answer.status != 200:
        raise Broken(f"a sound request is answered {answer}")
    await _refused(target, "GET", exchange.STATE, b"", header)


async def asked_before_login(random: Random, target: ClusterTarget) -> None:
    """Any request but those of the login ends the connection."""
    peer = await target.connect()
    messages = Messages(random, target.likely())
    api = random.choice([api for api in target.apis if api.name != "api_versions"])
    version = random.randint(api.first, api.last)
    await _send(target, peer, frame(api.name, version, 1, messages.request(api.name, version)))
    if await peer.answer() is not None:
        raise Broken(f"{api.name} is answered without a login")
    await _leave(random, peer)


async def bad_login(random: Random, target: ClusterTarget) -> None:
    """Another secret, another node's, half of it, or nothing that can be read; then it asks all the same."""
    peer = await target.connect()
    if random.random() < 0.8:
        mechanism = random.choice((MECHANISM, MECHANISM, "PLAIN", ""))
        await peer.ask("sasl_handshake", 1, request_of("sasl_handshake", mechanism=mechanism))
    login = random.choice((target.login(key=b"another"), target.login(target="node-2")))
    answer = await authenticate(peer, random.choice((login.first(), *_NONSENSE)))
    if answer.error_code == 0:
        try:
            proof = random.choice((login.proof(answer.auth_bytes), b"", random.randbytes(32)))
        except Unauthenticated:
            proof = b""
        answer = await authenticate(peer, proof)
    if answer.error_code == 0:
        raise Broken("whoever does not know the secret is let in")
    await _send(target, peer, frame("metadata", 9, 1, b"\0\0\0\0\0\0"))
    if await peer.answer() is not None:
        raise Broken("whoever does not know the secret is served")
    await _leave(random, peer)


async def much_before_login(random: Random, target: ClusterTarget) -> None:
    """Nobody without the secret makes the node hold much."""
    peer = await target.connect()
    length = random.choice((LOGIN_BYTES_MAX, 1 << 20, (1 << 24) - 1))
    await _send(target, peer, struct.pack(">i", length) + bytes(2 * LOGIN_BYTES_MAX))
    if await peer.answer() is not None:
        raise Broken("a frame before a login that never ended is answered")
    await peer.close()


async def halves(random: Random, target: ClusterTarget) -> None:
    """Requests and frames that never end, and connections that say nothing."""
    beginnings = (
        b"",
        b"\0",
        b"\0\0\0\x40\0\x11",
        b"G",
        b"POST /cluster/join HTTP/1.1\r\nhost: n",
        _long_post(),
    )
    peers = [await target.connect() for _ in range(random.randrange(1, 20))]
    for peer in peers:
        await _send(target, peer, random.choice(beginnings))
    for peer in peers:
        await _leave(random, peer)


async def crowd(random: Random, target: ClusterTarget) -> None:
    """More than may be silent at a time: those who have been so for longest are closed, and who comes last is listened to."""
    peers = [await target.connect() for _ in range(SILENT_COUNT_MAX + random.randrange(1, 10))]
    if await peers[0].answer() is not None:
        raise Broken("one who says nothing is answered")
    header = target.sign("GET", exchange.STATE, b"")
    await _send(target, peers[-1], _request("GET", exchange.STATE, b"", header))
    if not (await peers[-1].reader.readline()).startswith(b"HTTP/1.1 200"):
        raise Broken("one of a crowd is not answered")
    for peer in peers:
        peer.abort()
    await asyncio.gather(*(peer.close() for peer in peers))


# -------------------------------------------------------------------- who knows it, and is broken


async def signed_nonsense(random: Random, target: ClusterTarget) -> None:
    """A node that asks for nothing that can be understood is told so, and signed."""
    path = random.choice(_ROUTES_OF_NODES)
    body = random.choice((*_NONSENSE, random.randbytes(random.randrange(300))))
    header = target.sign("POST", path, body)
    link = await target.http()
    try:
        answer = await link.ask("POST", path, body, {exchange.SIGNATURE_HEADER: header})
    finally:
        link.abort()
    signature = answer.headers.get(exchange.ANSWER_HEADER, "")
    if not 400 <= answer.status < 500:
        raise Broken(f"{body[:50]!r} for {path} is answered {answer}")
    if not target.secret.is_answer(header, answer.status, answer.body, signature):
        raise Broken(f"the answer to {path} is not signed")


async def garbage_in_frames(random: Random, target: ClusterTarget) -> None:
    """The length is right, and a version that exists: the rest means nothing."""
    peer = await target.logged_in()
    for _ in range(random.randrange(1, 5)):
        api = random.choice(target.apis)
        version = random.randint(api.first, api.last)
        body = bytes(
            random.choices((0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)), k=random.randrange(300))
        )
        await _send(target, peer, frame(api.name, version, 1, body))
    await _leave(random, peer)


async def mutated_frames(random: Random, target: ClusterTarget) -> None:
    """Requests that were valid until a few of their bytes changed; half of them are of what only nodes ask."""
    peer = await target.logged_in()
    messages = Messages(random, target.likely())
    for _ in range(random.randrange(1, 6)):
        api = random.choice(target.apis if random.random() < 0.5 else target.apis_of_nodes)
        version = random.randint(api.first, api.last)
        data = bytearray(frame(api.name, version, 1, messages.request(api.name, version)))
        for _ in range(random.randrange(0, 6)):
            data[random.randrange(4, len(data))] = random.choice(
                (0, 1, 0x7F, 0x80, 0xFF, random.randrange(256))
            )
        await _send(target, peer, bytes(data))
    await _leave(random, peer)


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        garbage,
        mutated,
        unsigned,
        forged,
        replayed,
        asked_before_login,
        bad_login,
        much_before_login,
        halves,
        crowd,
        signed_nonsense,
        garbage_in_frames,
        mutated_frames,
    )
}
WEIGHTS = {"forged": 6, "mutated": 6, "signed_nonsense": 6, "mutated_frames": 8, "crowd": 1}


def chosen(random: Random) -> Attack:
    names = list(ATTACKS)
    return ATTACKS[random.choices(names, [WEIGHTS.get(name, 3) for name in names])[0]]


async def _refused(target: ClusterTarget, method: str, path: str, body: bytes, header: str) -> None:
    headers = {exchange.SIGNATURE_HEADER: header} if header else {}
    target.sent.append(_request(method, path, body, header))
    link = await target.http()
    try:
        answer = await link.ask(method, path, body, headers)
    except PeerUnreachable:  # it hangs up on whoever sends on after a refusal
        return
    finally:
        link.abort()
    if not 400 <= answer.status < 500:
        raise Broken(f"{method} {path} of a stranger is answered {answer}")


def _request(method: str, path: str, body: bytes, header: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"host: {NAME}", f"content-length: {len(body)}"]
    lines += [f"{exchange.SIGNATURE_HEADER}: {header}"] if header else []
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _long_post() -> bytes:
    return (
        f"POST {exchange.APPEND} HTTP/1.1\r\nhost: {NAME}\r\ncontent-length: 100000\r\n\r\n".encode()
        + bytes(9)
    )


async def _send(target: ClusterTarget, peer: Peer, data: bytes) -> None:
    target.sent.append(data)
    await peer.send(data)


async def _leave(random: Random, peer: Peer) -> None:
    if random.random() < 0.4:
        peer.abort()
    await peer.close()
