"""Transactions of one partition's producers: one beginning, one end, and nobody from the past in between."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from goqueue.core import producer as module
from goqueue.core.producer import (
    FRESH,
    IDLE_MS_MAX,
    Appended,
    Completed,
    Duplicate,
    Ended,
    ProducerEntry,
    ProducerTable,
    last_sequence,
)
from goqueue.model.cluster_errors import CoordinatorFenced
from goqueue.model.errors import InvalidTransactionState, OutOfOrderSequence, ProducerFenced
from goqueue.model.record import Producer


def write(
    table: ProducerTable,
    producer: Producer,
    offset: int,
    *,
    count: int = 1,
    is_transactional: bool = True,
    now_ms: int = 0,
) -> None:
    assert table.decide(producer, count, is_transactional=is_transactional) is FRESH
    last = last_sequence(producer.sequence, count)
    table.apply(
        Appended(producer.id, producer.epoch, producer.sequence, last, offset, now_ms, is_transactional)
    )


def end(
    table: ProducerTable, id: int, epoch: int, offset: int, *, is_commit: bool = True, now_ms: int = 0
) -> None:
    table.decide_marker(id, epoch)
    table.apply(Completed(id, epoch, offset, is_commit, 3, now_ms))


def start_of(table: ProducerTable, id: int) -> int | None:
    entry = table.entry(id)
    return entry.transaction_start if entry else None


def replayed(table: ProducerTable) -> ProducerTable:
    """Through the text in which a checkpoint keeps it."""
    entries = msgspec.json.decode(msgspec.json.encode(table.entries()), type=list[ProducerEntry])
    return ProducerTable(entries, msgspec.json.decode(msgspec.json.encode(table.ended()), type=list[Ended]))


def test_transaction_begins_with_its_first_batch_and_ends_with_its_marker() -> None:
    table = ProducerTable()
    write(table, Producer(1, 0, 0), 10, count=2)
    write(table, Producer(1, 0, 2), 12)
    assert (start_of(table, 1), table.first_open_offset()) == (10, 10)
    end(table, 1, 0, 13)
    assert (start_of(table, 1), table.first_open_offset()) == (None, None)


def test_oldest_open_transaction_is_the_one_that_began_first_whoever_wrote_last() -> None:
    table = ProducerTable()
    for id in (1, 2, 3):
        write(table, Producer(id, 0, 0), 10 * id)
    write(table, Producer(1, 0, 1), 40)
    assert table.first_open_offset() == 10
    end(table, 2, 0, 41)
    assert table.first_open_offset() == 10
    end(table, 1, 0, 42)
    assert table.first_open_offset() == 30
    assert [entry.producer_id for entry in table.open_entries()] == [3]


def test_transaction_is_in_the_way_until_its_marker_is_committed() -> None:
    table = ProducerTable()
    for id in (1, 2, 3):
        write(table, Producer(id, 0, 0), 10 * id)
    end(table, 2, 0, 31)
    end(table, 1, 0, 32)
    table.settle(31)
    assert table.first_unstable_offset() == 10
    table.settle(32)
    assert (table.first_unstable_offset(), table.ended()) == (10, [Ended(32, 10)])
    table = replayed(table)
    table.settle(33)
    assert (table.first_unstable_offset(), table.ended()) == (30, [])


def test_plain_batch_in_the_middle_of_a_transaction_is_refused_and_after_it_is_fine() -> None:
    table = ProducerTable()
    write(table, Producer(1, 0, 0), 0, is_transactional=False)
    write(table, Producer(1, 0, 1), 1)
    with pytest.raises(InvalidTransactionState) as caught:
        table.decide(Producer(1, 0, 2), 1)
    assert caught.value.details == {"producer_id": 1, "epoch": 0, "transaction_start": 1}
    assert table.decide(Producer(1, 0, 1), 1, is_transactional=True) == Duplicate(1)
    end(table, 1, 0, 2)
    assert table.decide(Producer(1, 0, 2), 1) is FRESH


def test_sequences_go_on_after_a_marker_of_the_same_epoch() -> None:
    table = ProducerTable()
    write(table, Producer(1, 4, 0), 0, count=5)
    end(table, 1, 4, 5)
    assert table.decide(Producer(1, 4, 5), 1, is_transactional=True) is FRESH
    assert table.decide(Producer(1, 4, 0), 5, is_transactional=True) == Duplicate(0)
    with pytest.raises(OutOfOrderSequence, match="the next is 5"):
        table.decide(Producer(1, 4, 0), 1, is_transactional=True)


def test_marker_of_a_new_epoch_ends_the_transaction_fences_the_old_one_and_starts_sequences_anew() -> None:
    table = ProducerTable()
    write(table, Producer(1, 4, 0), 0, count=5)
    end(table, 1, 5, 5)
    assert start_of(table, 1) is None
    for sequence, count in ((5, 1), (0, 5)):  # the next one, and one that it stored
        with pytest.raises(ProducerFenced) as caught:
            table.decide(Producer(1, 4, sequence), count, is_transactional=True)
        assert caught.value.details == {"producer_id": 1, "epoch": 4, "current_epoch": 5}
    with pytest.raises(OutOfOrderSequence, match="sent sequence 5; the next is 0"):
        table.decide(Producer(1, 5, 5), 1, is_transactional=True)
    assert table.decide(Producer(1, 5, 0), 1, is_transactional=True) is FRESH


def test_marker_for_a_producer_without_a_transaction_is_fine_and_fences_all_the_same() -> None:
    table = ProducerTable()
    end(table, 1, 7, 0)
    end(table, 1, 7, 1, is_commit=False)
    with pytest.raises(ProducerFenced):
        table.decide(Producer(1, 6, 0), 1)
    with pytest.raises(OutOfOrderSequence):
        table.decide(Producer(1, 7, 3), 1)
    assert table.decide(Producer(1, 7, 0), 1) is FRESH


def test_marker_of_an_older_epoch_is_refused() -> None:
    table = ProducerTable()
    write(table, Producer(1, 4, 0), 0)
    with pytest.raises(ProducerFenced) as caught:
        table.decide_marker(1, 3)
    assert caught.value.details == {"producer_id": 1, "epoch": 3, "current_epoch": 4}
    table.decide_marker(1, 4)
    table.decide_marker(1, 5)


def test_marker_of_a_coordinator_that_was_replaced_is_refused() -> None:
    table = ProducerTable()
    write(table, Producer(1, 4, 0), 0)
    table.apply(Completed(1, 4, 1, is_commit=True, coordinator_epoch=7, timestamp_ms=0))
    with pytest.raises(CoordinatorFenced) as caught:
        table.decide_marker(1, 4, coordinator_epoch=6)
    assert caught.value.details == {"producer_id": 1, "coordinator_epoch": 6, "current_epoch": 7}
    table.decide_marker(1, 4, coordinator_epoch=7)
    table.decide_marker(1, 4, coordinator_epoch=8)


def test_late_copy_of_a_bumped_marker_does_not_end_the_next_transaction() -> None:
    table = ProducerTable()
    write(table, Producer(1, 4, 0), 0)
    table.decide_marker(1, 5, is_epoch_bumped=True)
    end(table, 1, 5, 1)
    table.decide_marker(1, 5, is_epoch_bumped=True)  # sent again before the next one began: nothing to end
    write(table, Producer(1, 5, 0), 2)
    with pytest.raises(ProducerFenced):
        table.decide_marker(1, 5, is_epoch_bumped=True)
    table.decide_marker(1, 6, is_epoch_bumped=True)


def test_producer_with_an_open_transaction_never_expires() -> None:
    table = ProducerTable()
    write(table, Producer(1, 0, 0), 0)
    write(table, Producer(2, 0, 0), 1, is_transactional=False)
    table.expire(IDLE_MS_MAX + 1)
    assert [entry.producer_id for entry in table.entries()] == [1]
    end(table, 1, 0, 2, now_ms=5)
    table.expire(IDLE_MS_MAX + 5)
    assert [entry.producer_id for entry in table.entries()] == [1], "its marker counts as use"
    table.expire(IDLE_MS_MAX + 6)
    assert table.entries() == []


def test_beyond_the_cap_a_producer_with_an_open_transaction_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRODUCER_COUNT_MAX", 2)
    table = ProducerTable()
    write(table, Producer(1, 0, 0), 0)
    write(table, Producer(2, 0, 0), 1, is_transactional=False)
    write(table, Producer(3, 0, 0), 2)
    assert [entry.producer_id for entry in table.entries()] == [1, 3]
    write(table, Producer(4, 0, 0), 3)
    assert [entry.producer_id for entry in table.entries()] == [1, 3, 4], "all of them are open"
    end(table, 3, 0, 4)
    assert [entry.producer_id for entry in table.entries()] == [1, 4]
    assert table.first_open_offset() == 0


def test_facts_of_a_marker_are_kept() -> None:
    table = ProducerTable()
    end(table, 1, 7, 0, now_ms=44)
    [entry] = replayed(table).entries()
    assert (entry.epoch, entry.coordinator_epoch, entry.timestamp_ms, entry.last_sequence) == (7, 3, 44, -1)


class TransactionMachine(RuleBasedStateMachine):
    """Against the whole history; the replayed state is compared after each step."""

    IDS = (1, 2, 3)

    def __init__(self) -> None:
        super().__init__()
        self.table = ProducerTable()
        self.offset = 0
        self.epochs: dict[int, int] = {}
        self.nexts: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.ended: dict[int, int] = {}  # marker to start
        self.high_watermark = 0

    @rule(id=st.sampled_from(IDS), count=st.integers(1, 3), is_transactional=st.booleans())
    def send_next(self, id: int, count: int, is_transactional: bool) -> None:
        epoch = self.epochs.setdefault(id, 0)
        producer = Producer(id, epoch, self.nexts.setdefault(id, 0))
        if id in self.starts and not is_transactional:
            with pytest.raises(InvalidTransactionState):
                self.table.decide(producer, count)
            return
        write(self.table, producer, self.offset, count=count, is_transactional=is_transactional)
        if is_transactional:
            self.starts.setdefault(id, self.offset)
        self.nexts[id] += count
        self.offset += count

    @rule(id=st.sampled_from(IDS), is_commit=st.booleans(), bump=st.integers(0, 2))
    def complete(self, id: int, is_commit: bool, bump: int) -> None:
        epoch = self.epochs.get(id, 0) + bump
        end(self.table, id, epoch, self.offset, is_commit=is_commit)
        if bump:
            self.nexts[id] = 0
        self.epochs[id] = epoch
        self.nexts.setdefault(id, 0)
        if id in self.starts:
            self.ended[self.offset] = self.starts.pop(id)
        self.offset += 1

    @rule(step=st.integers(0, 8))
    def commit(self, step: int) -> None:
        self.high_watermark = min(self.offset, self.high_watermark + step)
        self.table.settle(self.high_watermark)

    @rule(id=st.sampled_from(IDS), is_transactional=st.booleans())
    def come_from_the_past(self, id: int, is_transactional: bool) -> None:
        epoch = self.epochs.get(id, 0)
        if epoch:
            with pytest.raises(ProducerFenced):
                self.table.decide(
                    Producer(id, epoch - 1, self.nexts[id]), 1, is_transactional=is_transactional
                )
            with pytest.raises(ProducerFenced):
                self.table.decide_marker(id, epoch - 1)

    @rule()
    def restart(self) -> None:
        self.table = replayed(self.table)

    @invariant()
    def open_transactions_are_known(self) -> None:
        assert {id: start_of(self.table, id) for id in self.IDS if start_of(self.table, id) is not None} == (
            self.starts
        )
        assert self.table.first_open_offset() == min(self.starts.values(), default=None)
        assert [entry.transaction_start for entry in self.table.open_entries()] == sorted(
            self.starts.values()
        )

    @invariant()
    def what_is_not_committed_is_in_the_way(self) -> None:
        uncommitted = [start for marker, start in self.ended.items() if marker >= self.high_watermark]
        starts = [*self.starts.values(), *uncommitted]
        assert self.table.first_unstable_offset() == min(starts, default=None)
        assert [one.start for one in self.table.ended()] == uncommitted

    @invariant()
    def replayed_state_equals_live_state(self) -> None:
        again = replayed(self.table)
        assert again.entries() == self.table.entries()
        assert again.open_entries() == self.table.open_entries()
        assert again.first_unstable_offset() == self.table.first_unstable_offset()


TransactionMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestProducerTransactions = TransactionMachine.TestCase
