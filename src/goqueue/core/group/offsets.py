"""How far each group has come: committed offsets, and those that wait for the end of a transaction.

A transaction's offsets are pending per producer until it is complete. Commits of one partition are counted, pending
ones included (`rank`), so that the newer commit wins whichever of them becomes final first. The epoch of a producer's last
completed transaction is kept for a while: what it sent before and arrives after must not become pending for ever.

A topic may be deleted and made again while nobody has the offsets at hand. So each says of which topic of the name it is, and one of an
older topic than there is counts for nothing. A newer one counts: this node has not heard of its topic yet. For a topic that is
deleted and still open here nothing is committed: whoever reads it knows nothing of the next of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import assert_never

from goqueue.core.group.commands import (
    EVERY_ID,
    NO_OFFSET,
    CommitInTransaction,
    CommitOffsets,
    CompleteTransaction,
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
    NewOffset,
    PartitionResult,
    PartitionResults,
)
from goqueue.core.group.config import DAY_MS, GroupConfig
from goqueue.core.group.events import (
    OffsetCommitted,
    OffsetEvent,
    OffsetForgotten,
    OffsetPended,
    PendedForgotten,
    TransactionCompleted,
    TransactionForgotten,
)
from goqueue.core.group.topics_view import Topics
from goqueue.core.producer import NO_COORDINATOR
from goqueue.model.cluster_errors import CoordinatorFenced
from goqueue.model.errors import (
    GoQueueError,
    InvalidRequest,
    LimitExceeded,
    OffsetMetadataTooLarge,
    PartitionNotFound,
    ProducerFenced,
    TopicNotFound,
    UnstableOffset,
)

PRODUCER_KEPT_MS = 7 * DAY_MS  # as long as a partition remembers an idle producer
PENDING_RECHECK_MS = 10 * 60_000  # an offset that should expire and may be replaced by a transaction

Place = tuple[str, int]  # topic and partition
IsPast = Callable[
    [Place, int], bool
]  # whether a leader epoch is of a partition that had the number before and is no more
IdOf = Callable[[str], int]  # of the topic that has the name; 0: there is none


def never_past(place: Place, leader_epoch: int) -> bool:
    """Where partitions never go."""
    return False


def no_id(topic: str) -> int:
    """Where topics are never made again."""
    return 0


class Offsets:
    def __init__(
        self,
        config: GroupConfig,
        topics: Topics,
        is_past: IsPast = never_past,
        id_of: IdOf = no_id,
        open_id_of: IdOf = no_id,
    ) -> None:
        """`id_of` is by what is decided, `open_id_of` of the one that `topics` has: the node may yet have to follow."""
        self._config = config
        self._topics = topics
        self._is_past = is_past
        self._id_of = id_of
        self._open_id_of = open_id_of
        self._committed: dict[str, dict[Place, OffsetCommitted]] = {}
        self._pending: dict[int, dict[tuple[str, Place], OffsetPended]] = {}  # by producer
        self._pending_producers: dict[
            str, dict[Place, dict[int, None]]
        ] = {}  # by group; who has them pending
        self._completed: dict[int, TransactionCompleted] = {}
        self._count = 0

    def groups(self) -> list[str]:
        """Sorted."""
        return sorted(self._committed.keys() | self._pending_producers.keys())

    def has_group(self, group_id: str) -> bool:
        return group_id in self._committed or group_id in self._pending_producers

    def group_count(self) -> int:
        return len(self._committed)

    def topics(self) -> list[str]:
        """For which anything is committed or pending, sorted."""
        places = [place for group_id in self.groups() for place in self._places(group_id)]
        return sorted({topic for topic, _ in places})

    def made_again(self) -> list[str]:
        """Topics for which anything is committed or pending that is of an older one of the same name, sorted."""
        ids = {topic: self._id_of(topic) for topic in self.topics()}
        kept: Iterable[OffsetCommitted | OffsetPended] = chain(
            *(places.values() for places in self._committed.values()),
            *(places.values() for places in self._pending.values()),
        )
        return sorted({one.topic for one in kept if _is_older(one.topic_id, ids[one.topic])})

    def has_topic(self, topic: str) -> bool:
        return any(place[0] == topic for group_id in self.groups() for place in self._places(group_id))

    def committed(self, group_id: str, place: Place) -> int | None:
        """None: nothing is."""
        found = self._found(group_id, place)
        return None if found is None else found.offset

    def _found(self, group_id: str, place: Place) -> OffsetCommitted | None:
        found = self._committed.get(group_id, {}).get(place)
        if found is None or _is_older(found.topic_id, self._id_of(found.topic)):
            return None
        return None if self._is_past(place, found.leader_epoch) else found

    def groups_in(self, topic: str) -> list[str]:
        """That have committed anything in it, sorted."""
        return sorted(
            group for group, places in self._committed.items() if any(p[0] == topic for p in places)
        )

    def has_any(self, group_id: str, topic: str) -> bool:
        """Whether the group has committed anything in the topic."""
        return any(place[0] == topic for place in self._committed.get(group_id, ()))

    def events(self) -> Iterator[OffsetEvent]:
        """Applied to nothing, in any order, they give this state."""
        for committed in self._committed.values():
            yield from committed.values()
        for pending in self._pending.values():
            yield from pending.values()
        yield from self._completed.values()

    # Commits.

    def commit(self, command: CommitOffsets, now_ms: int) -> tuple[list[OffsetEvent], PartitionResults]:
        expires_ms = None if command.retention_ms is None else now_ms + command.retention_ms
        events: list[OffsetEvent] = []
        results: list[PartitionResult] = []
        for new in command.offsets:
            error = self._refusal(command.group_id, new, len(events))
            results.append(PartitionResult(new.topic, new.partition, error))
            if error is None:
                rank = self._next_rank(command.group_id, (new.topic, new.partition))
                events.append(
                    OffsetCommitted(
                        command.group_id,
                        new.topic,
                        new.partition,
                        new.offset,
                        new.leader_epoch,
                        new.metadata,
                        now_ms,
                        expires_ms,
                        rank,
                        self._id_of(new.topic),
                    )
                )
        return events, PartitionResults(tuple(results))

    def pend(self, command: CommitInTransaction, now_ms: int) -> tuple[list[OffsetEvent], PartitionResults]:
        self._refuse_if_fenced(command.producer_id, command.producer_epoch)
        events: list[OffsetEvent] = []
        results: list[PartitionResult] = []
        for new in command.offsets:
            error = self._refusal(command.group_id, new, len(events))
            results.append(PartitionResult(new.topic, new.partition, error))
            if error is None:
                rank = self._next_rank(command.group_id, (new.topic, new.partition))
                events.append(
                    OffsetPended(
                        command.producer_id,
                        command.producer_epoch,
                        command.group_id,
                        new.topic,
                        new.partition,
                        new.offset,
                        new.leader_epoch,
                        new.metadata,
                        now_ms,
                        rank,
                        self._id_of(new.topic),
                    )
                )
        return events, PartitionResults(tuple(results))

    def complete(self, command: CompleteTransaction, now_ms: int) -> list[OffsetEvent]:
        """The marker's epoch may be newer than that of the offsets: with it the coordinator fences the producer."""
        events: list[OffsetEvent] = []
        completed = self._completed.get(command.producer_id)
        if completed is not None and command.coordinator_epoch < completed.coordinator_epoch:
            raise CoordinatorFenced(
                f"producer {command.producer_id} has heard of coordinator epoch {completed.coordinator_epoch}; "
                f"{command.coordinator_epoch} is fenced",
                producer_id=command.producer_id,
                coordinator_epoch=command.coordinator_epoch,
                current_epoch=completed.coordinator_epoch,
            )
        for pended in self._pending.get(command.producer_id, {}).values():
            is_next = command.is_epoch_bumped and pended.producer_epoch == command.producer_epoch
            if is_next or pended.producer_epoch > command.producer_epoch:
                continue
            before = self._committed.get(pended.group_id, {}).get((pended.topic, pended.partition))
            if command.is_commit and (before is None or before.rank < pended.rank):
                events.append(_final(pended))
            events.append(_forgotten(pended))
        newest = (0, 0) if completed is None else (completed.producer_epoch, completed.coordinator_epoch)
        epoch = max(command.producer_epoch, newest[0])
        if events or completed is None or newest != (epoch, command.coordinator_epoch):
            events.append(TransactionCompleted(command.producer_id, epoch, now_ms, command.coordinator_epoch))
        return events

    def _refusal(self, group_id: str, new: NewOffset, more: int) -> GoQueueError | None:
        partition_count = self._topics.partition_count(new.topic)
        if partition_count is None or self._open_id_of(new.topic) != self._id_of(new.topic):
            # The one that is open goes in a moment. Clients try again, as with a topic that is not open yet.
            return TopicNotFound(new.topic)
        if not 0 <= new.partition < partition_count:
            return PartitionNotFound(new.topic, new.partition, partition_count)
        if new.offset < 0:
            return InvalidRequest(f"an offset is at least 0, not {new.offset}", offset=new.offset)
        length, length_max = len(new.metadata), self._config.offset_metadata_chars_max
        if length > length_max:
            return OffsetMetadataTooLarge(
                f"the metadata of an offset has at most {length_max} characters, not {length}", length=length
            )
        is_known = (new.topic, new.partition) in self._committed.get(group_id, {})
        if not is_known and self._count + more >= self._config.offset_count_max:
            return LimitExceeded(f"{self._count} offsets are kept already, which is the limit")
        return None

    def _refuse_if_fenced(self, producer_id: int, epoch: int) -> None:
        completed = self._completed.get(producer_id)
        newest = completed.producer_epoch if completed else -1
        for pended in self._pending.get(producer_id, {}).values():
            newest = max(newest, pended.producer_epoch)
        if epoch < newest:
            raise ProducerFenced(
                f"producer {producer_id} has epoch {newest} by now; epoch {epoch} is fenced",
                producer_id=producer_id,
                epoch=epoch,
                current_epoch=newest,
            )

    def _next_rank(self, group_id: str, place: Place) -> int:
        committed = self._committed.get(group_id, {}).get(place)
        newest = committed.rank if committed else 0
        for producer_id in self._pending_producers.get(group_id, {}).get(place, {}):
            newest = max(newest, self._pending[producer_id][(group_id, place)].rank)
        return newest + 1

    # Reading.

    def fetch(self, command: FetchOffsets) -> FetchedOffsets:
        if command.wanted is None:
            places = self._places(command.group_id)
        else:
            places = [(topic, partition) for topic, partitions in command.wanted for partition in partitions]
        found = [self._fetched(command.group_id, place, command.require_stable) for place in places]
        if command.wanted is None:
            found = [one for one in found if one.offset != NO_OFFSET or one.error is not None]
        return FetchedOffsets(tuple(found))

    def _fetched(self, group_id: str, place: Place, require_stable: bool) -> FetchedOffset:
        topic, partition = place
        if require_stable and self._is_pending(group_id, place):
            error = UnstableOffset(
                f"a transaction that commits offsets of {topic}-{partition} is still open",
                topic=topic,
                partition=partition,
            )
            return FetchedOffset(topic, partition, NO_OFFSET, error=error)
        committed = self._found(group_id, place)
        if committed is None:
            return FetchedOffset(topic, partition, NO_OFFSET)
        return FetchedOffset(topic, partition, committed.offset, committed.leader_epoch, committed.metadata)

    def _places(self, group_id: str) -> list[Place]:
        return sorted(
            self._committed.get(group_id, {}).keys() | self._pending_producers.get(group_id, {}).keys()
        )

    def _is_pending(self, group_id: str, place: Place) -> bool:
        return place in self._pending_producers.get(group_id, {})

    # Forgetting.

    def delete(self, group_id: str, place: Place, ids: range = EVERY_ID) -> list[OffsetEvent]:
        """Of topics with these ids. Nothing where nothing is."""
        topic, partition = place
        events: list[OffsetEvent] = [
            PendedForgotten(producer_id, group_id, topic, partition)
            for producer_id in self._pending_producers.get(group_id, {}).get(place, {})
            if self._pending[producer_id][group_id, place].topic_id in ids
        ]
        committed = self._committed.get(group_id, {}).get(place)
        if committed is not None and committed.topic_id in ids:
            events.append(OffsetForgotten(group_id, topic, partition))
        return events

    def delete_group(self, group_id: str) -> list[OffsetEvent]:
        return [event for place in self._places(group_id) for event in self.delete(group_id, place)]

    def delete_topic(self, topic: str, *, first: int = 0, ids: range = EVERY_ID) -> list[OffsetEvent]:
        """Of all its partitions from the first on, and of topics with these ids."""
        return [
            event
            for group_id in self.groups()
            for place in self._places(group_id)
            if place[0] == topic and place[1] >= first
            for event in self.delete(group_id, place, ids)
        ]

    def expire(self, group_id: str, empty_since_ms: int, now_ms: int) -> tuple[list[OffsetEvent], int | None]:
        """What a group without members has not used for too long, and when to look again (None: nothing is left)."""
        events: list[OffsetEvent] = []
        later: list[int] = []
        for place, committed in self._committed.get(group_id, {}).items():
            expires_ms = self._expires_ms(committed, empty_since_ms)
            if expires_ms > now_ms:
                later.append(expires_ms)
            elif self._is_pending(group_id, place):
                later.append(now_ms + PENDING_RECHECK_MS)
            else:
                events.append(OffsetForgotten(group_id, *place))
        if not later and group_id in self._pending_producers:
            later.append(now_ms + PENDING_RECHECK_MS)
        return events, min(later, default=None)

    def _expires_ms(self, committed: OffsetCommitted, empty_since_ms: int) -> int:
        if committed.expires_ms is not None:
            return committed.expires_ms
        return max(committed.committed_ms, empty_since_ms) + self._config.offset_retention_ms

    def completed(self) -> list[TransactionCompleted]:
        return list(self._completed.values())

    def coordinator_epoch(self, producer_id: int) -> int:
        """Of the coordinator that completed the producer's newest transaction here; below all others where none is known."""
        completed = self._completed.get(producer_id)
        return NO_COORDINATOR if completed is None else completed.coordinator_epoch

    def forget_producer(self, producer_id: int, now_ms: int) -> tuple[list[OffsetEvent], int | None]:
        """If its last transaction is long over; else when to look again."""
        completed = self._completed.get(producer_id)
        if completed is None:
            return [], None
        if completed.completed_ms + PRODUCER_KEPT_MS > now_ms:
            return [], completed.completed_ms + PRODUCER_KEPT_MS
        if producer_id in self._pending:
            return [], now_ms + PENDING_RECHECK_MS
        return [TransactionForgotten(producer_id)], None

    # What happened.

    def apply(self, event: OffsetEvent) -> None:
        match event:
            case OffsetCommitted():
                places = self._committed.setdefault(event.group_id, {})
                self._count -= len(places)
                places[(event.topic, event.partition)] = event
                self._count += len(places)
            case OffsetForgotten():
                self._forget(event)
            case OffsetPended():
                place = (event.topic, event.partition)
                pending = self._pending.setdefault(event.producer_id, {})
                self._count += (event.group_id, place) not in pending
                pending[(event.group_id, place)] = event
                producers = self._pending_producers.setdefault(event.group_id, {}).setdefault(place, {})
                producers[event.producer_id] = None
            case PendedForgotten():
                self._forget_pended(event)
            case TransactionCompleted():
                self._completed[event.producer_id] = event
            case TransactionForgotten():
                self._completed.pop(event.producer_id, None)
            case _:
                assert_never(event)

    def _forget(self, event: OffsetForgotten) -> None:
        places = self._committed.get(event.group_id, {})
        if places.pop((event.topic, event.partition), None) is not None:
            self._count -= 1
            if not places:
                del self._committed[event.group_id]

    def _forget_pended(self, event: PendedForgotten) -> None:
        place = (event.topic, event.partition)
        pending = self._pending.get(event.producer_id, {})
        if pending.pop((event.group_id, place), None) is None:
            return
        self._count -= 1
        if not pending:
            del self._pending[event.producer_id]
        places = self._pending_producers[event.group_id]
        del places[place][event.producer_id]
        if not places[place]:
            del places[place]
        if not places:
            del self._pending_producers[event.group_id]


def _is_older(topic_id: int, id: int) -> bool:
    """Whether what says the first is of another topic than the one that has the name by now."""
    return 0 < topic_id < id


def _final(pended: OffsetPended) -> OffsetCommitted:
    return OffsetCommitted(
        pended.group_id,
        pended.topic,
        pended.partition,
        pended.offset,
        pended.leader_epoch,
        pended.metadata,
        pended.pended_ms,
        None,
        pended.rank,
        pended.topic_id,
    )


def _forgotten(pended: OffsetPended) -> PendedForgotten:
    return PendedForgotten(pended.producer_id, pended.group_id, pended.topic, pended.partition)
