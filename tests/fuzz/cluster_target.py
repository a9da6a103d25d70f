"""A cluster of one node in this process, whose listener for other nodes is attacked, and everything that must be true of it then."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.fuzz.messages import Likely
from tests.fuzz.target import ANSWER_S_MAX, CONFIG, Broken, ErrorLog, Peer, likely_of, request_of

from goqueue.api.cluster.assembly import cluster_listener
from goqueue.api.kafka.app import served_apis
from goqueue.api.kafka.call import Api
from goqueue.api.kafka.context import Context
from goqueue.api.kafka.queue_calls import QueueCallsApi
from goqueue.api.kafka.txn_markers import TxnMarkersApi
from goqueue.core.cluster.nodes import Endpoints
from goqueue.log.os_disk import OsDisk
from goqueue.model.errors import GoQueueError
from goqueue.node.clock import SystemClock
from goqueue.node.cluster import exchange
from goqueue.node.cluster.login import MECHANISM, ClientLogin
from goqueue.node.cluster.secret import Secret
from goqueue.node.config import ClusterConfig, NodeConfig
from goqueue.node.config import Peer as Seat
from goqueue.node.ids import RandomIds
from goqueue.node.node import Node
from goqueue.peer.dialling import Credentials
from goqueue.peer.http import HttpLink, open_http
from goqueue.peer.links import PeerLinks

NAME = "node-1"
OTHER = "node-9"  # who asks; it has not joined
KEY = b"what only nodes know"
_LOOK_S = 0.01
# It waits for nobody when it starts, and has nobody to leave to when it stops.
_ALONE = ClusterConfig(
    peers=(Seat(NAME, "127.0.0.1", 1),),
    heartbeat_ms=100,
    suspect_ms=200,
    dead_ms=300,
    lease_ms=1_000,
    lease_renew_ms=200,
)


class Facts(NamedTuple):
    """What nobody may change who is not a node."""

    term: int
    voters: tuple[str, ...]
    nodes: tuple[str, ...]
    topics: tuple[str, ...]


class ClusterTarget:
    """`is_trusted` is set by attacks of whoever knows the secret: those may make topics."""

    def __init__(self, folder: Path) -> None:
        self.sent: list[bytes] = []  # by the attack that is under way
        self.is_trusted = False
        self.clock = SystemClock()
        self.secret = Secret(KEY)
        self._folder = folder
        self._peers: list[Peer] = []  # of the attack that is under way
        self._complaints: list[str] = []
        self._log = ErrorLog(self._complaints)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self._complaints.append(f"the loop: {context}"))
        logging.getLogger().addHandler(self._log)
        config = NodeConfig(
            node_id=NAME,
            default_partition_count=1,
            limits=CONFIG.limits,
            cluster=_ALONE,
        )
        ids = RandomIds()
        credentials = Credentials(NAME, lambda: self.cluster_id, lambda: None, Secret(KEY), self.clock, ids)
        self._links = PeerLinks(
            credentials,
            number=lambda: self.node.directory.number,
            address_of=lambda _: None,
            chance=Random(1).random,
        )
        self.node = Node(config, OsDisk(str(self._folder)), self.clock, ids, self._links)
        await self.node.begin()
        self.listener = cluster_listener(
            self.node, secret=Secret(KEY), clock=self.clock, ids=ids, host="127.0.0.1", port=0
        )
        self.host, self.port = await self.listener.start()
        here = f"{self.host}:{self.port}"
        await self.node.start(Endpoints(http=here, kafka=here, cluster=here))
        for topic in ("orders", "events"):
            await self.node.topics.create(topic, partition_count=2, overrides={})
        kafka = Context(self.node)
        self.apis_of_nodes: list[Api] = [*TxnMarkersApi(kafka).apis(), *QueueCallsApi(kafka).apis()]
        self.apis: list[Api] = [*served_apis(kafka), *self.apis_of_nodes]
        self._facts = self._seen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for peer in self._peers:  # an attack that got through has not left
            peer.abort()
            await peer.close()
        await self.node.drain()
        await self.listener.stop(5.0)
        await self.node.stop()
        await self._links.close()
        logging.getLogger().removeHandler(self._log)
        asyncio.get_running_loop().set_exception_handler(None)
        if error is None:
            self._complain()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            if left:
                raise Broken(f"tasks are left: {left}")

    @property
    def cluster_id(self) -> str | None:
        return self.node.cluster.cluster_id if self.node.cluster is not None else None

    def forget(self) -> None:
        """The next attack begins."""
        self._peers.clear()
        self.sent.clear()
        self.is_trusted = False

    async def connect(self) -> Peer:
        peer = Peer(*await asyncio.open_connection(self.host, self.port))
        self._peers.append(peer)
        return peer

    async def http(self) -> HttpLink:
        return await open_http(self.host, self.port, NAME, timeout_s=ANSWER_S_MAX)

    async def logged_in(self) -> Peer:
        """As another node is, which knows the secret."""
        self.is_trusted = True
        peer = await self.connect()
        login = self.login()
        await peer.ask("sasl_handshake", 1, request_of("sasl_handshake", mechanism=MECHANISM))
        challenge = await authenticate(peer, login.first())
        answer = await authenticate(peer, login.proof(challenge.auth_bytes))
        login.check(answer.auth_bytes)
        return peer

    def login(self, key: bytes = KEY, target: str = NAME) -> ClientLogin:
        return ClientLogin(
            Secret(key),
            source=OTHER,
            target=target,
            cluster_id=self.cluster_id,
            nonce=os.urandom(8).hex(),  # never twice: a second process may repeat a round within the window
        )

    def sign(self, method: str, path: str, body: bytes, **changes: Any) -> str:  # of whatever parameter
        """The header of a request that is sound, unless something of it is changed."""
        secret = changes.pop("secret", self.secret)
        values = {
            "source": OTHER,
            "target": NAME,
            "cluster_id": self.cluster_id,
            "timestamp_ms": self.clock.now_ms(),
            "nonce": os.urandom(8).hex(),
        } | changes
        header: str = secret.sign(method, path, body, **values)
        return header

    def likely(self) -> Likely:
        return likely_of(self.node)

    async def check(self) -> None:
        """Every client is gone: nothing is left of any, nothing was changed, and the next node is served."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                while self._connection_count():  # noqa: ASYNC110 - nobody calls when one is gone
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise Broken(f"{self._connection_count()} connections are not gone") from None
        self._complain()
        facts = self._seen()
        if self.is_trusted:
            self._facts = self._facts._replace(topics=facts.topics)
        if facts != self._facts:
            raise Broken(f"{self._facts} became {facts}")
        await self._serve_one()
        self._complain()

    def forgive(self) -> None:
        """Forget what was noticed so far."""
        self._complaints.clear()
        self.node.failed.clear()

    def _connection_count(self) -> int:
        http, frames = self.listener._http, self.listener._frames
        return (
            len(http._state.connections)
            + len(http._state.tasks)
            + len(frames._connections)
            + len(self.listener._silent._ones)
        )

    def _seen(self) -> Facts:
        raft, catalog = self.node._quorum.raft, self.node._metadata.catalog
        return Facts(
            raft.term,
            tuple(raft.voters),
            tuple(entry.name for entry in catalog.nodes()),
            tuple(sorted(topic.name for topic in self.node.topics.list())),
        )

    async def _serve_one(self) -> None:
        link = await self.http()
        try:
            header = self.sign("GET", exchange.STATE, b"")
            answer = await link.ask("GET", exchange.STATE, b"", {exchange.SIGNATURE_HEADER: header})
            signature = answer.headers.get(exchange.ANSWER_HEADER, "")
            if answer.status != 200 or not self.secret.is_answer(header, 200, answer.body, signature):
                raise Broken(f"a node that asks for the state is answered {answer}")
        except GoQueueError as error:
            raise Broken(f"a node that asks for the state is not answered: {error}") from None
        finally:
            link.abort()
        is_trusted = self.is_trusted
        peer = await self.logged_in()
        self.is_trusted = is_trusted
        try:
            found = await peer.ask("metadata", 9, request_of("metadata", topics=None))
            if [broker.port for broker in found.brokers] != [self.port]:
                raise Broken(f"Metadata: {found}")
        finally:
            await peer.close()

    def _complain(self) -> None:
        if self.node.failed.is_set():
            self._complaints.append("the node has failed")
        if self._complaints:
            raise Broken("\n".join(self._complaints))


async def authenticate(peer: Peer, data: bytes) -> Any:
    return await peer.ask("sasl_authenticate", 2, request_of("sasl_authenticate", auth_bytes=data))
