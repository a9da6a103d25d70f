"""Clients that say in which rack they are read from the replica there (KIP-392), and see what others see."""

from __future__ import annotations

import asyncio

from tests.support.sim_clusters import ORDERS, PlayedCluster, in_cluster

from goqueue.sim.cluster.client import NOT_LEADER
from goqueue.sim.cluster.disks import durable_batches
from goqueue.sim.cluster.readers import Fetched, fetch

NOBODY = -1


async def read(played: PlayedCluster, host: str, *, rack: str, start: int = 0, wait_ms: int = 0) -> Fetched:
    found = await fetch(
        played.client, host, ORDERS, start, epoch=-1, wait_ms=wait_ms, bytes_max=10_000, rack=rack
    )
    assert isinstance(found, Fetched), f"{host} gave error {found}"
    return found


async def refusal(played: PlayedCluster, host: str, *, rack: str) -> int:
    found = await fetch(played.client, host, ORDERS, 0, epoch=-1, wait_ms=0, bytes_max=10_000, rack=rack)
    assert isinstance(found, int), f"{host} served {found}"
    return found


async def with_orders(played: PlayedCluster, **settings: str) -> tuple[str, str]:
    """A topic of one partition with two records: its leader, and one of its followers."""
    await played.create(config=settings)
    leader = await played.leader()
    assert await played.produce(leader, "one", "two") == (0, 0)
    follower = next(name for name in played.cluster.names if name != leader)
    return leader, follower


def number_of(name: str) -> int:
    return int(name.removeprefix("node-"))


def test_a_client_is_sent_to_the_replica_in_its_rack_and_reads_there() -> None:
    async def play(played: PlayedCluster) -> None:
        leader, follower = await with_orders(played)
        await played.until(
            lambda: played.node(follower)._table.any_partition(*ORDERS).log.high_watermark == 2
        )
        sent = await read(played, leader, rack=follower)
        assert (sent.closest, sent.values) == (number_of(follower), {})
        found = await read(played, follower, rack=follower)
        assert (found.closest, found.values, found.high_watermark) == (NOBODY, {0: "one", 1: "two"}, 2)

    in_cluster(play, has_racks=True)


def test_a_leader_serves_who_is_in_its_own_rack_in_none_or_in_an_unknown_one() -> None:
    async def play(played: PlayedCluster) -> None:
        leader, _ = await with_orders(played)
        for rack in (leader, "", "where nobody is"):
            found = await read(played, leader, rack=rack)
            assert (found.closest, len(found.values)) == (NOBODY, 2), rack

    in_cluster(play, has_racks=True)


def test_a_follower_serves_nobody_who_does_not_say_where_he_is() -> None:
    async def play(played: PlayedCluster) -> None:
        _, follower = await with_orders(played)
        assert await refusal(played, follower, rack="") == NOT_LEADER

    in_cluster(play, has_racks=True)


def test_without_the_setting_only_leaders_serve() -> None:
    async def play(played: PlayedCluster) -> None:
        leader, follower = await with_orders(played)
        assert await refusal(played, follower, rack=follower) == NOT_LEADER
        assert (await read(played, leader, rack=follower)).closest == NOBODY

    in_cluster(play)


def test_a_topic_whose_keys_keep_their_order_is_read_from_its_leaders() -> None:
    async def play(played: PlayedCluster) -> None:
        leader, follower = await with_orders(played, scaling="keyed")
        assert await refusal(played, follower, rack=follower) == NOT_LEADER
        assert (await read(played, leader, rack=follower)).closest == NOBODY

    in_cluster(play, has_racks=True)


def test_who_waits_at_a_follower_hears_at_once_of_what_is_committed() -> None:
    async def play(played: PlayedCluster) -> None:
        leader, follower = await with_orders(played)
        waiting = asyncio.ensure_future(read(played, follower, rack=follower, start=2, wait_ms=20_000))
        await asyncio.sleep(1.0)
        produced_s = played.loop.time()
        assert await played.produce(leader, "three") == (0, 2)
        found = await waiting
        # Of virtual time. A follower that waits for the leader's next news would hear of it half a second later.
        assert (found.values, played.loop.time() - produced_s < 0.3) == ({2: "three"}, True)

    in_cluster(play, has_racks=True)


def test_a_follower_that_is_cut_off_shows_what_it_knew_and_nobody_is_sent_there() -> None:
    async def play(played: PlayedCluster) -> None:
        leader, follower = await with_orders(played)
        await played.until(
            lambda: played.node(follower)._table.any_partition(*ORDERS).log.high_watermark == 2
        )
        played.isolate(follower)
        assert await played.produce(leader, "three") == (0, 2), "when it is not in sync any more"
        found = await read(played, follower, rack=follower)
        assert (found.values, found.high_watermark) == ({0: "one", 1: "two"}, 2)
        assert (await read(played, leader, rack=follower, start=2)).values == {2: "three"}
        played.heal()
        await played.until(lambda: not played.cluster.unsettled())
        assert (await read(played, follower, rack=follower)).values.keys() == {0, 1, 2}

    in_cluster(play, has_racks=True)


def test_a_follower_on_which_something_has_rotted_sends_its_readers_to_the_leader_and_fetches_it_again() -> (
    None
):
    async def play(played: PlayedCluster) -> None:
        _, follower = await with_orders(played)
        partition = played.node(follower)._table.any_partition(*ORDERS)
        await played.until(lambda: partition.log.high_watermark == 2)
        disk = played.cluster.hosts[follower].disk
        size = len(durable_batches(disk, ORDERS)[0].data)
        disk.flip_bit("logs/orders/0/00000000000000000000.log", 8 * (size - 2))
        for segment in partition.log.segments:
            segment.release()
        assert await refusal(played, follower, rack=follower) == NOT_LEADER
        await played.until(lambda: partition.damaged_from is None and partition.log.high_watermark == 2)
        assert (await read(played, follower, rack=follower)).values == {0: "one", 1: "two"}
        await played.until(lambda: not played.cluster.unsettled())

    in_cluster(play, has_racks=True)
