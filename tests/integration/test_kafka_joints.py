"""Joints over real sockets, read back by clients that know nothing of them, and over a kill -9 of the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support import kafka_isolation
from tests.support.broker import Broker
from tests.support.joint_client import JointClient, Task, commit, ending
from tests.support.kafka_admins import KafkaPythonAdmin
from tests.support.kafka_clients import (
    CLIENTS,
    HAS_KCAT,
    TIMEOUT_S,
    Confluent,
    Record,
    collect_sockets,
    new_name,
    new_topic,
    quiet_broker,
    until,
)
from tests.support.kafka_isolation import COMMITTED, UNCOMMITTED, ends
from tests.support.kafka_transactions import TRANSACTIONAL

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # see collect_sockets
PARTITIONS = (0, 1)
FENCED, UNMAPPED, ABORTABLE = 47, 49, 120


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with quiet_broker(tmp_path_factory.mktemp("joints")) as running:
        yield running


@pytest.fixture(autouse=True)
def _sockets_are_collected() -> Iterator[None]:
    yield
    collect_sockets()


def values(kafka: str, topic: str, isolation: str = COMMITTED) -> list[bytes]:
    """Of both partitions."""
    return sorted(value or b"" for value in kafka_isolation.values(kafka, topic, isolation, PARTITIONS))


def write_batch(client: JointClient, joint: str, batch: int, topic: str, attempt: int) -> list[Task]:
    """Two tasks, each into both partitions; nothing where the batch is committed."""
    tasks = [Task.enrol(client, joint, batch, f"{number}-{attempt}") for number in (0, 1)]
    for number, task in enumerate(tasks):
        if task.member is not None:
            for partition in PARTITIONS:
                assert task.write(topic, partition, b"%d/%d/%d" % (batch, number, partition)) == 0
    return tasks


def rows_of(*batches: int) -> list[bytes]:
    return sorted(
        b"%d/%d/%d" % (batch, number, partition)
        for batch in batches
        for number in (0, 1)
        for partition in PARTITIONS
    )


def test_every_client_reads_the_winners_and_nobody_else(served: Broker) -> None:
    topic, joint = new_topic(served, partitions=2), new_name("query")
    with JointClient(served.kafka) as client:
        losers = write_batch(client, joint, 0, topic, attempt=0)
        winners = write_batch(client, joint, 0, topic, attempt=1)
        assert values(served.kafka, topic) == []
        assert commit(client, joint, 0, *winners) is False
        assert values(served.kafka, topic) == rows_of(0)  # no wait: the answer came after the markers
        assert commit(client, joint, 0, *losers) is True
        for task in (*winners, *losers):
            assert task.write(topic, 0, b"late") in (FENCED, UNMAPPED)
    until_ends = ends(served.kafka, topic, COMMITTED, PARTITIONS)
    for name, make in CLIENTS.items():
        if name == "kcat" and not HAS_KCAT:
            continue
        rows = make(served.kafka).read(topic, until_ends)
        assert sorted(row.value or b"" for row in rows) == rows_of(0), name


def test_an_aborted_batch_is_not_read_and_can_be_written_again(served: Broker) -> None:
    topic, joint = new_topic(served, partitions=2), new_name("query")
    with JointClient(served.kafka) as client:
        first = write_batch(client, joint, 7, topic, attempt=0)
        answer = client.call("end_joint", **ending(joint, 7, is_commit=False))
        assert (answer.error_code, answer.was_committed) == (0, False)
        refused = client.call("end_joint", **ending(joint, 7, *first))
        assert first[0].member is not None
        assert (refused.error_code, refused.refused_transactional_id) == (
            ABORTABLE,
            first[0].member.transactional_id,
        )
        assert commit(client, joint, 7, *write_batch(client, joint, 7, topic, attempt=0)) is False
    assert values(served.kafka, topic) == rows_of(7)
    assert len(values(served.kafka, topic, UNCOMMITTED)) == 8


@pytest.mark.parametrize("name", list(TRANSACTIONAL))
def test_stock_clients_share_the_broker_with_joints(served: Broker, name: str) -> None:
    """Their transactions, and the names of APIs that they were never told of."""
    topic, joint = new_topic(served, partitions=2), new_name("query")
    producer = TRANSACTIONAL[name](served.kafka, new_name("tx"))
    with JointClient(served.kafka) as client:
        tasks = write_batch(client, joint, 0, topic, attempt=0)
        producer.begin()
        producer.send(topic, b"plain")
        commit(client, joint, 0, *tasks)
        producer.commit()
    producer.close()
    until(lambda: values(served.kafka, topic) == sorted([*rows_of(0), b"plain"]), "both are committed")


def test_admin_clients_see_members_as_transactions(served: Broker) -> None:
    topic, joint = new_topic(served, partitions=2), new_name("query")
    with JointClient(served.kafka) as client:
        tasks = write_batch(client, joint, 3, topic, attempt=0)
        admin = KafkaPythonAdmin(served.kafka)
        listed = {one.transactional_id for ones in admin.client.list_transactions().values() for one in ones}
        assert {f"{{{joint}}}/3/0-0", f"{{{joint}}}/3/1-0"} <= listed
        commit(client, joint, 3, *tasks)
        listed = {one.transactional_id for ones in admin.client.list_transactions().values() for one in ones}
        assert not [id for id in listed if id.startswith(f"{{{joint}}}")]
        admin.close()


def scraped(served: Broker, name: str, **labels: str) -> float:
    with urlopen(f"{served.url}/metrics", timeout=TIMEOUT_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = [one for family in families for one in family.samples]
    return sum(one.value for one in samples if one.name == f"goqueue_broker_{name}" and one.labels == labels)


def test_what_joints_do_is_seen_by_a_scrape(served: Broker) -> None:
    topic, joint = new_topic(served, partitions=2), new_name("query")
    open_before = scraped(served, "open_joints")
    committed_before = scraped(served, "joint_batches_total", outcome="committed")
    replays_before = scraped(served, "joint_replays_total")
    with JointClient(served.kafka) as client:
        tasks = write_batch(client, joint, 0, topic, attempt=0)
        assert scraped(served, "open_joints") == open_before + 1
        commit(client, joint, 0, *tasks)
        commit(client, joint, 0, *tasks)
    assert scraped(served, "open_joints") == open_before
    assert scraped(served, "joint_batches_total", outcome="committed") == committed_before + 1
    assert scraped(served, "joint_replays_total") == replays_before + 1
    assert scraped(served, "joints") > 0


def test_a_task_that_dies_holds_readers_up_for_its_timeout_at_most(served: Broker) -> None:
    topic, joint = new_topic(served, partitions=2), new_name("query")
    with JointClient(served.kafka) as client:
        # With more time only where the machine was busy otherwise, so that its time was over before it wrote.
        tasks = (Task.enrol(client, joint, 0, f"orphan-{ms}", timeout_ms=ms) for ms in (500, 10_000))
        assert 0 in (task.write(topic, 0, b"half") for task in tasks)
    Confluent(served.kafka).send(topic, [Record(b"plain")])
    until(lambda: values(served.kafka, topic) == [b"plain"], "the orphan is aborted")


MOMENTS = ("enrolled", "half written", "written", "asked to commit", "committed")


def test_each_batch_is_there_once_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    """The driver does after each kill what Spark does: write the batch again that it has not heard the commit of."""
    joint = "query"
    with Broker(tmp_path) as broker:
        kafka = broker.kafka
        topic = new_topic(broker, partitions=2)
    for batch, moment in enumerate(MOMENTS):
        with Broker(tmp_path, kafka=kafka) as broker, JointClient(kafka) as client:
            run_until(client, joint, batch, topic, moment)
            broker.kill9()
        with Broker(tmp_path, kafka=kafka), JointClient(kafka) as client:
            again = write_batch(client, joint, batch, topic, attempt=1)
            is_committed = {task.member is None for task in again}
            was_committed = commit(client, joint, batch, *again)
            assert is_committed == {was_committed}
            if moment != "asked to commit":
                assert was_committed == (moment == "committed")
            assert values(kafka, topic) == rows_of(*range(batch + 1)), moment
    with Broker(tmp_path, kafka=kafka), JointClient(kafka) as client:
        for batch in range(len(MOMENTS)):
            assert commit(client, joint, batch) is True
        assert values(kafka, topic) == rows_of(*range(len(MOMENTS)))


def run_until(client: JointClient, joint: str, batch: int, topic: str, moment: str) -> None:
    """The first attempt at a batch, as far as it comes."""
    if moment == "enrolled":
        Task.enrol(client, joint, batch, "0-0")
        return
    if moment == "half written":
        assert Task.enrol(client, joint, batch, "0-0").write(topic, 0, b"half") == 0
        return
    tasks = write_batch(client, joint, batch, topic, attempt=0)
    if moment == "asked to commit":
        client.send("end_joint", **ending(joint, batch, *tasks))  # whether it is decided nobody knows
    elif moment == "committed":
        assert commit(client, joint, batch, *tasks) is False


def test_an_open_batch_is_committed_by_its_driver_after_kill_9(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        kafka = broker.kafka
        topic = new_topic(broker, partitions=2)
        with JointClient(kafka) as client:
            tasks = write_batch(client, "query", 0, topic, attempt=0)
        broker.kill9()
    with Broker(tmp_path, kafka=kafka), JointClient(kafka) as client:
        assert values(kafka, topic) == []
        assert commit(client, "query", 0, *tasks) is False
        assert values(kafka, topic) == rows_of(0)
