"""What a share consumer is told while the node ceases to lead a partition and leads it again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.support.tenures import TOPIC, PlainPolicies, Stage, on_stage

from goqueue.core.lease.events import Opened
from goqueue.log.partition_log import Slice
from goqueue.model.cluster_errors import ReplicationUnknown
from goqueue.model.group_settings import SHARE_AUTO_OFFSET_RESET, OffsetReset
from goqueue.model.record import NewRecord
from goqueue.node.companions import Companion
from goqueue.node.metrics import Metrics
from goqueue.node.queue.ledger import LedgerCodec, OwnedLedger
from goqueue.node.queue.metrics import QueueMetrics
from goqueue.node.queue.share import Share
from goqueue.node.queue.share_requests import Acquired, Said, Shared, ShareFetch, Verdict, Verdicts

PLACE = (TOPIC, 0)
GROUP = "workers"
FIRST_IS_DONE: Said = {PLACE: [Verdicts(0, 0, [Verdict.ACCEPT])]}


class Members:
    """The group has its coordinator elsewhere."""

    def coordinates(self, group_id: str) -> bool:
        return False

    def share_member(self, group_id: str, member_id: str, epoch: int | None) -> tuple[str, ...]:
        raise AssertionError("nobody here knows")


class FromTheBeginning:
    def of(self, group_id: str) -> Mapping[str, str]:
        return {SHARE_AUTO_OFFSET_RESET: OffsetReset.EARLIEST}


def share_of(stage: Stage) -> Share:
    return Share(
        stage.queue,
        stage.ledgers,
        stage.table,
        stage.guard,
        QueueMetrics(Metrics().registry),
        stage.clock,
        PlainPolicies(None),
        Members(),
        FromTheBeginning(),
        stage.spawn,
    )


async def fetch(share: Share, said: Said | None = None, *, limit: int = 1) -> Shared:
    shared = await share.fetch(ShareFetch(GROUP, "anna", [PLACE], said or {}, limit, 1024 * 1024, 0))
    return shared[PLACE]


def held_count(ledger: OwnedLedger) -> int:
    window = ledger.state.find(GROUP)
    assert window is not None
    return window.in_flight.get("anna", 0)


async def lead_anew(stage: Stage, *, without_from: int) -> OwnedLedger:
    """Meanwhile another node led, which had nothing of the ledger from that offset on and let another group begin."""
    await stage.follow()
    others = NewRecord(*LedgerCodec().encode(Opened(2, "others", 0)))
    await stage.replace(stage.home(Companion.LEDGER), without_from, [others])
    await stage.lead()
    return await stage.ledgers.open(*PLACE)


def test_what_was_said_in_a_tenure_that_is_over_is_not_confirmed_by_the_next_one() -> None:
    async def play(stage: Stage) -> None:
        leadership = await stage.lead()
        await stage.publish(b"a", b"b")
        share = share_of(stage)
        assert (await fetch(share)).acquired == [Acquired(0, 0, 1)]
        old, end = await stage.ledgers.open(*PLACE), stage.home(Companion.LEDGER).log.end
        leadership.is_prompt = False  # nothing gets to any follower from now on
        async with old.filling:  # somebody else reads, and what is said is written by then
            fetching = asyncio.ensure_future(fetch(share, FIRST_IS_DONE))
            await asyncio.sleep(1)
            assert held_count(old) == 0
            new = await lead_anew(stage, without_from=end)
        told = await fetching
        assert held_count(new) == 1, "what was said is lost"
        assert isinstance(told.verdict_error, ReplicationUnknown)
        assert (told.acquired, told.chunks) == ([], [])

    on_stage(play)


def test_what_was_given_in_a_tenure_that_is_over_is_not_handed_out_in_the_next_one() -> None:
    async def play(stage: Stage) -> None:
        leadership = await stage.lead()
        await stage.publish(b"a")
        share = share_of(stage)
        old = await stage.ledgers.open(*PLACE)
        await old.begin(GROUP)
        await old.settled()
        end, leadership.is_prompt = stage.home(Companion.LEDGER).log.end, False
        read, reading, may_end = stage.source.read, asyncio.Event(), asyncio.Event()

        async def read_slowly(*given: Any, **options: Any) -> Slice:
            """The batches of what has just been leased."""
            if held_count(old):
                reading.set()
                await may_end.wait()
            return await read(*given, **options)

        stage.source.read = read_slowly  # type: ignore[method-assign]  # a slow disk
        fetching = asyncio.ensure_future(fetch(share))
        await reading.wait()
        new = await lead_anew(stage, without_from=end)
        may_end.set()
        told = await fetching
        assert held_count(new) == 0, "the lease is lost"
        assert isinstance(told.error, ReplicationUnknown)
        assert (told.acquired, told.chunks) == ([], [])
        assert (await fetch(share)).acquired == [Acquired(0, 0, 1)]

    on_stage(play)


def test_what_is_said_counts_when_the_tenure_goes_on() -> None:
    async def play(stage: Stage) -> None:
        leadership = await stage.lead()
        await stage.publish(b"a", b"b")
        share = share_of(stage)
        await fetch(share)
        leadership.is_prompt = False
        saying = asyncio.ensure_future(share.acknowledge(GROUP, "anna", FIRST_IS_DONE))
        await asyncio.sleep(1)
        assert not saying.done(), "no follower has it yet"
        leadership.take()
        assert (await saying)[PLACE].verdict_error is None
        assert stage.queue.committed(GROUP, TOPIC, 0) == 1

    on_stage(play)
