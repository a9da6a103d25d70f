"""Moved records arrive in a partition that another node leads: once, and for good."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.tenures import TOPIC, Stage, on_stage, put

from goqueue.log.batch import BatchHeader, encode_batch
from goqueue.model.cluster_errors import HomeUndecided, NotLeader, ReplicationUnknown
from goqueue.model.errors import CorruptBatch, NotEnoughReplicas, TimedOut
from goqueue.model.record import NewRecord, Producer
from goqueue.node.dead_letters.arrivals import Arrivals
from goqueue.node.partition import Partition, Stored
from goqueue.peer.dialling import LinkTimes

PRODUCER = (7, 0)


def batch(sequence: int, *values: bytes) -> bytes:
    records = [NewRecord(None, value) for value in values]
    return encode_batch(records, 0, producer=Producer(*PRODUCER, sequence))[1]


def arrivals(stage: Stage) -> Arrivals:
    return Arrivals(stage.table, stage.guard, stage.clock, put)


def test_a_batch_that_comes_twice_is_stored_once() -> None:
    async def play(stage: Stage) -> None:
        await stage.lead()
        here = arrivals(stage)
        assert await here.append(TOPIC, 0, PRODUCER, None) is None
        assert await here.append(TOPIC, 0, PRODUCER, batch(0, b"a", b"b")) == 1
        assert await here.append(TOPIC, 0, PRODUCER, batch(0, b"a", b"b")) == 1
        assert await here.append(TOPIC, 0, PRODUCER, batch(2, b"c")) == 2
        assert await here.append(TOPIC, 0, PRODUCER, None) == 2
        assert stage.source.log.end == 3

    on_stage(play)


def test_nothing_is_said_before_it_is_committed() -> None:
    async def play(stage: Stage) -> None:
        leadership = await stage.lead(is_prompt=False)
        here = arrivals(stage)
        appending = asyncio.ensure_future(here.append(TOPIC, 0, PRODUCER, batch(0, b"a")))
        await asyncio.sleep(1)
        asking = asyncio.ensure_future(here.append(TOPIC, 0, PRODUCER, None))
        await asyncio.sleep(1)
        assert not appending.done()
        assert not asking.done()
        leadership.take()
        assert (await appending, await asking) == (0, 0)

    on_stage(play)


def test_who_waits_when_another_node_leads_is_not_told_that_it_is_stored() -> None:
    async def play(stage: Stage) -> None:
        await stage.lead(is_prompt=False)
        appending = asyncio.ensure_future(arrivals(stage).append(TOPIC, 0, PRODUCER, batch(0, b"a")))
        await asyncio.sleep(1)
        await stage.follow()
        with pytest.raises((NotLeader, ReplicationUnknown)):
            await appending
        with pytest.raises(NotLeader):
            await arrivals(stage).append(TOPIC, 0, PRODUCER, None)

    on_stage(play)


def test_a_damaged_batch_and_too_few_replicas_are_refused() -> None:
    async def play(stage: Stage) -> None:
        leadership = await stage.lead()
        damaged = bytearray(batch(0, b"a"))
        damaged[-1] ^= 1
        with pytest.raises(CorruptBatch):
            await arrivals(stage).append(TOPIC, 0, PRODUCER, bytes(damaged))
        leadership.has_enough = False
        with pytest.raises(NotEnoughReplicas):
            await arrivals(stage).append(TOPIC, 0, PRODUCER, batch(0, b"a"))
        assert stage.source.log.end == 0

    on_stage(play)


def test_who_moves_records_is_answered_in_time_where_some_live_with_a_leader_that_is_silent() -> None:
    is_silent = True

    async def put_elsewhere(partition: Partition, batch: bytes, header: BatchHeader, now_ms: int) -> Stored:
        if is_silent:
            await asyncio.sleep(60)
        return await put(partition, batch, header, now_ms)

    async def play(stage: Stage) -> None:
        nonlocal is_silent
        await stage.lead()
        here = Arrivals(stage.table, stage.guard, stage.clock, put_elsewhere)
        began_s = stage.loop.time()
        with pytest.raises(HomeUndecided):
            await here.append(TOPIC, 0, PRODUCER, batch(0, b"a"))
        assert stage.loop.time() - began_s < LinkTimes().call_ms / 2_000
        is_silent = False
        assert await here.append(TOPIC, 0, PRODUCER, batch(0, b"a")) == 0
        assert stage.source.log.end == 1

    on_stage(play)


def test_who_moves_records_is_answered_in_time_where_they_are_not_committed() -> None:
    async def play(stage: Stage) -> None:
        leadership = await stage.lead(is_prompt=False)
        stage.source.commit._timeout_s = 30.0
        here = arrivals(stage)
        began_s = stage.loop.time()
        with pytest.raises(TimedOut, match="not known"):
            await here.append(TOPIC, 0, PRODUCER, batch(0, b"a"))
        assert stage.loop.time() - began_s < LinkTimes().call_ms / 2_000
        leadership.take()
        assert await here.append(TOPIC, 0, PRODUCER, batch(0, b"a")) == 0
        assert stage.source.log.end == 1

    on_stage(play)
