"""The secret that the nodes of a cluster share, and what they prove with it.

A request between nodes carries one header: who asks whom, of which cluster, when, a number used once, and the hash of the body;
then an HMAC over all that, the method and the path. So a request cannot be altered, sent to another node, or sent again, and who
does not know the secret is turned away before its body is read. The answer to a request that was admitted carries an HMAC over the request's
header, so that the one who asked knows it comes from a node of its cluster, and from who has carried the request out or refused it. Numbers used once are forgotten when the process ends; until the window
is over, a request recorded before that could be sent again to the new process. Where that matters, TLS keeps it from being recorded.

Kafka frames are not signed one by one: their connection begins with a login (`goqueue.node.cluster.login`).

A node without a secret signs with the empty one. It understands only nodes that have none either.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256

import msgspec
from msgspec import Struct

from goqueue.model.cluster_errors import Unauthenticated, WrongCluster
from goqueue.node.cluster.replays import NONCE_COUNT_MAX, Replays

WINDOW_MS = 5 * 60_000
_HEADER_CHARS_MAX = 4_096
_TEXT_CHARS_MAX = 255
_PURPOSE = b"goqueue peer 1"


class _Head(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    source: str
    target: str
    cluster_id: str | None
    timestamp_ms: int
    nonce: str
    body_digest: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A request whose header is sound and new. Its body may be another's until it is checked."""

    source: str
    body_digest: str

    def check_body(self, body: bytes) -> None:
        if not hmac.compare_digest(sha256(body).hexdigest(), self.body_digest):
            raise Unauthenticated(
                "the body of the request is not the one that was signed", source=self.source
            )


class Secret:
    """`window_ms` is how far the clocks of two nodes may be apart."""

    def __init__(
        self, key: bytes, *, window_ms: int = WINDOW_MS, nonce_count_max: int = NONCE_COUNT_MAX
    ) -> None:
        self.is_empty = not key
        self._keyed = hmac.new(
            sha256(_PURPOSE + key).digest(), digestmod=sha256
        )  # a copy is cheaper than a new one
        self._window_ms = window_ms
        self._replays = Replays(window_ms, nonce_count_max)

    def mac(self, purpose: str, *parts: bytes) -> bytes:
        """Over the parts as they are, not only over what they make together. No two purposes share a value."""
        digest = self._keyed.copy()
        named = (purpose.encode(), *parts)
        digest.update(b"".join([piece for part in named for piece in (len(part).to_bytes(8, "big"), part)]))
        return digest.digest()

    def sign(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        source: str,
        target: str,
        cluster_id: str | None,
        timestamp_ms: int,
        nonce: str,
    ) -> str:
        """The header's value. `cluster_id` is None where the node does not know it yet."""
        head = _Head(source, target, cluster_id, timestamp_ms, nonce, sha256(body).hexdigest())
        encoded = urlsafe_b64encode(msgspec.json.encode(head))
        return f"{encoded.decode()}.{self._request_mac(method, path, encoded)}"

    def verify(
        self,
        header: str,
        method: str,
        path: str,
        body: bytes,
        *,
        target: str,
        now_ms: int,
        cluster_id: str | None,
    ) -> str:
        """Who asks."""
        claim = self.admit(header, method, path, target=target, now_ms=now_ms, cluster_id=cluster_id)
        claim.check_body(body)
        return claim.source

    def admit(
        self, header: str, method: str, path: str, *, target: str, now_ms: int, cluster_id: str | None
    ) -> Claim:
        """The same without the body. A request is admitted once."""
        head = self._opened(header, method, path)
        if head.target != target:
            raise Unauthenticated(
                f"the request is for node {head.target!r}, and this is {target!r}; check the addresses of the peers",
                source=head.source,
                target=head.target,
            )
        check_cluster(cluster_id, head.cluster_id)
        if abs(head.timestamp_ms - now_ms) > self._window_ms:
            raise Unauthenticated(
                f"the request of {head.source!r} is {abs(head.timestamp_ms - now_ms)} ms "
                f"{'ahead of' if head.timestamp_ms > now_ms else 'behind'} this node's clock; "
                f"{self._window_ms} are allowed: check the clocks",
                source=head.source,
                timestamp_ms=head.timestamp_ms,
            )
        if not self._replays.admit(head.source, head.nonce, head.timestamp_ms, now_ms):
            raise Unauthenticated(f"this request of {head.source!r} came before", source=head.source)
        return Claim(head.source, head.body_digest)

    def sign_answer(self, header: str, status: int, body: bytes) -> str:
        """To the request with this header."""
        return self.mac("answer", header.encode(), str(status).encode(), body).hex()

    def is_answer(self, header: str, status: int, body: bytes, signature: str) -> bool:
        """Whether it was signed by one who knows the secret and has seen the request."""
        return hmac.compare_digest(
            self.sign_answer(header, status, body).encode(), signature.encode(errors="replace")
        )

    def _request_mac(self, method: str, path: str, encoded: bytes) -> str:
        return self.mac("request", method.encode(), path.encode(), encoded).hex()

    def _opened(self, header: str, method: str, path: str) -> _Head:
        if len(header) > _HEADER_CHARS_MAX or not header.isascii():
            raise Unauthenticated("the signature of the request cannot be read")
        encoded, _, signature = header.partition(".")
        expected = self._request_mac(method, path, encoded.encode())
        if not hmac.compare_digest(expected, signature):
            raise Unauthenticated(self._mismatch())
        try:
            head = msgspec.json.decode(urlsafe_b64decode(encoded), type=_Head)
        except ValueError:
            raise Unauthenticated("the signed header is of another version") from None
        if not head.source or max(len(head.source), len(head.nonce)) > _TEXT_CHARS_MAX:
            raise Unauthenticated(f"a node's name and its nonce have 1 to {_TEXT_CHARS_MAX} characters")
        return head

    def _mismatch(self) -> str:
        own = "this node has none" if self.is_empty else "this node has one"
        return f"the request is not signed with this cluster's secret ({own}); all nodes must have the same"


def check_cluster(own: str | None, other: str | None) -> None:
    """A node that has just begun knows of no cluster yet."""
    if own and other and own != other:
        raise WrongCluster(own, other)
