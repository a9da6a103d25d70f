"""A leader that cannot commit any more, because neither the controller nor its followers hear it: clients are told, and go on."""

from __future__ import annotations

import asyncio

import msgspec
from tests.support.sim_clusters import PlayedCluster, in_cluster

NOT_LEADER = 6
UNKNOWN = 20  # NOT_ENOUGH_REPLICAS_AFTER_APPEND: it may come to be stored
ANSWERED_S_MAX = 5.0  # dead_ms is 1.2 s here, and a write that nobody gives up on waits for 10 s


def test_what_waits_at_a_leader_that_is_cut_off_is_told_that_nobody_knows() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create()
        leader = await played.leader()
        assert await played.produce(leader, "before") == (0, 0)
        played.isolate(leader)
        started = played.loop.time()
        error, _ = await played.produce(leader, "waits")
        assert error == UNKNOWN
        assert played.loop.time() - started < ANSWERED_S_MAX
        assert (await played.produce(leader, "too late"))[0] == NOT_LEADER
        answer = await played.rest(
            leader, "POST", "/topics/orders/messages", {"messages": [{"value": "too late"}]}
        )
        assert answer.code == "NOT_LEADER"

    in_cluster(play)


def test_a_leader_that_is_in_contact_again_takes_what_it_refused() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create()
        leader = await played.leader()
        played.isolate(leader)
        assert (await played.produce(leader, "waits"))[0] == UNKNOWN
        played.heal()
        await played.until(lambda: not played.cluster.unsettled())
        async with asyncio.timeout(ANSWERED_S_MAX):
            error = NOT_LEADER  # until it has heard of the others
            while error == NOT_LEADER:
                played.client.leaders.clear()
                error, _ = await played.produce(await played.leader(), "after")
                await asyncio.sleep(0.1)
        assert error == 0

    in_cluster(play)


def test_without_a_controller_a_partition_whose_replicas_are_all_there_is_written_as_before() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create(replication_factor=2)
        leader = await played.leader()
        (part,) = played.node(leader)._metadata.catalog.partitions_of("orders")
        names = {f"node-{number}" for number in part.replicas}
        for name in played.cluster.names:
            if name not in names:
                await played.cluster.hosts[name].crash(power_cut=False)
        assert (await played.produce(leader, "one"))[0] == 0
        await asyncio.sleep(10)
        assert (await played.produce(leader, "two"))[0] == 0

    in_cluster(play, size=5)


def test_who_acks_or_commits_at_a_node_that_is_cut_off_is_sent_on_and_can_do_it_later() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create()
        leader = await played.leader()
        assert (await played.produce(leader, "work"))[0] == 0
        wanted = {"client_id": "anna", "topics": ["orders"], "mode": "queue"}
        joined = await played.rest(leader, "POST", "/groups/workers/join", wanted)
        member = joined.body["member_id"]
        polled = await played.rest(leader, "GET", f"/groups/workers/poll?member_id={member}&timeout=5s")
        (message,) = msgspec.convert(polled.body["messages"], list[dict[str, object]])
        handle = {"receipt_handle": message["receipt_handle"]}
        played.isolate(leader)
        started = played.loop.time()
        acked = await played.rest(leader, "POST", "/messages/ack", handle)
        assert acked.code == "REPLICATION_UNKNOWN", acked
        assert played.loop.time() - started < ANSWERED_S_MAX
        played.heal()
        await played.until(lambda: not played.cluster.unsettled())
        again = await played.rest(leader, "POST", "/messages/ack", handle)
        assert again.status == 200, again

    in_cluster(play)
