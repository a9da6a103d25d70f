"""Idempotent producers: what is sent again is not stored again, and nothing is skipped."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from goqueue.core import producer as module
from goqueue.core.producer import (
    BATCH_COUNT_KEPT,
    FRESH,
    IDLE_MS_MAX,
    Appended,
    Duplicate,
    Fresh,
    ProducerEntry,
    ProducerTable,
    is_after,
    last_sequence,
)
from goqueue.model.errors import OutOfOrderSequence, ProducerFenced
from goqueue.model.record import Producer

LAST = 2**31 - 1


def append(
    table: ProducerTable, producer: Producer, count: int, *, offset: int = 0, now_ms: int = 0
) -> Appended:
    """As the node does it: decide, append, apply."""
    assert isinstance(table.decide(producer, count), Fresh)
    event = Appended(
        producer.id,
        producer.epoch,
        producer.sequence,
        last_sequence(producer.sequence, count),
        offset,
        now_ms,
    )
    table.apply(event)
    return event


def replayed(table: ProducerTable) -> ProducerTable:
    """Through the text in which a checkpoint keeps it."""
    return ProducerTable(msgspec.json.decode(msgspec.json.encode(table.entries()), type=list[ProducerEntry]))


def events(table: ProducerTable) -> list[Appended]:
    """The batches it remembers, by producer in order of last use."""
    return [event for entry in table.entries() for event in entry.batches]


@pytest.mark.parametrize(
    ("first", "count", "last"), [(0, 1, 0), (0, 5, 4), (LAST, 1, LAST), (LAST, 2, 0), (LAST - 1, 4, 1)]
)
def test_sequences_wrap_to_zero_after_the_largest(first: int, count: int, last: int) -> None:
    assert last_sequence(first, count) == last


@pytest.mark.parametrize(
    ("sequence", "other", "is_later"),
    [
        (1, 0, True),
        (0, 1, False),
        (7, 7, False),
        (0, 2**31 - 1, True),
        (2**31 - 1, 0, False),
        (2**30 - 1, 0, True),
        (2**30, 0, False),
    ],
)
def test_a_sequence_is_after_another_also_where_they_wrap(sequence: int, other: int, is_later: bool) -> None:
    assert is_after(sequence, other) is is_later


@pytest.mark.parametrize("sequence", [0, 1, 1_000, LAST])
def test_unknown_producer_starts_anywhere(sequence: int) -> None:
    assert ProducerTable().decide(Producer(1, 0, sequence), 3) is FRESH


def test_deciding_changes_nothing() -> None:
    table = ProducerTable()
    append(table, Producer(1, 0, 0), 2)
    before = events(table)
    table.decide(Producer(1, 0, 2), 1)
    table.decide(Producer(2, 0, 2), 1)
    table.decide(Producer(1, 0, 0), 2)
    with pytest.raises(OutOfOrderSequence):
        table.decide(Producer(1, 0, 9), 2)
    assert events(table) == before


def test_each_of_the_last_five_batches_is_known_again_and_the_sixth_is_not() -> None:
    table = ProducerTable()
    for at in range(BATCH_COUNT_KEPT + 1):
        append(table, Producer(1, 0, 2 * at), 2, offset=100 + 2 * at)
    for at in range(1, BATCH_COUNT_KEPT + 1):
        assert table.decide(Producer(1, 0, 2 * at), 2) == Duplicate(100 + 2 * at)
    with pytest.raises(OutOfOrderSequence) as caught:
        table.decide(Producer(1, 0, 0), 2)
    assert caught.value.details == {"producer_id": 1, "epoch": 0, "sequence": 0, "expected": 12}


@pytest.mark.parametrize(("sequence", "count"), [(0, 3), (0, 1), (1, 1), (1, 2)])
def test_batch_that_overlaps_a_stored_one_is_no_duplicate(sequence: int, count: int) -> None:
    table = ProducerTable()
    append(table, Producer(1, 0, 0), 2)
    with pytest.raises(OutOfOrderSequence):
        table.decide(Producer(1, 0, sequence), count)


def test_batch_after_a_gap_is_refused_with_the_sequence_that_is_next() -> None:
    table = ProducerTable()
    append(table, Producer(1, 0, 0), 2)
    with pytest.raises(OutOfOrderSequence, match="sent sequence 3; the next is 2"):
        table.decide(Producer(1, 0, 3), 1)
    assert table.decide(Producer(1, 0, 2), 1) is FRESH


def test_producer_goes_on_through_the_wrap_and_duplicates_across_it_are_known() -> None:
    table = ProducerTable()
    append(table, Producer(1, 0, LAST - 1), 3, offset=10)  # LAST - 1, LAST, 0
    assert table.decide(Producer(1, 0, LAST - 1), 3) == Duplicate(10)
    assert table.decide(Producer(1, 0, 1), 1) is FRESH
    append(table, Producer(2, 0, LAST), 1)
    assert table.decide(Producer(2, 0, 0), 1) is FRESH
    with pytest.raises(OutOfOrderSequence, match="the next is 0"):
        table.decide(Producer(2, 0, 1), 1)


def test_older_epoch_is_fenced_even_for_a_batch_that_it_stored() -> None:
    table = ProducerTable()
    append(table, Producer(1, 3, 0), 2)
    append(table, Producer(1, 4, 0), 1)
    with pytest.raises(ProducerFenced) as caught:
        table.decide(Producer(1, 3, 0), 2)
    assert caught.value.details == {"producer_id": 1, "epoch": 3, "current_epoch": 4}


def test_newer_epoch_starts_at_zero() -> None:
    table = ProducerTable()
    append(table, Producer(1, 3, 0), 2)
    with pytest.raises(OutOfOrderSequence, match="sent sequence 2; the next is 0"):
        table.decide(Producer(1, 4, 2), 1)
    assert table.decide(Producer(1, 3, 2), 1) is FRESH, "a refused epoch fences nobody"
    append(table, Producer(1, 4, 0), 2, offset=50)
    assert table.decide(Producer(1, 4, 0), 2) == Duplicate(50), "not the batch of the epoch before"


def test_producers_do_not_touch_one_another() -> None:
    table = ProducerTable()
    append(table, Producer(1, 9, 0), 2)
    append(table, Producer(2, 0, 0), 2)
    assert table.decide(Producer(2, 0, 2), 2) is FRESH


def test_producer_idle_for_more_than_a_week_is_forgotten() -> None:
    table = ProducerTable()
    append(table, Producer(1, 5, 7), 1, now_ms=1_000)
    append(table, Producer(2, 5, 7), 1, now_ms=1_001)
    table.expire(1_000 + IDLE_MS_MAX)
    assert [event.producer_id for event in events(table)] == [1, 2]
    table.expire(1_001 + IDLE_MS_MAX)
    assert [event.producer_id for event in events(table)] == [2]
    assert table.decide(Producer(1, 0, 99), 1) is FRESH, "forgotten: it starts wherever it says"


def test_beyond_the_cap_the_producer_that_wrote_longest_ago_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PRODUCER_COUNT_MAX", 3)
    table = ProducerTable()
    for id in (1, 2, 3):
        append(table, Producer(id, 0, 0), 1)
    append(table, Producer(1, 0, 1), 1)
    append(table, Producer(4, 0, 0), 1)
    assert [event.producer_id for event in events(table)] == [3, 1, 1, 4]


def test_events_give_the_order_of_last_use_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRODUCER_COUNT_MAX", 3)
    table = ProducerTable()
    for id in (1, 2, 3, 1):
        append(table, Producer(id, 0, 0 if id != 1 or not events(table) else 1), 1)
    again = replayed(table)
    for each in (table, again):
        append(each, Producer(4, 0, 0), 1)
        assert [event.producer_id for event in events(each)] == [3, 1, 1, 4]


class ProducerMachine(RuleBasedStateMachine):
    """Against a log of all that was ever appended; replayed after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.table = ProducerTable()
        self.log: dict[int, list[Appended]] = {}  # of the current epoch
        self.offset = 0
        self.now_ms = 0

    def store(self, producer: Producer, count: int) -> None:
        event = append(self.table, producer, count, offset=self.offset, now_ms=self.now_ms)
        stored = self.log.setdefault(producer.id, [])
        if stored and stored[-1].epoch != producer.epoch:
            stored.clear()
        stored.append(event)
        self.offset += count

    def latest(self, id: int) -> Appended | None:
        return self.log[id][-1] if id in self.log else None

    @rule(id=st.integers(1, 3), count=st.integers(1, 3), start=st.sampled_from([0, 5, LAST - 2]))
    def send_next(self, id: int, count: int, start: int) -> None:
        latest = self.latest(id)
        epoch, sequence = (latest.epoch, (latest.last_sequence + 1) % 2**31) if latest else (0, start)
        self.store(Producer(id, epoch, sequence), count)

    @rule(id=st.integers(1, 3), count=st.integers(1, 3))
    def bump_epoch(self, id: int, count: int) -> None:
        latest = self.latest(id)
        if latest:
            self.store(Producer(id, latest.epoch + 1, 0), count)

    @rule(id=st.integers(1, 3), back=st.integers(1, 8))
    def send_again(self, id: int, back: int) -> None:
        stored = self.log.get(id, [])
        if back > len(stored):
            return
        batch = stored[-back]
        count = (batch.last_sequence - batch.first_sequence) % 2**31 + 1
        producer = Producer(id, batch.epoch, batch.first_sequence)
        if back <= BATCH_COUNT_KEPT:
            assert self.table.decide(producer, count) == Duplicate(batch.base_offset)
        else:
            with pytest.raises(OutOfOrderSequence):
                self.table.decide(producer, count)

    @rule(id=st.integers(1, 3), skip=st.integers(1, 5))
    def skip_some(self, id: int, skip: int) -> None:
        latest = self.latest(id)
        if latest:
            sequence = (latest.last_sequence + 1 + skip) % 2**31
            with pytest.raises(OutOfOrderSequence):
                self.table.decide(Producer(id, latest.epoch, sequence), 1)

    @rule(id=st.integers(1, 3), sequence=st.integers(0, 9))
    def send_from_an_older_epoch(self, id: int, sequence: int) -> None:
        latest = self.latest(id)
        if latest and latest.epoch:
            with pytest.raises(ProducerFenced):
                self.table.decide(Producer(id, latest.epoch - 1, sequence), 1)

    @rule(passed_ms=st.sampled_from([1, IDLE_MS_MAX // 2, IDLE_MS_MAX + 1]))
    def expire(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.table.expire(self.now_ms)
        for id, stored in list(self.log.items()):
            if self.now_ms - stored[-1].timestamp_ms > IDLE_MS_MAX:
                del self.log[id]

    @rule()
    def restart(self) -> None:
        self.table = replayed(self.table)

    @invariant()
    def replayed_state_equals_live_state(self) -> None:
        assert replayed(self.table).entries() == self.table.entries()
        kept = {id: [event for event in events(self.table) if event.producer_id == id] for id in (1, 2, 3)}
        assert kept == {id: self.log.get(id, [])[-BATCH_COUNT_KEPT:] for id in (1, 2, 3)}


ProducerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestProducerTable = ProducerMachine.TestCase
