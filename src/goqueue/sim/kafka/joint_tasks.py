"""Tasks of a query: each writes its share of a batch as a member of the query's joint. Some fall silent, some die or give up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from goqueue.sim.kafka.history import Epoch, Part, Row, Txn
from goqueue.sim.kafka.txn_producer import TxnOver, TxnProducer
from goqueue.sim.kafka.world import World

_SILENCE_RATE = 0.04
_DEATH_RATE = 0.05
_ABORT_RATE = 0.03


@dataclass(frozen=True, slots=True)
class Finished:
    """A share that is written, and by whom."""

    transactional_id: str
    producer: Epoch
    txn: Txn


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """The batch is committed."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The task died, gave up or may not go on."""


Result = Finished | NothingToDo | Lost


async def write_share(world: World, name: str, member: str, rows: list[Row], parts: list[Part]) -> Result:
    """A task attempt under a name of its own, as the member that its driver calls it."""
    rng = world.child()
    producer = TxnProducer(world, name, name, is_new_style=rng.random() < 0.7)
    try:
        enrolled = await producer.enrol(rows[0].of, member)
        if enrolled is None:
            return NothingToDo()
        txn = producer.begin()
        for row in rows:
            await producer.send(rng.choice(parts), [row.value(name)])
            await asyncio.sleep(rng.expovariate(10))
            if world.is_calm:
                continue
            if rng.random() < _SILENCE_RATE:
                await asyncio.sleep(1.3 * producer.timeout_s)
            if rng.random() < _DEATH_RATE:
                producer.abandon()
                return Lost()
            if rng.random() < _ABORT_RATE:
                await producer.end(is_commit=False)
                return Lost()
        return Finished(producer.transactional_id, enrolled, txn)
    except TxnOver:
        return Lost()
    finally:
        producer.close()
