"""A transaction's marker that is not on enough replicas has not ended it yet: readers of committed records wait for that.

Otherwise a leader that comes without the marker would tell them a smaller last stable offset than the one before."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.support.leaderships import followers_of, led
from tests.support.nodes import World, create, simulate

from goqueue.log.batch import ATTRIBUTE_TRANSACTIONAL, encode_batch
from goqueue.model.record import NewRecord, Producer
from goqueue.node.fetch import Fetched, FetchLimits, Wanted
from goqueue.node.node import Node
from goqueue.node.partition import Partition
from goqueue.node.producer_state import ProducerState
from goqueue.node.requests import Isolation

BYTES_MAX = 100_000
WANTED = [Wanted("orders", 0, 0, BYTES_MAX)]


def append_transaction(partition: Partition, now_ms: int) -> None:
    """One record, whose transaction is open."""
    header, batch = encode_batch(
        [NewRecord(None, b"one")],
        now_ms,
        producer=Producer(7, 0, 0),
        attributes=ATTRIBUTE_TRANSACTIONAL,
    )
    partition.append(batch, header, now_ms=now_ms)


async def with_uncommitted_marker(node: Node, *, is_commit: bool) -> Partition:
    """Led by this node; the record is committed, and the marker that ends its transaction only here."""
    await create(node)
    partition = await led(node, 1)
    append_transaction(partition, node.clock.now_ms())
    followers_of(partition).are_away = True
    partition.append_marker(7, 0, is_commit=is_commit, coordinator_epoch=0, now_ms=node.clock.now_ms())
    return partition


async def fetch(node: Node, *, wait_ms: int = 0) -> Fetched:
    limits = FetchLimits(wait_ms=wait_ms, bytes_min=1, bytes_max=BYTES_MAX)
    (found,) = await node.fetcher.fetch(WANTED, limits, Isolation.READ_COMMITTED)
    return found


@pytest.mark.parametrize("is_commit", [False, True])
def test_records_of_a_transaction_are_given_when_its_marker_is_committed(is_commit: bool) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            partition = await with_uncommitted_marker(node, is_commit=is_commit)
            found = await fetch(node)
            assert (found.high_watermark, found.last_stable_offset, found.chunks) == (1, 0, [])
            waiting = asyncio.ensure_future(fetch(node, wait_ms=60_000))
            await asyncio.sleep(0)
            partition.raise_watermark(2)
            found = await waiting
            assert (found.last_stable_offset, len(found.chunks)) == (2, 2)
            assert found.aborted == ([] if is_commit else [(7, 0)])

        await world.live(life)

    simulate(main)


def test_checkpoint_keeps_transactions_whose_markers_are_not_committed() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            partition = await with_uncommitted_marker(node, is_commit=True)
            again = ProducerState()
            snapshot = partition.owner.snapshot()
            assert bytes(snapshot).endswith(b',"ended":[[1,0]]}')
            again.restore(snapshot)
            assert again.table.first_unstable_offset() == 0
            partition.raise_watermark(2)
            again.restore(partition.owner.snapshot())
            assert again.table.first_unstable_offset() is None

        await world.live(life)

    simulate(main)


def test_checkpoint_of_an_older_version_has_no_such_transactions() -> None:
    state = ProducerState()
    state.restore(msgspec.Raw(b'{"producers":[[7,0,1700000000000,[],null,3]]}'))
    assert (state.table.first_unstable_offset(), len(state.table.entries())) == (None, 1)
