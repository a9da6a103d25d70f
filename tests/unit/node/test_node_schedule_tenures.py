"""Schedules of a node that begins and ceases to lead."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.tenures import TOPIC, Stage, on_stage

from goqueue.core.schedule.events import encode_message
from goqueue.log.batch import decode_batch
from goqueue.model.cluster_errors import NotLeader, ReplicationUnknown
from goqueue.model.errors import TimedOut
from goqueue.node.companions import Companion


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
