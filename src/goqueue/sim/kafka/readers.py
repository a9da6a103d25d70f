"""Readers outside any group: one that follows everything while the run goes on, and the last look when it is over."""

from __future__ import annotations

import asyncio

from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.fetching import Fetching, Position
from goqueue.sim.kafka.history import FinalLog, Part
from goqueue.sim.kafka.world import World, pause

LAST_LOOK = "last-look"


class LiveReader:
    """Follows all partitions; from their start again whenever it has to connect again."""

    def __init__(self, world: World, name: str, parts: list[Part], *, is_committed: bool) -> None:
        self._rng = world.child()
        self._client = world.client(name)
        self._fetching = Fetching(world.history, self._client, name, is_committed=is_committed)
        self._parts = parts
        self._positions: dict[Part, Position] = {}

    async def run(self) -> None:
        while True:
            try:
                if not self._fetching.is_validated:
                    self._positions = {part: Position(0) for part in self._parts}
                    await self._fetching.validate(self._positions)
                await self._poll()
            except NoAnswer:
                await pause(self._rng)
            await asyncio.sleep(self._rng.uniform(0.05, 0.8))

    async def _poll(self) -> None:
        found = await self._fetching.fetch(
            self._positions,
            wait_ms=self._rng.choice((0, 200, 1_000)),
            bytes_max=self._rng.choice((200, 2_000, 1_000_000)),
        )
        for part, records in found.items():
            self._positions[part] = Position(records.next_offset)


async def read_everything(world: World, parts: list[Part]) -> None:
    """Into the history's final logs, as every kind of reader sees them."""
    for part in parts:
        log = world.history.final[part] = FinalLog()
        await _read(world, part, log.uncommitted, is_committed=False)
        await _read(world, part, log.committed, is_committed=True)


async def _read(world: World, part: Part, values: dict[int, str], *, is_committed: bool) -> None:
    client = world.client(LAST_LOOK)
    fetching = Fetching(world.history, client, f"{LAST_LOOK}-{is_committed}", is_committed=is_committed)
    position = Position(0)
    try:
        while True:
            records = (await fetching.fetch({part: position}, wait_ms=0)).get(part)
            if records is None:
                raise AssertionError(f"{part} cannot be read at {position}")
            values |= records.values
            if records.next_offset == position.offset:
                break
            position = Position(records.next_offset)
        if position.offset != fetching.ends[part].high_watermark:
            world.history.violate(f"{part} ends at {position} for a reader, though no transaction is open")
    finally:
        client.close()
