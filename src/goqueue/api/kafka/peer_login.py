"""The login of another node, and what may be asked before it: only on the cluster's listener.

Kafka's own form for it: SaslHandshake names the mechanism, then two rounds of SaslAuthenticate (`goqueue.node.cluster.login`). Without
it a connection may ask which APIs there are and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.context import code_of
from goqueue.api.kafka.dispatch import API_VERSIONS
from goqueue.api.kafka.error_text import text_of
from goqueue.api.kafka.versions import VersionsApi
from goqueue.model.cluster_errors import Unauthenticated
from goqueue.model.errors import GoQueueError
from goqueue.node.cluster.login import MECHANISM, ServerLogin
from goqueue.node.cluster.secret import Secret
from goqueue.node.ids import Ids
from goqueue.wire.codec import Malformed
from goqueue.wire.schema import responses

_HANDSHAKE = "sasl_handshake"
_AUTHENTICATE = "sasl_authenticate"
_H = responses(_HANDSHAKE)
_A = responses(_AUTHENTICATE)
_UNSUPPORTED_SASL_MECHANISM = 33
_ILLEGAL_SASL_STATE = 34


class PeerLogin:
    """`cluster_id` gives None until the node knows it, `incarnation_of` of nodes that have not joined: it is asked where a login does not
    say which process it is of."""

    def __init__(
        self,
        secret: Secret,
        *,
        name: str,
        cluster_id: Callable[[], str | None],
        incarnation_of: Callable[[str], str | None],
        ids: Ids,
    ) -> None:
        self._secret = secret
        self._name = name
        self._cluster_id = cluster_id
        self._incarnation_of = incarnation_of
        self._ids = ids

    def apis(self) -> list[Api]:
        return [
            Api(_HANDSHAKE, 1, 1, self.sasl_handshake),  # version 0 goes on without frames
            Api(_AUTHENTICATE, 0, 2, self.sasl_authenticate),
        ]

    async def sasl_handshake(self, call: Call, request: Any) -> Answer:
        if request.mechanism != MECHANISM:
            return _H.SaslHandshakeResponse(error_code=_UNSUPPORTED_SASL_MECHANISM, mechanisms=[MECHANISM])
        if call.identity.peer is not None:  # one connection is one node's
            return _H.SaslHandshakeResponse(error_code=_ILLEGAL_SASL_STATE, mechanisms=[MECHANISM])
        call.identity.login = _Attempt(
            ServerLogin(
                self._secret, target=self._name, cluster_id=self._cluster_id(), nonce=self._ids.fresh()
            )
        )
        return _H.SaslHandshakeResponse(mechanisms=[MECHANISM])

    async def sasl_authenticate(self, call: Call, request: Any) -> Answer:
        attempt = call.identity.login
        if not isinstance(attempt, _Attempt):
            return _A.SaslAuthenticateResponse(
                error_code=_ILLEGAL_SASL_STATE, error_message="a login begins with SaslHandshake"
            )
        try:
            answer = attempt.step(request.auth_bytes)
        except GoQueueError as error:
            call.identity.login = None
            # Whatever was wrong, clients take only this code for a login that failed.
            code = code_of(Unauthenticated(error.sentence))
            return _A.SaslAuthenticateResponse(error_code=code, error_message=text_of(error))
        source = attempt.login.source
        if source is not None:
            call.identity.login = None
            call.identity.peer = source
            call.identity.incarnation = attempt.login.incarnation or self._incarnation_of(source)
        return _A.SaslAuthenticateResponse(auth_bytes=answer)


class _Attempt:
    def __init__(self, login: ServerLogin) -> None:
        self.login = login
        self._is_challenged = False

    def step(self, data: bytes) -> bytes:
        if self._is_challenged:
            return self.login.accept(data)
        self._is_challenged = True
        return self.login.challenge(data)


def cluster_apis(served: Sequence[Api], login: PeerLogin) -> list[Api]:
    """What the cluster's listener serves: everything that clients are served, but to other nodes only."""
    versions = VersionsApi()
    guarded = [_for_peers(api) for api in served if api.name != API_VERSIONS]
    apis = [*versions.apis(), *login.apis(), *guarded]
    versions.announce(apis)
    return apis


def _for_peers(api: Api) -> Api:
    async def handle(call: Call, request: Any) -> Answer:
        if call.peer is None:  # as Kafka does it: there is no answer that says so in every API
            raise Malformed(f"{api.name} before a login; this listener is for the nodes of the cluster")
        return await api.handle(call, request)

    return replace(api, handle=handle)
