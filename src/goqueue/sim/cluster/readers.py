"""Readers outside any group: followers of everything, readers that ask any replica, and the last look when all is over."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from goqueue.sim.cluster.client import RETRIABLE, ClusterClient
from goqueue.sim.cluster.history import Latest, Read
from goqueue.sim.cluster.world import World
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.batches import read_records
from goqueue.sim.kafka.client import requests
from goqueue.sim.kafka.history import Part, now_s

OFFSET_OUT_OF_RANGE = 1
_BYTES_MAX = 1_000_000


class Fetched(NamedTuple):
    values: dict[int, str]  # by offset, also of transactions that are open or aborted
    next_offset: int
    high_watermark: int
    closest: int  # the replica to ask instead; -1: none


class ClusterReader:
    """Follows one partition; now and then from its start again. `is_roaming`: asks any node instead of the leader."""

    def __init__(self, world: World, name: str, *, is_roaming: bool = False) -> None:
        self._world = world
        self._rng = world.child()
        self._client = world.client(name)
        self._name = name
        self._is_roaming = is_roaming
        self._rack = world.rack()
        self._positions: dict[Part, int] = {}

    async def run(self) -> None:
        while True:
            part = self._rng.choice(self._world.parts())
            try:
                if self._is_roaming:
                    await self._roam(part)
                elif self._rng.random() < 0.2:
                    await self._ask_end(part)
                else:
                    await self._follow(part)
            except NoAnswer:
                self._client.doubt(part)
                await self._client.pause()
            await asyncio.sleep(self._rng.uniform(0.05, 0.8))

    async def _follow(self, part: Part) -> None:
        if self._rng.random() < 0.1:
            self._positions[part] = 0
        start = self._positions.get(part, 0)
        leader = await self._client.leader_of(part)
        wait_ms, bytes_max = self._rng.choice((0, 200, 1_000)), self._rng.choice((200, 2_000, _BYTES_MAX))
        limits = {"epoch": leader.epoch, "wait_ms": wait_ms, "bytes_max": bytes_max}
        read = await fetch(self._client, leader.host, part, start, rack=self._rack, **limits)
        if isinstance(read, Fetched) and read.closest >= 0:
            await self._read_closer(f"node-{read.closest}", part, start, limits)
            return
        if isinstance(read, int):
            self._client.doubt(part)
            if read not in RETRIABLE:
                self._world.history.violate(
                    f"{self._name}: {part} at {start} gave {read} on {leader.host} at {now_s():.3f} s"
                )
            return
        self._note(leader.host, part, start, read, leader.epoch)
        self._positions[part] = read.next_offset

    async def _read_closer(self, host: str, part: Part, start: int, limits: dict[str, int]) -> None:
        read = await fetch(self._client, host, part, start, rack=self._rack, **limits)
        if not isinstance(read, int):
            self._note(host, part, start, read)
            self._positions[part] = read.next_offset
        elif read not in RETRIABLE and read != OFFSET_OUT_OF_RANGE:  # which says: ask the leader again
            self._world.history.violate(
                f"{self._name}: {part} at {start} gave {read} on {host} at {now_s():.3f} s"
            )

    async def _roam(self, part: Part) -> None:
        """Whoever has the partition may serve it, as far as it knows that it is committed."""
        host = self._rng.choice(self._world.cluster.names)
        rack = host if self._rack else ""
        read = await fetch(self._client, host, part, 0, rack=rack, epoch=-1, wait_ms=0, bytes_max=_BYTES_MAX)
        if not isinstance(read, int):
            self._note(host, part, 0, read)
        elif read not in RETRIABLE:
            self._world.history.violate(f"{self._name}: {part} at 0 gave {read} on {host} at {now_s():.3f} s")

    def _note(self, host: str, part: Part, start: int, read: Fetched, epoch: int = -1) -> None:
        self._world.history.reads.append(
            Read(self._name, host, part, start, read.values, read.high_watermark, now_s(), epoch)
        )

    async def _ask_end(self, part: Part) -> None:
        leader = await self._client.leader_of(part)
        asked_s = now_s()
        found = await end_of(self._client, leader.host, part, leader.epoch)
        if found is None:
            self._client.doubt(part)
        else:
            self._world.history.latest.append(Latest(self._name, part, found, leader.epoch, asked_s, now_s()))


async def fetch(
    client: ClusterClient,
    host: str,
    part: Part,
    start: int,
    *,
    epoch: int,
    wait_ms: int,
    bytes_max: int,
    rack: str = "",
) -> Fetched | int:
    """What there is, or an error code."""
    kinds = requests("fetch")
    answer = await client.ask(
        host,
        "fetch",
        12,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        rack_id=rack,
        topics=[
            kinds.FetchTopic(
                topic=part.topic,
                partitions=[
                    kinds.FetchPartition(
                        partition=part.partition,
                        current_leader_epoch=epoch,
                        fetch_offset=start,
                        partition_max_bytes=bytes_max,
                    )
                ],
            )
        ],
    )
    if answer.error_code:
        return int(answer.error_code)
    one: Any = answer.responses[0].partitions[0]
    if one.error_code:
        return int(one.error_code)
    records = read_records(bytes(one.records or b""), start)
    if records.is_corrupt:
        raise AssertionError(f"{host} served a damaged batch of {part} after {records.next_offset}")
    return Fetched(records.values, records.next_offset, one.high_watermark, one.preferred_read_replica)


async def end_of(client: ClusterClient, host: str, part: Part, epoch: int) -> int | None:
    """What a node says is the end of a partition; None if it says nothing."""
    kinds = requests("list_offsets")
    answer = await client.ask(
        host,
        "list_offsets",
        7,
        replica_id=-1,
        isolation_level=0,
        topics=[
            kinds.ListOffsetsTopic(
                name=part.topic,
                partitions=[
                    kinds.ListOffsetsPartition(
                        partition_index=part.partition, current_leader_epoch=epoch, timestamp=-1
                    )
                ],
            )
        ],
    )
    found = answer.topics[0].partitions[0]
    return None if found.error_code else int(found.offset)
