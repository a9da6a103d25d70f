"""What other nodes have this one do for their clients: `goqueue.node.other_nodes`, answered by the use cases of this node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from goqueue.api.http.asgi import ClientGone, Receive, wait_for_disconnect
from goqueue.model.errors import GoQueueError, InvalidRequest, RouteNotFound
from goqueue.node.groups.standing import StandingsCall
from goqueue.node.node import Node
from goqueue.node.other_nodes import (
    END_POLL,
    FACTS,
    FIND,
    FINISH,
    GROUP_CONFIG,
    POLL,
    PUBLISH,
    READ,
    STANDINGS,
    EndPollCall,
    FactsCall,
    Fault,
    FindCall,
    FinishCall,
    GroupConfigCall,
    OutcomeTold,
    PollCall,
    PollTold,
    PublishCall,
    ReadCall,
    Settled,
    SettledTold,
)
from goqueue.node.queue.polling import Poll
from goqueue.node.queue.requests import Delivered, Finished, Returned
from goqueue.node.requests import Outcome
from goqueue.node.spread.group_configs import configure_here
from goqueue.node.spread.group_places import find_here
from goqueue.node.spread.receipts import finish_here, place_of

T = TypeVar("T")
Call = Callable[[bytes, Receive], Awaitable[object]]

CONTENT_TYPE: Final = "application/msgpack"

_encoder = msgspec.msgpack.Encoder()
_publishes = msgspec.msgpack.Decoder(PublishCall)
_finishes = msgspec.msgpack.Decoder(FinishCall)
_polls = msgspec.msgpack.Decoder(PollCall)
_ends = msgspec.msgpack.Decoder(EndPollCall)
_facts = msgspec.msgpack.Decoder(FactsCall)
_reads = msgspec.msgpack.Decoder(ReadCall)
_finds = msgspec.msgpack.Decoder(FindCall)
_configs = msgspec.msgpack.Decoder(GroupConfigCall)
_standings = msgspec.msgpack.Decoder(StandingsCall)


class NodeCalls:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._seen = node.partitions_seen
        self._waiting: dict[str, asyncio.Event] = {}  # polls, by their ids
        self._calls: dict[str, Call] = {
            PUBLISH: self._publish,
            FINISH: self._finish,
            POLL: self._poll,
            END_POLL: self._end_poll,
            FACTS: self._tell_facts,
            READ: self._read,
            FIND: self._find,
            GROUP_CONFIG: self._configure_group,
            STANDINGS: self._tell_standings,
        }

    async def answer(self, path: str, body: bytes, receive: Receive) -> bytes:
        call = self._calls.get(path)
        if call is None:
            raise RouteNotFound(f"there is nothing at {path!r} for other nodes", path=path)
        return _encoder.encode(await call(body, receive))

    async def _publish(self, body: bytes, receive: Receive) -> list[OutcomeTold]:
        call = _decoded(_publishes, body)
        indexes = dict.fromkeys(one.partition for one in call.messages if one.partition is not None)
        self._seen.check_leads(call.topic, indexes)
        outcomes = await self._node.publisher.publish(
            call.topic, call.messages, acks=call.acks, producer=call.producer
        )
        return [_outcome(one) for one in outcomes]

    async def _finish(self, body: bytes, receive: Receive) -> list[SettledTold]:
        call = _decoded(_finishes, body)
        for place in dict.fromkeys(map(place_of, call.receipts)):
            if place is not None:
                self._seen.check_leads(place.topic, [place.partition])
        return [_settled(one) for one in await finish_here(self._node.queue, call)]

    async def _poll(self, body: bytes, receive: Receive) -> PollTold:
        call = _decoded(_polls, body)
        for topic, partition in call.places:
            self._seen.check_leads(topic, [partition])
        poll = Poll(
            call.group_id,
            call.member_id,
            call.places,
            call.limit,
            call.wait_ms,
            call.visibility_ms,
            call.from_latest,
        )
        delivered = await self._deliver(call.id, poll, receive) if call.limit else []
        held_count = self._node.config.queue.in_flight_count_max - self._node.queue.polling.credit(poll)
        return PollTold(delivered, held_count)

    async def _deliver(self, id: str, poll: Poll, receive: Receive) -> list[Delivered]:
        """Until there is something, or the one who asked wants an answer now, or has gone; then others may have it."""
        ended = self._waiting[id] = asyncio.Event()
        polling = asyncio.create_task(self._node.queue.poll(poll))
        ending = asyncio.create_task(ended.wait())
        watching = asyncio.create_task(wait_for_disconnect(receive))
        try:
            await asyncio.wait((polling, ending, watching), return_when=asyncio.FIRST_COMPLETED)
            if not polling.done():
                polling.cancel()
                await asyncio.wait((polling,))
            if watching.done():
                raise ClientGone
            return [] if polling.cancelled() else polling.result()
        finally:
            self._waiting.pop(id, None)
            tasks = (polling, ending, watching)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _end_poll(self, body: bytes, receive: Receive) -> None:
        ended = self._waiting.get(_decoded(_ends, body).id)
        if ended is not None:
            ended.set()

    async def _tell_facts(self, body: bytes, receive: Receive) -> object:
        call = _decoded(_facts, body)
        self._seen.check_leads(call.topic, call.partitions)
        return self._seen.here(call.topic)

    async def _read(self, body: bytes, receive: Receive) -> object:
        call = _decoded(_reads, body)
        self._seen.check_leads(call.topic, [call.partition])
        return await self._node.reader.read(call.topic, call.partition, call.query)

    async def _find(self, body: bytes, receive: Receive) -> int:
        call = _decoded(_finds, body)
        self._seen.check_leads(call.topic, [call.partition])
        return await find_here(self._node.positions, (call.topic, call.partition), call.instant)

    async def _configure_group(self, body: bytes, receive: Receive) -> dict[str, str]:
        return await configure_here(self._node.groups, _decoded(_configs, body))

    async def _tell_standings(self, body: bytes, receive: Receive) -> object:
        return await self._node.keyed_groups.here.of(_decoded(_standings, body))


def _outcome(outcome: Outcome) -> OutcomeTold:
    return OutcomeTold(outcome.partition, outcome.offset, outcome.deliver_at_ms, _fault(outcome.error))


def _settled(settled: Settled) -> SettledTold:
    if isinstance(settled, GoQueueError):
        return SettledTold(fault=_fault(settled))
    if isinstance(settled, Finished):
        return SettledTold(finished=settled)
    if isinstance(settled, Returned):
        return SettledTold(returned=settled)
    return SettledTold(prolonged=settled)


def _fault(error: GoQueueError | None) -> Fault | None:
    return None if error is None else Fault(error.code.value, error.sentence, dict(error.details))


def _decoded(decoder: msgspec.msgpack.Decoder[T], body: bytes) -> T:
    """Of a signed request, so only its version may be another."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the request is of another version: {error}") from None
