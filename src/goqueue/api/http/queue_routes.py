"""The routes of the queue: what became of messages, delayed messages, recurring schedules, redrive, statistics."""

from __future__ import annotations

from goqueue.api.http import ack, ack_bodies, delayed, merging, queue_stats, recurring, redrive
from goqueue.api.http.call import NoBody
from goqueue.api.http.query import NoQuery
from goqueue.api.http.route import AnyRoute, Route
from goqueue.api.http.where import Where
from goqueue.model.codes import Code

_NAMED = (Code.INVALID_NAME, Code.TOPIC_NOT_FOUND)
_RECEIPT = (
    Code.REQUEST_TOO_LARGE,
    Code.RECEIPT_NOT_FOUND,
    Code.LEASE_EXPIRED,
    Code.LEASE_SUPERSEDED,
    Code.MESSAGE_SETTLED,
    Code.COORDINATOR_NOT_AVAILABLE,
)
_BATCH = (
    "200: all receipts were good. 207: some were. Otherwise the status is that of the first receipt's error, and nothing "
    "has changed."
)
_NACK = (
    "It is given again after `delay` or the topic's backoff; after the last retry it becomes a dead letter."
)
_REJECT = "It becomes a dead letter at once."
_EXTEND = "A lease may last 12 hours in all, counted from the delivery."

_ONE: tuple[AnyRoute, ...] = (
    Route(
        method="POST",
        path="/messages/ack",
        summary="A message is done",
        endpoint=ack.ack,
        query=NoQuery,
        body=ack_bodies.Ack,
        answer=ack_bodies.FinishedMessage,
        errors=_RECEIPT,
    ),
    Route(
        method="POST",
        path="/messages/nack",
        summary="A message could not be handled now",
        description=_NACK,
        endpoint=ack.nack,
        query=NoQuery,
        body=ack_bodies.Nack,
        answer=ack_bodies.NackedMessage,
        errors=_RECEIPT,
    ),
    Route(
        method="POST",
        path="/messages/reject",
        summary="A message can never be handled",
        description=_REJECT,
        endpoint=ack.reject,
        query=NoQuery,
        body=ack_bodies.Reject,
        answer=ack_bodies.FinishedMessage,
        errors=_RECEIPT,
    ),
    Route(
        method="POST",
        path="/messages/visibility",
        summary="A message takes longer, or is given back",
        description=_EXTEND,
        endpoint=ack.extend,
        query=NoQuery,
        body=ack_bodies.Visibility,
        answer=ack_bodies.ExtendedLease,
        errors=(*_RECEIPT, Code.INVALID_VISIBILITY),
    ),
)

_SEVERAL: tuple[AnyRoute, ...] = (
    Route(
        method="POST",
        path="/messages/ack/batch",
        summary="Messages are done",
        description=_BATCH,
        endpoint=ack.ack_batch,
        query=NoQuery,
        body=ack_bodies.AckBatch,
        answer=ack_bodies.ReceiptResults,
        more_answers={207: ack_bodies.ReceiptResults},
        error=ack_bodies.ReceiptsError,
        errors=_RECEIPT,
    ),
    Route(
        method="POST",
        path="/messages/nack/batch",
        summary="Messages could not be handled now",
        description=f"{_NACK} {_BATCH}",
        endpoint=ack.nack_batch,
        query=NoQuery,
        body=ack_bodies.NackBatch,
        answer=ack_bodies.ReceiptResults,
        more_answers={207: ack_bodies.ReceiptResults},
        error=ack_bodies.ReceiptsError,
        errors=_RECEIPT,
    ),
    Route(
        method="POST",
        path="/messages/reject/batch",
        summary="Messages can never be handled",
        description=f"{_REJECT} {_BATCH}",
        endpoint=ack.reject_batch,
        query=NoQuery,
        body=ack_bodies.RejectBatch,
        answer=ack_bodies.ReceiptResults,
        more_answers={207: ack_bodies.ReceiptResults},
        error=ack_bodies.ReceiptsError,
        errors=_RECEIPT,
    ),
    Route(
        method="POST",
        path="/messages/visibility/batch",
        summary="Messages take longer, or are given back",
        description=f"{_EXTEND} {_BATCH}",
        endpoint=ack.extend_batch,
        query=NoQuery,
        body=ack_bodies.VisibilityBatch,
        answer=ack_bodies.ReceiptResults,
        more_answers={207: ack_bodies.ReceiptResults},
        error=ack_bodies.ReceiptsError,
        errors=(*_RECEIPT, Code.INVALID_VISIBILITY),
    ),
)

_DELAYED_PATH = "/topics/{topic}/delayed/{partition}/{offset}"
_DELAYED: tuple[AnyRoute, ...] = (
    Route(
        method="GET",
        path="/topics/{topic}/delayed",
        summary="Delayed messages, the soonest first",
        endpoint=delayed.list_delayed,
        query=delayed.DelayedQuery,
        body=NoBody,
        where=Where.TOPIC,
        merge=merging.DELAYED,
        answer=delayed.DelayedMessages,
        errors=_NAMED,
    ),
    Route(
        method="GET",
        path=_DELAYED_PATH,
        summary="A delayed message",
        endpoint=delayed.get_delayed,
        query=NoQuery,
        body=NoBody,
        where=Where.PARTITION,
        may_repeat=True,
        answer=delayed.DelayedMessage,
        errors=(*_NAMED, Code.PARTITION_NOT_FOUND, Code.SCHEDULE_NOT_FOUND),
    ),
    Route(
        method="DELETE",
        path=_DELAYED_PATH,
        summary="Cancel a delayed message",
        description=(
            "It is never delivered. 409: it has been, or is being delivered now. Of a recurring schedule this skips one firing."
        ),
        endpoint=delayed.cancel_delayed,
        query=NoQuery,
        body=NoBody,
        where=Where.PARTITION,
        answer=delayed.CancelledMessage,
        errors=(
            *_NAMED,
            Code.PARTITION_NOT_FOUND,
            Code.SCHEDULE_NOT_FOUND,
            Code.SCHEDULE_FIRED,
            Code.COORDINATOR_NOT_AVAILABLE,
        ),
    ),
)

_RECURRING_PATH = "/topics/{topic}/recurring/{schedule}"
_RECURRING: tuple[AnyRoute, ...] = (
    Route(
        method="POST",
        path="/topics/{topic}/recurring",
        summary="Send a message again and again",
        description=(
            "Durable before the answer; each due time fires once. `every` keeps its grid from `start_at`, or from now; `cron` "
            "has five fields and a time zone. After a time of being down one message is sent for all due times, and "
            "the others count as `missed`. The same request again gives the same schedule; 409: another has the name."
        ),
        endpoint=recurring.create_recurring,
        query=NoQuery,
        body=recurring.NewRecurring,
        where=Where.SCHEDULE,
        may_repeat=True,
        answer=recurring.RecurringSchedule,
        status=201,
        errors=(
            *_NAMED,
            Code.INVALID_SCHEDULE,
            Code.INVALID_PRIORITY,
            Code.PARTITION_NOT_FOUND,
            Code.SCHEDULE_EXISTS,
            Code.MESSAGE_TOO_LARGE,
            Code.REQUEST_TOO_LARGE,
            Code.LIMIT_EXCEEDED,
            Code.DISK_FULL,
            Code.STORAGE_ERROR,
            Code.PARTITION_OFFLINE,
            Code.TIMEOUT,
        ),
    ),
    Route(
        method="GET",
        path="/topics/{topic}/recurring",
        summary="Recurring schedules, by name",
        endpoint=recurring.list_recurring,
        query=recurring.RecurringQuery,
        body=NoBody,
        where=Where.TOPIC,
        merge=merging.RECURRING,
        answer=recurring.RecurringList,
        errors=_NAMED,
    ),
    Route(
        method="GET",
        path=_RECURRING_PATH,
        summary="A recurring schedule",
        endpoint=recurring.get_recurring,
        query=NoQuery,
        body=NoBody,
        where=Where.SCHEDULE,
        may_repeat=True,
        answer=recurring.RecurringSchedule,
        errors=(*_NAMED, Code.SCHEDULE_NOT_FOUND),
    ),
    Route(
        method="DELETE",
        path=_RECURRING_PATH,
        summary="Delete a recurring schedule",
        description="Nothing is sent any more but what is being sent at this moment.",
        endpoint=recurring.delete_recurring,
        query=NoQuery,
        body=NoBody,
        where=Where.SCHEDULE,
        answer=recurring.RecurringDeleted,
        errors=(
            *_NAMED,
            Code.SCHEDULE_NOT_FOUND,
            Code.STORAGE_ERROR,
            Code.PARTITION_OFFLINE,
            Code.TIMEOUT,
        ),
    ),
)

_REDRIVE: AnyRoute = Route(
    method="POST",
    path="/topics/{topic}/redrive",
    summary="Send dead letters back",
    description=(
        "Each goes once, with its own key, value and headers; a second redrive goes on where the first ended. What was sent "
        "back `max_redrives` times already stays, unless `force` says otherwise."
    ),
    endpoint=redrive.redrive,
    where=Where.DEAD_LETTERS,
    query=NoQuery,
    body=redrive.RedriveBody,
    answer=redrive.Redriven,
    errors=(
        *_NAMED,
        Code.REQUEST_TOO_LARGE,
        Code.PARTITION_NOT_FOUND,
        Code.OFFSET_OUT_OF_RANGE,
        Code.LIMIT_EXCEEDED,
        Code.DISK_FULL,
        Code.STORAGE_ERROR,
        Code.PARTITION_OFFLINE,
        Code.DATA_CORRUPT,
        Code.TIMEOUT,
        Code.COORDINATOR_NOT_AVAILABLE,
    ),
)

_STATS: tuple[AnyRoute, ...] = (
    Route(
        method="GET",
        path="/reliability/stats",
        summary="What became of messages, and how queue groups stand",
        endpoint=queue_stats.reliability_stats,
        query=queue_stats.StatsQuery,
        body=NoBody,
        where=Where.EVERY_NODE,
        merge=merging.RELIABILITY,
        answer=queue_stats.ReliabilityStats,
    ),
    Route(
        method="GET",
        path="/delay/stats",
        summary="How many messages wait for their time",
        endpoint=queue_stats.delay_stats,
        query=queue_stats.DelayStatsQuery,
        body=NoBody,
        where=Where.EVERY_NODE,
        merge=merging.DELAYS,
        answer=queue_stats.DelaySummary,
    ),
    Route(
        method="GET",
        path="/priority/stats",
        summary="How the lanes of queue groups stand",
        endpoint=queue_stats.priority_stats,
        query=queue_stats.StatsQuery,
        body=NoBody,
        where=Where.EVERY_NODE,
        merge=merging.PRIORITY,
        answer=queue_stats.PriorityStats,
        errors=(Code.STORAGE_ERROR,),
    ),
)

QUEUE_ROUTES: tuple[AnyRoute, ...] = (*_ONE, *_SEVERAL, *_DELAYED, *_RECURRING, _REDRIVE, *_STATS)
