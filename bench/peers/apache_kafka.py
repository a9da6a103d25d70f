"""Apache Kafka: one node in KRaft mode that is both broker and controller, with the JVM flags of its start script.

Its settings are its defaults, but for what a single node needs. By default it never syncs, whatever `acks` says;
a synced topic has `flush.messages=1`, which is the durability that ours gives to `acks=all`.
"""

from __future__ import annotations

import shutil
import socket
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from bench.child import Child
from bench.line import BenchFailed
from bench.peers.maven import cache_folder, fetch_jars, read_pins
from bench.peers.peer import KafkaServer, PeerAbsent

PINS = Path(__file__).with_suffix(".sha256")
_START_TIMEOUT_S = 60.0
_RETRY_S = 0.1
_ADMIN_TIMEOUT_S = 120.0  # a busy disk takes a minute for a thousand partitions
_HEAP = ("-Xms1G", "-Xmx1G")
_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
log.dirs={folder}/data
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
_LOGGING = """\
appender.console.type=Console
appender.console.name=console
appender.console.target=SYSTEM_ERR
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
"""


class ApacheKafka:
    name = "kafka"
    is_broker = True

    @property
    def title(self) -> str:
        return f"Apache Kafka {kafka_version(read_pins(PINS))}"

    @contextmanager
    def start(self, folder: Path) -> Iterator[KafkaServer]:
        java = shutil.which("java")
        if java is None:
            raise PeerAbsent("there is no java on this machine")
        jars = fetch_jars(read_pins(PINS), cache_folder())
        port, controller_port = _free_ports(2)
        properties = folder / "server.properties"
        properties.write_text(
            _PROPERTIES.format(port=port, controller_port=controller_port, folder=folder), encoding="utf-8"
        )
        program = prepare(folder, [java], java_flags(_HEAP), jars, new_cluster_id())
        with Child("kafka.Kafka", str(properties), program=program) as child:
            yield _Running(child, f"127.0.0.1:{port}")


class _Running:
    def __init__(self, child: Child, address: str) -> None:
        self._child = child
        self.address = address
        _await_port(child, address)
        self._admin = _new_admin(address)
        self._admin.list_topics(timeout=_ADMIN_TIMEOUT_S)

    @property
    def pid(self) -> int:
        return self._child.pid

    def create_topic(self, name: str, *, partition_count: int, is_synced: bool = False) -> None:
        config = {"flush.messages": "1"} if is_synced else {}
        topic = NewTopic(name, num_partitions=partition_count, replication_factor=1, config=config)
        _wait(self._admin.create_topics([topic])[name])
        self._await_leaders(name, partition_count)

    def delete_topic(self, name: str) -> None:
        _wait(self._admin.delete_topics([name])[name])

    def _await_leaders(self, name: str, partition_count: int) -> None:
        """A topic exists before its partitions can be written; a producer that comes too soon has to try again."""
        end = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the package is typed but for this
        places = {TopicPartition(name, index): end for index in range(partition_count)}
        deadline = time.monotonic() + _ADMIN_TIMEOUT_S
        while time.monotonic() < deadline:
            # A client that once saw the topic without leaders keeps saying so, hence a new one for every try.
            admin = _new_admin(self.address)
            answers = admin.list_offsets(places)
            if all(answer.exception(_ADMIN_TIMEOUT_S) is None for answer in answers.values()):
                return
            time.sleep(_RETRY_S)
        raise BenchFailed(f"Apache Kafka has no leaders for a new topic after {_ADMIN_TIMEOUT_S:g} s")


def _new_admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "log_level": 0})


def _wait(change: Future[None]) -> None:
    try:
        change.result(_ADMIN_TIMEOUT_S)
    except KafkaException as error:
        raise BenchFailed(f"Apache Kafka refused: {error}") from error


def kafka_version(pins: Iterable[str]) -> str:
    return next(name.split("/")[-2] for name in pins if name.startswith("org/apache/kafka/kafka-clients/"))


def java_flags(heap: Sequence[str]) -> list[str]:
    return [*heap, *_FLAGS]


def new_cluster_id() -> str:
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def prepare(
    folder: Path, java: Sequence[str], flags: Sequence[str], jars: Sequence[Path], cluster_id: str
) -> list[str]:
    """Format the folder by the `server.properties` in it; the program that runs a node there."""
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING, encoding="utf-8")
    class_path = ("-cp", ":".join(map(str, jars)), f"-Dlog4j2.configurationFile={logging}")
    _format([*java, *class_path], folder / "server.properties", cluster_id)
    # The kernel ends the JVM with us, even if nothing of ours runs any more.
    guard = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
    return [*guard, *java, *flags, *class_path]


def _format(program: Sequence[str], properties: Path, cluster_id: str) -> None:
    arguments = ("format", "--cluster-id", cluster_id, "--config", str(properties))
    with Child("kafka.tools.StorageTool", *arguments, program=program) as child:
        child.wait(timeout_s=_START_TIMEOUT_S)


def _free_ports(count: int) -> list[int]:
    """Held all at once, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _await_port(child: Child, address: str) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        child.require_running()
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(_RETRY_S)
        else:
            return
    raise BenchFailed(f"Apache Kafka does not listen after {_START_TIMEOUT_S:g} s")
