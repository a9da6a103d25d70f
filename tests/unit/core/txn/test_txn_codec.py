"""Transactions as records of a compacted log."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.core.txn.events import (
    Event,
    JointBatch,
    JointForgotten,
    JointSaved,
    ProducerSpared,
    SpareTaken,
    TransactionForgotten,
    TransactionSaved,
    TxnCodec,
    TxnState,
)

_NUMBERS = st.integers(0, 2**53)
_MAYBE = st.none() | _NUMBERS
_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)
SAVED = st.builds(
    TransactionSaved,
    transactional_id=_TEXT,
    producer_id=_NUMBERS,
    epoch=st.integers(0, 32767),
    timeout_ms=_NUMBERS,
    state=st.sampled_from(TxnState),
    updated_ms=_NUMBERS,
    serial=_NUMBERS,
    last_epoch=_MAYBE,
    previous_producer_id=_MAYBE,
    next_producer_id=_MAYBE,
    is_epoch_bumped=st.booleans(),
    partitions=st.dictionaries(_TEXT, st.lists(st.integers(0, 9), min_size=1).map(tuple)),
    groups=st.lists(_TEXT).map(tuple),
    started_ms=_MAYBE,
    joint=st.none() | st.builds(JointBatch, _TEXT, _NUMBERS),
)
OTHERS = st.one_of(
    st.builds(JointSaved, _TEXT, _NUMBERS, _NUMBERS),
    st.builds(JointForgotten, _TEXT),
    st.builds(ProducerSpared, _NUMBERS, st.integers(0, 32767)),
    st.builds(SpareTaken, _NUMBERS),
)


@given(SAVED)
def test_what_was_saved_is_read_back(event: TransactionSaved) -> None:
    key, value = TxnCodec().encode(event)
    assert key == event.transactional_id.encode()
    assert TxnCodec().decode(key, value) == event


@given(OTHERS)
def test_joints_and_spare_producers_are_read_back_under_keys_that_no_transactional_id_has(
    event: Event,
) -> None:
    key, value = TxnCodec().encode(event)
    assert key.startswith(b"\0")
    assert (value is None) == isinstance(event, JointForgotten | SpareTaken)
    assert TxnCodec().decode(key, value) == event


@given(_TEXT)
def test_what_was_forgotten_has_no_value(id: str) -> None:
    key, value = TxnCodec().encode(TransactionForgotten(id))
    assert (key, value) == (id.encode(), None)
    assert TxnCodec().decode(key, value) == TransactionForgotten(id)


@given(SAVED, st.data())
def test_a_record_that_was_cut_short_is_not_read(event: TransactionSaved, data: st.DataObject) -> None:
    key, value = TxnCodec().encode(event)
    assert value is not None
    with pytest.raises(msgspec.DecodeError):
        TxnCodec().decode(key, value[: data.draw(st.integers(0, len(value) - 1))])


def test_a_record_has_this_form() -> None:
    """It is on disk: a change of it needs a way to read the old one."""
    event = TransactionSaved(
        "app",
        producer_id=7,
        epoch=3,
        timeout_ms=60_000,
        state=TxnState.PREPARE_COMMIT,
        updated_ms=12,
        serial=4,
        last_epoch=2,
        is_epoch_bumped=True,
        partitions={"orders": (0, 2)},
        groups=("workers",),
        started_ms=10,
    )
    assert TxnCodec().encode(event) == (
        b"app",
        b'{"transactional_id":"app","producer_id":7,"epoch":3,"timeout_ms":60000,"state":"PrepareCommit",'
        b'"updated_ms":12,"serial":4,"last_epoch":2,"is_epoch_bumped":true,"partitions":{"orders":[0,2]},'
        b'"groups":["workers"],"started_ms":10}',
    )


def test_records_of_joints_have_this_form() -> None:
    encode = TxnCodec().encode
    member = TransactionSaved(
        "{q}/7/m", 9, 0, 60_000, TxnState.EMPTY, updated_ms=12, joint=JointBatch("q", 7)
    )
    assert encode(member) == (
        b"{q}/7/m",
        b'{"transactional_id":"{q}/7/m","producer_id":9,"epoch":0,"timeout_ms":60000,"state":"Empty",'
        b'"updated_ms":12,"joint":{"joint_id":"q","batch_id":7}}',
    )
    assert encode(JointSaved("q", 7, 12)) == (
        b"\0joint\0q",
        b'{"joint_id":"q","last_batch_id":7,"updated_ms":12}',
    )
    assert encode(ProducerSpared(9, 1)) == (b"\0spare\x009", b'{"producer_id":9,"epoch":1}')
