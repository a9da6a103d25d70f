"""Every error a client can meet; `goqueue.model.codes` maps each to HTTP, gRPC and Kafka.

An expected error is a `GoQueueError` subclass with a stable code and the offending values. A broken
invariant is an `InvariantViolation`: the process stops rather than go on with state it cannot trust.
"""

from __future__ import annotations

from typing import ClassVar

from goqueue.model.codes import Code

Detail = str | int | float | bool | None | list[str] | list[int]


class GoQueueError(Exception):
    """An expected error: what was wrong, which value, and what would be right."""

    code: ClassVar[Code] = Code.INTERNAL
    retriable: ClassVar[bool] = False

    def __init__(self, sentence: str, **details: Detail) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.details = details


class InvalidRequest(GoQueueError):
    code = Code.INVALID_REQUEST


class InvalidName(GoQueueError):
    code = Code.INVALID_NAME


class InvalidSetting(GoQueueError):
    code = Code.INVALID_SETTING


class InvalidBatch(GoQueueError):
    """The bytes are not a well-formed record batch."""

    code = Code.INVALID_BATCH


class CorruptBatch(GoQueueError):
    """A batch arrived whose checksum does not match its bytes."""

    code = Code.CORRUPT_BATCH
    retriable = True


class UnsupportedCompression(GoQueueError):
    code = Code.UNSUPPORTED_COMPRESSION


class RouteNotFound(GoQueueError):
    code = Code.ROUTE_NOT_FOUND


class MethodNotAllowed(GoQueueError):
    code = Code.METHOD_NOT_ALLOWED


class TopicNotFound(GoQueueError):
    code = Code.TOPIC_NOT_FOUND

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} does not exist; create it with POST /topics", topic=topic)


class PartitionNotFound(GoQueueError):
    code = Code.PARTITION_NOT_FOUND

    def __init__(self, topic: str, partition: int, count: int) -> None:
        super().__init__(
            f"topic {topic!r} has no partition {partition}; it has partitions 0 to {count - 1}",
            topic=topic,
            partition=partition,
            partition_count=count,
        )


class TopicExists(GoQueueError):
    code = Code.TOPIC_EXISTS

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} exists already", topic=topic)


class OffsetOutOfRange(GoQueueError):
    code = Code.OFFSET_OUT_OF_RANGE

    def __init__(self, offset: int, *, earliest: int, latest: int) -> None:
        super().__init__(
            f"offset {offset} is outside the log, which holds offsets {earliest} to {latest} (exclusive)",
            offset=offset,
            earliest=earliest,
            latest=latest,
        )


class MessageTooLarge(GoQueueError):
    code = Code.MESSAGE_TOO_LARGE

    def __init__(self, what: str, size_bytes: int, bytes_max: int) -> None:
        super().__init__(
            f"{what} has {size_bytes} bytes; the limit is {bytes_max}",
            size_bytes=size_bytes,
            bytes_max=bytes_max,
        )


class RequestTooLarge(GoQueueError):
    code = Code.REQUEST_TOO_LARGE


class LimitExceeded(GoQueueError):
    code = Code.LIMIT_EXCEEDED
    retriable = True


class OutOfOrderSequence(GoQueueError):
    code = Code.OUT_OF_ORDER_SEQUENCE


class ProducerFenced(GoQueueError):
    code = Code.PRODUCER_FENCED


class DiskFull(GoQueueError):
    code = Code.DISK_FULL
    retriable = True


class StorageError(GoQueueError):
    """The disk refused; nothing of the request was acknowledged."""

    code = Code.STORAGE_ERROR
    retriable = True


class PartitionOffline(GoQueueError):
    """The partition stopped after a storage failure and takes no writes until it has been recovered."""

    code = Code.PARTITION_OFFLINE
    retriable = True


class DataCorrupt(GoQueueError):
    """Stored bytes fail their checksum. They are reported, never served and never skipped in silence."""

    code = Code.DATA_CORRUPT

    def __init__(self, *, start: int, end: int, file: str, position: int, reason: str) -> None:
        super().__init__(
            f"offsets {start} to {end} (exclusive) are damaged in {file} at byte {position}: {reason}; "
            f"reading goes on from offset {end}",
            start=start,
            end=end,
            file=file,
            position=position,
            reason=reason,
        )
        self.start = start
        self.end = end


class UnknownTopicId(GoQueueError):
    code = Code.UNKNOWN_TOPIC_ID
    retriable = True


class InvalidPartitions(GoQueueError):
    code = Code.INVALID_PARTITIONS


class InvalidReplicaAssignment(GoQueueError):
    code = Code.INVALID_REPLICA_ASSIGNMENT


class NotEnoughReplicas(GoQueueError):
    code = Code.NOT_ENOUGH_REPLICAS
    retriable = True


class InvalidReplicationFactor(GoQueueError):
    code = Code.INVALID_REPLICATION_FACTOR


class FencedLeaderEpoch(GoQueueError):
    """The client knows an older leader than the one there is."""

    code = Code.FENCED_LEADER_EPOCH
    retriable = True


class UnknownLeaderEpoch(GoQueueError):
    """The client knows a newer leader than this node does."""

    code = Code.UNKNOWN_LEADER_EPOCH
    retriable = True


class FetchSessionNotFound(GoQueueError):
    code = Code.FETCH_SESSION_NOT_FOUND
    retriable = True


class InvalidFetchSessionEpoch(GoQueueError):
    code = Code.INVALID_FETCH_SESSION_EPOCH
    retriable = True


class InvalidTimestamp(GoQueueError):
    code = Code.INVALID_TIMESTAMP


class CoordinatorNotAvailable(GoQueueError):
    code = Code.COORDINATOR_NOT_AVAILABLE
    retriable = True


class InvalidGroupId(GoQueueError):
    code = Code.INVALID_GROUP_ID


class GroupNotFound(GoQueueError):
    code = Code.GROUP_NOT_FOUND


class GroupNotEmpty(GoQueueError):
    code = Code.GROUP_NOT_EMPTY


class GroupFull(GoQueueError):
    code = Code.GROUP_FULL


class GroupSubscribedToTopic(GoQueueError):
    code = Code.GROUP_SUBSCRIBED_TO_TOPIC


class UnknownMember(GoQueueError):
    code = Code.UNKNOWN_MEMBER


class PartitionNotAssigned(GoQueueError):
    code = Code.PARTITION_NOT_ASSIGNED


class MemberIdRequired(GoQueueError):
    """The member must join again with the id that came with this error."""

    code = Code.MEMBER_ID_REQUIRED
    retriable = True


class IllegalGeneration(GoQueueError):
    """A member of an earlier generation: a zombie."""

    code = Code.ILLEGAL_GENERATION


class RebalanceInProgress(GoQueueError):
    code = Code.REBALANCE_IN_PROGRESS
    retriable = True


class InconsistentGroupProtocol(GoQueueError):
    code = Code.INCONSISTENT_GROUP_PROTOCOL


class InvalidSessionTimeout(GoQueueError):
    code = Code.INVALID_SESSION_TIMEOUT


class FencedInstance(GoQueueError):
    """Another member has taken over this static member's place."""

    code = Code.FENCED_INSTANCE


class UnreleasedInstance(GoQueueError):
    code = Code.UNRELEASED_INSTANCE


class FencedMemberEpoch(GoQueueError):
    code = Code.FENCED_MEMBER_EPOCH


class StaleMemberEpoch(GoQueueError):
    code = Code.STALE_MEMBER_EPOCH


class UnsupportedAssignor(GoQueueError):
    code = Code.UNSUPPORTED_ASSIGNOR


class InvalidRegularExpression(GoQueueError):
    code = Code.INVALID_REGULAR_EXPRESSION


class OffsetMetadataTooLarge(GoQueueError):
    code = Code.OFFSET_METADATA_TOO_LARGE


class UnstableOffset(GoQueueError):
    """A transaction that would commit this offset is still open."""

    code = Code.UNSTABLE_OFFSET
    retriable = True


class InvalidTransactionState(GoQueueError):
    code = Code.INVALID_TRANSACTION_STATE


class InvalidProducerIdMapping(GoQueueError):
    code = Code.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionTimeout(GoQueueError):
    code = Code.INVALID_TRANSACTION_TIMEOUT


class ConcurrentTransactions(GoQueueError):
    """The transaction before this one is still being completed."""

    code = Code.CONCURRENT_TRANSACTIONS
    retriable = True


class ReceiptNotFound(GoQueueError):
    """A receipt that this broker never gave."""

    code = Code.RECEIPT_NOT_FOUND


class LeaseExpired(GoQueueError):
    code = Code.LEASE_EXPIRED

    def __init__(self, group: str, offset: int) -> None:
        super().__init__(
            f"the lease of group {group!r} on offset {offset} is over; the message will be given again",
            group=group,
            offset=offset,
        )


class LeaseSuperseded(GoQueueError):
    """The record was given again since: to another member, or anew to the same."""

    code = Code.LEASE_SUPERSEDED

    def __init__(self, group: str, offset: int, deliveries: int | None, current: int) -> None:
        whose = "another member's" if deliveries is None else f"of delivery {current}, not {deliveries}"
        super().__init__(
            f"the lease of group {group!r} on offset {offset} is {whose}; only who was given it last may finish it",
            group=group,
            offset=offset,
            delivery_count=current,
        )


class MessageSettled(GoQueueError):
    code = Code.MESSAGE_SETTLED

    def __init__(self, group: str, offset: int) -> None:
        super().__init__(
            f"group {group!r} has finished offset {offset} already: it was acknowledged, rejected or is dead",
            group=group,
            offset=offset,
        )


class InvalidVisibility(GoQueueError):
    code = Code.INVALID_VISIBILITY

    def __init__(self, visibility_ms: int, visibility_ms_max: int, *, visibility_ms_min: int = 0) -> None:
        super().__init__(
            f"a visibility of {visibility_ms} ms is not possible; it must be {visibility_ms_min} to {visibility_ms_max} "
            "ms, counted from the delivery",
            visibility_ms=visibility_ms,
            visibility_ms_max=visibility_ms_max,
        )


class InvalidPriority(GoQueueError):
    code = Code.INVALID_PRIORITY


class InvalidDelay(GoQueueError):
    code = Code.INVALID_DELAY


class ScheduleNotFound(GoQueueError):
    code = Code.SCHEDULE_NOT_FOUND


class ScheduleFired(GoQueueError):
    """Too late: the delayed message is on its way, or gone."""

    code = Code.SCHEDULE_FIRED


class ScheduleExists(GoQueueError):
    """A recurring schedule of this name sends something else, or at other times."""

    code = Code.SCHEDULE_EXISTS


class InvalidSchedule(GoQueueError):
    code = Code.INVALID_SCHEDULE


class ShareSessionNotFound(GoQueueError):
    code = Code.SHARE_SESSION_NOT_FOUND
    retriable = True


class InvalidShareSessionEpoch(GoQueueError):
    code = Code.INVALID_SHARE_SESSION_EPOCH
    retriable = True


class ShareSessionLimitReached(GoQueueError):
    code = Code.SHARE_SESSION_LIMIT_REACHED
    retriable = True


class TransactionalIdNotFound(GoQueueError):
    code = Code.TRANSACTIONAL_ID_NOT_FOUND


class TransactionalProducerFenced(GoQueueError):
    """A newer producer with the same transactional id is at work."""

    code = Code.TRANSACTIONAL_PRODUCER_FENCED


class TransactionAbortable(GoQueueError):
    """The transaction cannot go on; the client must abort it."""

    code = Code.TRANSACTION_ABORTABLE


class ElectionNotNeeded(GoQueueError):
    code = Code.ELECTION_NOT_NEEDED


class TimedOut(GoQueueError):
    """The outcome is unknown to the client; it is never reported as success."""

    code = Code.TIMEOUT
    retriable = True


class NotReady(GoQueueError):
    code = Code.NOT_READY
    retriable = True


class InvariantViolation(AssertionError):
    """Something that cannot happen did; the process must stop."""


def invariant(condition: bool, message: str) -> None:
    """Stop rather than continue with state that cannot be trusted."""
    if not condition:
        raise InvariantViolation(message)
