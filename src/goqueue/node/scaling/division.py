"""Takes the records out of a batch that live in other partitions: they go there first, and the rest stays, with a gap where they
were. So a producer's sequence holds, whatever it believes about the partitions of the topic.

Nothing at all is appended while one of the records cannot be appended anywhere: the producer sends the batch again. What was sent on by
then is known there and not stored twice. Not of a producer that does not count its records: once something of its batch may be stored,
it is told that this is not known, and nobody but the producer itself sends it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from msgspec.structs import replace

from goqueue.core.cluster.scaling import Scaling
from goqueue.core.producer import PRODUCER_ID_MAX, relayed_id
from goqueue.log.batch import HEADER_BYTES, NO_PRODUCER, BatchHeader, read_header, rebuild_batch
from goqueue.log.records import Row
from goqueue.model.cluster_errors import HomeUndecided, NotLeader, PeerUnreachable, ReplicationUnknown
from goqueue.model.errors import GoQueueError, InvalidBatch, TimedOut, TransactionAbortable
from goqueue.node.partition import Partition, Stored
from goqueue.node.scaling.earlier import Earlier
from goqueue.node.scaling.homes import Homes, Opened
from goqueue.node.scaling.parts import Parts
from goqueue.node.scaling.ports import Part, Silence, SilenceCall
from goqueue.node.scaling.quiet import Quiet
from goqueue.node.scaling.turns import Turns
from goqueue.node.tenure import Tenure

_WARNED_COUNT_MAX: Final = 10_000
_ANSWER_S_MAX: Final = 1.0

Append = Callable[[Partition, bytes, BatchHeader], Stored]


class Kept(NamedTuple):
    """What became of a batch: where the rest of it is, and by position in it the partition and offset of what was sent on."""

    stored: Stored
    moved: Mapping[int, tuple[int, int]] = {}


class Division:
    def __init__(self, homes: Homes, parts: Parts, quiet: Quiet, earlier: Earlier) -> None:
        self.homes = homes
        self._parts = parts
        self._quiet = quiet
        self._earlier = earlier
        self._turns = Turns()
        self._warned: dict[tuple[str, int, int, int], None] = {}  # transactions that were told to look again

    def home_of(self, topic: str, index: int) -> int:
        """Where something without a key goes that was meant for a partition; there, if that is not decided."""
        scaling = self.homes.scaling(topic)
        home = None if scaling is None else scaling.home(index, None)
        return index if home is None else home

    def sends_all_on(self, partition: Partition) -> bool:
        """It goes away or is no more, and takes nothing any more, not even what is to wait for its time."""
        scaling = self.homes.scaling(partition.topic)
        return (
            scaling is not None
            and partition.index >= scaling.key_count
            and scaling.home(partition.index, None) != partition.index
        )

    async def send_on(self, partition: Partition, batch: bytes, header: BatchHeader, now_ms: int) -> Stored:
        """A batch of the broker's own, with what of it lives elsewhere there; all of it where the partition takes nothing any more."""
        scaling = self.homes.scaling(partition.topic)
        if scaling is None:
            return partition.append(batch, header, now_ms=now_ms)
        kept = await self.append(
            partition,
            Opened(header, batch),
            scaling,
            lambda partition, batch, header: partition.append(batch, header, now_ms=now_ms),
        )
        return kept.stored

    async def append(self, partition: Partition, opened: Opened, scaling: Scaling, append: Append) -> Kept:
        """A batch that the partition leads now and that nobody has looked into. Nothing is waited for where all of it belongs
        here."""
        header = opened.header
        try:
            if self._turns.is_free(partition, header.producer_id):
                self._quiet.check_line(partition, header)
                is_clear = self._is_through(partition, scaling, header) and not self._earlier.may_hold(
                    partition, scaling, header, [partition.index]
                )
                if is_clear and self.homes.has_all(partition, scaling, opened):
                    self._check_quiet(partition, scaling, opened)
                    return Kept(self._take(partition, opened, append))
            _check_id(header)
            if header.is_transactional and not self._turns.is_free(partition, header.producer_id):
                raise _in_the_way(partition)
            async with self._turns.of(partition, header.producer_id):
                return await self._divide(partition, opened, append)
        except GoQueueError as error:
            if error.retriable:
                self._quiet.refused(partition, header)
            elif isinstance(error, TransactionAbortable):
                self._quiet.given_up(partition, header)
            raise
        except asyncio.CancelledError:  # its client has gone, and will come back with it
            self._quiet.refused(partition, header)
            raise

    def refused(self, partition: Partition, batch: bytes) -> None:
        """Nobody has looked at its keys, because there are too few replicas, say, or it came before the one that it follows. It comes
        again, and what its producer sends straight to other partitions is not to overtake it."""
        if self.homes.scaling(partition.topic) is not None and len(batch) >= HEADER_BYTES:
            self._quiet.refused(partition, read_header(batch))

    def _take(self, partition: Partition, opened: Opened, append: Append) -> Stored:
        is_new = partition.producer_epoch(opened.header.producer_id) is None
        stored = append(partition, opened.batch, opened.header)
        if is_new:
            self._quiet.met(partition, opened.header.producer_id)
        self._quiet.taken(partition, opened.header)
        return stored

    def _is_through(self, partition: Partition, scaling: Scaling, header: BatchHeader) -> bool:
        """Whether nothing of the producer can still come to a partition on the way that it took before the partition was there. Who
        has written here, in whatever epoch, was asked about that before."""
        id = header.producer_id
        if id == NO_PRODUCER or not scaling.is_grown(partition.index):
            return True
        return self._quiet.is_through(partition, id) or partition.producer_epoch(id) is not None

    async def _check_through(self, partition: Partition, header: BatchHeader) -> None:
        scaling = self.homes.scaling(partition.topic)
        if scaling is None or self._is_through(partition, scaling, header):
            return
        calls = [
            SilenceCall(partition.topic, before, header.producer_id)
            for before in scaling.ancestors(partition.index)
        ]
        try:
            async with asyncio.timeout(_ANSWER_S_MAX):
                silences = [await self._parts.silence(call, self.silence) for call in calls]
        except (NotLeader, PeerUnreachable, TimeoutError) as error:
            reason = f"whether something is under way is not known: {error}"
            raise HomeUndecided(partition.topic, partition.index, reason) from error
        self._quiet.check_silence(partition, header, silences)
        if header.is_transactional:
            raise _in_the_way(partition)

    def silence(self, call: SilenceCall) -> Silence:
        """Of a partition that this node leads."""
        partition = self.homes.led(call.topic, call.partition)
        logged_ms = self.homes.newest_of(partition, call.producer_id)
        silence = self._quiet.silence(partition, call.producer_id, logged_ms)
        is_free = self._turns.is_free(partition, call.producer_id)
        return silence if is_free else replace(silence, quiet_s=0.0, is_awaited=True)

    def _check_quiet(self, partition: Partition, scaling: Scaling, opened: Opened) -> None:
        if not scaling.is_shrinking or opened.header.producer_id == NO_PRODUCER:
            return
        if self.homes.has_newcomers(partition.topic, scaling, partition.index, opened.rows()):
            try:
                self._quiet.check(partition, opened.header.producer_id)
            except HomeUndecided:
                if partition.find(opened.header) is None:
                    raise

    async def _divide(self, partition: Partition, opened: Opened, append: Append) -> Kept:
        await partition.lead()
        tenure = Tenure(partition)
        header, rows = opened.header, opened.rows()
        self._quiet.check_line(partition, header)
        known = partition.find(header)
        if known is not None:  # and what it sent on was durable before
            self._quiet.taken(partition, header)
            return Kept(known)
        await self._check_through(partition, header)
        elsewhere = await self._stored_elsewhere(partition, header, rows)
        scaling, homes = self._spread(partition, [row for row in rows if row[0] not in elsewhere])
        here = homes.pop(partition.index, [])
        if homes and header.is_transactional:
            raise self._abortable(partition, header)
        if here:
            rest = _with(header, here)
            self._check_quiet(partition, scaling, Opened(read_header(rest), rest))
        if homes:
            await self._until_stored(partition, tenure, scaling, header)
            self._quiet.sent_on(partition, header.producer_id)
        moved = await self._send(partition, header, scaling, homes)
        with _told_apart(header, is_begun=bool(homes)):
            if homes:
                self._quiet.sent_on(partition, header.producer_id)
                tenure.check()
                _, again = self._spread(partition, here)
                if set(again) - {partition.index}:
                    raise _changed(partition)
            if homes or elsewhere:
                rest = _with(header, here)
                opened = Opened(read_header(rest), rest)
            return Kept(self._take(partition, opened, append), {**moved, **elsewhere})

    async def _stored_elsewhere(
        self, partition: Partition, header: BatchHeader, rows: list[Row]
    ) -> Mapping[int, tuple[int, int]]:
        """What of the batch is stored where it does not live any more, by position: the partition and offset there."""
        scaling, homes = self._spread(partition, rows)
        if not self._earlier.may_hold(partition, scaling, header, homes):
            return {}
        found = await self._earlier.find(partition, scaling, header, homes)
        if self.homes.scaling(partition.topic) is not scaling:
            raise _changed(partition)
        return found

    async def _until_stored(
        self, partition: Partition, tenure: Tenure, scaling: Scaling, header: BatchHeader
    ) -> None:
        """All that the producer sent before. So only of the newest batch of which a home holds something, something else may not be stored:
        homes rely on that (`held.lacking`)."""
        if header.producer_id == NO_PRODUCER:
            return
        try:
            await partition.settled(partition.log.end, under=tenure.leadership, gives_up=True)
        except (ReplicationUnknown, TimedOut) as error:
            reason = f"whether what came before it is stored is not known: {error}"
            raise HomeUndecided(partition.topic, partition.index, reason) from error
        tenure.check()
        if self.homes.scaling(partition.topic) is not scaling:
            raise _changed(partition)

    def _spread(self, partition: Partition, rows: list[Row]) -> tuple[Scaling, dict[int, list[Row]]]:
        """By home; HomeUndecided where one has none for now."""
        scaling = self.homes.scaling(partition.topic)
        if scaling is None:
            raise HomeUndecided(partition.topic, partition.index, "the topic is deleted")
        found = self.homes.spread(partition.topic, scaling, partition.index, rows)
        if None in found:
            raise HomeUndecided(
                partition.topic,
                partition.index,
                "the partition where some of the keys belong does not take them yet",
            )
        return scaling, {home: some for home, some in found.items() if home is not None}

    async def _send(
        self, partition: Partition, header: BatchHeader, scaling: Scaling, homes: Mapping[int, list[Row]]
    ) -> dict[int, tuple[int, int]]:
        if header.producer_id != NO_PRODUCER:
            header = header._replace(producer_id=relayed_id(header.producer_id, partition.index))
        parts = [
            Part(partition.topic, partition.index, home, _with(header, rows)) for home, rows in homes.items()
        ]
        if len(parts) == 1:
            found = [await self._parts.send(parts[0], scaling)]
        else:
            # All of them end before the turn does: one that is left would be overtaken by what comes next.
            ended = await asyncio.gather(
                *(self._parts.send(part, scaling) for part in parts), return_exceptions=True
            )
            with _told_apart(header, is_begun=any(not isinstance(one, NotLeader) for one in ended)):
                found = [_raised(one) for one in ended]
        return {
            row[0]: (part.home, base + row[0])
            for part, base in zip(parts, found, strict=True)
            for row in homes[part.home]
        }

    def _abortable(self, partition: Partition, header: BatchHeader) -> GoQueueError:
        """First an error that makes the client ask for metadata, then one that makes it abort the transaction: by itself it would
        send the same records to the same partition for as long as its metadata is the old."""
        batch = (partition.topic, partition.index, header.producer_id, header.base_sequence)
        if batch not in self._warned:
            self._warned[batch] = None
            if len(self._warned) > _WARNED_COUNT_MAX:
                del self._warned[next(iter(self._warned))]
            return HomeUndecided(
                partition.topic, partition.index, "a batch of a transaction has keys that live elsewhere"
            )
        return TransactionAbortable(
            f"a batch of a transaction for {partition.topic}-{partition.index} has keys that live in other partitions; abort, "
            "and send them where the topic's setting 'partitioner' says",
            topic=partition.topic,
            partition=partition.index,
        )


def _with(header: BatchHeader, rows: list[Row]) -> bytes:
    return rebuild_batch(header, rows, delete_horizon_ms=None)


def _check_id(header: BatchHeader) -> None:
    if header.producer_id > PRODUCER_ID_MAX:
        raise InvalidBatch(
            f"producer id {header.producer_id} is above {PRODUCER_ID_MAX}, the largest of topics with scaling=keyed",
            producer_id=header.producer_id,
        )


@contextmanager
def _told_apart(header: BatchHeader, *, is_begun: bool) -> Iterator[None]:
    """NotLeader and HomeUndecided say that nothing was stored, so whoever hears them sends all of it again. Where a part is stored
    (`is_begun`), that is only right if it is known when it comes again."""
    try:
        yield
    except NotLeader as error:
        if is_begun and header.producer_id == NO_PRODUCER:
            raise ReplicationUnknown(
                f"{error.sentence}; some of the batch may be stored", **error.details
            ) from error
        raise


def _raised(one: int | BaseException) -> int:
    if isinstance(one, BaseException):
        raise one
    return one


def _changed(partition: Partition) -> HomeUndecided:
    return HomeUndecided(partition.topic, partition.index, "they have changed meanwhile")


def _in_the_way(partition: Partition) -> HomeUndecided:
    """That its transaction is open was made sure before something was waited for, and may not be so any more. Nothing is in the way when
    the batch comes again."""
    return HomeUndecided(partition.topic, partition.index, "its transaction may have ended meanwhile")
