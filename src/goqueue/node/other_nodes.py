"""What a node has others do for its clients, where a request concerns several of them; `goqueue.peer` carries it over, and
`goqueue.api.cluster` hands it to the other node's use cases.

Each of these calls is answered by the node that is asked, or refused with NotLeader, and then nothing was done. All raise
`PeerUnreachable` where nothing was sent, and `TimedOut` where what became of it is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from goqueue.model.acks import Acks
from goqueue.model.errors import GoQueueError
from goqueue.model.record import Producer
from goqueue.node.groups.standing import Standings, StandingsCall
from goqueue.node.queue.requests import Delivered, Finished, Prolonged, Returned
from goqueue.node.requests import NewMessage, Outcome, PartitionFacts, ReadQuery, ReadResult

PREFIX = "/cluster/node/"
PUBLISH = PREFIX + "publish"
FINISH = PREFIX + "finish"
POLL = PREFIX + "poll"
END_POLL = PREFIX + "end-poll"
FACTS = PREFIX + "facts"
READ = PREFIX + "read"
FIND = PREFIX + "find"
GROUP_CONFIG = PREFIX + "group-config"
STANDINGS = PREFIX + "standings"

Settled = Finished | Returned | Prolonged | GoQueueError


class Fault(Struct, frozen=True):
    """An error on its way to another node."""

    code: str
    sentence: str
    details: dict[str, Any]  # whatever the error holds


class PublishCall(Struct, frozen=True):
    """All messages have their partitions."""

    topic: str
    messages: Sequence[NewMessage]
    acks: Acks
    producer: Producer | None = None


class OutcomeTold(Struct, frozen=True):
    partition: int | None
    offset: int | None
    deliver_at_ms: int | None = None
    fault: Fault | None = None


class Finishing(StrEnum):
    """What is to become of the records that receipts are for."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"
    EXTEND = "extend"


class FinishCall(Struct, frozen=True):
    how: Finishing
    receipts: Sequence[str]
    delay_ms: int | None = None
    reason: str = ""
    timeout_ms: int = 0
    is_added: bool = False


class SettledTold(Struct, frozen=True):
    """One of them."""

    finished: Finished | None = None
    returned: Returned | None = None
    prolonged: Prolonged | None = None
    fault: Fault | None = None


class PollCall(Struct, frozen=True):
    """For a member of a queue group, of partitions that the other node leads. `id` is by which the call is ended early."""

    id: str
    group_id: str
    member_id: str
    places: Sequence[tuple[str, int]]
    limit: int
    wait_ms: int
    visibility_ms: int | None = None
    from_latest: bool = False


class PollTold(Struct, frozen=True):
    """`held_count`: how many the member has of that node's partitions, these included."""

    delivered: list[Delivered]
    held_count: int


class EndPollCall(Struct, frozen=True):
    id: str


class FactsCall(Struct, frozen=True):
    """`partitions` are those that the other node must lead: it refuses if it does not."""

    topic: str
    partitions: Sequence[int] = ()


class LedPartition(Struct, frozen=True):
    """A partition as its leader knows it."""

    facts: PartitionFacts
    last_stable_offset: int


class ReadCall(Struct, frozen=True):
    topic: str
    partition: int
    query: ReadQuery


class FindCall(Struct, frozen=True):
    """Where a partition was at an instant, or one of the places that `goqueue.node.positions` names."""

    topic: str
    partition: int
    instant: int


class GroupConfigCall(Struct, frozen=True):
    """What a group has set is to be told, and to be changed before if there are changes; None takes a setting back."""

    group_id: str
    changes: dict[str, str | None] | None = None
    is_whole: bool = False  # what is left out is taken back
    validate_only: bool = False


class OtherNodes(Protocol):
    async def publish(self, target: str, call: PublishCall) -> list[Outcome]: ...

    async def finish(self, target: str, call: FinishCall) -> list[Settled]: ...

    async def poll(self, target: str, call: PollCall) -> PollTold: ...

    async def end_poll(self, target: str, id: str) -> None:
        """It is answered at once, with what it has got or with nothing."""

    async def facts(self, target: str, call: FactsCall) -> list[LedPartition]:
        """Those that the other node leads."""

    async def read(self, target: str, call: ReadCall) -> ReadResult: ...

    async def find(self, target: str, call: FindCall) -> int:
        """The offset."""

    async def configure_group(self, target: str, call: GroupConfigCall) -> dict[str, str]:
        """What the group has set then. Refused with NotCoordinator where the other node does not coordinate it."""

    async def standings(self, target: str, call: StandingsCall) -> Standings: ...
