"""A batch under another codec: the same records and the same header but for codec, length and checksum."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.records import NEW_RECORDS

from goqueue.log.batch import (
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    HEADER_BYTES,
    crc_matches,
    decode_rows,
    encode_batch,
    validate_new,
)
from goqueue.log.compression import Codec, codec_of
from goqueue.log.recompress import recompressed
from goqueue.model.errors import InvalidBatch
from goqueue.model.record import NewRecord, Producer

RECORDS = [NewRecord(b"key", b"value" * 200, (("name", b"x"), ("none", None))), NewRecord(None, None)]
CODECS = st.sampled_from(list(Codec))
BYTES_MAX = 1_000_000


@pytest.mark.parametrize(("before", "after"), list(product(Codec, Codec)))
def test_only_codec_length_and_checksum_change(before: Codec, after: Codec) -> None:
    attributes = ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_LOG_APPEND_TIME
    header, batch = encode_batch(
        RECORDS, 1_234, producer=Producer(7, 2, 40), codec=before, attributes=attributes
    )
    found, changed = recompressed(batch, header, after)
    assert found == header._replace(attributes=attributes | after, length=len(changed) - 12, crc=found.crc)
    assert found.size == len(changed)
    assert crc_matches(changed, 0, found)
    assert decode_rows(changed, found) == decode_rows(batch, header)
    assert validate_new(changed, BYTES_MAX) == found


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_has_the_codec_already_is_given_back_untouched(codec: Codec) -> None:
    header, batch = encode_batch(RECORDS, 5, codec=codec)
    found, same = recompressed(batch, header, codec)
    assert found is header
    assert same is batch


@given(NEW_RECORDS, CODECS, CODECS)
@settings(max_examples=60, deadline=None)
def test_records_survive_there_and_back(records: list[NewRecord], before: Codec, after: Codec) -> None:
    header, batch = encode_batch(records, 5, codec=before)
    found, changed = recompressed(batch, header, after)
    assert codec_of(found.attributes) is after
    back, again = recompressed(changed, found, before)
    assert decode_rows(again, back) == decode_rows(batch, header)
    assert back._replace(length=0, crc=0) == header._replace(length=0, crc=0)


def test_offset_and_epoch_that_the_log_assigned_stay() -> None:
    header, batch = encode_batch(RECORDS, 5, codec=Codec.GZIP)
    placed = header._replace(base_offset=77, leader_epoch=3)
    found, changed = recompressed(batch, placed, Codec.NONE)
    assert (found.base_offset, found.leader_epoch) == (77, 3)
    assert decode_rows(changed, found) == decode_rows(batch, header)


def test_bytes_behind_the_batch_are_left_out() -> None:
    header, batch = encode_batch(RECORDS, 5)
    assert recompressed(batch + b"more", header, Codec.LZ4) == recompressed(batch, header, Codec.LZ4)


def test_a_payload_that_is_not_what_it_says_is_refused() -> None:
    header, batch = encode_batch(RECORDS, 5, codec=Codec.ZSTD)
    broken = batch[:HEADER_BYTES] + b"x" * (len(batch) - HEADER_BYTES)
    with pytest.raises(InvalidBatch, match="does not decompress as zstd"):
        recompressed(broken, header, Codec.NONE)
