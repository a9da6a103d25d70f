"""Requests in a cluster: each is answered where its route belongs, and the client sees one broker.

A request is carried to another node whole, once: one that came by another node is answered here or refused, see
`goqueue.node.forwarding`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, assert_never
from urllib.parse import quote

import msgspec
from msgspec import UnsetType

from goqueue.api.http.asgi import send_json
from goqueue.api.http.call import NoBody
from goqueue.api.http.decoding import decode
from goqueue.api.http.errors import ENCODER
from goqueue.api.http.exchange import (
    Refused,
    Request,
    asked_about,
    checked,
    is_elsewhere,
    is_unknown,
    once_more,
    send_answer,
    unless_gone,
)
from goqueue.api.http.gathering import PART_S_MAX, Ask, Gathering
from goqueue.api.http.read import path_number
from goqueue.api.http.recurring import NewRecurring, RecurringSchedule, message_of
from goqueue.api.http.redrive import RedriveBody
from goqueue.api.http.where import Where
from goqueue.model.errors import ScheduleNotFound
from goqueue.node.cluster.ports import Answer
from goqueue.node.forwarding import Belonging, Elsewhere, Forwarding, OfGroup, OfPartition
from goqueue.node.internal_topics import OFFSETS_TOPIC
from goqueue.node.node import Node

PEER: Final = "goqueue.peer"  # in a scope: the node that the request came by
_SLACK_S: Final = 35.0  # more than a sync may take

_recurring_decoder = msgspec.json.Decoder(NewRecurring)
_redrive_decoder = msgspec.json.Decoder(RedriveBody)


class Relay:
    """`run` answers a request here; `ask` gives what an endpoint answers, without sending it."""

    def __init__(
        self, node: Node, forwarding: Forwarding, run: Callable[[Request], Awaitable[None]], ask: Ask
    ) -> None:
        self._node = node
        self._forwarding = forwarding
        self._run = run
        self._gathering = Gathering(forwarding, node.partitions_seen, ask)
        self._timeout_s = node.config.limits.wait_ms_max / 1_000 + _SLACK_S

    async def answer(self, request: Request) -> None:
        if PEER in request.scope:
            self._check_leads(request)
            await self._run(request)
            return
        await self._until_known(request)
        try:
            await self._answer(request)
        except (Elsewhere, Refused) as error:
            await send_answer(request.send, error.answer)

    async def _until_known(self, request: Request) -> None:
        """What was made through another node a moment ago is there for a client that asks this one."""
        topic, partition = request.path.get("topic"), request.path.get("partition", "")
        if topic is not None:
            index = int(partition) if partition.isascii() and partition.isdigit() else 0
            await self._node.catching_up.until_known(topic, index)

    def _check_leads(self, request: Request) -> None:
        """What came by another node is answered by the one that leads, or not at all."""
        where = request.route.where
        if where is Where.PARTITION:
            topic, partition = _partition(request)
            self._node.partitions_seen.check_leads(topic, [partition])
        elif request.partitions:
            topic = OFFSETS_TOPIC if where is Where.COORDINATORS else request.path.get("topic", "")
            self._node.partitions_seen.check_leads(topic, request.partitions)

    async def _answer(self, request: Request) -> None:
        where = request.route.where
        match where:
            case Where.ANYWHERE:
                await self._run(request)
            case Where.PARTITION:
                await self._carry(request, _partition(request))
            case Where.GROUP:
                await self._carry(request, OfGroup(request.path["group"]))
            case Where.SCHEDULE:
                await self._carry_schedule(request)
            case Where.DEAD_LETTERS:
                await self._redrive(request)
            case Where.TOPIC:
                await self._merge(request, request.path["topic"])
            case Where.COORDINATORS:
                await self._merge(request, OFFSETS_TOPIC)
            case Where.EVERY_NODE:
                await self._merge(request, None)
            case _:
                assert_never(where)

    async def _merge(self, request: Request, topic: str | None) -> None:
        merged = await self._gathering.merged(request, topic)
        await send_json(request.send, request.route.status, ENCODER.encode(merged))

    async def _carry(self, request: Request, belonging: Belonging, body: bytes | None = None) -> None:
        route = request.route
        data = await self._body(request) if body is None else body
        led = [belonging.partition] if isinstance(belonging, OfPartition) else []

        async def here() -> Answer | None:
            if route.where is Where.SCHEDULE:
                self._node.partitions_seen.check_leads(request.path["topic"], led)
            await self._run(replace(request, receive=once_more(data, request.receive)))
            return None

        async def there(target: str) -> Answer | None:
            asking = self._forwarding.forwarder.forward(
                target,
                route.method,
                request.target,
                request.headers | asked_about(led),
                data,
                timeout_s=self._timeout_s,
            )
            answer = await unless_gone(asking, request.receive)
            if is_elsewhere(answer) or (route.may_repeat and is_unknown(answer)):
                raise Elsewhere(answer)
            return answer

        answer = await self._forwarding.carry(belonging, here, there, may_repeat=route.may_repeat)
        if answer is not None:
            await send_answer(request.send, answer)

    async def _body(self, request: Request) -> bytes:
        return await request.body(self._node.config.limits.request_bytes_max)

    # ---------------------------------------------------------------- recurring schedules

    async def _carry_schedule(self, request: Request) -> None:
        """Its name is its own in the whole topic, and it may be in any partition of it."""
        topic = request.path["topic"]
        body = await self._body(request)
        if request.route.body is NoBody:
            partition = await self._partition_of(topic, request.path["schedule"])
        else:
            new = decode(_recurring_decoder, body)
            partition = await self._partition_of(topic, new.name)
            if partition is None:
                partition = self._node.recurring.partition_of(topic, new.name, message_of(new))
        if partition is None:
            await self._run(replace(request, receive=once_more(body, request.receive)))  # which says so
        else:
            await self._carry(request, OfPartition(topic, partition), body)

    async def _partition_of(self, topic: str, schedule: str) -> int | None:
        async def here(partitions: Sequence[int]) -> int | None:
            self._node.partitions_seen.check_leads(topic, partitions)
            try:
                return (await self._node.recurring.get(topic, schedule)).partition
            except ScheduleNotFound:
                return None

        async def there(target: str, partitions: Sequence[int]) -> int | None:
            path = f"/topics/{quote(topic, safe='')}/recurring/{quote(schedule, safe='')}"
            try:
                answer = checked(
                    await self._forwarding.forwarder.forward(
                        target, "GET", path, asked_about(partitions), b"", timeout_s=PART_S_MAX
                    )
                )
            except Refused as error:
                if error.answer.status == _NOT_FOUND:
                    return None
                raise
            return msgspec.json.decode(answer.body, type=RecurringSchedule).partition

        found = await self._forwarding.all_of(topic, here, there)
        return next((one for one in found if one is not None), None)

    # ---------------------------------------------------------------- dead letters

    async def _redrive(self, request: Request) -> None:
        data = await self._body(request)
        body = decode(_redrive_decoder, data)
        topic = request.path["topic"]
        if not isinstance(body.partition, UnsetType):
            await self._carry(request, OfPartition(topic, body.partition), data)
            return
        merged = await self._gathering.redriven(request, topic, body, timeout_s=self._timeout_s)
        await send_json(request.send, request.route.status, ENCODER.encode(merged))


_NOT_FOUND: Final = 404


def _partition(request: Request) -> OfPartition:
    return OfPartition(request.path["topic"], path_number("partition", request.path["partition"]))
