"""Requests of clients, carried to the node they belong to. Each has a connection for itself while it is under way, for it may
wait as long as the client does; free ones are kept for the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from goqueue.model.cluster_errors import PeerUnreachable, Unauthenticated
from goqueue.model.errors import TimedOut
from goqueue.node.cluster.exchange import ANSWER_HEADER, SIGNATURE_HEADER
from goqueue.node.cluster.ports import Answer
from goqueue.peer.dialling import Dialler, Patience
from goqueue.peer.http import HttpAnswer
from goqueue.peer.kept_links import KeptLinks
from goqueue.peer.requests import read_error

KEPT_COUNT_MAX: Final = 64
UNDER_WAY_COUNT_MAX: Final = 4_096


class Forwards:
    """To one node."""

    def __init__(self, dialler: Dialler, target: str, patience: Patience) -> None:
        self._dialler = dialler
        self._target = target
        self._patience = patience
        self._kept = KeptLinks(KEPT_COUNT_MAX)
        self._under_way_count = 0

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float
    ) -> Answer:
        if self._under_way_count >= UNDER_WAY_COUNT_MAX:
            raise PeerUnreachable(
                f"{UNDER_WAY_COUNT_MAX} requests to node {self._target!r} are under way, which is the limit",
                node=self._target,
            )
        self._under_way_count += 1
        try:
            return await self._ask(method, path, headers, body, timeout_s)
        finally:
            self._under_way_count -= 1

    def close(self) -> None:
        self._kept.close()

    async def _ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> Answer:
        link = self._kept.take()
        if link is None:
            async with self._patience.within(timeout_s, self._target):  # connecting has its own limit, too
                link = await self._dialler.http(self._target)
        signature = self._dialler.credentials.sign(method, path, body, self._target)
        try:
            async with self._patience.within(timeout_s, self._target):
                answer = await link.ask(method, path, body, {**headers, SIGNATURE_HEADER: signature})
        except PeerUnreachable as error:
            link.abort()
            raise TimedOut(
                f"{error.sentence}; whether the request was carried out is not known", node=self._target
            ) from error
        except BaseException:
            link.abort()
            raise
        self._kept.keep(link)
        return self._checked(signature, answer)

    def _checked(self, signature: str, answer: HttpAnswer) -> Answer:
        """Without a signature nobody of the cluster has answered, so nobody has done anything either."""
        told = answer.headers.get(ANSWER_HEADER, "")
        secret = self._dialler.credentials.secret
        if secret.is_answer(signature, answer.status, answer.body, told):
            return Answer(answer.status, answer.headers, answer.body)
        if answer.status >= 500:  # it has as many connections as it may
            raise PeerUnreachable(f"node {self._target!r} answers {answer.status}", node=self._target)
        if answer.status == 401:
            raise Unauthenticated(f"node {self._target!r}: {read_error(answer).error}", node=self._target)
        raise Unauthenticated(
            f"the answer of node {self._target!r} is not signed with this cluster's secret", node=self._target
        )
