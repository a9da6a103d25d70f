"""Queue groups over partitions that several nodes lead. The group's coordinator asks the leaders for the member.

First one leader after the other, each for what is still wanted. Where nobody has anything all of them are waited for at once; whoever
has something first ends the wait of the others, and what they have got by then is given too, or given back if it is too much.

A member may hold so many records in all: each leader says how many it has given the member, and no other gives what would be more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from msgspec import structs

from goqueue.model.errors import GoQueueError, TimedOut
from goqueue.node.forwarding import Forwarding, may_try_again, together
from goqueue.node.ids import Ids
from goqueue.node.other_nodes import OtherNodes, PollCall, PollTold
from goqueue.node.queue.ledgers import Place
from goqueue.node.queue.polling import Poll
from goqueue.node.queue.queue import Queue
from goqueue.node.queue.requests import Delivered
from goqueue.node.spread.receipts import Receiving

_ENDING_S_MAX: Final = 2.0  # for polls that were ended to answer
_CREDIT_PAUSE_S: Final = 0.2  # of a member that holds all it may, before others are asked again
_MEMBER_COUNT_MAX: Final = 10_000  # whose holdings are remembered

Parts = dict[str | None, list[Place]]  # by leader; None is this node


class QueuePolls(Protocol):
    async def poll(self, poll: Poll) -> list[Delivered]: ...


class SpreadPolling:
    def __init__(
        self,
        queue: Queue,
        receipts: Receiving,
        forwarding: Forwarding,
        nodes: OtherNodes,
        ids: Ids,
    ) -> None:
        self._queue = queue
        self._receipts = receipts
        self._forwarding = forwarding
        self._nodes = nodes
        self._ids = ids
        self._held: dict[tuple[str, str], dict[str, int]] = {}  # by group and member, of other nodes
        self._turn = 0

    async def poll(self, poll: Poll) -> list[Delivered]:
        """As `Queue.poll`, wherever the partitions are."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + poll.wait_ms / 1_000
        while True:
            parts = self._parts(poll.places)
            if list(parts) == [None]:
                return await self._queue.poll(structs.replace(poll, wait_ms=_left_ms(deadline)))
            delivered = await self._take(poll, parts)
            if delivered or loop.time() >= deadline or not self._queue.is_ready:
                return delivered
            delivered = await self._wait(poll, parts, deadline)
            if delivered or loop.time() >= deadline or not poll.is_wanted():
                return delivered

    def _parts(self, places: Sequence[Place]) -> Parts:
        """What nobody leads for now is left out."""
        parts: Parts = {}
        for place in places:
            with suppress(GoQueueError):
                parts.setdefault(self._forwarding.leader_of(*place), []).append(place)
        return parts

    # ---------------------------------------------------------------- one after the other

    async def _take(self, poll: Poll, parts: Parts) -> list[Delivered]:
        """From one leader after the other. If some fail, what the others have is given all the same: it is leased."""
        if self._credit(poll) == 0:
            await self._count_again(poll, parts)
        delivered: list[Delivered] = []
        failure: GoQueueError | None = None
        for target in self._in_turn(parts):
            room = min(poll.limit - len(delivered), self._credit(poll))
            if room <= 0:
                break
            try:
                delivered += await self._ask(poll, target, parts[target], room, wait_ms=0)
            except GoQueueError as error:
                if not may_try_again(error) and not isinstance(error, TimedOut):
                    failure = error
        if failure is not None and not delivered:
            raise failure
        return delivered

    def _in_turn(self, parts: Parts) -> list[str | None]:
        targets = list(parts)
        self._turn += 1
        first = self._turn % len(targets) if targets else 0
        return [*targets[first:], *targets[:first]]

    async def _ask(
        self,
        poll: Poll,
        target: str | None,
        places: Sequence[Place],
        limit: int,
        *,
        wait_ms: int,
        id: str = "",
    ) -> list[Delivered]:
        if target is None:
            return await self._queue.poll(structs.replace(poll, places=places, limit=limit, wait_ms=wait_ms))
        call = PollCall(
            id,
            poll.group_id,
            poll.member_id,
            places,
            limit,
            wait_ms,
            poll.visibility_ms,
            poll.from_latest,
        )
        told = await self._nodes.poll(target, call)
        self._note(poll, target, told)
        return told.delivered

    # ---------------------------------------------------------------- all at once

    async def _wait(self, poll: Poll, parts: Parts, deadline: float) -> list[Delivered]:
        limit = min(poll.limit, self._credit(poll))
        if limit == 0 or not parts:
            await asyncio.sleep(min(_CREDIT_PAUSE_S, max(0.0, deadline - asyncio.get_running_loop().time())))
            return []
        wait_ms = _left_ms(deadline)
        ids: dict[asyncio.Task[list[Delivered]], tuple[str | None, str]] = {}
        for target, places in parts.items():
            id = self._ids.fresh()
            work = self._ask(poll, target, places, limit, wait_ms=wait_ms, id=id)
            ids[asyncio.ensure_future(work)] = target, id
        try:
            failure = await _first_found(list(ids))
            await self._end(ids)
        finally:
            for task in ids:
                task.cancel()
            await asyncio.wait(ids)
        found = [one for task in ids for one in _delivered(task)]
        await self._give_back(found[limit:])
        if failure is not None and not found:
            await self._forwarding.pause()
            if not may_try_again(failure) and not isinstance(failure, TimedOut):
                raise failure
        return found[:limit]

    async def _end(self, ids: dict[asyncio.Task[list[Delivered]], tuple[str | None, str]]) -> None:
        """Have those that still wait answer, rather than hang up: what they have leased must not be lost on its way."""
        waiting = [(task, *ids[task]) for task in ids if not task.done()]
        if not waiting:
            return
        for task, target, _ in waiting:
            if target is None:
                task.cancel()
        with suppress(GoQueueError):
            await together(
                [self._nodes.end_poll(target, id) for _, target, id in waiting if target is not None]
            )
        await asyncio.wait([task for task, *_ in waiting], timeout=_ENDING_S_MAX)

    async def _give_back(self, surplus: Sequence[Delivered]) -> None:
        if surplus:
            with suppress(GoQueueError):  # else they come back when their time is up
                await self._receipts.nack([one.receipt for one in surplus], delay_ms=0)

    # ---------------------------------------------------------------- what a member holds

    def _credit(self, poll: Poll) -> int:
        """How many more the member may have, as far as this node knows."""
        elsewhere = sum(self._held.get((poll.group_id, poll.member_id), {}).values())
        return max(0, self._queue.polling.credit(poll) - elsewhere)

    def _note(self, poll: Poll, target: str, told: PollTold) -> None:
        key = poll.group_id, poll.member_id
        held = self._held.pop(key, {})
        held[target] = told.held_count
        self._held[key] = held  # the last is the one heard of last
        if len(self._held) > _MEMBER_COUNT_MAX:
            del self._held[next(iter(self._held))]

    async def _count_again(self, poll: Poll, parts: Parts) -> None:
        """The member has acknowledged to the leaders, and this node has not heard of it."""
        self._held.pop((poll.group_id, poll.member_id), None)
        with suppress(GoQueueError):
            await together(
                [
                    self._ask(poll, target, places, 0, wait_ms=0)
                    for target, places in parts.items()
                    if target is not None
                ]
            )


async def _first_found(tasks: Sequence[asyncio.Task[list[Delivered]]]) -> GoQueueError | None:
    """Until one of them has got something, or all are done; the first error, if there was one."""
    pending = set(tasks)
    failure: GoQueueError | None = None
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, GoQueueError):
                failure = failure or error
        if failure is not None or any(_delivered(task) for task in done):
            break
    return failure


def _delivered(task: asyncio.Task[list[Delivered]]) -> list[Delivered]:
    if not task.done() or task.cancelled():
        return []
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, GoQueueError):
        return []
    raise error


def _left_ms(deadline: float) -> int:
    return max(0, round((deadline - asyncio.get_running_loop().time()) * 1_000))
