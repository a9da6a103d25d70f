"""Ledgers of a node that begins and ceases to lead."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.tenures import TOPIC, Stage, on_stage

from goqueue.log.batch import encode_batch
from goqueue.model.cluster_errors import NotLeader, ReplicationUnknown
from goqueue.model.errors import GoQueueError
from goqueue.model.priority import PRIORITY_HEADER, lane_of
from goqueue.model.record import NewRecord
from goqueue.node.companions import Companion
from goqueue.node.queue.requests import Finished


def values(delivered: list[object]) -> list[bytes | None]:
    return [one.record.value for one in delivered]  # type: ignore[attr-defined]  # of `Delivered`


def test_receipts_of_one_tenure_are_good_in_the_next() -> None:
    async def play(stage: Stage) -> None:
        await stage.lead()
        await stage.publish(b"a", b"b", b"c")
        first = await stage.poll(2)
        await stage.follow()
        await stage.lead()
        rest = await stage.poll()
        assert [*values([*first]), *values([*rest])] == [b"a", b"b", b"c"]
        answers = await stage.queue.ack([one.receipt for one in (*first, *rest)])
        assert all(isinstance(one, Finished) for one in answers)
        assert stage.queue.committed("workers", TOPIC, 0) == 3

    on_stage(play)


def test_where_another_node_leads_everything_is_refused() -> None:
    async def play(stage: Stage) -> None:
        await stage.lead()
        await stage.publish(b"a")
        (one,) = await stage.poll()
        await stage.follow()
        with pytest.raises(NotLeader):
            await stage.poll()
        assert [type(answer) for answer in await stage.queue.ack([one.receipt])] == [NotLeader]
        with pytest.raises(NotLeader):
            await stage.queue.seek("workers", TOPIC, 0, 0)
        assert stage.queue.stats() == []

    on_stage(play)


def test_a_poll_that_waits_is_sent_away_when_leadership_ends() -> None:
    async def play(stage: Stage) -> None:
        await stage.lead()
        waiting = asyncio.ensure_future(stage.poll(wait_ms=30_000))
        await asyncio.sleep(1)
        started = stage.loop.time()
        await stage.follow()
        with pytest.raises(NotLeader):
            await waiting
        assert stage.loop.time() - started < 1

    on_stage(play)


def test_a_ledger_of_an_earlier_tenure_never_writes_again() -> None:
    async def play(stage: Stage) -> None:
        await stage.lead()
        await stage.publish(b"a")
        await stage.poll()
        old = await stage.ledgers.open(TOPIC, 0)
        await stage.follow()
        await stage.lead()
        new = await stage.ledgers.open(TOPIC, 0)
        assert new is not old
        end = stage.home(Companion.LEDGER).log.end
        with pytest.raises(NotLeader):
            await old.ready()
        with pytest.raises(NotLeader):
            old.window("others")
        with pytest.raises(ReplicationUnknown):
            await old.settled()
        assert stage.home(Companion.LEDGER).log.end == end

    on_stage(play)


def test_nobody_is_given_what_is_not_committed_when_leadership_ends() -> None:
    async def play(stage: Stage) -> None:
        leadership = await stage.lead()
        await stage.publish(b"a")
        await stage.ledgers.open(TOPIC, 0)
        leadership.is_prompt = False  # the lease does not get to any follower
        polling = asyncio.ensure_future(stage.poll())
        await asyncio.sleep(1)
        assert not polling.done()
        await stage.follow()
        with pytest.raises(GoQueueError):
            await polling

    on_stage(play)


def test_what_another_leader_wrote_in_the_place_of_a_lease_is_no_answer_to_who_waits_for_it() -> None:
    async def play(stage: Stage) -> None:
        leadership = await stage.lead()
        await stage.publish(b"a")
        ledger = await stage.ledgers.open(TOPIC, 0)
        await ledger.begin("workers")
        await ledger.settled()
        leadership.is_prompt = False
        polling = asyncio.ensure_future(stage.poll())
        await asyncio.sleep(0)
        home = stage.home(Companion.LEDGER)
        await stage.follow()
        home.note_watermark(home.log.end + 1)
        with pytest.raises(GoQueueError):
            await polling

    on_stage(play)


def test_a_new_leader_gives_nothing_before_it_knows_what_its_predecessor_had_committed() -> None:
    async def play(stage: Stage) -> None:
        await stage.lead()
        await stage.publish(b"a")
        (held,) = await stage.poll()
        await stage.follow()
        await stage.lead(is_prompt=False)
        stage.source.log.high_watermark = 0  # as after a restart: it has more than it knows to be committed
        polling = asyncio.ensure_future(stage.poll())
        await asyncio.sleep(1)
        assert not polling.done()
        assert stage.leadership is not None
        stage.leadership.take()
        assert await polling == []
        assert isinstance((await stage.queue.ack([held.receipt]))[0], Finished)

    on_stage(play)


def test_lanes_of_a_log_that_was_cut_are_looked_for_again() -> None:
    """What was urgent is gone, and in its place stands what is not; something urgent comes behind it."""

    def urgent(value: bytes) -> NewRecord:
        return NewRecord(None, value, ((PRIORITY_HEADER, b"high"),))

    async def play(stage: Stage) -> None:
        await stage.lead()
        await stage.publish(b"first")
        end = stage.source.log.end
        header, batch = encode_batch([urgent(b"gone"), urgent(b"gone too")], stage.clock.now_ms())
        stage.source.append(batch, header, now_ms=stage.clock.now_ms())
        ledger = await stage.ledgers.open(TOPIC, 0)
        assert await ledger.postings.look(3) == 3
        await stage.follow()
        stage.source.log.high_watermark = end
        plain = [NewRecord(None, b"plain"), NewRecord(None, b"plain too"), urgent(b"now")]
        await stage.replace(stage.source, end, plain)
        await stage.lead()
        found = await stage.poll()
        assert sorted(map(str, values([*found]))) == sorted(
            map(str, [b"now", b"first", b"plain", b"plain too"])
        )
        assert [one.lane for one in found if one.record.value == b"now"] == [lane_of(b"high")]

    on_stage(play)


def test_a_lease_ends_in_the_next_tenure_when_its_time_is_up() -> None:
    async def play(stage: Stage) -> None:
        await stage.lead()
        ticking = asyncio.ensure_future(stage.queue.timer.run())
        await stage.publish(b"a")
        await stage.poll()
        await stage.follow()
        await stage.lead()
        assert await stage.poll() == []
        await asyncio.sleep(31)
        (again,) = await stage.poll()
        assert again.deliveries == 2
        ticking.cancel()

    on_stage(play)
