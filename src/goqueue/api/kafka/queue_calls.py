"""AskQueue: what other nodes want of this one's queues (`goqueue.node.queue.exchange`). Only their listener serves it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from goqueue.api.kafka.call import Answer, Api, Call, begun
from goqueue.api.kafka.context import Context
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.node.queue.exchange import (
    APPEND,
    APPEND_CALLS,
    ENCODER,
    HELD,
    HELD_CALLS,
    LEDGERS,
    LEDGERS_CALLS,
    LEFT,
    LEFT_CALLS,
    PART,
    PARTS,
    SETTINGS,
    SETTINGS_CALLS,
    SILENCE,
    SILENCE_CALLS,
    AppendTold,
    LedgersTold,
    LedgerTold,
    LeftTold,
    PartTold,
    SettingsTold,
)
from goqueue.node.queue.ports import LedgerAnswer
from goqueue.node.scaling.ports import Held, Silence
from goqueue.wire.schema import responses

_R = responses("ask_queue")
T = TypeVar("T")


class QueueCallsApi:
    def __init__(self, context: Context) -> None:
        self._node = context.node
        self._questions: dict[str, Callable[[bytes], Awaitable[object]]] = {
            APPEND: self._append,
            SETTINGS: self._settings,
            LEDGERS: self._ledgers,
            LEFT: self._left,
            PART: self._part,
            SILENCE: self._silence,
            HELD: self._held,
        }

    def apis(self) -> list[Api]:
        return [Api("ask_queue", 0, 0, self.ask_queue)]

    async def ask_queue(self, call: Call, request: Any) -> Answer:
        """One question does not wait for another of the same node: some take as long as replication does."""
        return begun(self._answer(request))

    async def _answer(self, request: Any) -> Answer:
        try:
            question = self._questions.get(request.question)
            if question is None:
                raise InvalidRequest(f"nothing is known of {request.question!r}; the other node is newer")
            return _R.AskQueueResponse(body=ENCODER.encode(await question(bytes(request.body))))
        except GoQueueError as error:
            return _R.AskQueueResponse(error=error.code.value, error_message=error.sentence)

    async def _append(self, body: bytes) -> AppendTold:
        call = _decoded(APPEND_CALLS, body)
        producer = call.producer_id, call.producer_epoch
        newest = await self._node.arrivals.append(call.topic, call.partition, producer, call.batch)
        return AppendTold(newest)

    async def _part(self, body: bytes) -> PartTold:
        return PartTold(await self._node.keyed.parts.accept(_decoded(PARTS, body)))

    async def _silence(self, body: bytes) -> Silence:
        return self._node.keyed.division.silence(_decoded(SILENCE_CALLS, body))

    async def _held(self, body: bytes) -> Held:
        return await self._node.keyed.earlier.held(_decoded(HELD_CALLS, body))

    async def _settings(self, body: bytes) -> SettingsTold:
        return SettingsTold(self._node.groups.settings_of(_decoded(SETTINGS_CALLS, body).group_id))

    async def _left(self, body: bytes) -> LeftTold:
        call = _decoded(LEFT_CALLS, body)
        await self._node.share.member_left(call.group_id, call.member_id)
        return LeftTold()

    async def _ledgers(self, body: bytes) -> LedgersTold:
        call = _decoded(LEDGERS_CALLS, body)
        answers = await self._node.led_ledgers.ask(call.group_id, call.action, call.wants)
        return LedgersTold([_told(one) for one in answers])


def _told(answer: LedgerAnswer) -> LedgerTold:
    error = answer.error
    return LedgerTold(
        None if error is None else error.code.value,
        "" if error is None else error.sentence,
        answer.start,
        answer.leader_epoch,
        answer.lag,
        answer.is_moving,
    )


def _decoded(decoder: msgspec.msgpack.Decoder[T], body: bytes) -> T:
    """Of a node that has logged in, so only its version may be another."""
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the request is of another version: {error}") from None
