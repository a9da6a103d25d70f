"""Batches of a topic with `scaling=keyed` that come again when their keys live elsewhere: what was stored the first time is not stored
again, and what was not is not taken for stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace
from tests.support.keyed_batches import grown, key_of, keys_in, scaling_of, send, until
from tests.support.nodes import in_one_life

from goqueue.core.producer import relayed_id
from goqueue.log.batch import build_batch, decode_rows, read_header, rebuild_batch
from goqueue.model.cluster_errors import HomeUndecided, NotLeader
from goqueue.model.errors import InvalidRequest
from goqueue.model.record import NewRecord, Producer
from goqueue.node.node import Node
from goqueue.node.partition import Partition
from goqueue.node.scaling.earlier import PATIENCE_S
from goqueue.node.scaling.ports import Held, HeldCall, Part
from goqueue.node.scaling.quiet import QUIET_S

FIRST = Producer(7, 0, 0)
STAYS, GOES = key_of(0, 4), key_of(2, 4)


def partition_of(node: Node, index: int) -> Partition:
    return node._table.get("t").partition(index)


@contextmanager
def cut_short(node: Node, index: int) -> Iterator[None]:
    """Whoever appends the rest of a batch dies before it has."""
    partition = partition_of(node, index)

    def fail(*given: object, **named: object) -> object:
        raise HomeUndecided("t", index, "the test says so")

    partition.append = fail  # type: ignore[method-assign, assignment]  # stands in for a crash
    with pytest.raises(HomeUndecided, match="the test"):
        yield
    del partition.append


async def change(node: Node, count: int) -> None:
    """To fewer or more partitions; those that go stay for as long as they hold something."""
    if count < scaling_of(node).key_count:
        await node.topics.shrink("t", count)
        await until(node, lambda now: now.stage == "draining")
    else:
        await node.topics.grow("t", count)
        await until(node, lambda now: now.stage == "steady")
    await asyncio.sleep(QUIET_S)


# ---------------------------------------------------------------- stored once


def test_what_was_sent_on_before_a_topic_shrank_is_not_stored_where_it_lives_now() -> None:
    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        with cut_short(node, 0):
            await send(node, 0, STAYS, GOES, producer=FIRST)
        await change(node, 2)
        await send(node, 0, STAYS, GOES, producer=FIRST)
        assert (await keys_in(node, 0), await keys_in(node, 2)) == ([STAYS], [GOES])
        await send(node, 0, STAYS, GOES, producer=Producer(7, 0, 2))
        assert (await keys_in(node, 0), await keys_in(node, 2)) == ([STAYS, STAYS, GOES], [GOES])

    in_one_life(life)


def test_what_was_sent_on_before_a_topic_grew_again_is_not_sent_to_where_it_lives_now() -> None:
    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        key = key_of(6, 8)  # at home in 0, then 2, then 6
        with cut_short(node, 0):
            await send(node, 0, key, producer=FIRST)
        await change(node, 8)
        await send(node, 0, key, producer=FIRST)
        await send(node, 0, key, producer=Producer(7, 0, 1))
        assert [await keys_in(node, index) for index in (0, 2, 6)] == [[], [key], [key]]

    in_one_life(life)


def test_all_batches_that_a_leader_had_under_way_when_it_died_are_found() -> None:
    """It had appended the rest of the first, and nobody else had that."""

    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        for sequence in (0, 2):
            records = [NewRecord(key, b"") for key in (STAYS, GOES)]
            batch = build_batch(records, 0, producer=Producer(relayed_id(7, 0), 0, sequence))
            header = read_header(batch)
            part = rebuild_batch(header, decode_rows(batch, header)[1:], delete_horizon_ms=None)
            await node.keyed.parts.send(Part("t", 0, 2, part), scaling_of(node))
        assert await keys_in(node, 2) == [GOES] * 2
        await change(node, 2)
        for sequence in (0, 2, 4):
            await send(node, 0, STAYS, GOES, producer=Producer(7, 0, sequence))
        assert await keys_in(node, 2) == [GOES] * 2
        assert await keys_in(node, 0) == [STAYS, STAYS, STAYS, GOES]

    in_one_life(life)


def test_a_partition_that_goes_is_asked_once_about_a_producer_of_which_it_holds_nothing() -> None:
    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        calls = asked(node)
        await send(node, 0, STAYS, producer=FIRST)
        assert calls == []
        await send(node, 2, GOES)  # so that it stays for a while
        await change(node, 2)
        for sequence in (1, 2):
            await send(node, 0, STAYS, GOES, producer=Producer(7, 0, 2 * sequence - 1))
        assert [(call.partition, call.sequence) for call in calls] == [(2, 1)]
        assert await keys_in(node, 0) == [STAYS, STAYS, GOES, STAYS, GOES]

    in_one_life(life)


def asked(node: Node) -> list[HeldCall]:
    """What partitions are asked from now on."""
    calls: list[HeldCall] = []
    held = node.keyed.earlier.held

    async def noted(call: HeldCall) -> Held:
        calls.append(call)
        return await held(call)

    node.keyed.earlier.held = noted  # type: ignore[method-assign]  # looks on
    return calls


# ---------------------------------------------------------------- nothing is taken for stored


def test_a_record_that_had_not_arrived_when_others_of_its_batch_had_is_stored() -> None:
    """They live in one partition now, which has heard of the batch."""

    async def life(node: Node) -> None:
        await grown(node, 2, 8)
        arrived, lost = key_of(2, 8), key_of(6, 8)
        send_part = node.keyed.parts._send

        async def lose(part: Part) -> int:
            if part.home == 6:
                raise NotLeader("t", 6)
            return await send_part(part)

        node.keyed.parts._send = lose  # type: ignore[method-assign]  # nobody leads it
        with pytest.raises(HomeUndecided):
            await send(node, 0, arrived, lost, producer=FIRST)
        node.keyed.parts._send = send_part  # type: ignore[method-assign]
        assert (await keys_in(node, 2), await keys_in(node, 6)) == ([arrived], [])
        await change(node, 4)
        with cut_short(node, 0):
            await send(node, 0, arrived, lost, producer=FIRST)
        await send(node, 0, arrived, lost, producer=FIRST)
        await send(node, 0, arrived, lost, producer=Producer(7, 0, 2))
        assert await keys_in(node, 2) == [arrived, lost] * 2

    in_one_life(life)


def test_who_numbers_anew_in_another_epoch_is_not_taken_for_itself() -> None:
    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        with cut_short(node, 0):
            await send(node, 0, STAYS, GOES, producer=FIRST)
        await change(node, 2)
        await send(node, 0, STAYS, GOES, producer=Producer(7, 1, 0))
        assert (await keys_in(node, 0), await keys_in(node, 2)) == ([STAYS, GOES], [GOES])

    in_one_life(life)


def test_what_is_not_committed_where_a_record_lived_is_not_taken_for_stored() -> None:
    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        with cut_short(node, 0):
            await send(node, 0, STAYS, GOES, producer=FIRST)
        await change(node, 2)

        async def never(end: int, **options: object) -> None:
            raise NotLeader("t", 2)

        partition_of(node, 2).settled = never  # type: ignore[method-assign]  # it was replaced
        with pytest.raises(HomeUndecided, match="what partition 2 holds"):
            await send(node, 0, STAYS, GOES, producer=FIRST)
        assert await keys_in(node, 0) == []

    in_one_life(life)


# ---------------------------------------------------------------- others that do not answer


def test_where_a_record_lived_and_nobody_leads_is_waited_for_but_not_for_ever() -> None:
    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        await send(node, 2, GOES)
        await change(node, 2)

        async def nobody(call: HeldCall) -> Held:
            raise NotLeader(call.topic, call.partition)

        node.keyed.earlier.held = nobody  # type: ignore[method-assign]  # nobody leads it
        for _ in range(int(PATIENCE_S)):
            with pytest.raises(HomeUndecided, match="what partition 2 holds"):
                await send(node, 0, STAYS, GOES, producer=FIRST)
            await asyncio.sleep(1)
        await send(node, 0, STAYS, GOES, producer=FIRST)
        assert await keys_in(node, 0) == [STAYS, GOES]

    in_one_life(life)


def test_a_node_of_an_older_version_holds_nobody_up() -> None:
    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        await send(node, 2, GOES)
        await change(node, 2)

        async def unknown(call: HeldCall) -> Held:
            raise InvalidRequest("nothing is known of 'held'; the other node is newer")

        node.keyed.earlier.held = unknown  # type: ignore[method-assign]  # another version
        await send(node, 0, STAYS, GOES, producer=FIRST)
        assert await keys_in(node, 0) == [STAYS, GOES]

    in_one_life(life)


def test_a_node_that_has_not_heard_of_the_change_does_not_say_what_it_holds() -> None:
    """It may yet take what lives elsewhere by now."""

    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        await send(node, 2, GOES)
        calls = asked(node)
        await change(node, 2)
        await send(node, 0, STAYS, GOES, producer=FIRST)
        (call,) = calls
        with pytest.raises(HomeUndecided, match="has not heard"):
            await node.keyed.earlier.held(replace(call, applied_index=call.applied_index + 1))

    in_one_life(life)
