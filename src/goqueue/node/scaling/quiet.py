"""The moment of quiet, and who is next in line.

A producer that has learned of new partitions may have batches on two ways: those it sent to the old partition, which sends on
what has moved, and those it sends straight to the new one. The latter are refused, and so sent again a little later, until
nothing of the producer can still come the long way. They are not kept waiting: what comes behind them on the same connection may be what
they wait for.

That time has passed proves nothing: a client may take long to find the new leader of the old partition. So a producer that the old
partition knows has to show it (ADR 38): clients stamp a record when it is handed over, and what they have for a partition comes in that order.
When the leader of the old partition has taken a batch that is younger than the one that waits here, it has taken everything that was
sent the long way before. Besides, it must have nothing refused that has yet to come again, and have had nothing to send on for a moment, longer than
a client waits before it tries again: so much is asked also of those who set the timestamps themselves. A producer that has nothing
more for the old partition shows nothing; it waits for as long as clients take to find a leader. Whoever first wrote to the old partition when
the new one was there, and only what belonged there, knows of both: it need not show anything.

Partitions that shrink cannot ask for that, because a producer that has learned of it sends nothing to the old ones any more: there it is
the moment of quiet alone.

Whatever is refused must not be overtaken by what the producer sent after it. Its partition knows the next sequence of a producer that it
knows; of others, the lowest sequence that was refused is remembered here. A leader that has just begun remembers nothing: if it has nothing of a
producer, what does not begin at sequence 0 waits a little for what does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from goqueue.core.cluster.scaling import Scaling
from goqueue.core.producer import is_after, is_relayed, origin_of
from goqueue.log.batch import NO_PRODUCER, BatchHeader
from goqueue.model.cluster_errors import HomeUndecided
from goqueue.node.partition import Partition
from goqueue.node.scaling.ports import NOTHING_YET, Silence

QUIET_S: Final = 2.0  # clients of Kafka try again after a second at most
# With one producer, for one change: one that always sends what lives elsewhere is never quiet.
PATIENCE_S: Final = 10.0
FOUND_S: Final = 30.0  # clients wait for up to ten seconds, some for thirty, before they connect again to a node that was gone
_REMEMBERED_S: Final = 30.0  # longer than any client waits before it tries again
# Until the first batch of a producer is taken for one that was stored and forgotten long ago.
_MISSING_S: Final = 3.0
_COUNT_MAX: Final = 10_000  # producers of one partition; the oldest are forgotten

Change = tuple[int, int]
_GROWTH: Final[Change] = 0, 0  # a partition comes by growth once
Sender = tuple[int, int]  # producer id and epoch
K = TypeVar("K")
T = TypeVar("T")


@dataclass(slots=True)
class _Watch:
    """What is known of a partition since it opened, or this node began to lead it."""

    change: Change
    opened_s: float
    arrived_s: dict[int, float] = field(default_factory=dict)  # by producer: when something came the long way
    refused_s: dict[int, float] = field(default_factory=dict)  # by producer: since when it is kept off
    through_s: dict[int, float] = field(default_factory=dict)  # by producer: since when it is not any more


@dataclass(slots=True)
class _Refused:
    sequence: int
    at_s: float


class Quiet:
    def __init__(self) -> None:
        self._watches: WeakKeyDictionary[Partition, _Watch] = WeakKeyDictionary()
        self._refused: WeakKeyDictionary[Partition, dict[Sender, _Refused]] = WeakKeyDictionary()
        self._began_s: WeakKeyDictionary[Partition, float] = WeakKeyDictionary()
        self._sent_on_s: WeakKeyDictionary[Partition, dict[int, float]] = WeakKeyDictionary()
        self._met_s: WeakKeyDictionary[Partition, dict[int, float]] = WeakKeyDictionary()
        self._taken_ms: WeakKeyDictionary[Partition, dict[int, int]] = WeakKeyDictionary()

    # ---------------------------------------------------------------- two ways

    def opened(self, partition: Partition, scaling: Scaling, *, is_new_leader: bool = False) -> None:
        """It takes keys that were elsewhere, from now on or under another leader than before. May be repeated."""
        stays, known = partition.index < scaling.key_count, self._watches.get(partition)
        change = (scaling.old_count, scaling.key_count) if scaling.is_shrinking and stays else _GROWTH
        if known is None or known.change != change or is_new_leader:
            self._watches[partition] = _Watch(change, _now_s())

    def arrived(self, partition: Partition, relayed: int) -> None:
        """A batch came to the partition through another one."""
        watch = self._watches.get(partition)
        if watch is not None and is_relayed(relayed):
            _put(watch.arrived_s, origin_of(relayed)[0], _now_s())

    def check(self, partition: Partition, producer_id: int) -> None:
        """Before records that were elsewhere are taken from the producer itself, by a partition into which others go."""
        watch = self._watches.get(partition)
        if watch is None or producer_id == NO_PRODUCER:
            return
        now_s = _now_s()
        last_s = max(watch.opened_s, watch.arrived_s.get(producer_id, watch.opened_s))
        if now_s - last_s >= QUIET_S:
            return
        since_s = watch.refused_s.get(producer_id)
        if since_s is None:
            _put(watch.refused_s, producer_id, now_s)
        elif now_s - since_s >= PATIENCE_S:
            return
        raise _under_way(partition)

    def is_through(self, partition: Partition, producer_id: int) -> bool:
        """Whether it is known that nothing of the producer comes the long way any more."""
        watch = self._watches.get(partition)
        return watch is None or producer_id in watch.through_s

    def check_silence(self, partition: Partition, header: BatchHeader, before: Sequence[Silence]) -> None:
        """Before anything is taken from the producer by a partition that came by growth: `before` is of the partitions where its keys
        were, however many changes ago."""
        watch, now_s = self._watches.get(partition), _now_s()
        if watch is None:
            return
        since_s = watch.refused_s.get(header.producer_id, now_s)
        is_found = all(silence.led_s >= FOUND_S for silence in before)
        if is_found and now_s - since_s >= PATIENCE_S:
            is_through = not any(_is_missing(silence, header) for silence in before)
        else:
            open_s = now_s - watch.opened_s
            is_through = open_s >= QUIET_S and all(_is_over(silence, header, open_s) for silence in before)
        if not is_through:
            _put(watch.refused_s, header.producer_id, since_s)
            raise _under_way(partition)
        _put(watch.through_s, header.producer_id, now_s)

    # ---------------------------------------------------------------- silence

    def began(self, partition: Partition, *, is_new_leader: bool = False) -> None:
        """This node knows what comes to the partition from now on. May be repeated."""
        if is_new_leader:
            self._began_s[partition] = _now_s()
            self._refused.pop(partition, None)  # whoever led in between may have taken it
            self._taken_ms.pop(partition, None)
            self._met_s.pop(partition, None)
        else:
            self._began_s.setdefault(partition, _now_s())

    def sent_on(self, partition: Partition, producer_id: int) -> None:
        """Something of a batch that came to the partition lives elsewhere."""
        _put(self._sent_on_s.setdefault(partition, {}), producer_id, _now_s())

    def silence(self, partition: Partition, producer_id: int, logged_ms: int | None = None) -> Silence:
        """`logged_ms` is what the log says of the newest batch: it holds for what leaders before this one have taken."""
        now_s = _now_s()
        began_s = self._began_s.setdefault(partition, now_s)
        epoch, taken_ms = partition.producer_epoch(producer_id), None
        if epoch is not None:
            taken_ms = self._taken_ms.get(partition, {}).get(producer_id, logged_ms)
            taken_ms = NOTHING_YET if taken_ms is None else taken_ms
        is_awaited = any(
            sender[0] == producer_id and not _is_old(one) and not _has_come(partition, sender, one)
            for sender, one in self._refused.get(partition, {}).items()
        )
        sent_on_s = self._sent_on_s.get(partition, {}).get(producer_id)
        last_s = now_s if is_awaited else began_s if sent_on_s is None else max(began_s, sent_on_s)
        met_s = self._met_s.get(partition, {}).get(producer_id)
        return Silence(
            quiet_s=now_s - last_s,
            led_s=now_s - began_s,
            is_awaited=is_awaited,
            taken_ms=taken_ms,
            known_s=None if met_s is None else now_s - met_s,
            has_strayed=sent_on_s is not None,
        )

    # ---------------------------------------------------------------- in line

    def refused(self, partition: Partition, header: BatchHeader) -> None:
        """The batch was not taken, and will come again."""
        if header.producer_id == NO_PRODUCER:
            return
        refused = self._refused.setdefault(partition, {})
        sender, sequence = (header.producer_id, header.producer_epoch), header.base_sequence
        known = refused.get(sender)
        if known is not None and not _is_old(known) and is_after(sequence, known.sequence):
            return  # it is remembered for as long as that one comes again, and not for as long as others do
        _put(refused, sender, _Refused(sequence, _now_s()))

    def check_line(self, partition: Partition, header: BatchHeader) -> None:
        """Refuse what was sent after something that was refused and has not come again."""
        sender = header.producer_id, header.producer_epoch
        refused = self._refused.get(partition)
        known = None if refused is None else refused.get(sender)
        if refused is None or known is None:
            self._check_first(partition, header)
            return
        if _has_come(partition, sender, known):
            del refused[sender]
        elif not _is_old(known) and is_after(header.base_sequence, known.sequence):
            raise HomeUndecided(
                partition.topic, partition.index, f"sequence {known.sequence} comes before this one"
            )

    def _check_first(self, partition: Partition, header: BatchHeader) -> None:
        """Of a producer of which nothing is known to have been refused."""
        id, sequence = header.producer_id, header.base_sequence
        if id == NO_PRODUCER or not sequence or partition.producer_epoch(id) is not None:
            return
        first = _Refused(0, _now_s() - (_REMEMBERED_S - _MISSING_S))
        _put(self._refused.setdefault(partition, {}), (id, header.producer_epoch), first)
        raise HomeUndecided(partition.topic, partition.index, "sequence 0 comes before this one")

    def met(self, partition: Partition, producer_id: int) -> None:
        """It has written to the partition for the first time."""
        if producer_id != NO_PRODUCER:
            _put(self._met_s.setdefault(partition, {}), producer_id, _now_s())

    def taken(self, partition: Partition, header: BatchHeader) -> None:
        """All of the batch is stored, here and where it belongs."""
        if header.producer_id != NO_PRODUCER:
            _put(self._taken_ms.setdefault(partition, {}), header.producer_id, header.base_timestamp)
        self.given_up(partition, header)

    def given_up(self, partition: Partition, header: BatchHeader) -> None:
        """The batch will not come again."""
        refused = self._refused.get(partition)
        if refused:
            refused.pop((header.producer_id, header.producer_epoch), None)


def _is_over(silence: Silence, header: BatchHeader, open_s: float) -> bool:
    """Whether nothing that the producer sent before the batch can still come through that partition."""
    if silence.is_awaited or silence.quiet_s < QUIET_S:
        return False
    return not silence.needs_evidence(open_s) or silence.has_all_before(header.base_timestamp)


def _is_missing(silence: Silence, header: BatchHeader) -> bool:
    """Whether something is known to be under way that may be older than the batch. Of a producer that always sends what lives
    elsewhere, something always is, but not for long what is older."""
    return silence.is_awaited and not silence.has_all_before(header.base_timestamp)


def _has_come(partition: Partition, sender: Sender, refused: _Refused) -> bool:
    """Through another leader, say; or the producer has begun anew, and what it had before cannot come."""
    id, epoch = sender
    newest_epoch, newest = partition.producer_epoch(id), partition.newest_sequence(id, epoch)
    if newest_epoch is not None and newest_epoch > epoch:
        return True
    return newest is not None and not is_after(refused.sequence, newest)


def _under_way(partition: Partition) -> HomeUndecided:
    return HomeUndecided(partition.topic, partition.index, "what was sent the old way may still be under way")


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _is_old(refused: _Refused) -> bool:
    return _now_s() - refused.at_s > _REMEMBERED_S


def _put(known: dict[K, T], key: K, value: T) -> None:
    known[key] = value
    if len(known) > _COUNT_MAX:
        del known[next(iter(known))]
