"""Schedules of a node that begins and ceases to lead."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.tenures import OTHER, TOPIC, Stage, on_stage

from goqueue.core.cluster.partitions import new_partition
from goqueue.core.schedule.events import Removed, decode, encode, encode_message
from goqueue.log.batch import decode_batch
from goqueue.model.cluster_errors import NotLeader, ReplicationUnknown
from goqueue.model.errors import TimedOut
from goqueue.model.settings import DAY_MS
from goqueue.node.companions import Companion
from goqueue.node.config import NodeConfig
from goqueue.node.housekeeping import Housekeeping
from goqueue.node.metrics import Metrics
from goqueue.node.partition import Partition


async def stored(stage: Stage) -> list[bytes | None]:
    log = stage.source.log
    part = await stage.source.read(0, end=log.end, bytes_max=1_000_000, is_own=True)
    return [record.value for batch in part.batches for record in decode_batch(batch.data, batch.header)]


def test_what_was_scheduled_in_one_tenure_is_fired_in_the_next_once() -> None:
    async def play(stage: Stage) -> None:
        running = asyncio.ensure_future(stage.scheduler.run())
        await stage.lead()
        await stage.scheduler.schedule(TOPIC, 0, [stage.message(b"late", in_ms=5_000)])
        await stage.follow()
        await asyncio.sleep(10)
        assert await stored(stage) == []
        await stage.lead()
        await asyncio.sleep(1)
        assert await stored(stage) == [b"late"]
        await stage.follow()
        await stage.lead()
        await asyncio.sleep(10)
        assert await stored(stage) == [b"late"]
        running.cancel()

    on_stage(play)


def test_a_firing_that_was_decided_and_not_finished_is_not_repeated() -> None:
    async def play(stage: Stage) -> None:
        running = asyncio.ensure_future(stage.scheduler.run())
        leadership = await stage.lead()
        await stage.scheduler.schedule(TOPIC, 0, [stage.message(b"late", in_ms=1_000)])
        await asyncio.sleep(0.5)
        leadership.is_prompt = False
        await asyncio.sleep(1)  # the decision is written, and not committed
        assert await stored(stage) == []
        leadership.take()
        leadership.is_prompt = False
        await asyncio.sleep(0.5)  # now the record is written, and not committed
        assert await stored(stage) == [b"late"]
        await stage.follow()
        await stage.lead()
        await asyncio.sleep(5)
        assert await stored(stage) == [b"late"]
        running.cancel()

    on_stage(play)


def test_a_message_that_is_not_committed_when_it_is_due_is_not_given_up() -> None:
    async def play(stage: Stage) -> None:
        running = asyncio.ensure_future(stage.scheduler.run())
        leadership = await stage.lead()
        await stage.scheduler.open(TOPIC, 0)
        leadership.is_prompt = False
        with pytest.raises(TimedOut):
            await stage.scheduler.schedule(TOPIC, 0, [stage.message(b"late", in_ms=15_000)])
        await asyncio.sleep(10)
        assert await stored(stage) == []
        leadership.take()
        await asyncio.sleep(2)
        assert await stored(stage) == [b"late"]
        running.cancel()

    on_stage(play)


def test_a_schedule_of_an_earlier_tenure_never_writes_again() -> None:
    async def play(stage: Stage) -> None:
        await stage.lead()
        (id,) = await stage.scheduler.schedule(TOPIC, 0, [stage.message(b"late", in_ms=60_000)])
        assert isinstance(id, int)
        old = await stage.scheduler.open(TOPIC, 0)
        await stage.follow()
        await stage.lead()
        new = await stage.scheduler.open(TOPIC, 0)
        assert new is not old
        with pytest.raises(NotLeader):
            await old.log.lead()
        with pytest.raises(NotLeader):
            old.carry_out([old.state.cancel(id)])
        assert old.next_ms() is None
        assert (await stage.scheduler.get(TOPIC, 0, id)).offset == id

    on_stage(play)


def test_where_another_node_leads_messages_are_not_scheduled() -> None:
    async def play(stage: Stage) -> None:
        await stage.lead()
        (id,) = await stage.scheduler.schedule(TOPIC, 0, [stage.message(b"late", in_ms=60_000)])
        assert isinstance(id, int)
        await stage.follow()
        with pytest.raises(NotLeader):
            await stage.scheduler.schedule(TOPIC, 0, [stage.message(b"later", in_ms=60_000)])
        with pytest.raises(NotLeader):
            await stage.scheduler.cancel(TOPIC, 0, id)
        assert (await stage.scheduler.list(TOPIC)).messages == []

    on_stage(play)


def test_a_message_of_which_nobody_knows_whether_it_is_stored_is_not_acknowledged() -> None:
    async def play(stage: Stage) -> None:
        leadership = await stage.lead()
        await stage.scheduler.open(TOPIC, 0)
        leadership.is_prompt = False
        scheduling = asyncio.ensure_future(
            stage.scheduler.schedule(TOPIC, 0, [stage.message(b"late", in_ms=60_000)])
        )
        await asyncio.sleep(1)
        await stage.follow()
        with pytest.raises(ReplicationUnknown):
            await scheduling

    on_stage(play)


def test_an_index_that_the_log_has_left_behind_is_made_anew() -> None:
    """The index has a message that no other replica had; the next leader wrote another in its place."""

    async def play(stage: Stage) -> None:
        await stage.lead()
        await stage.scheduler.schedule(TOPIC, 0, [stage.message(b"kept", in_ms=60_000)])
        end = stage.home(Companion.SCHEDULE).log.end
        await stage.scheduler.schedule(TOPIC, 0, [stage.message(b"lost", in_ms=60_000)])
        await stage.scheduler.stop()  # saves it
        await stage.follow()
        home = stage.home(Companion.SCHEDULE)
        home.log.high_watermark = end
        other = stage.message(b"other", in_ms=70_000)
        await stage.replace(home, end, [encode_message(end + at, other) for at in range(3)])
        await stage.lead()
        schedule = await stage.scheduler.open(TOPIC, 0)
        listed = (await stage.scheduler.list(TOPIC)).messages
        assert [one.deliver_at_ms for one in listed[1:]] == [other.due_ms] * 3
        found = await schedule.read([one.offset for one in listed])
        assert [found[id].record.value for id in sorted(found)] == [b"kept", b"other", b"other", b"other"]

    on_stage(play)


def test_an_index_of_a_log_that_only_grew_is_believed() -> None:
    async def play(stage: Stage) -> None:
        await stage.lead()
        await stage.scheduler.schedule(TOPIC, 0, [stage.message(b"one", in_ms=60_000)])
        await stage.scheduler.stop()
        home = stage.home(Companion.SCHEDULE)
        await stage.follow()
        other = encode_message(home.log.end, stage.message(b"two", in_ms=70_000))
        await stage.replace(home, home.log.end, [other])
        reads: list[int] = []
        await stage.lead()
        schedule = await stage.scheduler.open(TOPIC, 0)
        await schedule.log.replay(0, lambda event: reads.append(0))
        assert len(reads) == 2
        assert schedule._unsaved_count == 1  # all that was replayed: the rest is from the index
        assert len((await stage.scheduler.list(TOPIC)).messages) == 2

    on_stage(play)


@pytest.mark.parametrize("is_followed", [True, False])
def test_what_was_cancelled_since_the_index_was_saved_does_not_wait_again_though_the_log_may_forget_it(
    is_followed: bool,
) -> None:
    """Whether another node has led since, or this one is about to save the index when it dies, and its clock has jumped."""

    async def play(stage: Stage) -> None:
        await stage.lead()
        (id,) = await stage.scheduler.schedule(TOPIC, 0, [stage.message(b"one", in_ms=30 * DAY_MS)])
        assert isinstance(id, int)
        await stage.scheduler.stop()
        home = stage.home(Companion.SCHEDULE)
        if is_followed:
            await stage.follow()
            await stage.replace(home, home.log.end, [encode(Removed(id))])
        else:
            await stage.scheduler.cancel(TOPIC, 0, id)
        await compacted(stage, home)
        known = await tombstones(home)
        await stage.follow()
        await stage.lead()
        assert id not in [one.offset for one in (await stage.scheduler.list(TOPIC, limit=10)).messages]
        assert known == ([] if is_followed else [id])

    on_stage(play)


def test_an_index_that_is_saved_lets_the_log_forget_what_came_before() -> None:
    async def play(stage: Stage) -> None:
        await stage.lead()
        await stage.scheduler.open(TOPIC, 0)
        home = stage.home(Companion.SCHEDULE)
        for _ in range(2):
            (id,) = await stage.scheduler.schedule(TOPIC, 0, [stage.message(b"one", in_ms=30 * DAY_MS)])
            assert isinstance(id, int)
            await stage.scheduler.cancel(TOPIC, 0, id)
            await compacted(stage, home)
            await stage.scheduler.stop()
        assert await tombstones(home) == [id]
        await compacted(stage, home)
        assert await tombstones(home) == []
        await stage.follow()
        await stage.lead()
        schedule = await stage.scheduler.open(TOPIC, 0)
        assert schedule._unsaved_count < schedule.state.waiting_count, "the index is believed"

    on_stage(play)


async def compacted(stage: Stage, home: Partition) -> None:
    """As often as it takes until what is deleted may be forgotten."""
    everywhere = SimpleNamespace(find=lambda topic, index: new_partition([1, OTHER]))
    metadata: Any = SimpleNamespace(catalog=SimpleNamespace(partitions=everywhere))
    housekeeping = Housekeeping(
        NodeConfig(), stage.disk, stage.clock, stage.table, metadata, stage.watch, Metrics(), stage.threads
    )
    housekeeping.ask_before_forgetting(stage.scheduler.forgettable_end)
    for _ in range(3):
        filling = stage.message(b"x" * 2 * home.log.size_bytes, in_ms=60 * DAY_MS)
        if home.leadership is None:
            await stage.replace(home, home.log.end, [encode_message(home.log.end, filling)])
        else:
            await stage.scheduler.schedule(TOPIC, 0, [filling])
        home.log.roll(stage.clock.now_ms())
        await home.commit.checkpoint()
        await housekeeping.apply_compaction(home)
        assert home.log.clean_end == home.log.end
        await asyncio.sleep(2 * 3_600)


async def tombstones(home: Partition) -> list[int]:
    """The ids of the messages that the log knows to be gone."""
    part = await home.read(0, end=home.log.end, bytes_max=100_000_000, is_own=True)
    records = [record for batch in part.batches for record in decode_batch(batch.data, batch.header)]
    events = [decode(record.key, record.value) for record in records]
    return [event.id for event in events if isinstance(event, Removed)]
