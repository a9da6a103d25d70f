"""A REST client of a cluster: any node takes what it asks. After a failure it tries another one."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError
from goqueue.peer.refusals import error_told
from goqueue.sim.cluster.host import HTTP_PORT
from goqueue.sim.http import Answer, NoAnswer, SimHttpClient

_OK_MAX = 299


class RestClient:
    def __init__(self, hosts: list[str], rng: Random) -> None:
        self._hosts = hosts
        self._rng = rng
        self._host = rng.choice(hosts)
        self._links: dict[str, SimHttpClient] = {}

    async def ask(self, method: str, path: str, body: object = None) -> Answer:
        """Whatever the answer says; `NoAnswer` if there is none, and then nobody knows what became of it."""
        link = self._links.get(self._host)
        if link is None:
            link = self._links[self._host] = SimHttpClient(self._host, HTTP_PORT)
        try:
            answer = await link.request(method, path, body)
        except NoAnswer:
            self.go_elsewhere()
            raise
        except asyncio.CancelledError:
            link.close()
            raise
        if answer.status > _OK_MAX:
            self.go_elsewhere()
        return answer

    async def order(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """The body of a good answer; others are raised as the errors they are."""
        answer = await self.ask(method, path, body)
        if answer.status > _OK_MAX:
            raise refusal(answer)
        return answer.body

    async def until_done(
        self, method: str, path: str, body: object = None, *, done: tuple[Code, ...] = ()
    ) -> None:
        """Again and again; the codes of `done` say that it was done before."""
        while True:
            try:
                await self.order(method, path, body)
                return
            except NoAnswer:
                pass
            except GoQueueError as error:
                if error.code in done:
                    return
                if not error.retriable:
                    raise
            await self.pause()

    def go_elsewhere(self) -> None:
        self._host = self._rng.choice(self._hosts)

    async def pause(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.05, 0.5))

    def close(self) -> None:
        for link in self._links.values():
            link.close()


def refusal(answer: Answer) -> GoQueueError:
    return error_told(answer.code, str(answer.body.get("error", "")), {})
