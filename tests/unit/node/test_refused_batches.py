"""Batches of a producer that come after one that was refused for now."""

from __future__ import annotations

import pytest

from goqueue.model.record import Producer
from goqueue.node.refused_batches import _FORGET_MS, _PRODUCER_COUNT_MAX, _OfPartition

LAST = (1 << 31) - 1  # then sequences begin at 0 again


@pytest.fixture
def refused() -> _OfPartition:
    return _OfPartition()


def waits(refused: _OfPartition, producer: Producer, now_ms: int = 0, *, newest: int | None = None) -> bool:
    return refused.has_one_before(producer, newest, now_ms)


def batch(sequence: int, *, id: int = 7, epoch: int = 0) -> Producer:
    return Producer(id, epoch, sequence)


def test_only_what_comes_after_a_refused_batch_waits_for_it(refused: _OfPartition) -> None:
    refused.note(batch(5), 0)
    assert waits(refused, batch(6))
    assert not waits(refused, batch(5))
    assert not waits(refused, batch(4))
    assert not waits(refused, batch(6, id=8))


def test_each_waits_until_all_before_it_are_back(refused: _OfPartition) -> None:
    for sequence in (5, 6, 7):
        refused.note(batch(sequence), 0)
    refused.taken(batch(5))
    assert waits(refused, batch(7))
    assert not waits(refused, batch(6))
    refused.taken(batch(6))
    refused.taken(batch(7))
    assert not refused.producers


def test_sequences_that_have_begun_again_come_after_those_before(refused: _OfPartition) -> None:
    refused.note(batch(LAST), 0)
    assert waits(refused, batch(0))
    assert not waits(refused, batch(LAST - 1))


def test_a_new_epoch_has_nothing_to_wait_for(refused: _OfPartition) -> None:
    refused.note(batch(5), 0)
    assert not waits(refused, batch(6, epoch=1))
    refused.taken(batch(0, epoch=1))
    assert not refused.producers


def test_a_producer_that_does_not_come_back_with_it_is_judged_as_before(refused: _OfPartition) -> None:
    refused.note(batch(5), 0)
    refused.note(batch(6), _FORGET_MS)
    assert waits(refused, batch(6), _FORGET_MS)
    assert not waits(refused, batch(6), _FORGET_MS + 1)


def test_one_that_is_refused_again_and_again_is_not_forgotten(refused: _OfPartition) -> None:
    refused.note(batch(4), 0)
    for at_ms in range(0, 3 * _FORGET_MS, _FORGET_MS):
        refused.note(batch(5), at_ms)
    assert waits(refused, batch(6), 3 * _FORGET_MS)
    assert not waits(refused, batch(5), 3 * _FORGET_MS)


def test_nobody_waits_for_what_another_leader_has_taken(refused: _OfPartition) -> None:
    refused.note(batch(5), 0)
    refused.note(batch(7), 0)
    assert waits(refused, batch(8), newest=6)
    assert not waits(refused, batch(7), newest=6)
    assert not waits(refused, batch(8), newest=7)


def test_no_more_is_kept_than_the_last_of_many_producers(refused: _OfPartition) -> None:
    for id in range(_PRODUCER_COUNT_MAX + 1):
        refused.note(batch(5, id=id), 0)
    assert len(refused.producers) == _PRODUCER_COUNT_MAX
    assert not waits(refused, batch(6, id=0))
