"""Batches that a client may not send, although every byte of them is well-formed."""

from __future__ import annotations

import pytest
from tests.support.logs import BATCH_BYTES_MAX, plain_batch

from goqueue.log.batch import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_DELETE_HORIZON,
    ATTRIBUTE_TRANSACTIONAL,
    HEADER_BYTES,
    assemble,
    read_header,
    validate_new,
)
from goqueue.model.errors import InvalidBatch


def changed(**changes: int) -> bytes:
    batch = plain_batch(b"value")
    return assemble(read_header(batch)._replace(**changes), batch[HEADER_BYTES:])


@pytest.mark.parametrize("attributes", [ATTRIBUTE_CONTROL, ATTRIBUTE_DELETE_HORIZON])
def test_only_the_broker_writes_control_batches_and_delete_horizons(attributes: int) -> None:
    """A forged horizon would let compaction drop a tombstone at once; a forged marker would hide records."""
    with pytest.raises(InvalidBatch, match="broker's to write"):
        validate_new(changed(attributes=attributes), BATCH_BYTES_MAX)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "sequence"), [(5, -1, 0), (5, 0, -1), (-2, 0, 0), (0, -(2**15), -(2**31))]
)
def test_a_producer_without_epoch_or_sequence_is_refused(producer_id: int, epoch: int, sequence: int) -> None:
    with pytest.raises(InvalidBatch, match=f"producer {producer_id} needs"):
        validate_new(
            changed(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence), BATCH_BYTES_MAX
        )


def test_transactional_and_idempotent_batches_are_taken() -> None:
    batch = changed(attributes=ATTRIBUTE_TRANSACTIONAL, producer_id=5, producer_epoch=0, base_sequence=0)
    assert validate_new(batch, BATCH_BYTES_MAX).producer_id == 5
