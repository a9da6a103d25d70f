"""POST /topics/{topic}/redrive: dead letters go back to work."""

from __future__ import annotations

from typing import Annotated, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.call import Call
from goqueue.api.http.publish_body import Base64, PartitionIndex
from goqueue.api.http.query import NoQuery
from goqueue.api.http.topic_bodies import LONG_MAX, NAME_PATTERN, Count
from goqueue.model.duration import parse_instant_ms
from goqueue.model.errors import InvalidRequest
from goqueue.model.names import NAME_LENGTH_MAX, check_topic_name
from goqueue.node.dead_letters.redrive import LIMIT_MAX, RATE_MAX, REDRIVES_MAX, RedriveRequest
from goqueue.node.dead_letters.redrive_requests import RedriveFilter

T = TypeVar("T")

_Offset = Annotated[int, Meta(ge=0, le=LONG_MAX)]
_INSTANT = {"anyOf": [{"format": "date-time"}, {"pattern": "^[0-9]{1,15}$"}]}
_When = Annotated[str, Meta(max_length=100, extra_json_schema=_INSTANT)]


class Filter(Struct, frozen=True, forbid_unknown_fields=True):
    """What must be true of a message that goes back, all of it. Ranges are half-open: from the first, before the last."""

    reason: (
        Annotated[str, Meta(description='"rejected" or "retries exhausted".', max_length=1_000)] | UnsetType
    ) = UNSET
    group: Annotated[str, Meta(description="Which could not handle it.", max_length=1_000)] | UnsetType = (
        UNSET
    )
    error_contains: (
        Annotated[str, Meta(description="A part of the last error.", max_length=1_000)] | UnsetType
    ) = UNSET
    key: str | UnsetType = UNSET
    key_base64: Base64 | UnsetType = UNSET
    headers: Annotated[
        dict[str, str], Meta(description="Each must be there with this value.", max_length=100)
    ] = {}
    partition: Annotated[PartitionIndex, Meta(description="In which it was published.")] | UnsetType = UNSET
    from_offset: Annotated[_Offset, Meta(description="Where it was published.")] | UnsetType = UNSET
    to_offset: _Offset | UnsetType = UNSET
    from_time: Annotated[_When, Meta(description="When it became a dead letter.")] | UnsetType = UNSET
    to_time: _When | UnsetType = UNSET


class RedriveBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything may be left out: then each message goes back to where it came from."""

    to: (
        Annotated[
            str,
            Meta(
                description="The topic to send to, instead of the one it came from.",
                extra_json_schema={"pattern": NAME_PATTERN, "minLength": 1, "maxLength": NAME_LENGTH_MAX},
            ),
        ]
        | UnsetType
    ) = UNSET
    filter: Filter = Filter()
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="How many may go.")] = 1_000
    per_second: Annotated[int, Meta(ge=1, le=RATE_MAX, description="How fast.")] | UnsetType = UNSET
    partition: Annotated[PartitionIndex, Meta(description="Of the dead letter topic.")] | UnsetType = UNSET
    offset: Annotated[_Offset, Meta(description="A single message; with `partition`.")] | UnsetType = UNSET
    max_redrives: Annotated[
        int, Meta(ge=1, le=1_000, description="A message that was sent back so often already stays.")
    ] = REDRIVES_MAX
    force: Annotated[bool, Meta(description="Also what was sent back too often.")] = False
    dry_run: Annotated[bool, Meta(description="Only say what would happen.")] = False


class Redriven(Struct, frozen=True, forbid_unknown_fields=True):
    """With `dry_run`, what would happen. `matched` is the sum of moved, pending, failed and parked."""

    moved: Count
    failed: Annotated[int, Meta(ge=0, description="Cannot go where they belong; `errors` says why.")]
    matched: Count
    pending: Annotated[int, Meta(ge=0, description="Will arrive when their topic takes them again.")]
    parked: Annotated[int, Meta(ge=0, description="Were sent back too often.")]
    skipped: Annotated[int, Meta(ge=0, description="Are not what was asked for.")]
    remaining: Annotated[int, Meta(ge=0, description="Offsets that nothing was sent back from.")]
    dry_run: bool
    errors: list[str]


def _known(value: T | UnsetType) -> T | None:
    return None if isinstance(value, UnsetType) else value


async def redrive(call: Call[NoQuery, RedriveBody]) -> Redriven:
    body = call.body
    if not isinstance(body.to, UnsetType):
        check_topic_name(body.to)
    result = await call.node.redrive.redrive(
        RedriveRequest(
            call.path["topic"],
            to=_known(body.to),
            filter=_filter(body.filter),
            limit=body.limit,
            per_second=_known(body.per_second),
            partition=_known(body.partition),
            offset=_known(body.offset),
            redrives_max=body.max_redrives,
            force=body.force,
            dry_run=body.dry_run,
        )
    )
    return Redriven(
        moved=result.moved,
        failed=result.failed,
        matched=result.matched,
        pending=result.pending,
        parked=result.parked,
        skipped=result.skipped,
        remaining=result.remaining,
        dry_run=result.dry_run,
        errors=result.errors,
    )


def _filter(given: Filter) -> RedriveFilter:
    return RedriveFilter(
        reason=_known(given.reason),
        group=_known(given.group),
        error_contains=_known(given.error_contains),
        key=_key(given),
        headers={name: value.encode() for name, value in given.headers.items()},
        partition=_known(given.partition),
        offset_start=_known(given.from_offset),
        offset_end=_known(given.to_offset),
        time_start_ms=_instant_ms("from_time", given.from_time),
        time_end_ms=_instant_ms("to_time", given.to_time),
    )


def _key(given: Filter) -> bytes | None:
    if isinstance(given.key_base64, UnsetType):
        return None if isinstance(given.key, UnsetType) else given.key.encode()
    if not isinstance(given.key, UnsetType):
        raise InvalidRequest("$.filter has key and key_base64; give one of them", path="$.filter")
    return given.key_base64


def _instant_ms(name: str, text: str | UnsetType) -> int | None:
    if isinstance(text, UnsetType):
        return None
    try:
        return parse_instant_ms(text)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"$.filter.{name} is wrong: {error}", path=f"$.filter.{name}") from None
