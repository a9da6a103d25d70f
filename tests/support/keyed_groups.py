"""Groups of one node in virtual time that read `orders`, a topic of scaling=keyed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import structs
from tests.support.nodes import CONFIG, World, create, publish, simulate
from tests.support.rest_groups import Member, Rest

from goqueue.core.group.config import GroupConfig
from goqueue.node.node import Node

KEYED = structs.replace(CONFIG, groups=GroupConfig(gate_wait_ms=30_000))


def with_keyed_topic(main: Callable[[Rest], Awaitable[None]], partition_count: int = 2) -> None:
    """One node with the topic `orders`, of scaling=keyed, in virtual time."""

    async def world_main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=partition_count, scaling="keyed")
            await main(Rest(node, world))

        await world.live(life)

    simulate(world_main, config=KEYED)


async def fill(node: Node, partition: int, *values: str) -> None:
    await publish(node, *(one.encode() for one in values), partition=partition)


def indexes(member: Member) -> list[int]:
    return [index for _, index in member.partitions]


async def until_has(member: Member, *wanted: int) -> None:
    for _ in range(200):
        if indexes(member) == list(wanted):
            return
        await member.call("heartbeat")
        await asyncio.sleep(0.5)
    raise AssertionError(f"{indexes(member)} instead of {wanted}")
