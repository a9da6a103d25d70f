"""Batches to their leaders: several requests under way, each batch stored once and in order if its producer is idempotent.

The sequence of a batch lies inside its checksum, so whoever encodes a batch asks `sequence` for the next one first and `send`
takes that batch and no other. When something fails that may heal, everything unanswered goes out again as it was, in order: a
broker that has a batch already says so. Without a producer id a batch may come twice after a failure, and out of order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from goqueue.client.kafka.brokers import Place
from goqueue.client.kafka.cluster import KafkaCluster
from goqueue.client.kafka.codes import ErrorCode
from goqueue.client.kafka.connection import Address
from goqueue.client.kafka.errors import KafkaError, NotUnderstood, Unreachable
from goqueue.client.kafka.lanes import NO_ACKS, REQUEST_BYTES_MIN, Lane, Outgoing
from goqueue.client.kafka.patience import Patience
from goqueue.client.kafka.producer_ids import ProducerIdentity
from goqueue.log.batch import NO_PRODUCER, BatchHeader, read_header

ACKS = {"all": -1, "leader": 1, "none": NO_ACKS}
BYTES_MAX = 32 * 1024 * 1024  # unanswered, of one sender
_SEQUENCE_MASK = 0x7FFFFFFF


class BatchSender:
    """Of one thread. `flush` says whether all is stored; the first error that cannot heal ends it."""

    def __init__(
        self,
        cluster: KafkaCluster,
        producer: ProducerIdentity | None = None,
        transactional_id: str | None = None,
        acks: str = "all",
    ) -> None:
        if acks not in ACKS:
            raise ValueError(f"acks are 'all', 'leader' or 'none', not {acks!r}")
        if producer is not None and acks != "all":
            raise ValueError(f"a producer with an id needs acks 'all', not {acks!r}")
        if transactional_id is not None and producer is None:
            raise ValueError(f"transaction {transactional_id!r} needs a producer id")
        self._brokers = cluster.brokers
        self._producer = producer
        self._transactional_id = transactional_id
        self._acks = ACKS[acks]
        self._sequences: dict[Place, int] = {}
        self._lanes: dict[Address, Lane] = {}
        self._homes: dict[Place, Lane] = {}
        self._unrouted: list[Outgoing] = []  # in the order of their turns
        self._turn = 0
        self._held_bytes = 0
        self._failure: KafkaError | None = None
        self._patience: Patience | None = None  # while something fails

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def sequence(self, topic: str, partition: int) -> int:
        """Of the first record of the next batch."""
        return self._sequences.get((topic, partition), 0)

    def send(self, topic: str, partition: int, batch: bytes) -> None:
        """Soon. Waits only while more than enough is unanswered; raises what earlier batches met with."""
        if self._failure is not None:
            raise self._failure
        place = (topic, partition)
        header = read_header(batch)
        self._check(place, header, len(batch))
        if self._producer is not None:
            self._sequences[place] = (self.sequence(*place) + header.record_count) & _SEQUENCE_MASK
        self._turn += 1
        self._held_bytes += len(batch)
        self._unrouted.append(Outgoing(self._turn, place, batch))
        self._pump(REQUEST_BYTES_MIN, held_bytes_max=BYTES_MAX)

    def flush(self) -> None:
        """Until everything is answered for; raises the first error that cannot heal."""
        if self._failure is not None:
            raise self._failure
        self._pump(1, held_bytes_max=0)

    def close(self) -> None:
        """What is unanswered is given up."""
        for lane in self._lanes.values():
            lane.take_all()
            lane.close(self._brokers)
        self._lanes.clear()
        self._homes.clear()
        self._unrouted.clear()

    def _check(self, place: Place, header: BatchHeader, size: int) -> None:
        """What the broker would refuse, or worse: take for something else."""
        if header.size != size:
            raise ValueError(f"one batch of {header.size} bytes is expected, and {size} are given")
        if header.is_transactional != (self._transactional_id is not None):
            raise ValueError(
                f"a batch for {place} is in a transaction and its sender is not, or the other way round"
            )
        wanted: tuple[int, ...] = (NO_PRODUCER, -1)
        given: tuple[int, ...] = (header.producer_id, header.producer_epoch)
        if self._producer is not None:
            wanted, given = (*self._producer, self.sequence(*place)), (*given, header.base_sequence)
        if given != wanted:
            raise ValueError(
                f"a batch for {place} has producer, epoch, sequence {given}; {wanted} was expected"
            )

    # ---------------------------------------------------------------- the way of a batch

    def _pump(self, bytes_min: int, *, held_bytes_max: int) -> None:
        """Send what is worth a request, and wait until no more than this is unanswered."""
        while True:
            try:
                self._route()
                self._push_all(bytes_min)
                if self._held_bytes <= held_bytes_max:
                    return
                self._push_all(1)
                busy = [lane for lane in self._lanes.values() if lane.is_busy]
                if busy:
                    self._settle(min(busy, key=lambda lane: lane.oldest_turn))
            except KafkaError as error:
                self._bear(error)

    def _route(self) -> None:
        """Each batch to the lane of its leader, in the order of their turns."""
        for at, one in enumerate(self._unrouted):
            lane = self._homes.get(one.place)
            if lane is None:
                try:
                    address = self._brokers.leader(*one.place)
                except KafkaError:
                    del self._unrouted[:at]
                    raise
                lane = self._homes[one.place] = self._lanes.setdefault(address, Lane(address))
            lane.add(one)
        self._unrouted.clear()

    def _push_all(self, bytes_min: int) -> None:
        for lane in list(self._lanes.values()):
            while lane.has_answer:
                self._settle(lane)
            while lane.has_room and lane.waiting_bytes >= bytes_min:
                self._transmit(lane)

    def _transmit(self, lane: Lane) -> None:
        timeout_ms = int(self._brokers.timeout_s * 1_000)
        with self._recalling(lane):
            for one in lane.transmit(self._brokers, self._transactional_id, self._acks, timeout_ms):
                self._stored(one)

    def _settle(self, lane: Lane) -> None:
        """The oldest answer. Once a batch must go out again, all answers are awaited: what was sent behind it was refused
        for being out of order, or is stored and must not go again."""
        failure: KafkaError | None = None
        failed: list[Outgoing] = []
        with self._recalling(lane, failed):
            while lane.is_busy:
                for one, error in lane.receive():
                    if error is None:
                        self._stored(one)
                        continue
                    is_behind = error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and one.place in {
                        other.place for other in failed
                    }
                    if not error.is_retriable and not is_behind:
                        raise error
                    failed.append(one)
                    failure = failure or error
                if failure is None:
                    return
            if failure is not None:
                raise failure

    def _stored(self, one: Outgoing) -> None:
        self._held_bytes -= len(one.batch)
        self._patience = None

    # ---------------------------------------------------------------- what fails

    @contextmanager
    def _recalling(self, lane: Lane, failed: Sequence[Outgoing] = ()) -> Iterator[None]:
        """After an error everything of the lane looks for its leader again."""
        try:
            yield
        except KafkaError as error:
            recalled = [*failed, *lane.take_all()]
            lane.close(self._brokers, failed=isinstance(error, Unreachable | NotUnderstood))
            del self._lanes[lane.address]
            self._homes = {place: home for place, home in self._homes.items() if home is not lane}
            self._unrouted = sorted([*recalled, *self._unrouted])
            for topic in {one.place[0] for one in recalled}:
                self._brokers.forget(topic)
            raise

    def _bear(self, error: KafkaError) -> None:
        """Wait for it to heal, or fail for good."""
        self._patience = self._patience or Patience(self._brokers.timeout_s)
        try:
            self._patience.pause(error)
        except KafkaError:
            self._failure = error
            self.close()
            raise
