"""What a node wants of the others, and what they may want of it. `goqueue.peer` and `goqueue.api.cluster` carry it over the
wire; the simulation carries the same bytes over its own network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from goqueue.core.catalog import Event
from goqueue.core.cluster.commands import Order
from goqueue.core.cluster.nodes import Endpoints
from goqueue.core.raft.messages import Message
from goqueue.model.errors import GoQueueError
from goqueue.node.other_nodes import OtherNodes
from goqueue.node.queue.ports import RemoteAppends, RemoteLedgers
from goqueue.node.scaling.ports import RemoteParts
from goqueue.node.transactions.remote import RemoteTransactions

# ---------------------------------------------------------------- control plane


class Join(Struct, frozen=True):
    """A process has started on the node of this name; it leads nothing until its heartbeat says that it is ready."""

    name: str
    incarnation: str
    endpoints: Endpoints
    rack: str = ""
    version: str = ""
    lost: list[tuple[str, int]] = []  # partitions that are not there, or damaged
    level: int = 1  # of features, that it understands; a version from before there were levels says nothing
    previous: list[
        str
    ] = []  # incarnations that its folder knows to have registered; none where that is not known
    is_again: bool = (
        False  # its process was registered before: where another one has its name now, it has lost it
    )


class Copying(Struct, frozen=True, array_like=True):
    """How far a replica has come that is being added to a partition, as its leader knows it."""

    topic: str
    partition: int
    follower: int
    records_left: int
    records: int  # there are
    bytes: int


class Beat(Struct, frozen=True):
    """I am alive."""

    name: str
    incarnation: str
    applied_index: int  # of the metadata
    is_ready: bool  # all its partitions are open and it listens
    is_leaving: bool = False  # it wants to stop: take its leaderships first
    is_gone: bool = False  # it has stopped: nobody has to wait for it any more
    is_full: bool = False  # its disk takes no writes: it had better lead nothing
    copying: list[Copying] = []  # of partitions that it leads and that are being moved; not necessarily all
    level: int = 1  # of features, that it understands


class BeatAnswer(Struct, frozen=True):
    controller: str
    term: int
    is_known: bool  # False: join again
    is_fenced: bool
    may_stop: bool = False  # of one that is leaving: it leads nothing any more
    leader_index: int = 0  # the controller's own applied index


class Done(Struct, frozen=True):
    """A command was carried out: its events are committed up to this index of the metadata log."""

    index: int
    events: list[Event]


class Confirmed(Struct, frozen=True):
    """Every decision that was made before the question is at or below this index of the metadata log."""

    index: int


class ClusterState(Struct, frozen=True):
    """What one node believes; for people and tests."""

    node: str
    cluster_id: str | None
    role: str
    term: int
    leader: str | None
    voters: list[str]
    commit_index: int
    applied_index: int
    last_index: int
    level: int = 1  # of features, in force
    incarnation: str = ""  # of the process; a version that does not tell it says nothing


class NodeView(Struct, frozen=True):
    """A node as the answering node sees it."""

    name: str
    number: int
    status: str  # unknown, alive, suspect, dead, leaving
    state: str  # fenced, alive, draining
    is_controller: bool
    is_voter: bool
    endpoints: Endpoints
    rack: str
    version: str
    incarnation: str
    last_heard_ms: int | None  # since then; None where the answering node does not hear heartbeats
    leader_count: int
    replica_count: int
    level: int | None = None  # of features, that it understands, where the answering node hears heartbeats


class ClusterHealth(Struct, frozen=True):
    """How the cluster is, for people and probes."""

    status: str  # ok, degraded, no controller
    controller: str | None
    partitions_without_leader: int
    partitions_short_of_replicas: int
    nodes_fenced: list[str]
    voters_not_counting: (
        list[str] | None
    ) = []  # None: the controller has not said; an earlier version never does


class ClusterService(Protocol):
    """What a node answers to others. `source` is who asks, proven by its signature; what says itself whose word it is was compared with
    that."""

    def receive(self, message: Message) -> None:
        """A Raft message; never raises."""

    async def join(self, join: Join) -> Done:
        """Raises NotController with the controller's name if it is another."""

    async def beat(self, beat: Beat) -> BeatAnswer: ...

    async def leave(self, source: str, name: str) -> Done:
        """For good: the node is taken out of the catalogue; refused while it holds replicas."""

    async def execute(self, source: str, command: Order) -> Done: ...

    def copying(self) -> list[Copying]:
        """What the heartbeats say of partitions that are being moved. Raises NotController where they are not heard."""

    async def confirmed(self) -> Confirmed:
        """Raises NotController or TimedOut where this node cannot know."""

    def state(self) -> ClusterState: ...

    def nodes(self) -> list[NodeView]: ...

    def metadata(self) -> dict[str, Any]:  # as JSON: topics, partitions and nodes, for people
        ...

    def health(self) -> ClusterHealth:
        """As far as this node knows by itself: of the voters only the controller does."""


# ---------------------------------------------------------------- data plane


class ReplicaWant(Struct, frozen=True):
    """A follower's place in one log: everything before `offset` is on its disk."""

    topic: str
    partition: int
    offset: int
    last_epoch: int  # of the record before `offset`; -1 if it has none
    leader_epoch: int
    log_start: int
    bytes_max: int


class ReplicaRound(Struct, frozen=True):
    """One request of a follower. Number 0 begins anew and names all that it follows; later ones only what has changed since
    the one before."""

    number: int
    wants: Sequence[ReplicaWant]
    forgotten: Sequence[tuple[str, int]] = ()


class ReplicaFound(Struct):
    """What the leader has for it. Logs that there is nothing to say of are left out."""

    topic: str
    partition: int
    error: GoQueueError | None = None
    high_watermark: int = -1
    log_start: int = -1
    diverging: tuple[int, int] | None = None  # (epoch, end): cut back to there and ask again
    records: bytes | memoryview = b""  # whole batches


class Answer(NamedTuple):
    """Of HTTP. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class PeerLinks(Protocol):
    """The other nodes by name. Every call but `send` raises `PeerUnreachable` where there is no answer in time, or the
    error that the other one answered with."""

    def send(self, message: Message) -> None:
        """A Raft message: maybe it arrives, maybe late or twice. Never waits, never raises."""

    async def join(self, target: str, join: Join) -> Done: ...

    async def beat(self, target: str, beat: Beat) -> BeatAnswer: ...

    async def execute(self, target: str, command: Order) -> Done: ...

    async def copying(self, target: str) -> list[Copying]: ...

    async def confirmed(self, target: str) -> Confirmed: ...

    async def state(self, target: str) -> ClusterState: ...

    async def health(self, target: str) -> ClusterHealth: ...

    async def views(self, target: str) -> list[NodeView]: ...

    async def fetch(
        self, target: str, round: ReplicaRound, *, wait_ms: int, bytes_max: int
    ) -> list[ReplicaFound]:
        """As replica of this node; back when there is something to say, the time is up, or the next round has come. Raises
        FetchSessionNotFound where the other side does not know of the round before."""

    async def call(self, target: str, api: str, version: int, request: Any) -> Any:
        """One request of Kafka's protocol, by the classes of `goqueue.wire.schema`; the answer likewise."""

    async def forward(
        self,
        target: str,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        timeout_s: float,
    ) -> Answer:
        """A request as a client sent it: see `goqueue.node.forwarding`."""

    @property
    def forwarded_count(self) -> int:
        """Of requests of clients, whole or in parts, that were carried to other nodes by this process."""

    @property
    def nodes(self) -> OtherNodes: ...

    @property
    def transactions(self) -> RemoteTransactions: ...

    @property
    def appends(self) -> RemoteAppends: ...

    @property
    def ledgers(self) -> RemoteLedgers: ...

    @property
    def parts(self) -> RemoteParts: ...

    async def close(self) -> None: ...
