"""ShareFetch and ShareAcknowledge: records for a member of a share group, and what it says of those that it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.context import Context, code_of
from goqueue.api.kafka.error_text import text_of
from goqueue.api.kafka.share_sessions import CLOSING_EPOCH, OPENING_EPOCH, Member, ShareSessions, Spot
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    InvalidGroupId,
    InvalidRequest,
    InvalidShareSessionEpoch,
)
from goqueue.node.queue.ledgers import Place
from goqueue.node.queue.share_requests import Shared, ShareFetch, Verdict, Verdicts
from goqueue.wire.schema import responses

_F = responses("share_fetch")
_A = responses("share_acknowledge")
_RENEWS_FROM = 2
_DELIVERIES_MAX = 2**15 - 1  # as many as the field holds
_STORAGE_ERROR = 56
_UNKNOWN_SERVER_ERROR = -1
# What clients know how to go on from when a partition is refused; others end them.
_KNOWN_CODES = frozenset({0, 2, 3, 6, 42, 56, 74, 75, 100, 121, _UNKNOWN_SERVER_ERROR})

Spoken = Mapping[Spot, Sequence[Verdicts] | GoQueueError]


class ShareFetchApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._share = context.node.share
        self._wait_ms_max = context.node.config.limits.wait_ms_max
        self._sessions = ShareSessions(self._lost)

    def _lost(self, member: Member) -> None:
        self._share.abandon(*member)

    def apis(self) -> list[Api]:
        return [
            Api("share_fetch", 1, 2, self.share_fetch),
            Api("share_acknowledge", 1, 2, self.share_acknowledge),
        ]

    # ---------------------------------------------------------------- fetching

    async def share_fetch(self, call: Call, request: Any) -> Answer:
        try:
            member = _member(request)
            if request.share_session_epoch == CLOSING_EPOCH:
                return await self._last_fetch(call, request, member)
            return await self._fetch(call, request, member)
        except GoQueueError as error:
            return _F.ShareFetchResponse(error_code=code_of(error), error_message=text_of(error))

    async def _fetch(self, call: Call, request: Any, member: Member) -> Answer:
        self._share.check_member(*member)
        _check_mode(request)
        spoken = _spoken(call, request)
        named = [
            (topic.topic_id, one.partition_index) for topic in request.topics for one in topic.partitions
        ]
        is_opening = request.share_session_epoch == OPENING_EPOCH
        if is_opening:
            _refuse_verdicts(spoken)
            while self._sessions.close(member):  # another connection may open one meanwhile
                await self._share.let_go(*member)
            session = self._sessions.open(member, named, call.closing)
            await self._share.attach(*member)
        else:
            forgotten = [
                (topic.topic_id, index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ]
            session = self._sessions.advance(member, request.share_session_epoch, named, forgotten)
        spots = list(session.spots)
        places, refused = self._places([*spots, *spoken])
        is_waiting = request.min_bytes > 0 and not any(spot in refused for spot in named)
        want = ShareFetch(
            *member,
            places=[places[spot] for spot in spots if spot in places],
            said=_said(spoken, places),
            limit=max(request.max_records, 0),
            bytes_max=max(request.max_bytes, 0),
            wait_ms=min(max(request.max_wait_ms, 0), self._wait_ms_max) if is_waiting else 0,
            is_current=lambda: self._sessions.is_open(member, session),
        )
        shared = await self._share.fetch(want)
        found = {spot: shared.get(place, Shared()) for spot, place in places.items()} | refused
        for spot, one in found.items():
            if one.acquired:
                session.served(spot)
        _add_refusals(spoken, found)
        news = [spot for spot in found if is_opening or spot in spoken or _is_news(found[spot])]
        return self._fetched(member, places, {spot: found[spot] for spot in news})

    async def _last_fetch(self, call: Call, request: Any, member: Member) -> Answer:
        places, found = await self._say_goodbye(call, request, member)
        return self._fetched(member, places, found)

    def _fetched(self, member: Member, places: Mapping[Spot, Place], found: Mapping[Spot, Shared]) -> Answer:
        topics: dict[bytes, list[Any]] = {}
        for (id, index), one in found.items():
            topics.setdefault(id, []).append(_partition(index, one))
        return _F.ShareFetchResponse(
            acquisition_lock_timeout_ms=self._lock_ms(member, places),
            responses=[
                _F.ShareFetchableTopicResponse(topic_id=id, partitions=partitions)
                for id, partitions in topics.items()
            ],
        )

    # ---------------------------------------------------------------- acknowledging

    async def share_acknowledge(self, call: Call, request: Any) -> Answer:
        try:
            member = _member(request)
            if request.share_session_epoch == CLOSING_EPOCH:
                places, found = await self._say_goodbye(call, request, member)
            else:
                _refuse_opening(request)
                self._sessions.advance(member, request.share_session_epoch)
                places, found = await self._say(call, request, member)
        except GoQueueError as error:
            return _A.ShareAcknowledgeResponse(error_code=code_of(error), error_message=text_of(error))
        topics: dict[bytes, list[Any]] = {}
        for (id, index), one in found.items():
            topics.setdefault(id, []).append(_acknowledged(index, one.verdict_error))
        return _A.ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self._lock_ms(member, places),
            responses=[
                _A.ShareAcknowledgeTopicResponse(topic_id=id, partitions=partitions)
                for id, partitions in topics.items()
            ],
        )

    async def _say(
        self, call: Call, request: Any, member: Member
    ) -> tuple[dict[Spot, Place], dict[Spot, Shared]]:
        spoken = _spoken(call, request)
        places, refused = self._places(spoken)
        shared = await self._share.acknowledge(*member, said=_said(spoken, places))
        found = {spot: shared.get(place, Shared()) for spot, place in places.items()} | refused
        _add_refusals(spoken, found)
        return places, found

    async def _say_goodbye(
        self, call: Call, request: Any, member: Member
    ) -> tuple[dict[Spot, Place], dict[Spot, Shared]]:
        """The end of a session: what the member has not spoken of may go to others."""
        session = self._sessions.find(member, CLOSING_EPOCH)
        said = await self._say(call, request, member)
        if self._sessions.is_open(member, session):  # else its next one has given everything back
            self._sessions.close(member)
            await self._share.let_go(*member)
        return said

    # ---------------------------------------------------------------- pieces

    def _places(self, spots: Iterable[Spot]) -> tuple[dict[Spot, Place], dict[Spot, Shared]]:
        """By name, and the answers for topics whose ids nobody has."""
        places: dict[Spot, Place] = {}
        refused: dict[Spot, Shared] = {}
        for spot in spots:
            try:
                places[spot] = (self._context.topic_name(spot[0]), spot[1])
            except GoQueueError as error:
                refused[spot] = Shared(error=error, verdict_error=error)
        return places, refused

    def _lock_ms(self, member: Member, places: Mapping[Spot, Place]) -> int:
        return self._share.lock_ms(member.group_id, sorted({topic for topic, _ in places.values()}))


def _member(request: Any) -> Member:
    if not request.group_id:
        raise InvalidGroupId("a share request names no group; group_id must not be empty")
    if not request.member_id:
        raise InvalidRequest("a share request names no member; member_id must be that of the heartbeats")
    return Member(request.group_id, request.member_id)


def _check_mode(request: Any) -> None:
    """Both mean the same here: nobody gets more records than it asks for."""
    if request.share_acquire_mode not in (0, 1):
        raise InvalidRequest(
            f"share_acquire_mode is {request.share_acquire_mode}; it must be 0 (whole batches) or 1 (at most max_records)"
        )


def _refuse_verdicts(spoken: Spoken) -> None:
    if spoken:
        raise InvalidRequest(
            "a request that opens a share session cannot acknowledge; send that with epoch 1"
        )


def _refuse_opening(request: Any) -> None:
    if request.share_session_epoch == OPENING_EPOCH:
        raise InvalidShareSessionEpoch(
            "an acknowledgement cannot open a share session; open it with a fetch", epoch=OPENING_EPOCH
        )


def _spoken(call: Call, request: Any) -> Spoken:
    """What is said of each partition, or why that makes no sense."""
    kind_max = Verdict.RENEW if call.version >= _RENEWS_FROM and request.is_renew_ack else Verdict.REJECT
    spoken: dict[Spot, Sequence[Verdicts] | GoQueueError] = {}
    for topic in request.topics:
        for one in topic.partitions:
            if one.acknowledgement_batches or call.api == "share_acknowledge":
                spot = (topic.topic_id, one.partition_index)
                try:
                    if spot in spoken:
                        raise InvalidRequest(f"partition {one.partition_index} is named twice")
                    spoken[spot] = _verdicts(one.acknowledgement_batches, kind_max)
                except InvalidRequest as error:
                    spoken[spot] = error
    return spoken


def _verdicts(batches: Sequence[Any], kind_max: Verdict) -> list[Verdicts]:
    verdicts: list[Verdicts] = []
    end = 0
    for batch in batches:
        first, last, kinds = batch.first_offset, batch.last_offset, batch.acknowledge_types
        span = f"offsets {first} to {last}"
        if not end <= first <= last:
            raise InvalidRequest(
                f"{span} are acknowledged; batches must be in order and apart, from {end} on"
            )
        if len(kinds) not in (1, last - first + 1):
            raise InvalidRequest(f"{span} are acknowledged by {len(kinds)} types; give one, or one for each")
        for kind in kinds:
            if not 0 <= kind <= kind_max:
                raise InvalidRequest(
                    f"{span} are acknowledged by type {kind}; there are 0 to {Verdict.REJECT.value}, and 4 from version 2 "
                    "on in requests that say they renew"
                )
        verdicts.append(Verdicts(first, last, [Verdict(kind) for kind in kinds]))
        end = last + 1
    return verdicts


def _said(spoken: Spoken, places: Mapping[Spot, Place]) -> dict[Place, Sequence[Verdicts]]:
    return {
        places[spot]: verdicts
        for spot, verdicts in spoken.items()
        if spot in places and not isinstance(verdicts, GoQueueError)
    }


def _add_refusals(spoken: Spoken, found: Mapping[Spot, Shared]) -> None:
    for spot, verdicts in spoken.items():
        if isinstance(verdicts, GoQueueError):
            found[spot].verdict_error = verdicts


def _is_news(one: Shared) -> bool:
    return bool(one.acquired or one.error or one.verdict_error)


def _partition(index: int, one: Shared) -> Any:
    return _F.PartitionData(
        partition_index=index,
        error_code=_known_code(one.error),
        error_message=text_of(one.error),
        acknowledge_error_code=_known_code(one.verdict_error),
        acknowledge_error_message=text_of(one.verdict_error),
        current_leader=_F.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
        records=one.chunks,
        acquired_records=[
            _F.AcquiredRecords(
                first_offset=run.first,
                last_offset=run.last,
                delivery_count=min(run.deliveries, _DELIVERIES_MAX),
            )
            for run in one.acquired
        ],
    )


def _acknowledged(index: int, error: GoQueueError | None) -> Any:
    return _A.PartitionData(
        partition_index=index,
        error_code=_known_code(error),
        error_message=text_of(error),
        current_leader=_A.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
    )


def _known_code(error: GoQueueError | None) -> int:
    if isinstance(error, CoordinatorNotAvailable):
        return _STORAGE_ERROR
    code = code_of(error)
    return code if code in _KNOWN_CODES else _UNKNOWN_SERVER_ERROR
