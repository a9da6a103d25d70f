"""Two nodes prove to each other who they are, at the beginning of a connection that carries Kafka frames.

1. client: its name, the name of the node it wants, its cluster, a fresh nonce; before the nonce, and in the same field, which of
   the processes of that name it is. (Versions before that say nothing of it, and take it for a part of the nonce.)
2. server: a fresh nonce.
3. client: HMAC over 1 and 2.   4. server: another HMAC over 1 and 2.

Both nonces are in both proofs, so neither side can be satisfied with what was heard before; and the purposes of the two differ,
so neither proof serves as the other.
"""

from __future__ import annotations

import hmac

import msgspec
from msgspec import Struct

from goqueue.model.cluster_errors import Unauthenticated
from goqueue.node.cluster.secret import Secret, check_cluster

MECHANISM = "GOQUEUE-PEER"
_BYTES_MAX = 4_096
_NONCE_CHARS_MIN = 8
_AFTER_INCARNATION = "."
_CLIENT = "client proof"
_SERVER = "server proof"


class _First(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    source: str
    target: str
    cluster_id: str | None
    nonce: str


class _Challenge(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    nonce: str


class ClientLogin:
    """The side that connects; of one connection. Who is no node has no `incarnation`."""

    def __init__(
        self,
        secret: Secret,
        *,
        source: str,
        target: str,
        cluster_id: str | None,
        nonce: str,
        incarnation: str | None = None,
    ) -> None:
        self._secret = secret
        self._target = target
        said = nonce if incarnation is None else f"{incarnation}{_AFTER_INCARNATION}{nonce}"
        self._first = msgspec.json.encode(_First(source, target, cluster_id, said))
        self._challenge = b""

    def first(self) -> bytes:
        return self._first

    def proof(self, challenge: bytes) -> bytes:
        if _nonce_of(challenge, _Challenge) is None:
            raise Unauthenticated(
                f"node {self._target!r} gave a challenge that cannot be read", target=self._target
            )
        self._challenge = challenge
        return self._secret.mac(_CLIENT, self._first, challenge)

    def check(self, proof: bytes) -> None:
        """That the other side knows the secret, too."""
        expected = self._secret.mac(_SERVER, self._first, self._challenge)
        if not self._challenge or not hmac.compare_digest(expected, proof):
            raise Unauthenticated(
                f"who listens at the address of {self._target!r} does not know this cluster's secret",
                target=self._target,
            )


class ServerLogin:
    """The side that listens; of one attempt. `source` is who it is, once it has proven it, and `incarnation` which process of that
    name, if it says so."""

    def __init__(self, secret: Secret, *, target: str, cluster_id: str | None, nonce: str) -> None:
        self.source: str | None = None
        self.incarnation: str | None = None
        self._secret = secret
        self._target = target
        self._cluster_id = cluster_id
        self._challenge = msgspec.json.encode(_Challenge(nonce))
        self._first: bytes | None = None

    def challenge(self, first: bytes) -> bytes:
        if _nonce_of(first, _First) is None:
            raise Unauthenticated("the first message of the login cannot be read")
        self._first = first
        return self._challenge

    def accept(self, proof: bytes) -> bytes:
        """This side's own proof. Nothing is told to one who has not proven anything."""
        first, self._first = self._first, None  # one attempt
        if first is None or not hmac.compare_digest(self._secret.mac(_CLIENT, first, self._challenge), proof):
            raise Unauthenticated(
                "the login is not made with this cluster's secret; all nodes must have the same"
            )
        claimed = msgspec.json.decode(first, type=_First)
        if claimed.target != self._target:
            raise Unauthenticated(
                f"the login is for node {claimed.target!r}, and this is {self._target!r}; check the addresses of the peers",
                source=claimed.source,
                target=claimed.target,
            )
        check_cluster(self._cluster_id, claimed.cluster_id)
        self.source = claimed.source
        incarnation, mark, _ = claimed.nonce.rpartition(_AFTER_INCARNATION)
        self.incarnation = incarnation if mark else None
        return self._secret.mac(_SERVER, first, self._challenge)


def _nonce_of(data: bytes, kind: type[_First] | type[_Challenge]) -> str | None:
    if len(data) > _BYTES_MAX:
        return None
    try:
        message = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if isinstance(message, _First) and not message.source:
        return None
    return message.nonce if len(message.nonce) >= _NONCE_CHARS_MIN else None
