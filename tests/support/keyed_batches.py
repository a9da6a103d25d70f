"""Batches for a topic `t` with `scaling=keyed`, as Kafka clients send them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.support.nodes import create, read_all

from goqueue.core.cluster.scaling import Scaling
from goqueue.log.batch import build_batch
from goqueue.log.compression import Codec
from goqueue.model.acks import Acks
from goqueue.model.partitioner import Partitioner, partition_for_key
from goqueue.model.record import NewRecord, Producer
from goqueue.node.node import Node
from goqueue.node.publish import Placed
from goqueue.node.scaling.quiet import QUIET_S

KEYED = {"scaling": "keyed"}
_ROUNDING_S = 0.001


async def passed(seconds: float) -> None:
    """So much time, and not a rounding error less: the difference of two times on a clock may be."""
    await asyncio.sleep(seconds + _ROUNDING_S)


def key_of(index: int, count: int, *, skip: int = 0) -> bytes:
    """One that belongs there."""
    found = (
        key
        for at in range(10_000)
        if partition_for_key(Partitioner.MURMUR3, key := b"k%d" % at, count) == index
    )
    for _ in range(skip):
        next(found)
    return next(found)


async def send(
    node: Node,
    index: int,
    *keys: bytes | None,
    producer: Producer | None = None,
    codec: Codec = Codec.NONE,
    value: bytes = b"",
    made_ms: int | None = None,
) -> Placed:
    """As a Kafka client does: a batch to a partition of its own choice, made then or now."""
    records = [NewRecord(key, value or b"%d" % at) for at, key in enumerate(keys)]
    made_ms = node.clock.now_ms() if made_ms is None else made_ms
    batch = build_batch(records, made_ms, producer=producer, codec=codec)
    placed = await node.publisher.append_batch("t", index, batch, acks=Acks.ALL)
    await node.publisher.until_stored(placed)
    return placed


async def keys_in(node: Node, index: int) -> list[bytes | None]:
    return [record.key for record in await read_all(node, "t", index)]


def scaling_of(node: Node) -> Scaling:
    found = node.keyed.division.homes.scaling("t")
    assert found is not None
    return found


async def until(node: Node, is_so: Callable[[Scaling], bool]) -> None:
    """In virtual time."""
    async with asyncio.timeout(30):
        while not is_so(scaling_of(node)):  # noqa: ASYNC110 - nobody calls when it is
            await asyncio.sleep(0.01)


async def grown(node: Node, old: int, new: int, *, is_quiet: bool = True, **config: str) -> None:
    await create(node, "t", old, **KEYED, **config)
    await node.topics.grow("t", new)
    await until(node, lambda now: now.stage == "steady")
    if is_quiet:
        await passed(QUIET_S)
