"""Signed HTTP requests to one node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec

from goqueue.model.cluster_errors import PeerUnreachable, Unauthenticated
from goqueue.model.errors import GoQueueError, NotReady
from goqueue.node.cluster.exchange import ANSWER_HEADER, ERRORS, SIGNATURE_HEADER, ErrorBody
from goqueue.peer.backoff import DELAY_S_MAX, Backoff
from goqueue.peer.dialling import Dialler, Patience
from goqueue.peer.http import HttpAnswer
from goqueue.peer.kept_links import KeptLinks
from goqueue.peer.refusals import error_told

T = TypeVar("T")

UNDER_WAY_COUNT_MAX = 64
WAITING_COUNT_MAX = 1_024  # for one of those to end; more would only be given up one after another


class Requests:
    def __init__(
        self,
        dialler: Dialler,
        target: str,
        patience: Patience,
        *,
        kept_count_max: int,
        chance: Callable[[], float],
    ) -> None:
        self._dialler = dialler
        self._target = target
        self._patience = patience
        self._backoff = Backoff(chance)
        self._kept = KeptLinks(kept_count_max)
        self._turn = asyncio.Semaphore(UNDER_WAY_COUNT_MAX)
        self._count = 0  # under way and waiting

    async def ask(self, path: str, body: bytes, *, timeout_s: float, method: str = "POST") -> bytes:
        """The answer's body, or the error that it tells of; NotReady if there is no place for it, and nothing was asked."""
        if self._count >= UNDER_WAY_COUNT_MAX + WAITING_COUNT_MAX:
            raise NotReady(
                f"{self._count} requests to node {self._target!r} are under way or wait, which is the limit; try again later",
                node=self._target,
            )
        self._count += 1
        try:
            return await self._ask(method, path, body, timeout_s)
        finally:
            self._count -= 1

    async def _ask(self, method: str, path: str, body: bytes, timeout_s: float) -> bytes:
        """A pause because the node could not be reached before comes on top of the time: a short one would otherwise be over before
        anything is tried."""
        if not self._kept:
            async with self._patience.within(2 * DELAY_S_MAX, self._target):
                await self._backoff.wait()
        async with self._patience.within(timeout_s, self._target), self._turn:
            header, answer = await self._exchange(method, path, body)
        self._check(header, answer)
        return answer.body

    def close(self) -> None:
        self._kept.close()

    async def _exchange(self, method: str, path: str, body: bytes) -> tuple[str, HttpAnswer]:
        is_answered = False
        try:
            link = self._kept.take() or await self._dialler.http(self._target)
            try:
                header = self._dialler.credentials.sign(method, path, body, self._target)
                answer = await link.ask(
                    method, path, body, {SIGNATURE_HEADER: header, "content-type": "application/json"}
                )
            except BaseException:
                link.abort()
                raise
            is_answered = True
        finally:
            if is_answered:
                self._backoff.succeeded()
            else:
                self._backoff.failed()
        self._kept.keep(link)
        return header, answer

    def _check(self, header: str, answer: HttpAnswer) -> None:
        """What is not signed proves nothing: at most that there was no answer."""
        signature = answer.headers.get(ANSWER_HEADER, "")
        is_signed = self._dialler.credentials.secret.is_answer(header, answer.status, answer.body, signature)
        if answer.status < 400:
            if not is_signed:
                raise Unauthenticated(
                    f"the answer of node {self._target!r} is not signed with this cluster's secret",
                    node=self._target,
                )
            return
        told = read_error(answer)
        sentence = f"node {self._target!r}: {told.error}"
        if is_signed:
            raise error_told(told.code, sentence, told.details)
        if answer.status == 401:
            raise Unauthenticated(sentence, node=self._target)
        raise PeerUnreachable(sentence, node=self._target)


def read_error(answer: HttpAnswer) -> ErrorBody:
    try:
        return ERRORS.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ErrorBody(f"it answers with status {answer.status} and no reason")


def decoded(decoder: msgspec.json.Decoder[T], data: bytes, target: str) -> T:
    """A signed answer, so only its version may be another."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise GoQueueError(
            f"the answer of node {target!r} is of another version: {error}", node=target
        ) from None
