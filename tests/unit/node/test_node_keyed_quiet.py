"""Topics with `scaling=keyed` that have grown: what a producer sends straight to a new partition waits until nothing of it can come through
the old one any more (ADR 38)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from tests.support.keyed_batches import KEYED, grown, key_of, keys_in, passed, send, until
from tests.support.nodes import create, in_one_life, read_all

from goqueue.log.batch import build_batch, read_header
from goqueue.model.cluster_errors import HomeUndecided
from goqueue.model.errors import NotEnoughReplicas, OutOfOrderSequence
from goqueue.model.record import Producer
from goqueue.node import publish
from goqueue.node.node import Node
from goqueue.node.partition import Partition
from goqueue.node.queue.exchange import ENCODER, SILENCES
from goqueue.node.scaling.ports import Silence
from goqueue.node.scaling.quiet import FOUND_S, PATIENCE_S, QUIET_S

OLD, NEW = 0, 1  # partitions
STAYS, GOES = key_of(OLD, 2), key_of(NEW, 2)


def first(sequence: int = 0) -> Producer:
    return Producer(7, 0, sequence)


def old_partition(node: Node) -> Partition:
    return node._table.get("t").partition(OLD)


async def refused(node: Node, made_ms: int, match: str = "the old way") -> None:
    """What comes straight to the new partition, for the first time or again."""
    with pytest.raises(HomeUndecided, match=match):
        await send(node, NEW, GOES, producer=first(), made_ms=made_ms)


async def seconds_until_taken(node: Node, made_ms: int, between: Callable[[], Awaitable[None]]) -> float:
    """What comes straight to the new partition again and again; `between` is done before each time."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while loop.time() - began_s < 10 * FOUND_S:
        await between()
        try:
            await send(node, NEW, GOES, producer=first(), made_ms=made_ms)
            return loop.time() - began_s
        except HomeUndecided:
            await asyncio.sleep(0.5)
    raise AssertionError("it is never taken")


async def nothing() -> None:
    """It has nothing more for the old partition."""


# ---------------------------------------------------------------- evidence


def test_what_comes_straight_waits_until_the_old_partition_has_taken_something_younger_and_is_quiet() -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 2, is_quiet=False)
        made_ms = node.clock.now_ms()
        await refused(node, made_ms)  # it has just opened
        await passed(QUIET_S)
        await send(node, OLD, GOES, producer=first(), made_ms=made_ms - 1)
        await refused(node, made_ms)
        await send(node, NEW, GOES, producer=Producer(8, 0, 0))  # another has nothing under way
        await asyncio.sleep(2 * QUIET_S)
        await refused(node, made_ms)
        await send(node, OLD, STAYS, producer=first(1), made_ms=made_ms)
        await refused(node, made_ms)  # of the same moment is not younger
        await send(node, OLD, STAYS, producer=first(2), made_ms=made_ms + 1)
        with pytest.raises(HomeUndecided, match="sequence 0 comes before"):
            await send(node, NEW, GOES, producer=first(1))
        await send(node, NEW, GOES, producer=first(), made_ms=made_ms)
        await send(node, NEW, GOES, producer=first(1))
        assert await keys_in(node, NEW) == [GOES] * 4

    in_one_life(life)


def test_something_younger_does_not_spare_the_moment_of_quiet() -> None:
    """Its application may have set the timestamps."""

    async def life(node: Node) -> None:
        await grown(node, 1, 2)
        made_ms = node.clock.now_ms()
        await send(node, OLD, STAYS, GOES, producer=first(), made_ms=made_ms + 1)
        await refused(node, made_ms)
        await passed(QUIET_S)
        await send(node, NEW, GOES, producer=first(), made_ms=made_ms)

    in_one_life(life)


def test_who_is_new_to_the_old_partition_has_nothing_to_show() -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 2)
        node.keyed.note_leadership("t", OLD, True)
        made_ms = node.clock.now_ms()
        assert QUIET_S <= await seconds_until_taken(node, made_ms, nothing) <= QUIET_S + 1

    in_one_life(life)


def test_who_first_wrote_to_the_old_partition_when_the_new_one_was_there_has_nothing_to_show() -> None:
    """Or every program that writes a few records and ends would wait, for as long as there is the topic."""

    async def life(node: Node) -> None:
        await grown(node, 1, 2)
        await send(node, OLD, STAYS, producer=first())
        await send(node, NEW, GOES, producer=first())

    in_one_life(life)


def test_who_wrote_to_the_old_partition_when_the_new_one_had_just_come_may_not_know_of_it() -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 2, is_quiet=False)
        await send(node, OLD, STAYS, producer=first())
        made_ms = node.clock.now_ms()
        await asyncio.sleep(2 * QUIET_S)
        await refused(node, made_ms)

    in_one_life(life)


def test_who_sends_nothing_more_to_the_old_partition_waits_for_as_long_as_clients_wait() -> None:
    async def life(node: Node) -> None:
        await create(node, "t", 1, **KEYED)
        await send(node, OLD, STAYS, producer=first())
        await passed(FOUND_S)
        await node.topics.grow("t", 2)
        made_ms = node.clock.now_ms()
        assert PATIENCE_S <= await seconds_until_taken(node, made_ms, nothing) <= PATIENCE_S + 1

    in_one_life(life)


def test_after_a_change_of_leader_of_the_old_partition_clients_have_longer_to_find_it() -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 2)
        await passed(FOUND_S)
        await send(node, OLD, STAYS, producer=first())
        node.keyed.note_leadership("t", OLD, True)
        made_ms = node.clock.now_ms()
        assert FOUND_S <= await seconds_until_taken(node, made_ms, nothing) <= FOUND_S + 1

    in_one_life(life)


@pytest.mark.parametrize("key", [STAYS, GOES])
@pytest.mark.parametrize("is_repeated", [False, True])
def test_whoever_has_found_the_new_leader_of_the_old_partition_waits_no_longer(
    key: bytes, is_repeated: bool
) -> None:
    """A batch that the leader before has taken and not answered shows as much as any, also where the log has another clock."""

    async def life(node: Node) -> None:
        await grown(node, 1, 2, message_timestamp_type="LogAppendTime" if is_repeated else "CreateTime")
        await passed(FOUND_S)
        await send(node, OLD, STAYS, producer=first())
        made_ms = node.clock.now_ms()
        if is_repeated:
            await send(node, OLD, key, producer=first(1), made_ms=made_ms + 1)
        node.keyed.note_leadership("t", OLD, True)  # which knows nothing of what was taken before
        await asyncio.sleep(2 * QUIET_S)
        await refused(node, made_ms)
        await send(node, OLD, key, producer=first(1), made_ms=made_ms + 1)
        assert await seconds_until_taken(node, made_ms, nothing) <= QUIET_S + 1

    in_one_life(life)


def test_what_an_earlier_leader_of_the_old_partition_has_taken_is_in_the_log() -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 2)
        made_ms = node.clock.now_ms()
        await send(node, OLD, STAYS, producer=first(), made_ms=made_ms + 1)
        node.keyed.note_leadership("t", OLD, True)
        await refused(node, made_ms)
        assert await seconds_until_taken(node, made_ms, nothing) <= QUIET_S + 1

    in_one_life(life)


@pytest.mark.parametrize("is_led_anew", [False, True])
def test_evidence_is_by_the_clock_of_the_producer_where_the_topic_has_another(is_led_anew: bool) -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 2, message_timestamp_type="LogAppendTime")
        made_ms = node.clock.now_ms()
        await asyncio.sleep(1)
        await send(node, OLD, STAYS, GOES, producer=first(), made_ms=made_ms - 1)
        if is_led_anew:
            node.keyed.note_leadership("t", OLD, True)
        await asyncio.sleep(2 * QUIET_S)
        await refused(node, made_ms)  # it was appended later, and made before
        await send(node, OLD, STAYS, producer=first(2), made_ms=made_ms + 1)
        await send(node, NEW, GOES, producer=first(), made_ms=made_ms)

    in_one_life(life)


def test_a_producer_that_is_two_changes_behind_is_waited_for() -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 2)
        await node.topics.grow("t", 4)
        await until(node, lambda now: now.stage == "steady")
        await passed(QUIET_S)
        goes, made_ms = key_of(3, 4), node.clock.now_ms()
        await send(node, 0, goes, producer=first(), made_ms=made_ms - 1)  # as if there was one partition
        for _ in range(2):
            with pytest.raises(HomeUndecided, match="the old way"):
                await send(node, 3, goes, producer=first(), made_ms=made_ms)
            await passed(QUIET_S)
        await send(node, 0, key_of(0, 4), producer=first(1), made_ms=made_ms + 1)
        await send(node, 3, goes, producer=first(), made_ms=made_ms)
        assert await keys_in(node, 3) == [goes] * 2

    in_one_life(life)


def test_a_partition_that_goes_does_not_send_on_what_would_overtake_what_waits_where_it_stays() -> None:
    """Also under a leader that has not known it as one that came by growth."""

    async def life(node: Node) -> None:
        key = key_of(3, 4)  # at home in 0, then 1, then 3, then 1 again
        await create(node, "t", 1, **KEYED)
        await send(node, 0, key, producer=first())
        await passed(FOUND_S)
        for count in (2, 4):
            await node.topics.grow("t", count)
            await until(node, lambda now: now.stage == "steady")
        made_ms = node.clock.now_ms()
        for index in (1, 3):  # as it learns of them
            with pytest.raises(HomeUndecided, match="the old way"):
                await send(node, index, key, producer=first(), made_ms=made_ms)
        await passed(QUIET_S)
        await send(node, 3, key, producer=Producer(8, 0, 0))  # so that it stays for a while
        await node.topics.shrink("t", 2)
        await until(node, lambda now: not now.unfenced)
        del node.keyed.division._quiet._watches[node._table.get("t").partition(3)]  # as on another node
        node.keyed.note_leadership("t", 3, True)
        await passed(QUIET_S)
        with pytest.raises(HomeUndecided, match="the old way"):
            await send(node, 3, key, producer=first(), made_ms=made_ms + 1, value=b"younger")
        await send(node, 0, key_of(0, 4), producer=first(1), made_ms=made_ms + 2)
        await send(node, 1, key, producer=first(), made_ms=made_ms, value=b"older")
        await send(node, 3, key, producer=first(), made_ms=made_ms + 1, value=b"younger")
        assert [record.value for record in await read_all(node, "t", 1)] == [b"older", b"younger"]

    in_one_life(life)


def test_who_has_written_to_the_new_partition_in_another_epoch_is_not_asked_again() -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 2)
        await send(node, NEW, GOES, producer=first())
        await send(node, OLD, STAYS, producer=first())
        for index in (OLD, NEW):
            node.keyed.note_leadership("t", index, True)
        await send(node, NEW, GOES, producer=Producer(7, 1, 0))

    in_one_life(life)


def test_nodes_of_an_older_version_are_understood_and_understand() -> None:
    class Older(msgspec.Struct, frozen=True):
        quiet_s: float
        led_s: float

    assert SILENCES.decode(ENCODER.encode(Older(1.0, 2.0))) == Silence(1.0, 2.0, False, None)
    newer = ENCODER.encode(Silence(1.0, 2.0, True, 3))
    assert msgspec.msgpack.decode(newer, type=Older) == Older(1.0, 2.0)


# ---------------------------------------------------------------- what is awaited


def test_what_the_old_partition_has_refused_is_waited_for() -> None:
    """However long the client takes until it comes again."""

    async def life(node: Node) -> None:
        await grown(node, 1, 2)
        await passed(FOUND_S)
        made_ms, quiet = node.clock.now_ms(), node.keyed.division._quiet
        header = read_header(build_batch([], made_ms - 1, producer=first()))
        for _ in range(5):  # it comes again and again, and is refused
            quiet.refused(old_partition(node), header)
            for _ in range(20):
                await refused(node, made_ms)
                await asyncio.sleep(1)
        await send(node, OLD, GOES, producer=first(), made_ms=made_ms - 1)
        await send(node, NEW, GOES, producer=first(), made_ms=made_ms)

    in_one_life(life)


def test_what_is_refused_before_anybody_looks_at_its_keys_is_waited_for() -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 2)
        await passed(FOUND_S)
        made_ms = node.clock.now_ms()
        with (
            patch.object(publish, "check_replicas", raising(NotEnoughReplicas("the test says so"))),
            pytest.raises(NotEnoughReplicas, match="the test"),
        ):
            await send(node, OLD, GOES, producer=first(), made_ms=made_ms - 1)
        await asyncio.sleep(2 * QUIET_S)
        await refused(node, made_ms)

    in_one_life(life)


@pytest.mark.parametrize("may_come", [False, True])
def test_what_came_before_the_batch_that_it_follows_is_waited_for_if_that_may_still_come(
    may_come: bool,
) -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 2)
        await send(node, OLD, STAYS, producer=first())
        refusal = NotEnoughReplicas("comes first") if may_come else None
        with (
            patch.object(node.publisher._missing, "refusal", lambda *given: refusal),
            pytest.raises(NotEnoughReplicas if may_come else OutOfOrderSequence),
        ):
            await send(node, OLD, GOES, producer=first(5))
        silence = node.keyed.division._quiet.silence(old_partition(node), 7)
        assert silence.is_awaited is may_come

    in_one_life(life)


def raising(error: Exception) -> Callable[..., None]:
    def refuse(*given: Any) -> None:
        raise error

    return refuse


def test_what_a_producer_had_before_it_began_anew_is_not_waited_for() -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 2)
        old, quiet = old_partition(node), node.keyed.division._quiet
        quiet.refused(old, read_header(build_batch([], 0, producer=first(3))))
        assert quiet.silence(old, 7).is_awaited
        await send(node, OLD, STAYS, producer=Producer(7, 1, 0))
        assert not quiet.silence(old, 7).is_awaited

    in_one_life(life)


def test_what_is_being_worked_on_is_waited_for_unless_all_that_is_older_is_done() -> None:
    """Of a producer that always sends what lives elsewhere something always is."""

    async def life(node: Node) -> None:
        await grown(node, 1, 2)
        await passed(FOUND_S)
        made_ms = node.clock.now_ms()
        await send(node, OLD, GOES, producer=first(), made_ms=made_ms - 1)
        async with node.keyed.division._turns.of(old_partition(node), 7):
            for _ in range(60):
                await refused(node, made_ms)
                await asyncio.sleep(1)
        await send(node, OLD, GOES, producer=first(1), made_ms=made_ms + 1)
        async with node.keyed.division._turns.of(old_partition(node), 7):
            await send(node, NEW, GOES, producer=first(), made_ms=made_ms)

    in_one_life(life)


def test_nobody_waits_for_quiet_for_ever() -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 2)
        await passed(FOUND_S)
        sequences = iter(range(1_000))

        async def send_the_old_way() -> None:
            await send(node, OLD, GOES, producer=first(next(sequences)))

        made_ms = node.clock.now_ms()
        assert PATIENCE_S <= await seconds_until_taken(node, made_ms, send_the_old_way) <= PATIENCE_S + 1

    in_one_life(life)


# ---------------------------------------------------------------- in line


def test_who_leads_anew_and_has_nothing_of_a_producer_waits_for_what_it_sent_first() -> None:
    """The leader before may have refused it: then it comes again."""

    async def life(node: Node) -> None:
        await grown(node, 1, 2, is_quiet=False)
        await refused(node, node.clock.now_ms())
        node.keyed.note_leadership("t", NEW, True)
        await passed(QUIET_S)
        with pytest.raises(HomeUndecided, match="sequence 0 comes before"):
            await send(node, NEW, GOES, producer=first(1))
        await send(node, NEW, GOES, producer=first(0))
        await send(node, NEW, GOES, producer=first(1))

    in_one_life(life)


def test_who_leads_anew_and_has_what_came_before_takes_what_follows() -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 2)
        await send(node, NEW, GOES, producer=first())
        node.keyed.note_leadership("t", NEW, True)
        await send(node, NEW, GOES, producer=first(1))

    in_one_life(life)


def test_what_was_stored_and_forgotten_long_ago_is_not_waited_for_for_long() -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 2)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while loop.time() - began_s < FOUND_S:
            try:
                await send(node, NEW, GOES, producer=first(7))
                break
            except HomeUndecided:
                await asyncio.sleep(0.5)
        assert 2.0 <= loop.time() - began_s <= 4.0

    in_one_life(life)


def test_a_batch_that_never_comes_again_holds_up_the_others_only_for_a_while() -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 2, is_quiet=False)
        await refused(node, node.clock.now_ms())
        for _ in range(29):
            await asyncio.sleep(1)
            with pytest.raises(HomeUndecided, match="sequence 0 comes before"):
                await send(node, NEW, GOES, producer=first(1))
        await asyncio.sleep(2)
        await send(node, NEW, GOES, producer=first(1))

    in_one_life(life)
