"""Batches of a topic with `scaling=keyed` that come again when their keys live elsewhere: what was stored the first time is not stored
again, and what was not is not taken for stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace
from tests.support.keyed_batches import grown, key_of, keys_in, passed, scaling_of, send, until
from tests.support.nodes import in_one_life

from goqueue.core.cluster.scaling import Scaling, begin, drain, fence, grow, release, shrink
from goqueue.core.producer import relayed_id
from goqueue.log.batch import build_batch, decode_rows, read_header, rebuild_batch
from goqueue.model.cluster_errors import HomeUndecided, NotLeader, ReplicationUnknown
from goqueue.model.delay import DELIVER_AT_HEADER
from goqueue.model.errors import InvalidRequest
from goqueue.model.record import Header, NewRecord, Producer
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
    await passed(QUIET_S)


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
    """Of an older version, which did not wait for the rest of the first to be stored."""

    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        for sequence in (0, 2):
            await send_part(node, [NewRecord(key, b"") for key in (STAYS, GOES)], [1], sequence)
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


def test_what_a_partition_has_said_counts_until_the_next_fence() -> None:
    """It was asked as the parent of another one, while it took keys of its own."""

    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        calls = asked(node)
        header = read_header(build_batch([NewRecord(b"k", b"")], 0, producer=FIRST))
        earlier, partition = node.keyed.earlier, partition_of(node, 0)
        merging = shrink("t", fenced(grow("t", fenced(grow("t", begin(1), 2)), 4)), 1)
        for _ in range(2):
            await earlier.find(partition, merging, header, [3])
        assert [call.partition for call in calls] == [1]
        merged = fenced(merging)
        assert earlier.may_hold(partition, merged, header, [0])
        await earlier.find(partition, merged, header, [0])
        assert [call.partition for call in calls[1:]] == [1, 2, 3]
        assert not earlier.may_hold(partition, merged, header, [0])

    in_one_life(life)


def test_what_a_partition_has_said_still_counts_when_another_is_drained() -> None:
    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        calls = asked(node)
        header = read_header(build_batch([NewRecord(b"k", b"")], 0, producer=FIRST))
        earlier, partition = node.keyed.earlier, partition_of(node, 0)
        merged = fenced(shrink("t", fenced(grow("t", begin(1), 4)), 1))
        for now in (merged, release(merged), drain(release(merged), 2)):
            await earlier.find(partition, now, header, [0])
        assert [call.partition for call in calls] == [1, 2, 3]

    in_one_life(life)


def fenced(now: Scaling) -> Scaling:
    while now.unfenced:
        now = fence(now, next(each for each in now.unfenced if now.may_fence(each)), 0)
    return now


def test_what_a_home_has_had_and_deleted_is_not_taken_for_never_arrived() -> None:
    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        with cut_short(node, 0):
            await send(node, 0, STAYS, GOES, producer=FIRST)
        end = partition_of(node, 2).log.end
        await node.topics.delete_records("t", 2, end)
        await send(node, 0, STAYS, GOES, producer=FIRST)
        assert (await keys_in(node, 0), partition_of(node, 2).log.end) == ([STAYS], end)

    in_one_life(life)


# ---------------------------------------------------------------- nothing is taken for stored


@contextmanager
def unreachable(node: Node, home: int) -> Iterator[None]:
    """What is sent on to the partition does not arrive."""
    send_part = node.keyed.parts._send

    async def lose(part: Part) -> int:
        if part.home == home:
            raise NotLeader("t", home)
        return await send_part(part)

    node.keyed.parts._send = lose  # type: ignore[method-assign]  # nobody leads it
    with pytest.raises(HomeUndecided):
        yield
    node.keyed.parts._send = send_part  # type: ignore[method-assign]


def test_nothing_is_sent_on_before_all_that_came_before_is_stored() -> None:
    """Else a home would hold something of a batch though the one before is lost."""

    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        source = partition_of(node, 0)

        async def never(end: int, **options: object) -> None:
            raise ReplicationUnknown("the test says so")

        source.settled = never  # type: ignore[method-assign]  # it is cut off
        with pytest.raises(ReplicationUnknown):
            await send(node, 0, STAYS, producer=FIRST)
        with pytest.raises(HomeUndecided, match="what came before"):
            await send(node, 0, STAYS, GOES, producer=Producer(7, 0, 1))
        del source.settled
        assert await keys_in(node, 2) == []
        await send(node, 0, STAYS, GOES, producer=Producer(7, 0, 1))
        assert (await keys_in(node, 0), await keys_in(node, 2)) == ([STAYS, STAYS], [GOES])

    in_one_life(life)


def test_delayed_records_that_had_not_arrived_when_others_of_their_batch_had_are_stored_in_time() -> None:
    """Their partition sends on all that comes, also what is to wait."""

    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        soon, lost, later, known = (key_of(2, 4, skip=at) for at in range(4))
        due_ms = node.clock.now_ms() + 60_000
        records = [
            NewRecord(soon, b""),
            NewRecord(lost, b"", due(1)),
            NewRecord(later, b"", due(due_ms)),
            NewRecord(known, b"", due(due_ms)),
        ]
        await send_part(node, records, [0, 3])
        assert await keys_in(node, 2) == [soon]
        await send_part(node, records, [0, 1, 2, 3])
        assert await keys_in(node, 2) == [soon, lost]
        await asyncio.sleep(61)
        assert await keys_in(node, 2) == [soon, lost, known, later]

    in_one_life(life)


def due(at_ms: int) -> tuple[Header, ...]:
    return ((DELIVER_AT_HEADER, b"%d" % at_ms),)


async def send_part(node: Node, records: list[NewRecord], positions: list[int], sequence: int = 0) -> None:
    """Of a batch to partition 0, what lives in 2."""
    batch = build_batch(records, node.clock.now_ms(), producer=Producer(relayed_id(7, 0), 0, sequence))
    header = read_header(batch)
    rows = [row for row in decode_rows(batch, header) if row[0] in positions]
    part = Part("t", 0, 2, rebuild_batch(header, rows, delete_horizon_ms=None))
    await node.keyed.parts.send(part, scaling_of(node))


def test_a_record_that_had_not_arrived_when_others_of_its_batch_had_is_stored() -> None:
    """They live in one partition now, which has heard of the batch."""

    async def life(node: Node) -> None:
        await grown(node, 2, 8)
        arrived, lost = key_of(2, 8), key_of(6, 8)
        with unreachable(node, 6):
            await send(node, 0, arrived, lost, producer=FIRST)
        assert (await keys_in(node, 2), await keys_in(node, 6)) == ([arrived], [])
        await change(node, 4)
        with cut_short(node, 0):
            await send(node, 0, arrived, lost, producer=FIRST)
        await send(node, 0, arrived, lost, producer=FIRST)
        await send(node, 0, arrived, lost, producer=Producer(7, 0, 2))
        assert await keys_in(node, 2) == [arrived, lost] * 2

    in_one_life(life)


@pytest.mark.parametrize("cleaned", ["compaction", "retention"])
def test_a_record_that_had_not_arrived_is_stored_though_the_others_were_cleaned_up(cleaned: str) -> None:
    """What is left in the log does not say any more which of them had arrived."""

    async def life(node: Node) -> None:
        config = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0"}
        await grown(node, 2, 8, is_quiet=True, **config)
        arrived, lost = key_of(2, 8), key_of(6, 8)
        await send(node, 6, lost)  # so that it stays for a while
        with unreachable(node, 6):
            await send(node, 0, arrived, lost, producer=FIRST)
        await clean(node, cleaned)
        await change(node, 4)
        for _ in range(2):
            await send(node, 0, arrived, lost, producer=FIRST)
        assert (await keys_in(node, 2)).count(lost) == 1
        assert (await keys_in(node, 2)).count(arrived) == (1 if cleaned == "compaction" else 0)

    in_one_life(life)


async def clean(node: Node, how: str) -> None:
    partition = partition_of(node, 2)
    if how == "retention":
        await node.topics.delete_records("t", 2, partition.log.end)
        return
    partition.log.roll(node.clock.now_ms())
    await send(node, 2, key_of(2, 8, skip=1))
    await node._housekeeping.apply_compaction(partition)
    assert partition.log.clean_end == 2  # past what had arrived


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


def test_what_is_held_and_not_on_enough_disks_is_waited_for_however_long_that_takes() -> None:
    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        with cut_short(node, 0):
            await send(node, 0, STAYS, GOES, producer=FIRST)
        await change(node, 2)
        holder = partition_of(node, 2)

        async def slow(end: int, **options: object) -> None:
            await asyncio.sleep(40)

        holder.settled = slow  # type: ignore[method-assign]  # its followers are away
        for _ in range(2 * int(PATIENCE_S)):
            with pytest.raises(HomeUndecided, match="not on enough disks"):
                await send(node, 0, STAYS, GOES, producer=FIRST)
            await asyncio.sleep(1)
        del holder.settled
        await send(node, 0, STAYS, GOES, producer=FIRST)
        assert (await keys_in(node, 0), await keys_in(node, 2)) == ([STAYS], [GOES])

    in_one_life(life)


# ---------------------------------------------------------------- others that do not answer


def test_where_a_record_lived_and_nobody_leads_is_waited_for_but_not_for_ever() -> None:
    """For all of them at once."""

    async def life(node: Node) -> None:
        await grown(node, 2, 8)
        for index in range(2, 8):
            await send(node, index, key_of(index, 8))
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
