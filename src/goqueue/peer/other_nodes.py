"""`goqueue.node.other_nodes` over the wire: MessagePack in signed HTTP, so that bytes go as they are."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from goqueue.model.cluster_errors import PeerUnreachable
from goqueue.model.errors import GoQueueError, NotReady
from goqueue.node.cluster.exchange import ERRORS, ErrorBody
from goqueue.node.forwarding import Forwarder
from goqueue.node.groups.standing import Standings, StandingsCall
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
    LedPartition,
    OutcomeTold,
    PollCall,
    PollTold,
    PublishCall,
    ReadCall,
    Settled,
    SettledTold,
)
from goqueue.node.requests import Outcome, ReadResult
from goqueue.peer.refusals import error_told

T = TypeVar("T")

WORK_S_MAX: Final = 35.0  # more than a sync may take
_FACTS_S_MAX: Final = 5.0
_SLACK_S: Final = 10.0  # more than a poll was told to wait
_HEADERS: Final = {"content-type": "application/msgpack"}

_encoder = msgspec.msgpack.Encoder()
_outcomes = msgspec.msgpack.Decoder(list[OutcomeTold])
_settled = msgspec.msgpack.Decoder(list[SettledTold])
_polls = msgspec.msgpack.Decoder(PollTold)
_facts = msgspec.msgpack.Decoder(list[LedPartition])
_reads = msgspec.msgpack.Decoder(ReadResult)
_standings = msgspec.msgpack.Decoder(Standings)
_offsets = msgspec.msgpack.Decoder(int)
_settings = msgspec.msgpack.Decoder(dict[str, str])


class PeerNodes:
    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder

    async def publish(self, target: str, call: PublishCall) -> list[Outcome]:
        data = await self._ask(target, PUBLISH, call, WORK_S_MAX)
        return [
            Outcome(one.partition, one.offset, _error(one.fault), one.deliver_at_ms)
            for one in _decoded(_outcomes, data, target)
        ]

    async def finish(self, target: str, call: FinishCall) -> list[Settled]:
        data = await self._ask(target, FINISH, call, WORK_S_MAX)
        return [_one_settled(one, target) for one in _decoded(_settled, data, target)]

    async def poll(self, target: str, call: PollCall) -> PollTold:
        data = await self._ask(target, POLL, call, call.wait_ms / 1_000 + _SLACK_S)
        return _decoded(_polls, data, target)

    async def end_poll(self, target: str, id: str) -> None:
        await self._ask(target, END_POLL, EndPollCall(id), _FACTS_S_MAX)

    async def facts(self, target: str, call: FactsCall) -> list[LedPartition]:
        data = await self._ask(target, FACTS, call, _FACTS_S_MAX)
        return _decoded(_facts, data, target)

    async def read(self, target: str, call: ReadCall) -> ReadResult:
        data = await self._ask(target, READ, call, call.query.wait_ms / 1_000 + _SLACK_S)
        return _decoded(_reads, data, target)

    async def find(self, target: str, call: FindCall) -> int:
        return _decoded(_offsets, await self._ask(target, FIND, call, _FACTS_S_MAX), target)

    async def configure_group(self, target: str, call: GroupConfigCall) -> dict[str, str]:
        return _decoded(_settings, await self._ask(target, GROUP_CONFIG, call, WORK_S_MAX), target)

    async def standings(self, target: str, call: StandingsCall) -> Standings:
        return _decoded(_standings, await self._ask(target, STANDINGS, call, WORK_S_MAX), target)

    async def _ask(self, target: str, path: str, call: msgspec.Struct, timeout_s: float) -> bytes:
        body = _encoder.encode(call)
        answer = await self._forwarder.forward(target, "POST", path, _HEADERS, body, timeout_s=timeout_s)
        if answer.status < 400:
            return answer.body
        try:
            told = ERRORS.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            told = ErrorBody(f"it answers with status {answer.status} and no reason")
        error = error_told(told.code, told.error, told.details)
        if isinstance(error, NotReady):  # it has done nothing, and what it leads will be another's
            raise PeerUnreachable(f"node {target!r}: {told.error}", node=target)
        raise error


def _error(fault: Fault | None) -> GoQueueError | None:
    return None if fault is None else error_told(fault.code, fault.sentence, fault.details)


def _one_settled(told: SettledTold, target: str) -> Settled:
    found = told.finished or told.returned or told.prolonged or _error(told.fault)
    if found is None:
        raise GoQueueError(f"the answer of node {target!r} is of another version", node=target)
    return found


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes, target: str) -> T:
    """A signed answer, so only its version may be another."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise GoQueueError(
            f"the answer of node {target!r} is of another version: {error}", node=target
        ) from None
