"""The bodies of the routes by which consumers say what became of a message."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.durations import Duration
from goqueue.api.http.errors import Details
from goqueue.api.http.topic_bodies import Count, Instant
from goqueue.model.codes import Code
from goqueue.model.settings import HOUR_MS

VISIBILITY_MS_MAX = 12 * HOUR_MS
EXTENSION_S_MAX = VISIBILITY_MS_MAX // 1_000

_HANDLE = "The `receipt_handle` that came with the message."
_DELAY = "When the message may be given again; the topic's backoff where it is left out."
_REASON = "Kept with the message; a dead letter has it in its headers. The first 1,000 characters count."
_TIMEOUT = "The lease ends that long from now; 0 gives the message back at once."
_EXTENSION = "The lease ends that much later than it would have."

Handle = Annotated[str, Meta(description=_HANDLE)]
Handles = Annotated[list[str], Meta(min_length=1, description="Each is answered by itself, in order.")]
Reason = Annotated[str, Meta(description=_REASON)]
GivenReason = Annotated[str, Meta(min_length=1, description=_REASON)]
ExtensionSeconds = Annotated[float, Meta(ge=0, le=EXTENSION_S_MAX, description=_EXTENSION)]


class Ack(Struct, frozen=True, forbid_unknown_fields=True):
    receipt_handle: Handle


class AckBatch(Struct, frozen=True, forbid_unknown_fields=True):
    receipt_handles: Handles


class Nack(Struct, frozen=True, forbid_unknown_fields=True):
    receipt_handle: Handle
    delay: Annotated[Duration, Meta(description=_DELAY)] | UnsetType = UNSET
    reason: Reason = ""


class NackBatch(Struct, frozen=True, forbid_unknown_fields=True):
    receipt_handles: Handles
    delay: Annotated[Duration, Meta(description=_DELAY)] | UnsetType = UNSET
    reason: Reason = ""


class Reject(Struct, frozen=True, forbid_unknown_fields=True):
    receipt_handle: Handle
    reason: GivenReason


class RejectBatch(Struct, frozen=True, forbid_unknown_fields=True):
    receipt_handles: Handles
    reason: GivenReason


class Visibility(Struct, frozen=True, forbid_unknown_fields=True):
    """Either `timeout` or `extension_seconds`."""

    receipt_handle: Handle
    timeout: Annotated[Duration, Meta(description=_TIMEOUT)] | UnsetType = UNSET
    extension_seconds: ExtensionSeconds | UnsetType = UNSET


class VisibilityBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Either `timeout` or `extension_seconds`."""

    receipt_handles: Handles
    timeout: Annotated[Duration, Meta(description=_TIMEOUT)] | UnsetType = UNSET
    extension_seconds: ExtensionSeconds | UnsetType = UNSET


class Action(StrEnum):
    """What a nack leads to."""

    RETRY = "retry"
    DEAD_LETTER = "dead_letter"


class FinishedMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """`committed_offset`: everything before it is finished by the group. `in_flight_count`: what the group still holds of
    the partition."""

    topic: str
    partition: Count
    offset: Count
    committed_offset: Count
    in_flight_count: Count


class NackedMessage(Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    partition: Count
    offset: Count
    committed_offset: Count
    in_flight_count: Count
    action: Action
    delivery_count: Count
    next_visible_at: Annotated[Instant | None, Meta(description="null where it is a dead letter now.")]


class ExtendedLease(Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    partition: Count
    offset: Count
    committed_offset: Count
    in_flight_count: Count
    next_visible_at: Annotated[Instant, Meta(description="When the lease ends.")]


class ReceiptResult(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """As the route for one receipt answers; or `error` and `code`, which say why nothing changed."""

    receipt_handle: str
    topic: str | UnsetType = UNSET
    partition: Count | UnsetType = UNSET
    offset: Count | UnsetType = UNSET
    committed_offset: Count | UnsetType = UNSET
    in_flight_count: Count | UnsetType = UNSET
    action: Action | UnsetType = UNSET
    delivery_count: Count | UnsetType = UNSET
    next_visible_at: Instant | UnsetType | None = UNSET
    error: str | UnsetType = UNSET
    code: Code | UnsetType = UNSET


class ReceiptResults(Struct, frozen=True, forbid_unknown_fields=True):
    """One result for each receipt, in order."""

    results: list[ReceiptResult]


class ReceiptsError(Struct, frozen=True, forbid_unknown_fields=True):
    """The first receipt's error and, where the request as a whole was well-formed, what became of each receipt."""

    error: str
    code: Code
    status: int
    details: Details
    results: list[ReceiptResult] | UnsetType = UNSET
