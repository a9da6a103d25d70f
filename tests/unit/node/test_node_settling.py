"""Who waits for a batch to be committed: in the leadership in which it was appended, and not in a later one."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.tenures import TOPIC, Stage, on_stage, put

from goqueue.core.cluster.partitions import new_partition
from goqueue.core.replica.replicas import Replicas
from goqueue.log.batch import encode_batch
from goqueue.model.cluster_errors import NotLeader, ReplicationUnknown
from goqueue.model.record import NewRecord, Producer
from goqueue.model.settings import TopicSettings
from goqueue.node.batch_checks import check_replicas
from goqueue.node.dead_letters.arrivals import Here
from goqueue.node.partition import Stored
from goqueue.node.replication.contact import Contact
from goqueue.node.replication.leadership import Leadership
from goqueue.node.settling import Settling

ME, OTHER = 1, 2
DEAD_MS = 1_000


async def append(stage: Stage, value: bytes) -> Stored:
    header, data = encode_batch([NewRecord(None, value)], stage.clock.now_ms())
    await stage.source.lead()
    return stage.source.append(data, header, now_ms=stage.clock.now_ms())


def test_a_batch_is_not_stored_because_another_one_is_by_then() -> None:
    async def play(stage: Stage) -> None:
        await stage.lead(is_prompt=False)
        stored = await append(stage, b"lost")
        await stage.follow()
        await stage.replace(stage.source, stored.base_offset, [NewRecord(None, b"in its place")])
        await stage.lead()
        with pytest.raises(ReplicationUnknown):
            await stage.source.settled(stored.end, under=stored.under)

    on_stage(play)


def test_a_dead_letter_has_not_arrived_because_something_else_has() -> None:
    async def play(stage: Stage) -> None:
        await stage.lead(is_prompt=False)
        here = Here(stage.source, stage.clock, put)
        header, data = encode_batch([NewRecord(None, b"letter")], 0, producer=Producer(7, 0, 0))
        await here.append(data, header)
        await stage.follow()
        await stage.replace(stage.source, 0, [NewRecord(None, b"in its place")])
        await stage.lead()
        with pytest.raises(NotLeader):
            await here.settled()

    on_stage(play)


def test_who_waits_no_longer_is_not_remembered() -> None:
    """Producers ask again and again while too few replicas are there, and nothing is ever reached."""

    async def play() -> int:
        settling = Settling()
        patient = settling.add(1, gives_up=False)
        for _ in range(10_000):
            settling.add(1, gives_up=True).cancel()
        settling.reached(1)
        assert patient.done()
        settling = Settling()
        for _ in range(10_000):
            settling.add(1, gives_up=True).cancel()
        return len(settling._unsettled)

    assert asyncio.run(play()) < 100


def test_only_who_gives_up_is_told_that_a_leader_is_cut_off() -> None:
    async def play(stage: Stage) -> None:
        leadership = await stage.lead(is_prompt=False)
        stored = await append(stage, b"a")
        patient = asyncio.ensure_future(stage.source.settled(stored.end, under=stored.under))
        impatient = asyncio.ensure_future(stage.source.settled(stored.end, under=stored.under, gives_up=True))
        await asyncio.sleep(1)
        leadership.is_cut_off = True
        stage.source.cut_off()
        with pytest.raises(ReplicationUnknown):
            await impatient
        with pytest.raises(ReplicationUnknown):  # also who comes later
            await stage.source.settled(stored.end, under=stored.under, gives_up=True)
        with pytest.raises(NotLeader):
            check_replicas(stage.source, TopicSettings())
        assert not patient.done()
        leadership.take()
        await patient

    on_stage(play)


def new_leadership(now_ms: int = 0) -> Leadership:
    state = new_partition([ME, OTHER])
    return Leadership(
        ME, state, min_in_sync=1, now_ms=now_ms, when_changed=lambda *_: None, when_failed=lambda: None
    )


def test_a_leader_is_cut_off_when_it_hears_neither_controller_nor_followers() -> None:
    heard_ms = {OTHER: 5_000}
    controller_ms = 5_000
    leadership = new_leadership()
    contact = Contact(
        {(TOPIC, 0): leadership}, heard_ms, lambda: controller_ms, heartbeat_ms=100, silent_ms=DEAD_MS
    )

    def is_cut_off() -> bool:
        return leadership.is_cut_off

    assert contact.look(5_400) == 600  # nobody can have been silent for long enough before then
    heard_ms[OTHER] = 5_900
    assert contact.look(6_100) == 100
    assert not is_cut_off()  # a follower is there: what it takes is committed
    contact.look(6_901)
    assert is_cut_off()
    controller_ms = 7_000
    contact.look(7_050)
    assert not is_cut_off()


def test_a_leader_without_followers_is_never_cut_off() -> None:
    alone = Replicas(ME, new_partition([ME]), min_in_sync=1, now_ms=0)
    assert not alone.is_stuck({}, oldest_ms=10_000)
