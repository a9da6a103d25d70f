"""What a client or a node meets because there are several of them: mostly that it asked the wrong one."""

from __future__ import annotations

from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError


class NotLeader(GoQueueError):
    """Another node leads the partition, or nobody does for now."""

    code = Code.NOT_LEADER
    retriable = True

    def __init__(self, topic: str, partition: int, leader: int | None = None) -> None:
        whom = f"node {leader} does" if leader is not None else "nobody does for now"
        super().__init__(
            f"this node does not lead {topic}-{partition}; {whom}; ask for metadata",
            topic=topic,
            partition=partition,
            leader=leader,
        )


class HomeUndecided(NotLeader):
    """Records of a topic whose partitions come and go belong elsewhere, and cannot be appended there for now. Nothing was appended
    where they were sent to."""

    code = Code.HOME_UNDECIDED
    retriable = True

    def __init__(self, topic: str, partition: int, reason: str) -> None:
        GoQueueError.__init__(
            self,
            f"the partitions of {topic!r} are changing: {reason}; send it to partition {partition} again",
            topic=topic,
            partition=partition,
        )


class NotCoordinator(GoQueueError):
    """Another node coordinates the group or the transaction."""

    code = Code.NOT_COORDINATOR
    retriable = True


class CoordinatorLoading(GoQueueError):
    """This node coordinates the group or the transaction, and is still reading what it is to know of it."""

    code = Code.COORDINATOR_LOADING
    retriable = True


class CoordinatorFenced(GoQueueError):
    """Another node has taken over since, and has told this participant how the transaction ends."""

    code = Code.COORDINATOR_FENCED


class NotController(GoQueueError):
    """Only the controller decides; `controller` says who that is, if anybody is."""

    code = Code.NOT_CONTROLLER
    retriable = True

    def __init__(self, controller: str | None) -> None:
        whom = f"{controller!r} is" if controller else "there is none for now"
        super().__init__(f"this node is not the controller; {whom}", controller=controller)


class ReplicationUnknown(GoQueueError):
    """The batch is in the leader's log, and whether enough replicas have it is not known: it is never reported as success."""

    code = Code.REPLICATION_UNKNOWN
    retriable = True


class CoordinationUnknown(GoQueueError):
    """The same, of what a coordinator has written: another node is the coordinator by now, and knows whether it counts. Kafka has
    one word for this and for `NotCoordinator`, which says that nothing was done."""

    code = Code.COORDINATION_UNKNOWN
    retriable = True


class OffsetNotAvailable(GoQueueError):
    """A leader that has just begun does not know yet how far its predecessor had come."""

    code = Code.OFFSET_NOT_AVAILABLE
    retriable = True


class Unauthenticated(GoQueueError):
    """Who asks has not proven who it is."""

    code = Code.UNAUTHENTICATED


class WrongCluster(GoQueueError):
    code = Code.WRONG_CLUSTER

    def __init__(self, own: str, other: str) -> None:
        super().__init__(
            f"this node belongs to cluster {own!r}, not to {other!r}; check the peers and the data folder",
            cluster_id=own,
            other=other,
        )


class PeerUnreachable(GoQueueError):
    """Another node did not answer in time: what became of the request is not known."""

    code = Code.PEER_UNREACHABLE
    retriable = True


class NodeNotFound(GoQueueError):
    code = Code.NODE_NOT_FOUND

    def __init__(self, node: str) -> None:
        super().__init__(f"there is no node {node!r} in the cluster", node=node)


class NameTaken(GoQueueError):
    """Two processes say that they are the same node."""

    code = Code.NAME_TAKEN

    def __init__(self, node: str, address: str, other: str) -> None:
        super().__init__(
            f"a node {node!r} is running at {address}, and another one wants to join from {other} under its name; give it another "
            "--node-id, or stop the first one",
            node=node,
            address=address,
            other=other,
        )


class VotersRefused(GoQueueError):
    """Who is to vote cannot, or whoever is left could decide nothing."""

    code = Code.VOTERS_REFUSED


class LevelTooLow(GoQueueError):
    """A node of an older version would not understand it."""

    code = Code.LEVEL_TOO_LOW


class ReassignmentNotFound(GoQueueError):
    code = Code.REASSIGNMENT_NOT_FOUND


class ReassignmentInProgress(GoQueueError):
    """Partitions are being moved already."""

    code = Code.REASSIGNMENT_IN_PROGRESS


class PreferredLeaderNotAvailable(GoQueueError):
    """The first replica is down, drains, or is not in sync."""

    code = Code.PREFERRED_LEADER_NOT_AVAILABLE


class EligibleLeadersNotAvailable(GoQueueError):
    """Nobody is there who could lead the partition."""

    code = Code.ELIGIBLE_LEADERS_NOT_AVAILABLE
