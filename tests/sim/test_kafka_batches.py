"""What a simulated Kafka client makes of the bytes of a fetch."""

from __future__ import annotations

from random import Random

from goqueue.log.control import encode_marker
from goqueue.model.record import Producer
from goqueue.sim.ids import SimIds
from goqueue.sim.kafka.batches import new_batch, read_records


def log(*batches: bytes) -> bytes:
    """Batches one after another, with the offsets that a broker would assign."""
    data, offset = b"", 0
    for batch in batches:
        data += offset.to_bytes(8, "big") + batch[8:]
        offset += int.from_bytes(batch[23:27], "big") + 1
    return data


def sent(*values: str, producer_id: int) -> bytes:
    return new_batch(values, Producer(producer_id, 0, 0), 0, is_transactional=True)


def marker(producer_id: int, *, is_commit: bool) -> bytes:
    return encode_marker(producer_id, 0, is_commit=is_commit, coordinator_epoch=0, timestamp_ms=0)[1]


def test_records_of_an_aborted_transaction_are_left_out() -> None:
    data = log(sent("a", "b", producer_id=1), sent("c", producer_id=2), marker(1, is_commit=False))
    found = read_records(data, 0, [(1, 0)])
    assert found.values == {2: "c"}
    assert found.next_offset == 4


def test_abort_ends_with_its_marker() -> None:
    data = log(sent("a", producer_id=1), marker(1, is_commit=False), sent("b", producer_id=1))
    assert read_records(data, 0, [(1, 0)]).values == {2: "b"}


def test_records_before_the_position_are_left_out() -> None:
    assert read_records(log(sent("a", "b", producer_id=1)), 1).values == {1: "b"}


def test_nothing_leaves_the_position_where_it_is() -> None:
    assert read_records(b"", 7).next_offset == 7


def test_flipped_bit_is_noticed() -> None:
    data = bytearray(log(sent("a", producer_id=1)))
    data[-1] ^= 1
    assert read_records(bytes(data), 0).is_corrupt


def test_ids_are_fresh_across_lives_and_the_same_for_the_same_seed() -> None:
    ids, same = SimIds(Random(1)), SimIds(Random(1))
    names = [ids.fresh() for _ in range(100)]
    assert len(set(names)) == 100
    assert names == [same.fresh() for _ in range(100)]
