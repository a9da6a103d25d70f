"""Batches of a producer that come before one that another leader may have refused."""

from __future__ import annotations

from typing import cast

import pytest

from goqueue.model.errors import NotEnoughReplicas
from goqueue.model.record import Producer
from goqueue.node.missing_batches import _PATIENCE_MS, _PRODUCER_COUNT_MAX, MissingBatches
from goqueue.node.partition import Partition

LAST = (1 << 31) - 1  # then sequences begin at 0 again


class Led:
    """A partition in which a producer's newest sequence is 5."""

    topic, index, is_solo = "orders", 0, False
    newest: int | None = 5

    def newest_sequence(self, producer_id: int, epoch: int) -> int | None:
        return self.newest if epoch == 0 else None


@pytest.fixture
def led() -> Led:
    return Led()


@pytest.fixture
def missing() -> MissingBatches:
    return MissingBatches()


def may_come(
    missing: MissingBatches, led: Led, sequence: int, now_ms: int = 0, *, id: int = 7, epoch: int = 0
) -> bool:
    refusal = missing.refusal(cast(Partition, led), Producer(id, epoch, sequence), now_ms)
    return isinstance(refusal, NotEnoughReplicas)


def test_what_is_missing_is_waited_for_and_not_for_ever(missing: MissingBatches, led: Led) -> None:
    assert may_come(missing, led, 7)
    assert may_come(missing, led, 8, _PATIENCE_MS - 1)
    assert not may_come(missing, led, 7, _PATIENCE_MS)


def test_when_something_of_it_has_come_the_rest_is_waited_for_anew(missing: MissingBatches, led: Led) -> None:
    assert may_come(missing, led, 8)
    led.newest = 6
    assert may_come(missing, led, 8, _PATIENCE_MS)


def test_what_is_behind_or_of_an_epoch_that_is_not_known_is_out_of_order(
    missing: MissingBatches, led: Led
) -> None:
    assert not may_come(missing, led, 4)
    assert not may_come(missing, led, 7, epoch=1)
    led.newest = None
    assert not may_come(missing, led, 7)
    led.newest = -1
    assert not may_come(missing, led, 7)


def test_node_that_is_alone_has_refused_whatever_is_missing_itself(missing: MissingBatches, led: Led) -> None:
    led.is_solo = True
    assert not may_come(missing, led, 7)


def test_sequences_that_have_begun_again_come_after_those_before(missing: MissingBatches, led: Led) -> None:
    led.newest = LAST
    assert may_come(missing, led, 1)


def test_no_more_producers_are_known_than_a_limit(missing: MissingBatches, led: Led) -> None:
    for id in range(_PRODUCER_COUNT_MAX + 1):
        assert may_come(missing, led, 7, id=id)
    assert may_come(missing, led, 7, _PATIENCE_MS, id=0), "it was forgotten, and is waited for anew"
    assert not may_come(missing, led, 7, _PATIENCE_MS, id=_PRODUCER_COUNT_MAX)
