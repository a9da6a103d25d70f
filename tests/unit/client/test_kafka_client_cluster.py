"""The bulk client when leaders move, answers are lost and brokers say no: against brokers that the test plays."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.support.scripted_broker import Hold, Request, ScriptedBroker

from goqueue.client.kafka import (
    LATEST,
    BatchSender,
    KafkaCluster,
    KafkaError,
    NotUnderstood,
    OffsetOutOfRange,
    ProducerIdentity,
    Unreachable,
)
from goqueue.client.kafka.codes import ErrorCode
from goqueue.client.kafka.lanes import REQUEST_COUNT_MAX
from goqueue.core.producer import BATCH_COUNT_KEPT
from goqueue.log.batch import LENGTH_OVERHEAD, NO_PRODUCER, PREFIX, build_batch, read_header
from goqueue.model.record import NewRecord, Producer
from goqueue.wire.schema import responses

TIMEOUT_S = 20.0
ME = ProducerIdentity(7, 0)


def batch_at(offset: int, count: int = 1, *, value: bytes = b"v" * 40) -> bytes:
    batch = build_batch([NewRecord(None, value)] * count, 1)
    return PREFIX.pack(offset, len(batch) - LENGTH_OVERHEAD, 0) + batch[PREFIX.size :]


class Topic:
    """What all played brokers say of the cluster. `t` has as many partitions as there are leaders."""

    def __init__(self) -> None:
        self.brokers: list[ScriptedBroker] = []
        self.leaders: list[int] = [0]

    def metadata(self, request: Request) -> Any:
        kinds = responses("metadata")
        names = ["t"] if request.body.topics is None else [topic.name for topic in request.body.topics]
        return kinds.MetadataResponse(
            brokers=[
                kinds.MetadataResponseBroker(node_id=at, host="127.0.0.1", port=one.port)
                for at, one in enumerate(self.brokers)
            ],
            topics=[self._topic(kinds, name) for name in names],
        )

    def _topic(self, kinds: Any, name: str) -> Any:
        if name != "t":
            return kinds.MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        return kinds.MetadataResponseTopic(
            name=name,
            partitions=[
                kinds.MetadataResponsePartition(partition_index=at, leader_id=leader)
                for at, leader in enumerate(self.leaders)
            ],
        )

    def playing(self, **plays: Callable[[Request], Any]) -> ScriptedBroker:
        """One more broker; use it in a `with`."""
        everything = {"metadata": self.metadata, **plays}
        broker = ScriptedBroker(lambda request: everything[request.api](request))
        self.brokers.append(broker)
        return broker


@pytest.fixture
def topic() -> Topic:
    return Topic()


def cluster_of(*brokers: ScriptedBroker, patience_s: float = TIMEOUT_S) -> KafkaCluster:
    """`patience_s` bounds how often something is tried, not how long one answer may take."""
    cluster = KafkaCluster(",".join(one.address for one in brokers), timeout_s=TIMEOUT_S)
    cluster.brokers.timeout_s = patience_s
    return cluster


def fetched(records: bytes = b"", *, code: int = 0, partition: int = 0, **facts: int) -> Any:
    kinds = responses("fetch")
    part = kinds.PartitionData(partition_index=partition, error_code=code, records=records, **facts)
    return kinds.FetchResponse(responses=[kinds.FetchableTopicResponse(topic="t", partitions=[part])])


def wanted(request: Request) -> Any:
    return request.body.topics[0].partitions[0]


def scripted(answers: Sequence[Any]) -> Callable[[Request], Any]:
    left = list(answers)
    return lambda _: left.pop(0)


# -------------------------------------------------------------------- fetching


def test_next_stretch_is_asked_for_before_this_one_is_given(topic: Topic) -> None:
    answers = scripted([fetched(batch_at(0, 3)), fetched(batch_at(3, 3))])
    with topic.playing(fetch=answers) as broker, cluster_of(broker) as cluster:
        chunks = cluster.fetch("t", 0, 0, 5, committed=True)
        next(chunks)
        asked = broker.wait_for("fetch", 2)
        assert [one.topics[0].partitions[0].fetch_offset for one in asked] == [0, 3]
        assert len(list(chunks)) == 1
        assert len(broker.asked("fetch")) == 2  # nothing is asked beyond the end
        assert broker.connection_count == 1


def test_fetch_is_asked_without_a_session(topic: Topic) -> None:
    with topic.playing(fetch=scripted([fetched(batch_at(0))])) as broker, cluster_of(broker) as cluster:
        list(cluster.fetch("t", 0, 0, 1, committed=True, bytes_max=123))
        (asked,) = broker.asked("fetch")
        assert (asked.session_id, asked.session_epoch, asked.isolation_level) == (0, -1, 1)
        assert (asked.max_bytes, wanted(broker.seen[-1]).partition_max_bytes) == (123, 123)


def test_torn_batch_is_cut_off_and_asked_for_again(topic: Topic) -> None:
    torn = batch_at(0, 2) + batch_at(2)[:-1]
    answers = scripted([fetched(torn), fetched(batch_at(2))])
    with topic.playing(fetch=answers) as broker, cluster_of(broker) as cluster:
        chunks = [bytes(chunk.data) for chunk in cluster.fetch("t", 0, 0, 3, committed=True)]
    assert chunks == [batch_at(0, 2), batch_at(2)]


def test_room_grows_with_a_batch_that_does_not_fit(topic: Topic) -> None:
    batch = batch_at(0, value=b"x" * 5_000)

    def play(request: Request) -> Any:
        return fetched(batch[: wanted(request).partition_max_bytes])

    for room, rooms in ((5, [5, 10, 20, len(batch)]), (1_000, [1_000, len(batch)])):
        with topic.playing(fetch=play) as broker, cluster_of(broker) as cluster:
            topic.leaders = [len(topic.brokers) - 1]
            chunks = [bytes(one.data) for one in cluster.fetch("t", 0, 0, 1, committed=False, bytes_max=room)]
            assert chunks == [batch]
            assert [one.max_bytes for one in broker.asked("fetch")] == rooms


def test_batch_beyond_every_limit_is_refused(topic: Topic) -> None:
    claim = PREFIX.pack(0, 2**30, 0)
    with (
        topic.playing(fetch=scripted([fetched(claim)])) as broker,
        cluster_of(broker) as cluster,
        pytest.raises(NotUnderstood, match="t-0 from offset 0: a batch has more than"),
    ):
        list(cluster.fetch("t", 0, 0, 1, committed=True))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (fetched(batch_at(3)), "from offset 5: the batches end at 4"),
        (fetched(batch_at(5)[:16] + b"\x01" + batch_at(5)[17:]), "magic is 1"),
        (fetched(batch_at(5), partition=1), "about something else"),
        (responses("fetch").FetchResponse(), "about something else"),
    ],
)
def test_answer_that_makes_no_sense_is_refused(topic: Topic, answer: Any, reason: str) -> None:
    with (
        topic.playing(fetch=scripted([answer])) as broker,
        cluster_of(broker) as cluster,
        pytest.raises(NotUnderstood, match=reason),
    ):
        list(cluster.fetch("t", 0, 5, 9, committed=True))


def test_fetch_follows_the_leader(topic: Topic) -> None:
    def moved(_: Request) -> Any:
        topic.leaders = [1]
        return fetched(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)

    answers = iter([lambda _: fetched(batch_at(0)), moved])
    with (
        topic.playing(fetch=lambda request: next(answers)(request)) as old,
        topic.playing(fetch=scripted([fetched(batch_at(1)), fetched(batch_at(2))])) as new,
        cluster_of(old) as cluster,
    ):
        chunks = [bytes(one.data) for one in cluster.fetch("t", 0, 0, 3, committed=True)]
        assert [one.topics[0].partitions[0].fetch_offset for one in new.asked("fetch")] == [1, 2]
    assert chunks == [batch_at(0), batch_at(1), batch_at(2)]


def test_fetch_goes_on_where_a_cut_connection_left_it(topic: Topic) -> None:
    answers = scripted([fetched(batch_at(0)), None, fetched(batch_at(1)), None, None, fetched(batch_at(2))])
    with topic.playing(fetch=answers) as broker, cluster_of(broker) as cluster:
        chunks = [bytes(one.data) for one in cluster.fetch("t", 0, 0, 3, committed=True)]
    assert chunks == [batch_at(0), batch_at(1), batch_at(2)]


def test_connection_of_a_reader_that_stopped_early_is_not_used_again(topic: Topic) -> None:
    answers = scripted(
        [fetched(batch_at(0)), fetched(batch_at(1)), fetched(batch_at(0)), fetched(batch_at(1))]
    )
    with topic.playing(fetch=answers) as broker, cluster_of(broker) as cluster:
        chunks = cluster.fetch("t", 0, 0, 2, committed=True)
        next(chunks)
        broker.wait_for("fetch", 2)
        del chunks  # its answer is still to come
        again = [bytes(one.data) for one in cluster.fetch("t", 0, 0, 2, committed=True)]
        assert again == [batch_at(0), batch_at(1)]
        assert broker.connection_count == 2


def test_offset_that_is_gone_is_not_tried_again(topic: Topic) -> None:
    answer = fetched(code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=4, high_watermark=9)
    with (
        topic.playing(fetch=scripted([answer])) as broker,
        cluster_of(broker) as cluster,
        pytest.raises(OffsetOutOfRange, match=r"t-0 has no offset 2; it holds \[4, 9\)"),
    ):
        list(cluster.fetch("t", 0, 2, 5, committed=True))


def test_nothing_for_too_long_is_an_error_that_says_what_the_broker_said(topic: Topic) -> None:
    def play(_: Request) -> Any:
        return fetched(high_watermark=5, last_stable_offset=3, log_start_offset=1)

    with (
        topic.playing(fetch=play) as broker,
        cluster_of(broker, patience_s=0.2) as cluster,
        pytest.raises(
            KafkaError, match=r"from offset 3: nothing came.*start 1, high watermark 5.*stable offset 3"
        ),
    ):
        list(cluster.fetch("t", 0, 3, 5, committed=True))


def test_leader_that_nobody_knows_yet_is_asked_for_again(topic: Topic) -> None:
    def metadata(request: Request) -> Any:
        answer = topic.metadata(request)
        topic.leaders = [0]
        return answer

    topic.leaders = [-1]
    answers = scripted([fetched(batch_at(0))])
    with topic.playing(fetch=answers, metadata=metadata) as broker, cluster_of(broker) as cluster:
        assert len(list(cluster.fetch("t", 0, 0, 1, committed=True))) == 1
        assert len(broker.asked("metadata")) == 2


def test_spans_that_are_none_are_refused(topic: Topic) -> None:
    with topic.playing() as broker, cluster_of(broker) as cluster:
        for start, end in ((3, 2), (-1, 2)):
            with pytest.raises(ValueError, match="is no span"):
                cluster.fetch("t", 0, start, end, committed=True)
        with pytest.raises(ValueError, match="bytes_max is 0"):
            cluster.fetch("t", 0, 0, 2, committed=True, bytes_max=0)


# -------------------------------------------------------------------- finding whom to ask


def test_any_broker_of_the_list_will_do(topic: Topic) -> None:
    with socket.socket() as gone, topic.playing() as there:
        gone.bind(("127.0.0.1", 0))  # and nobody listens
        bootstrap = f"127.0.0.1:{gone.getsockname()[1]},{there.address}"
        with KafkaCluster(bootstrap, timeout_s=TIMEOUT_S) as cluster:
            assert cluster.topics() == {"t": 1}


def test_closed_client_says_so(topic: Topic) -> None:
    with topic.playing() as broker:
        cluster = cluster_of(broker, patience_s=0.1)
        cluster.topics()
        cluster.close()
        with pytest.raises(Unreachable, match="closed"):
            cluster.topics()


def test_connection_that_died_idle_is_replaced(topic: Topic) -> None:
    with topic.playing() as broker, cluster_of(broker) as cluster:
        cluster.topics()
        broker._sockets[0].shutdown(socket.SHUT_RDWR)
        cluster.topics()
        assert broker.connection_count == 2


def found(request: Request, **codes: int) -> Any:
    """The offset of each partition is its number; `p3=6` is the error of partition 3."""
    kinds = responses("list_offsets")
    return kinds.ListOffsetsResponse(
        topics=[
            kinds.ListOffsetsTopicResponse(
                name=one.name,
                partitions=[
                    kinds.ListOffsetsPartitionResponse(
                        partition_index=part.partition_index,
                        offset=part.partition_index,
                        error_code=codes.get(f"p{part.partition_index}", 0),
                    )
                    for part in one.partitions
                ],
            )
            for one in request.body.topics
        ]
    )


def test_offsets_of_thousands_of_partitions_take_one_request_per_leader(topic: Topic) -> None:
    topic.leaders = [at % 2 for at in range(25_000)]
    places = [("t", at) for at in range(25_000)]
    with (
        topic.playing(list_offsets=found) as one,
        topic.playing(list_offsets=found) as two,
        cluster_of(one) as cluster,
    ):
        assert cluster.offsets(places, LATEST, committed=True) == {place: place[1] for place in places}
        assert [len(broker.asked("list_offsets")) for broker in (one, two)] == [2, 2]  # 10,000 and the rest
        assert len(one.asked("metadata")) == 1


def test_only_what_failed_is_asked_again(topic: Topic) -> None:
    topic.leaders = [0, 0, 0]
    plays = iter([lambda request: found(request, p1=ErrorCode.NOT_LEADER_OR_FOLLOWER), found])
    with (
        topic.playing(list_offsets=lambda request: next(plays)(request)) as broker,
        cluster_of(broker) as cluster,
    ):
        places = [("t", 0), ("t", 1), ("t", 2)]
        assert cluster.offsets(places, LATEST, committed=False) == {("t", 0): 0, ("t", 1): 1, ("t", 2): 2}
        again = broker.asked("list_offsets")[1]
        assert [one.partition_index for one in again.topics[0].partitions] == [1]
        assert again.isolation_level == 0


def test_offset_that_is_not_answered_is_an_error(topic: Topic) -> None:
    empty = responses("list_offsets").ListOffsetsResponse()
    with (
        topic.playing(list_offsets=scripted([empty])) as broker,
        cluster_of(broker) as cluster,
        pytest.raises(NotUnderstood, match="t-0 was asked for and not answered"),
    ):
        cluster.offsets([("t", 0)], LATEST, committed=True)


def test_coordinator_that_moved_is_looked_for_again(topic: Topic) -> None:
    coordinators = [0, 1]

    def find(request: Request) -> Any:
        kinds = responses("find_coordinator")
        port = topic.brokers[coordinators.pop(0)].port
        (key,) = request.body.coordinator_keys
        return kinds.FindCoordinatorResponse(
            coordinators=[kinds.Coordinator(key=key, host="127.0.0.1", port=port)]
        )

    def offsets(code: int) -> Any:
        kinds = responses("offset_fetch")
        part = kinds.OffsetFetchResponsePartitions(partition_index=0, committed_offset=5)
        unset = kinds.OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1)
        topics = [kinds.OffsetFetchResponseTopics(name="t", partitions=[part, unset])]
        return kinds.OffsetFetchResponse(
            groups=[kinds.OffsetFetchResponseGroup(error_code=code, topics=topics)]
        )

    with (
        topic.playing(
            find_coordinator=find, offset_fetch=scripted([offsets(ErrorCode.NOT_COORDINATOR)])
        ) as one,
        topic.playing(offset_fetch=scripted([offsets(0), offsets(0)])),
        cluster_of(one) as cluster,
    ):
        assert cluster.group_offsets("g") == {("t", 0): 5}
        assert cluster.group_offsets("g") == {("t", 0): 5}
        assert coordinators == []


def test_topic_that_a_lost_answer_made_is_made(topic: Topic) -> None:
    kinds = responses("create_topics")
    exists = kinds.CreatableTopicResult(name="t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
    answers = scripted(
        [None, kinds.CreateTopicsResponse(topics=[exists]), kinds.CreateTopicsResponse(topics=[exists])]
    )
    with topic.playing(create_topics=answers) as broker, cluster_of(broker) as cluster:
        cluster.create_topic("t", 1)
        with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
            cluster.create_topic("t", 1)


# -------------------------------------------------------------------- producing


class Store:
    """Takes batches as a broker does: in order, each once. `faults` are answered first, in turn."""

    def __init__(self, *faults: int | Hold | None) -> None:
        self.faults = list(faults)
        self.stored: dict[int, list[int]] = {}
        self.request_count = 0

    def __call__(self, request: Request) -> Any:
        self.request_count += 1
        fault = self.faults.pop(0) if self.faults else 0
        if fault is None or isinstance(fault, Hold):
            return fault
        kinds = responses("produce")
        return kinds.ProduceResponse(
            responses=[
                kinds.TopicProduceResponse(
                    name=one.name,
                    partition_responses=[
                        kinds.PartitionProduceResponse(
                            index=part.index,
                            error_code=fault or self._store(part),
                            error_message="so says the test" if fault else None,
                        )
                        for part in one.partition_data
                    ],
                )
                for one in request.body.topic_data
            ]
        )

    def _store(self, part: Any) -> int:
        header = read_header(part.records)
        stored = self.stored.setdefault(part.index, [])
        if header.producer_id == NO_PRODUCER:
            stored.append(len(stored))
            return 0
        if header.base_sequence in stored:
            return int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        if header.base_sequence != len(stored):
            return int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        stored.append(header.base_sequence)
        return 0


def send(sender: BatchSender, partition: int = 0, *, value: bytes = b"v" * 600_000) -> None:
    stamp = Producer(*ME, sender.sequence("t", partition))
    sender.send("t", partition, build_batch([NewRecord(None, value)], 1, producer=stamp))


@pytest.mark.parametrize(
    "faults",
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER,),
        (0, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, 0, ErrorCode.LEADER_NOT_AVAILABLE),
        (None,),
        (0, 0, None, None, 0, 0, None),
        (0, ErrorCode.KAFKA_STORAGE_ERROR, 0, None, ErrorCode.BROKER_NOT_AVAILABLE),
    ],
)
def test_what_may_heal_is_sent_again_in_order_and_stored_once(
    topic: Topic, faults: tuple[int | None, ...]
) -> None:
    store = Store(*faults)
    with (
        topic.playing(produce=store) as broker,
        cluster_of(broker) as cluster,
        BatchSender(cluster, ME) as sender,
    ):
        for _ in range(12):
            send(sender)
    assert store.stored == {0: list(range(12))}
    assert store.request_count > 12


def test_batch_whose_answer_was_lost_is_stored_already(topic: Topic) -> None:
    store = Store()

    def play(request: Request) -> Any:
        answer = store(request)
        return None if store.request_count in (2, 5) else answer

    with (
        topic.playing(produce=play) as broker,
        cluster_of(broker) as cluster,
        BatchSender(cluster, ME) as sender,
    ):
        for _ in range(10):
            send(sender)
    assert store.stored == {0: list(range(10))}


def test_batches_behind_one_that_failed_are_not_sent_twice_if_they_were_stored(topic: Topic) -> None:
    store = Store(ErrorCode.NOT_ENOUGH_REPLICAS)
    batch = build_batch([NewRecord(None, b"v" * 600_000)], 1)
    with (
        topic.playing(produce=store) as broker,
        cluster_of(broker) as cluster,
        BatchSender(cluster) as sender,
    ):
        for _ in range(12):
            sender.send("t", 0, batch)
    assert store.stored == {0: list(range(12))}
    assert store.request_count == 13


def test_no_more_is_under_way_than_a_broker_remembers() -> None:
    assert REQUEST_COUNT_MAX <= BATCH_COUNT_KEPT


def test_no_more_than_five_requests_are_under_way(topic: Topic) -> None:
    hold = Hold()
    store = Store(hold)
    with (
        topic.playing(produce=store) as broker,
        cluster_of(broker) as cluster,
        BatchSender(cluster, ME) as sender,
    ):
        for _ in range(12):
            send(sender)
        assert [len(lane._under_way) for lane in sender._lanes.values()] == [REQUEST_COUNT_MAX]
        hold.set()
    assert store.stored == {0: list(range(12))}


def test_partitions_share_a_request_and_a_partition_has_one_batch_in_it(topic: Topic) -> None:
    topic.leaders = [0, 0, 0]
    store = Store()
    with topic.playing(produce=store) as broker, cluster_of(broker) as cluster:
        with BatchSender(cluster, ME) as sender:
            for partition in (0, 1, 2, 1, 1, 2):
                send(sender, partition, value=b"small")
            assert broker.asked("produce") == []
        shares = [
            sorted(part.index for part in one.topic_data[0].partition_data) for one in broker.asked("produce")
        ]
    assert shares == [[0, 1, 2], [1, 2], [1]]
    assert store.stored == {0: [0], 1: [0, 1, 2], 2: [0, 1]}


def test_producer_follows_the_leader_of_each_partition(topic: Topic) -> None:
    topic.leaders = [0, 0]
    store = Store()

    def until_moved(request: Request) -> Any:
        """The first partition moves when something is written to it for the first time."""
        if topic.leaders == [1, 0] or all(part.index for part in request.body.topic_data[0].partition_data):
            return store(request)
        topic.leaders = [1, 0]
        return Store(ErrorCode.NOT_LEADER_OR_FOLLOWER)(request)

    with (
        topic.playing(produce=until_moved) as old,
        topic.playing(produce=store) as new,
        cluster_of(old) as cluster,
    ):
        with BatchSender(cluster, ME) as sender:
            for at in range(8):
                send(sender, at % 2)
        assert {part.index for one in new.asked("produce") for part in one.topic_data[0].partition_data} == {
            0
        }
    assert store.stored == {0: list(range(4)), 1: list(range(4))}


@pytest.mark.parametrize(
    "code",
    [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_RECORD],
)
def test_what_cannot_heal_ends_the_sender(topic: Topic, code: ErrorCode) -> None:
    with topic.playing(produce=Store(code)) as broker, cluster_of(broker) as cluster:
        sender = BatchSender(cluster, ME)
        send(sender, value=b"small")
        for _ in range(2):
            with pytest.raises(KafkaError, match=f"producing to t-0: {code.name}: so says the test"):
                sender.flush()
        with pytest.raises(KafkaError, match=code.name):
            send(sender)
        sender.close()


def test_what_does_not_heal_in_time_is_raised(topic: Topic) -> None:
    store = Store(*[ErrorCode.NOT_ENOUGH_REPLICAS] * 1_000)
    with topic.playing(produce=store) as broker, cluster_of(broker, patience_s=0.3) as cluster:
        sender = BatchSender(cluster, ME)
        send(sender, value=b"small")
        with pytest.raises(KafkaError, match=r"t-0: NOT_ENOUGH_REPLICAS: so says the test \(tried for"):
            sender.flush()
        sender.close()


def test_answer_without_a_partition_is_refused(topic: Topic) -> None:
    answers = scripted([responses("produce").ProduceResponse()])
    with topic.playing(produce=answers) as broker, cluster_of(broker) as cluster:
        sender = BatchSender(cluster, ME)
        send(sender, value=b"small")
        with pytest.raises(NotUnderstood, match="says nothing of the batch"):
            sender.flush()
        sender.close()


def test_transactions_need_a_broker_that_adds_partitions_itself(topic: Topic) -> None:
    broker = ScriptedBroker(topic.metadata, served={"produce": (0, 11)})
    topic.brokers.append(broker)
    batch = build_batch([NewRecord(None, b"v")], 1, producer=Producer(*ME, 0), attributes=0x10)
    with broker, cluster_of(broker) as cluster:
        sender = BatchSender(cluster, ME, "tx")
        sender.send("t", 0, batch)
        with pytest.raises(
            KafkaError, match="serves produce in versions 0 to 11; versions 12 to 12 are needed"
        ):
            sender.flush()
        sender.close()


def test_batches_that_are_not_the_next_of_this_producer_are_refused(topic: Topic) -> None:
    records = [NewRecord(None, b"v")] * 3
    with topic.playing(produce=Store()) as broker, cluster_of(broker) as cluster:
        with BatchSender(cluster, ME) as sender:
            for wrong in (None, Producer(8, 0, 0), Producer(7, 1, 0), Producer(7, 0, 1)):
                with pytest.raises(ValueError, match=r"\(7, 0, 0\) was expected"):
                    sender.send("t", 0, build_batch(records, 1, producer=wrong))
            batch = build_batch(records, 1, producer=Producer(*ME, 0))
            with pytest.raises(ValueError, match="one batch"):
                sender.send("t", 0, batch + batch)
            with pytest.raises(ValueError, match="in a transaction"):
                sender.send("t", 0, build_batch(records, 1, producer=Producer(*ME, 0), attributes=0x10))
            sender.send("t", 0, batch)
            assert (sender.sequence("t", 0), sender.sequence("t", 1)) == (3, 0)
        with BatchSender(cluster) as sender, pytest.raises(ValueError, match="was expected"):
            sender.send("t", 0, batch)
        for options in ({"acks": "some"}, {"producer": ME, "acks": "leader"}, {"transactional_id": "x"}):
            with pytest.raises(ValueError, match=r"acks|needs a producer id"):
                BatchSender(cluster, **options)
