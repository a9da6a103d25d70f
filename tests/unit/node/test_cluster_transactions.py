"""Transactions whose parts are on several nodes: markers reach whoever leads, and who writes is checked by a coordinator
elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from msgspec import structs
from prometheus_client import CollectorRegistry
from tests.support.leaderships import PlayedLeadership, followers_of, led
from tests.support.nodes import create, in_one_life

from goqueue.core.catalog import Command, Event, ProducerIdsReserved, ReserveProducerIds
from goqueue.core.group.commands import CommitInTransaction, FetchOffsets, NewOffset
from goqueue.core.txn.events import ProducerEpoch, TopicPartition
from goqueue.core.txn.outcome import MarkerWork
from goqueue.log.batch import ATTRIBUTE_TRANSACTIONAL, encode_batch
from goqueue.model.cluster_errors import CoordinatorFenced, NotCoordinator, NotLeader, PeerUnreachable
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    NotEnoughReplicas,
    PartitionNotFound,
    ProducerFenced,
    TimedOut,
    TopicNotFound,
    TransactionalProducerFenced,
)
from goqueue.model.record import NewRecord, Producer
from goqueue.node.changes import Changes
from goqueue.node.internal_topics import (
    OFFSETS_TOPIC,
    PARTITION_COUNT,
    TRANSACTIONS_TOPIC,
    coordinator_partition,
    transaction_partition,
)
from goqueue.node.node import Node
from goqueue.node.producers import BLOCK_COUNT, Producers
from goqueue.node.transactions.coordinator import TxnCoordinator
from goqueue.node.transactions.markers import Markers
from goqueue.node.transactions.metrics import TxnMetrics
from goqueue.node.transactions.remote import Marker
from goqueue.node.transactions.verification import Verification
from goqueue.node.transactions.whereabouts import Whereabouts
from goqueue.peer.dialling import LinkTimes

ORDERS = TopicPartition("orders", 0)
PRODUCER = ProducerEpoch(9, 3)
WORK = MarkerWork("app", 1, PRODUCER, True, True, (ORDERS,), ())
MARKER = Marker(PRODUCER, is_commit=True, is_epoch_bumped=True, coordinator_epoch=5)


class PlayedPlaces:
    """Who leads what: a name, None for this node, or an error. One list entry per question, the last one for all others."""

    def __init__(self, *leaders: str | GoQueueError | None) -> None:
        self._leaders = list(leaders)
        self.own_epoch = 0
        self.coordinator_epochs = [5]  # likewise
        self.newest_marker = -1

    def leader(self, topic: str, index: int) -> str | None:
        found = self._leaders.pop(0) if len(self._leaders) > 1 else self._leaders[0]
        if isinstance(found, GoQueueError):
            raise found
        return found

    def epoch(self, topic: str, index: int) -> int:
        return self.own_epoch

    def leader_epoch(self, topic: str, index: int) -> int:
        epochs = self.coordinator_epochs
        return epochs.pop(0) if len(epochs) > 1 else epochs[0]

    def marker_epoch(self, topic: str, index: int, producer_id: int) -> int:
        return self.newest_marker


class PlayedRemote:
    """Notes what it is asked and answers with errors, as long as there are any."""

    def __init__(self, *errors: GoQueueError | None) -> None:
        self.errors = list(errors)
        self.asked: list[tuple[object, ...]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.is_silent = False

    async def write_marker(self, target: str, marker: Marker, part: TopicPartition) -> None:
        await self._answer(target, marker, part)

    async def add_partition(
        self,
        target: str,
        transactional_id: str,
        producer: ProducerEpoch,
        part: TopicPartition,
        *,
        is_check: bool,
    ) -> None:
        await self._answer(target, transactional_id, producer, part, is_check)

    async def add_group(
        self, target: str, transactional_id: str, producer: ProducerEpoch, group_id: str
    ) -> None:
        await self._answer(target, transactional_id, producer, group_id)

    async def _answer(self, *asked: object) -> None:
        self.asked.append(asked)
        self.meanwhile()
        if self.is_silent:
            await asyncio.sleep(30)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error


def markers_of(
    node: Node,
    places: PlayedPlaces,
    remote: PlayedRemote,
    was_deleted: Callable[[str], bool] = lambda topic: False,
    exists: Callable[[str, int], bool] = lambda topic, index: False,
) -> Markers:
    metrics = TxnMetrics(CollectorRegistry())
    return Markers(
        node._table,
        node.groups,
        node.clock,
        metrics,
        places,  # type: ignore[arg-type]  # played
        remote,
        was_deleted,
        exists,
    )


def in_a_cluster(test: Callable[[Node], Awaitable[None]]) -> None:
    async def life(node: Node) -> None:
        await create(node)
        async with asyncio.timeout(1_000):
            await test(node)

    in_one_life(life)


# ---------------------------------------------------------------- markers


def test_a_marker_goes_to_the_node_that_leads_with_the_epoch_of_its_coordinator() -> None:
    async def test(node: Node) -> None:
        remote = PlayedRemote()
        await markers_of(node, PlayedPlaces("node-2"), remote).write(WORK, 5)
        assert remote.asked == [("node-2", MARKER, ORDERS)]

    in_a_cluster(test)


def test_a_marker_is_sent_again_until_whoever_leads_by_then_takes_it() -> None:
    async def test(node: Node) -> None:
        remote = PlayedRemote(PeerUnreachable("gone"), NotLeader("orders", 0), TopicNotFound("orders"), None)
        places = PlayedPlaces(NotLeader("orders", 0), "node-2", "node-2", "node-3")
        await markers_of(node, places, remote).write(WORK, 5)
        assert [target for target, *_ in remote.asked] == ["node-2", "node-2", "node-3", "node-3"]

    in_a_cluster(test)


def test_a_marker_for_a_topic_that_was_deleted_is_not_needed() -> None:
    async def test(node: Node) -> None:
        remote = PlayedRemote()
        places = PlayedPlaces(TopicNotFound("orders"))
        await markers_of(node, places, remote, lambda topic: True).write(WORK, 5)
        assert remote.asked == []

    in_a_cluster(test)


def test_a_topic_that_is_only_not_known_yet_gets_its_marker() -> None:
    async def test(node: Node) -> None:
        remote = PlayedRemote()
        places = PlayedPlaces(TopicNotFound("orders"), TopicNotFound("orders"), "node-2")
        await markers_of(node, places, remote).write(WORK, 5)
        assert remote.asked == [("node-2", MARKER, ORDERS)]

    in_a_cluster(test)


@pytest.mark.parametrize("unknown", [TopicNotFound("orders"), PartitionNotFound("orders", 0, 0)])
def test_a_marker_waits_for_a_node_that_has_not_opened_the_partition_as_long_as_it_takes(
    unknown: GoQueueError,
) -> None:
    """It starts, and there is much to recover: far longer than a topic may be unknown that the catalogue does not have."""

    async def test(node: Node) -> None:
        remote, loop = PlayedRemote(), asyncio.get_running_loop()
        began = loop.time()
        places = PlayedPlaces(*[unknown] * 60, "node-2")
        await markers_of(node, places, remote, exists=lambda *part: part == ORDERS).write(WORK, 5)
        assert remote.asked == [("node-2", MARKER, ORDERS)]
        assert loop.time() - began > 50

    in_a_cluster(test)


def test_a_marker_that_waits_for_a_partition_is_given_up_when_its_topic_is_deleted() -> None:
    async def test(node: Node) -> None:
        remote, topics = PlayedRemote(), {"orders"}
        loop = asyncio.get_running_loop()
        markers = markers_of(
            node,
            PlayedPlaces(TopicNotFound("orders")),
            remote,
            was_deleted=lambda topic: topic not in topics,
            exists=lambda topic, index: topic in topics,
        )
        writing = asyncio.create_task(markers.write(WORK, 5))
        await asyncio.sleep(60)
        assert not writing.done()
        topics.clear()
        deleted = loop.time()
        await writing
        assert loop.time() - deleted < 2
        assert remote.asked == []

    in_a_cluster(test)


def test_a_node_goes_on_with_markers_for_what_its_catalogue_has_and_it_could_not_open() -> None:
    async def test(node: Node) -> None:
        who = await node.transactions.init_producer("app", 60_000)
        await node.transactions.add_partitions("app", *who, [ORDERS])
        topic = node._table.get("orders")
        node._table.remove("orders")
        ending = asyncio.create_task(node.transactions.end("app", *who, is_commit=True, bumps_epoch=False))
        await asyncio.sleep(60)
        end = topic.partition(0).log.end
        node._table.put(topic)
        await ending
        await asyncio.sleep(2)
        assert topic.partition(0).log.end == end + 1, "the marker"

    in_a_cluster(test)


def test_a_coordinator_that_was_replaced_stops() -> None:
    async def test(node: Node) -> None:
        remote = PlayedRemote(CoordinatorFenced("a newer one was here"))
        with pytest.raises(CoordinatorFenced):
            await markers_of(node, PlayedPlaces("node-2"), remote).write(WORK, 5)

    in_a_cluster(test)


def test_a_marker_of_an_older_coordinator_is_refused_where_it_is_written() -> None:
    async def test(node: Node) -> None:
        markers = markers_of(node, PlayedPlaces(None), PlayedRemote())
        await markers.accept(MARKER, ORDERS)
        older = Marker(PRODUCER, is_commit=False, is_epoch_bumped=True, coordinator_epoch=4)
        with pytest.raises(CoordinatorFenced):
            await markers.accept(older, ORDERS)

    in_a_cluster(test)


def test_a_marker_is_refused_at_once_where_too_few_replicas_are_in_sync_and_written_when_they_are_back() -> (
    None
):
    async def test(node: Node) -> None:
        partition = await led(node, 1)
        followers_of(partition).has_enough = False
        markers = markers_of(node, PlayedPlaces(None), PlayedRemote())
        writing = asyncio.create_task(markers.write(WORK, 5))
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(NotEnoughReplicas, match="orders-0"):
            await markers.accept(MARKER, ORDERS)
        assert asyncio.get_running_loop().time() == began_s
        await asyncio.sleep(60)
        assert partition.log.end == 0
        followers_of(partition).has_enough = True
        await asyncio.sleep(1)
        assert writing.done()
        assert partition.log.end == 1

    in_a_cluster(test)


def test_a_coordinator_elsewhere_is_not_kept_waiting_for_as_long_as_it_waits_for_an_answer() -> None:
    async def test(node: Node) -> None:
        followers_of(await led(node, 1)).are_away = True
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with pytest.raises(TimedOut, match="orders-0"):
            await node.transactions.accept_marker(MARKER, ORDERS)
        assert loop.time() - began_s < LinkTimes().call_ms / 1_000

    in_a_cluster(test)


async def times_out(markers: Markers, marker: Marker = MARKER) -> None:
    with pytest.raises(TimedOut, match="orders-0"):
        await markers.accept_from_elsewhere(marker, ORDERS)


def test_a_marker_that_comes_again_before_it_is_committed_waits_for_the_one_that_is_there() -> None:
    """Another one would be committed later, and where that always takes longer than anybody waits, the transaction would never end."""

    async def test(node: Node) -> None:
        partition = await led(node, 1)
        followers_of(partition).are_away = True
        markers = markers_of(node, PlayedPlaces(None), PlayedRemote())
        await times_out(markers)
        other = Marker(ProducerEpoch(8, 0), is_commit=True, is_epoch_bumped=True, coordinator_epoch=5)
        await times_out(markers, other)
        await times_out(markers)
        assert partition.log.end == 2
        partition.raise_watermark(1)
        await markers.accept_from_elsewhere(MARKER, ORDERS)
        await times_out(markers, other)
        assert partition.log.end == 2

    in_a_cluster(test)


def test_a_marker_is_written_again_where_the_first_one_may_not_be() -> None:
    async def test(node: Node) -> None:
        partition = await led(node, 1)
        followers_of(partition).are_away = True
        markers = markers_of(node, PlayedPlaces(None), PlayedRemote())
        await times_out(markers)
        newer = structs.replace(MARKER, coordinator_epoch=6)
        await times_out(markers, newer)
        assert partition.log.end == 2, "of another coordinator"
        await led(node, 2)
        followers_of(partition).are_away = True
        await times_out(markers, newer)
        assert partition.log.end == 3, "under another leader, who may have cut it"
        followers_of(partition).are_away = False
        partition.raise_watermark(3)
        await markers.accept_from_elsewhere(newer, ORDERS)
        await markers.accept_from_elsewhere(newer, ORDERS)
        assert partition.log.end == 4, "it is over and may be of the next transaction"

    in_a_cluster(test)


def test_a_marker_whose_transaction_has_begun_again_is_not_the_one_that_ends_it() -> None:
    async def test(node: Node) -> None:
        partition = await led(node, 1)
        followers_of(partition).are_away = True
        markers = markers_of(node, PlayedPlaces(None), PlayedRemote())
        marker = structs.replace(MARKER, is_epoch_bumped=False)  # of a producer from before KIP-890
        await times_out(markers, marker)
        producer = Producer(*PRODUCER, 0)
        header, batch = encode_batch(
            [NewRecord(None, b"late")], 0, producer=producer, attributes=ATTRIBUTE_TRANSACTIONAL
        )
        partition.append(batch, header, now_ms=0)
        await times_out(markers, marker)
        assert partition.log.end == 3
        assert not partition.open_transactions()

    in_a_cluster(test)


def test_a_marker_that_was_not_committed_in_time_is_not_given_ever_more_time() -> None:
    async def test(node: Node) -> None:
        remote = PlayedRemote(*[TimedOut("not committed within 10 s")] * 20, None)
        began_s = asyncio.get_running_loop().time()
        await markers_of(node, PlayedPlaces("node-2"), remote).write(WORK, 5)
        assert asyncio.get_running_loop().time() - began_s < 21

    in_a_cluster(test)


def test_a_group_elsewhere_is_told_by_its_partition() -> None:
    async def test(node: Node) -> None:
        remote = PlayedRemote()
        work = MarkerWork("app", 1, PRODUCER, True, True, (), ("workers",))
        await markers_of(node, PlayedPlaces("node-2"), remote).write(work, 5)
        part = TopicPartition(OFFSETS_TOPIC, coordinator_partition("workers", 50))
        assert remote.asked == [("node-2", MARKER, part)]

    in_a_cluster(test)


def test_a_late_copy_of_a_marker_does_not_end_what_a_group_has_pending_of_the_next_transaction() -> None:
    """A coordinator that did not get the first answer sends it again."""

    async def test(node: Node) -> None:
        markers = markers_of(node, PlayedPlaces(None), PlayedRemote())
        part = TopicPartition(OFFSETS_TOPIC, coordinator_partition("workers", 50))

        async def committed_after(offset: int, epoch: int, marker: Marker) -> int:
            new = (NewOffset("orders", 0, offset),)
            await node.groups.commit_in_transaction(
                CommitInTransaction("workers", PRODUCER.producer_id, epoch, new)
            )
            await markers.accept(marker, part)
            found = await node.groups.fetch(FetchOffsets("workers", (("orders", (0,)),)))
            return found.offsets[0].offset

        assert await committed_after(10, PRODUCER.epoch - 1, MARKER) == 10
        assert await committed_after(20, PRODUCER.epoch, MARKER) == 10
        after = Marker(ProducerEpoch(PRODUCER.producer_id, PRODUCER.epoch + 1), True, True, 5)
        assert await committed_after(30, PRODUCER.epoch, after) == 30

    in_a_cluster(test)


# ---------------------------------------------------------------- verification


def verification_of(node: Node, places: PlayedPlaces, remote: PlayedRemote) -> tuple[Verification, Markers]:
    markers = markers_of(node, places, remote)
    coordinator: TxnCoordinator = node.transactions._coordinator
    return Verification(coordinator, places, remote, markers.pledges), markers  # type: ignore[arg-type]  # played


@pytest.mark.parametrize("may_add", [True, False])
def test_a_write_is_checked_by_the_coordinator_elsewhere(may_add: bool) -> None:
    async def test(node: Node) -> None:
        remote = PlayedRemote(NotCoordinator("moved"), None)
        checked, _ = verification_of(node, PlayedPlaces("node-2", "node-3"), remote)
        await checked.of_write("app", PRODUCER, ORDERS, may_add=may_add)
        assert remote.asked == [
            (target, "app", PRODUCER, ORDERS, not may_add) for target in ("node-2", "node-3")
        ]

    in_a_cluster(test)


def test_a_check_during_which_a_marker_came_is_made_again() -> None:
    async def test(node: Node) -> None:
        remote = PlayedRemote(None, ProducerFenced("it has ended"))
        checked, markers = verification_of(node, PlayedPlaces("node-2"), remote)
        remote.meanwhile = lambda: markers.pledges.marked(ORDERS, PRODUCER.producer_id)
        with pytest.raises(ProducerFenced):
            await checked.of_write("app", PRODUCER, ORDERS, may_add=True)
        assert len(remote.asked) == 2

    in_a_cluster(test)


def test_a_check_during_which_another_node_led_is_made_again() -> None:
    async def test(node: Node) -> None:
        places, remote = PlayedPlaces("node-2"), PlayedRemote()

        def lead_anew() -> None:
            places.own_epoch = 1

        remote.meanwhile = lead_anew
        checked, _ = verification_of(node, places, remote)
        await checked.of_write("app", PRODUCER, ORDERS, may_add=True)
        assert len(remote.asked) == 2

    in_a_cluster(test)


def test_a_coordinator_is_not_believed_of_whose_successor_there_is_a_marker() -> None:
    """It may not have heard yet that the transaction has ended, and nor may this node that there is another one."""

    async def test(node: Node) -> None:
        places, remote = PlayedPlaces("node-2", "node-2", "node-3"), PlayedRemote()
        places.coordinator_epochs, places.newest_marker = [4, 4, 5], 5
        checked, _ = verification_of(node, places, remote)
        await checked.of_write("app", PRODUCER, ORDERS, may_add=False)
        assert [target for target, *_ in remote.asked] == ["node-2", "node-2", "node-3"]

    in_a_cluster(test)


def test_a_coordinator_does_not_believe_itself_where_there_is_a_marker_of_its_successor() -> None:
    async def test(node: Node) -> None:
        who = await node.transactions.init_producer("app", 60_000)
        await node.transactions.add_partitions("app", *who, [ORDERS])
        places = PlayedPlaces(None)
        checked, _ = verification_of(node, places, PlayedRemote())
        await checked.of_write("app", who, ORDERS, may_add=False)
        places.newest_marker = 1
        with pytest.raises(NotEnoughReplicas, match="coordinator epoch 1"):
            await checked.of_write("app", who, ORDERS, may_add=False)

    in_a_cluster(test)


def test_the_newest_marker_of_a_producer_says_which_coordinator_wrote_it() -> None:
    async def test(node: Node) -> None:
        found = Whereabouts(node._table, node.directory, node.groups.coordinator_epoch)
        assert found.marker_epoch(*ORDERS, PRODUCER.producer_id) == -1
        await markers_of(node, PlayedPlaces(None), PlayedRemote()).accept(MARKER, ORDERS)
        assert found.marker_epoch(*ORDERS, PRODUCER.producer_id) == MARKER.coordinator_epoch

    in_a_cluster(test)


def test_a_coordinator_is_not_believed_of_whose_successor_a_group_has_heard_that_the_transaction_is_over() -> (
    None
):
    """What became pending then would be so for ever, or be final with the next transaction."""

    async def test(node: Node) -> None:
        places, remote = PlayedPlaces("node-2", "node-2", "node-3"), PlayedRemote()
        places.coordinator_epochs = [4, 4, 5]
        found = Whereabouts(node._table, node.directory, node.groups.coordinator_epoch)
        places.marker_epoch = found.marker_epoch  # type: ignore[method-assign]  # of what is there
        part = TopicPartition(OFFSETS_TOPIC, coordinator_partition("workers", 50))
        committing = CommitInTransaction("workers", *PRODUCER, (NewOffset("orders", 0, 7),))
        await node.groups.commit_in_transaction(committing)
        assert found.marker_epoch(*part, PRODUCER.producer_id) == -1
        checked, markers = verification_of(node, places, remote)
        await markers.accept(
            structs.replace(MARKER, is_epoch_bumped=False), part
        )  # of a producer from before KIP-890
        await checked.of_offsets("app", PRODUCER, "workers", may_add=False)
        assert [target for target, *_ in remote.asked] == ["node-2", "node-2", "node-3"]
        places.coordinator_epochs = [4]
        verify = partial(checked.of_offsets, "app", PRODUCER, "workers", may_add=False)
        with pytest.raises(NotCoordinator, match="coordinator epoch 5"):
            await node.groups.commit_in_transaction(committing, verify)
        fetched = await node.groups.fetch(FetchOffsets("workers", require_stable=True))
        assert [(one.offset, one.error) for one in fetched.offsets] == [(7, None)]

    in_a_cluster(test)


def test_who_writes_is_told_of_a_fence_as_any_producer_is() -> None:
    async def test(node: Node) -> None:
        remote = PlayedRemote(TransactionalProducerFenced("another has the id"))
        checked, _ = verification_of(node, PlayedPlaces("node-2"), remote)
        with pytest.raises(ProducerFenced):
            await checked.of_write("app", PRODUCER, ORDERS, may_add=True)

    in_a_cluster(test)


def test_a_coordinator_that_is_not_found_in_time_makes_the_writer_try_again() -> None:
    async def test(node: Node) -> None:
        places = PlayedPlaces(NotLeader(TRANSACTIONS_TOPIC, 0))
        checked, _ = verification_of(node, places, PlayedRemote())
        began = asyncio.get_running_loop().time()
        with pytest.raises(NotEnoughReplicas):
            await checked.of_write("app", PRODUCER, ORDERS, may_add=True)
        assert 5 <= asyncio.get_running_loop().time() - began < 6
        with pytest.raises(NotLeader):
            await checked.of_offsets("app", PRODUCER, "workers", may_add=True)

    in_a_cluster(test)


@pytest.mark.parametrize("refusal", [TopicNotFound(TRANSACTIONS_TOPIC), PeerUnreachable("n2 is gone")])
def test_who_commits_offsets_is_not_told_of_topics_and_nodes_that_it_did_not_ask_about(
    refusal: GoQueueError,
) -> None:
    async def test(node: Node) -> None:
        verification, _ = verification_of(node, PlayedPlaces(refusal), PlayedRemote())
        with pytest.raises(CoordinatorNotAvailable, match="cannot be checked now"):
            await verification.of_offsets("app", PRODUCER, "workers", may_add=True)

    in_a_cluster(test)


def test_a_coordinator_that_does_not_say_in_time_makes_the_writer_try_again() -> None:
    async def test(node: Node) -> None:
        remote = PlayedRemote()
        remote.is_silent = True
        checked, _ = verification_of(node, PlayedPlaces("node-2"), remote)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(NotEnoughReplicas, match="not said"):
            await checked.of_write("app", PRODUCER, ORDERS, may_add=True)
        with pytest.raises(CoordinatorNotAvailable, match="not said"):
            await checked.of_offsets("app", PRODUCER, "workers", may_add=True)
        assert 10 <= loop.time() - began < 11

    in_a_cluster(test)


async def led_transactions(node: Node, transactional_id: str) -> PlayedLeadership:
    index = transaction_partition(transactional_id, PARTITION_COUNT)
    return followers_of(await led(node, 1, TRANSACTIONS_TOPIC, index))


def test_a_writer_tries_again_where_its_own_node_cannot_say_in_time() -> None:
    async def test(node: Node) -> None:
        who = await node.transactions.init_producer("app", 60_000)
        (await led_transactions(node, "app")).are_away = True
        checked, _ = verification_of(node, PlayedPlaces(None), PlayedRemote())
        began = asyncio.get_running_loop().time()
        with pytest.raises(NotEnoughReplicas, match="not said"):
            await checked.of_write("app", who, ORDERS, may_add=True)
        assert 5 <= asyncio.get_running_loop().time() - began < 6

    in_a_cluster(test)


def test_another_node_is_answered_before_its_patience_is_at_an_end() -> None:
    async def test(node: Node) -> None:
        who = await node.transactions.init_producer("app", 60_000)
        (await led_transactions(node, "app")).are_away = True
        loop, asked = asyncio.get_running_loop(), node.transactions.for_nodes
        for work in (
            asked.add_partitions("app", *who, [ORDERS]),
            asked.verify("app", *who, [ORDERS]),
            asked.add_offsets("app", *who, "workers"),
        ):
            began = loop.time()
            with pytest.raises(CoordinatorNotAvailable, match="within"):
                await work
            assert 2 < loop.time() - began < 4

    in_a_cluster(test)


@pytest.mark.parametrize("is_cut_off", [True, False])
def test_another_node_is_told_at_once_where_too_few_replicas_are_in_sync_and_nothing_is_written(
    is_cut_off: bool,
) -> None:
    async def test(node: Node) -> None:
        who = await node.transactions.init_producer("app", 60_000)
        followers = await led_transactions(node, "app")
        asked, loop = node.transactions.for_nodes, asyncio.get_running_loop()
        await asked.add_partitions("app", *who, [ORDERS])
        followers.is_cut_off, followers.has_enough = is_cut_off, is_cut_off
        log = node._table.any_partition(TRANSACTIONS_TOPIC, transaction_partition("app", PARTITION_COUNT)).log
        end, began = log.end, loop.time()
        for work in (asked.add_partitions("app", *who, [ORDERS]), asked.add_offsets("app", *who, "workers")):
            with pytest.raises(CoordinatorNotAvailable, match="in sync"):
                await work
        assert await asked.verify("app", *who, [ORDERS]) == {}, "that is on enough of them"
        assert (log.end, loop.time()) == (end, began)
        followers.are_away = True
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await node.transactions.add_offsets("app", *who, "workers")
        began = loop.time()
        with pytest.raises(CoordinatorNotAvailable, match="in sync"):
            await asked.verify("app", *who, [ORDERS])
        assert loop.time() == began

    in_a_cluster(test)


def test_offsets_are_checked_by_the_partition_of_their_group_and_added_by_its_name() -> None:
    async def test(node: Node) -> None:
        remote = PlayedRemote()
        checked, _ = verification_of(node, PlayedPlaces("node-2"), remote)
        await checked.of_offsets("app", PRODUCER, "workers", may_add=False)
        await checked.of_offsets("app", PRODUCER, "workers", may_add=True)
        part = TopicPartition(OFFSETS_TOPIC, coordinator_partition("workers", 50))
        assert remote.asked == [
            ("node-2", "app", PRODUCER, part, True),
            ("node-2", "app", PRODUCER, "workers"),
        ]

    in_a_cluster(test)


def test_a_check_by_the_partition_of_a_group_finds_the_group() -> None:
    async def test(node: Node) -> None:
        who = await node.transactions.init_producer("app", 60_000)
        await node.transactions.add_offsets("app", *who, "workers")
        home = TopicPartition(OFFSETS_TOPIC, coordinator_partition("workers", 50))
        other = TopicPartition(OFFSETS_TOPIC, (home.partition + 1) % 50)
        assert list(await node.transactions.verify("app", *who, [home, other])) == [other]

    in_a_cluster(test)


# ---------------------------------------------------------------- producer ids


class PlayedMetadata:
    def __init__(self) -> None:
        self.next_id = 40
        self.counts: list[int] = []

    async def execute(self, command: Command) -> list[Event]:
        assert isinstance(command, ReserveProducerIds)
        self.counts.append(command.count)
        start, self.next_id = self.next_id, self.next_id + command.count
        await asyncio.sleep(0.01)
        return [ProducerIdsReserved(start, command.count)]


def test_producer_ids_of_a_cluster_are_handed_out_by_the_block_and_never_twice() -> None:
    async def test(node: Node) -> None:
        metadata = PlayedMetadata()
        changes = Changes(node._spawn, timeout_ms=10_000)
        producers = Producers(metadata, node._guard, changes, is_solo=False)  # type: ignore[arg-type]  # played
        given = await asyncio.gather(*(producers.init() for _ in range(BLOCK_COUNT + 5)))
        assert sorted(id for id, _ in given) == list(range(40, 40 + BLOCK_COUNT + 5))
        assert metadata.counts == [BLOCK_COUNT, BLOCK_COUNT]

    in_a_cluster(test)
