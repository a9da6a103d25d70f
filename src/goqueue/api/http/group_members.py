"""The routes of members: join, heartbeat, revoke, leave and poll."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import UnsetType

from goqueue.api.http.asgi import ClientGone, Event, Receive, Send, send_json, wait_for_disconnect
from goqueue.api.http.call import Call
from goqueue.api.http.durations import duration_ms
from goqueue.api.http.errors import ENCODER
from goqueue.api.http.group_bodies import (
    Beaten,
    Cooperation,
    Heartbeat,
    Join,
    JoinCooperative,
    Joined,
    Left,
    PolledMessage,
    PollParameters,
    Revoke,
    TopicPartition,
    polled_message,
)
from goqueue.api.http.group_bodies import Polled as PolledBody
from goqueue.api.http.query import NoQuery, read_query
from goqueue.api.http.read_body import stored_messages
from goqueue.model.duration import format_instant
from goqueue.model.errors import InvalidRequest
from goqueue.node.groups.member_requests import (
    GroupMode,
    Membership,
    MemberState,
    Place,
    Polled,
    PollRequest,
    Who,
)
from goqueue.node.groups.member_requests import Join as JoinRequest
from goqueue.node.node import Node
from goqueue.node.queue.requests import Message

WAIT_MS: Final = 30_000
# Fewer forms than durations have elsewhere, so that the document can state the maximum as a pattern.
_WAIT: Final = re.compile(r"(0|[1-9][0-9]{0,9})(ms|s|m)?")


async def join(call: Call[NoQuery, Join]) -> Joined:
    membership = await call.node.members.join(_join(call, is_cooperative=False), call.body.mode)
    return Joined(
        membership.member_id,
        membership.generation,
        call.node.config.node_id,
        membership.mode,
        partitions(membership.assigned),
        _is_moving(membership),
        membership.heartbeat_interval_ms,
    )


async def join_cooperative(call: Call[NoQuery, JoinCooperative]) -> Cooperation:
    return _cooperation(await call.node.members.join(_join(call, is_cooperative=True), GroupMode.STREAM))


async def heartbeat(call: Call[NoQuery, Heartbeat]) -> Beaten:
    membership = await call.node.members.heartbeat(_who(call))
    return Beaten(
        membership.member_id,
        membership.generation,
        membership.state,
        _is_moving(membership),
        partitions(membership.assigned),
        partitions(membership.added),
        partitions(membership.to_revoke),
        instant(membership.revocation_ms),
    )


async def heartbeat_cooperative(call: Call[NoQuery, Heartbeat]) -> Cooperation:
    return _cooperation(await call.node.members.heartbeat(_who(call), revokes=False))


async def revoke(call: Call[NoQuery, Revoke]) -> Cooperation:
    places = [(one.topic, one.partition) for one in call.body.revoked_partitions]
    return _cooperation(await call.node.members.revoke(_who(call), places))


async def leave(call: Call[NoQuery, Heartbeat]) -> Left:
    released = await call.node.members.leave(_who(call))
    return Left(call.body.member_id, True, partitions(released))


async def poll(node: Node, path: Mapping[str, str], scope: Event, receive: Receive, send: Send) -> None:
    asked = read_query(scope["query_string"], PollParameters)
    generation = None if isinstance(asked.generation, UnsetType) else asked.generation
    visibility = asked.visibility
    request = PollRequest(
        Who(path["group"], asked.member_id, generation),
        asked.limit,
        _wait_ms(asked.timeout, node.config.limits.wait_ms_max),
        None if isinstance(visibility, UnsetType) else duration_ms("visibility", visibility),
    )
    polled = await _unless_gone(node, request, receive)
    membership = polled.membership
    body = PolledBody(
        _messages(polled.messages),
        membership.generation,
        _is_moving(membership),
        partitions(membership.assigned),
    )
    await send_json(send, 200, ENCODER.encode(body))


async def _unless_gone(node: Node, request: PollRequest, receive: Receive) -> Polled:
    """Who has hung up gets nothing: what it would be given is for others."""
    polling = asyncio.create_task(node.members.poll(request))
    watching = asyncio.create_task(wait_for_disconnect(receive))
    try:
        await asyncio.wait((polling, watching), return_when=asyncio.FIRST_COMPLETED)
        if polling.done():
            return polling.result()
        raise ClientGone
    finally:
        polling.cancel()
        watching.cancel()
        await asyncio.wait((polling, watching))


def _messages(messages: Sequence[Message]) -> list[PolledMessage]:
    stored = stored_messages([message.record for message in messages])
    return [polled_message(message, one) for message, one in zip(messages, stored, strict=True)]


def _wait_ms(text: str | UnsetType, wait_ms_max: int) -> int:
    if isinstance(text, UnsetType):
        return min(WAIT_MS, wait_ms_max)
    if not _WAIT.fullmatch(text):
        raise InvalidRequest(
            f"timeout is {text!r}; write 250ms, 30s, 1m or milliseconds", parameter="timeout"
        )
    wait_ms = duration_ms("timeout", text)
    if wait_ms > wait_ms_max:
        raise InvalidRequest(
            f"timeout is {text}; it may be at most {wait_ms_max}ms",
            parameter="timeout",
            wait_ms_max=wait_ms_max,
        )
    return wait_ms


# -------------------------------------------------------------------- translating


def partitions(places: Iterable[Place]) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic, index in places]


def instant(at_ms: int | None) -> str | None:
    return None if at_ms is None else format_instant(at_ms)


def _join(call: Call[NoQuery, Join] | Call[NoQuery, JoinCooperative], *, is_cooperative: bool) -> JoinRequest:
    body = call.body
    return JoinRequest(
        group_id=call.path["group"],
        client_id=body.client_id,
        topics=tuple(body.topics),
        member_id="" if isinstance(body.member_id, UnsetType) else body.member_id,
        strategy=None if isinstance(body.strategy, UnsetType) else body.strategy,
        session_timeout_ms=_optional_ms("session_timeout", body.session_timeout),
        rebalance_timeout_ms=_optional_ms("rebalance_timeout", body.rebalance_timeout),
        auto_commit=body.auto_commit,
        is_cooperative=is_cooperative,
    )


def _optional_ms(name: str, value: str | int | UnsetType) -> int | None:
    return None if isinstance(value, UnsetType) else duration_ms(name, value)


def _who(call: Call[NoQuery, Heartbeat] | Call[NoQuery, Revoke]) -> Who:
    generation = call.body.generation
    return Who(
        call.path["group"],
        call.body.member_id,
        None if isinstance(generation, UnsetType) else generation,
    )


def _is_moving(membership: Membership) -> bool:
    return membership.state is not MemberState.COMPLETE


def _cooperation(membership: Membership) -> Cooperation:
    return Cooperation(
        membership.member_id,
        membership.generation,
        membership.state,
        _is_moving(membership),
        partitions(membership.assigned),
        partitions(membership.added),
        partitions(membership.to_revoke),
        partitions(membership.pending),
        instant(membership.revocation_ms),
        membership.heartbeat_interval_ms,
    )
