"""Who is to be asked: brokers, leaders and coordinators, the connections to them, and the patience when they move.

A connection is lent to one user at a time, so a reader with an answer under way never stands in the way of another request; it
comes back when nothing is under way on it, and ends when something is. What is known of leaders is forgotten whenever
something fails, and asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from goqueue.client.kafka.codes import ErrorCode
from goqueue.client.kafka.connection import Address, Connection, Dialler
from goqueue.client.kafka.errors import KafkaError, Unreachable, check, refused, unfit
from goqueue.client.kafka.layouts import requests
from goqueue.client.kafka.patience import Patience
from goqueue.client.kafka.security import Security

GROUP, TRANSACTION = 0, 1  # kinds of coordinators, by Kafka's numbers
_IDLE_COUNT_MAX = 4  # connections to one broker that wait to be lent
_COORDINATOR_COUNT_MAX = 1_000  # that are remembered
_PORT_MAX = 65_535
T = TypeVar("T")
Place = tuple[str, int]


def parse_bootstrap(text: str) -> list[Address]:
    """`host:port,host:port`; an IPv6 address stands in brackets."""
    addresses = []
    for one in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = one.rpartition(":")
        is_bracketed = host.startswith("[") and host.endswith("]")
        bare = host[1:-1] if is_bracketed else host
        is_port = port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX
        if not (colon and bare and is_port) or (":" in bare) != is_bracketed:
            raise unfit(
                ErrorCode.INVALID_CONFIG,
                f"{one!r} is no broker's address; write HOST:PORT, or [ADDRESS]:PORT for IPv6",
            )
        addresses.append(Address(bare, int(port)))
    if not addresses:
        raise unfit(ErrorCode.INVALID_CONFIG, f"{text!r} names no broker; write HOST:PORT,HOST:PORT")
    return addresses


class Brokers:
    """Of one thread."""

    def __init__(self, bootstrap: str, security: Security, *, client_id: str, timeout_s: float) -> None:
        self._bootstrap = parse_bootstrap(bootstrap)
        self._dialler = Dialler(security, client_id=client_id, timeout_s=timeout_s)
        self._idle: dict[Address, list[Connection]] = {}
        self._addresses: dict[int, Address] = {}  # by node id
        self._leaders: dict[str, dict[int, int]] = {}  # node ids by topic and partition
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._is_closed = False
        self.timeout_s = timeout_s

    # ---------------------------------------------------------------- connections

    def borrow(self, address: Address) -> Connection:
        """An idle connection that still lives, or a new one."""
        if self._is_closed:
            raise Unreachable("this client is closed")
        idle = self._idle.get(address, [])
        while idle:
            connection = idle.pop()
            if not connection.has_input():  # nobody asked: it is the end of it
                return connection
            connection.close()
        return self._dialler.dial(address)

    def give_back(self, connection: Connection) -> None:
        idle = self._idle.setdefault(connection.address, [])
        if not connection.is_free or self._is_closed or len(idle) >= _IDLE_COUNT_MAX:
            connection.close()
        else:
            idle.append(connection)

    @contextmanager
    def lent(self, address: Address) -> Iterator[Connection]:
        """For one request and its answer; after a failure it is closed."""
        connection = self.borrow(address)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self.give_back(connection)

    def close(self) -> None:
        """Those that are lent end when they come back."""
        self._is_closed = True
        for idle in self._idle.values():
            while idle:
                idle.pop().close()

    # ---------------------------------------------------------------- whom to ask

    def call_any(self, api: str, **fields: Any) -> Any:  # of whatever API it is
        """Ask the first broker that can be reached."""
        failure: KafkaError | None = None
        for address in dict.fromkeys([*self._addresses.values(), *self._bootstrap]):
            try:
                with self.lent(address) as connection:
                    return connection.call(api, **fields)
            except Unreachable as error:
                failure = failure or error
        raise failure or Unreachable("no broker is known")

    def call_coordinator(self, kind: int, key: str, api: str, **fields: Any) -> Any:  # as above
        """Ask the broker that has the word on a group or a transaction."""
        with self.lent(self._coordinator(kind, key)) as connection:
            return connection.call(api, **fields)

    def leader(self, topic: str, partition: int) -> Address:
        if topic not in self._leaders:
            self.learn([topic])
        node = self._leaders[topic].get(partition)
        if node is None:
            count = len(self._leaders[topic])
            self.forget(topic)
            raise refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"partition {partition} of {topic}",
                f"it has {count} partitions",
            )
        if node not in self._addresses:
            self.forget(topic)
            raise refused(ErrorCode.LEADER_NOT_AVAILABLE, f"the leader of {topic}-{partition}")
        return self._addresses[node]

    def learn(self, topics: Iterable[str]) -> None:
        """Ask who leads these; one request for all of them."""
        wanted = list(topics)
        if wanted:
            for topic in self.metadata(wanted):
                check(topic.error_code, f"topic {topic.name}")

    def unknown(self, topics: Iterable[str]) -> list[str]:
        """Those whose leaders nobody has asked for yet."""
        return [topic for topic in dict.fromkeys(topics) if topic not in self._leaders]

    def metadata(self, topics: list[str] | None) -> tuple[Any, ...]:
        """Each topic as the broker describes it, all of them for None; leaders and addresses are kept."""
        answer = self.call_any(
            "metadata",
            topics=None if topics is None else [_named(topic) for topic in topics],
            allow_auto_topic_creation=False,
        )
        self._addresses = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
        for topic in answer.topics:
            if topic.error_code == 0:
                self._leaders[topic.name] = {one.partition_index: one.leader_id for one in topic.partitions}
        return tuple(answer.topics)

    def forget(self, topic: str) -> None:
        self._leaders.pop(topic, None)

    def retrying(self, attempt: Callable[[], T]) -> T:
        """The first success; between attempts everything known about coordinators is forgotten."""
        patience = Patience(self.timeout_s)
        while True:
            try:
                return attempt()
            except KafkaError as error:
                self._coordinators.clear()
                patience.pause(error)

    def _coordinator(self, kind: int, key: str) -> Address:
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        what = f"the coordinator of {'group' if kind == GROUP else 'transactions of'} {key!r}"
        answer = self.call_any("find_coordinator", key_type=kind, coordinator_keys=[key])
        for one in answer.coordinators:
            check(one.error_code, what, one.error_message)
            if len(self._coordinators) >= _COORDINATOR_COUNT_MAX:
                self._coordinators.clear()
            self._coordinators[kind, key] = Address(one.host, one.port)
            return self._coordinators[kind, key]
        raise refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, what)


def _named(topic: str) -> Any:  # a class that is made at run time
    return requests("metadata").MetadataRequestTopic(name=topic)
