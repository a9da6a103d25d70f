"""The one gate that every use case passes, whatever protocol it came by: is the node taking requests, is there
room on the disk, is the request within the limits."""

from __future__ import annotations

from enum import StrEnum

from goqueue.model.errors import LimitExceeded, NotReady, RequestTooLarge
from goqueue.model.limits import Limits
from goqueue.node.disk_watch import DiskWatch


class NodeState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"


class Guard:
    def __init__(self, limits: Limits, disk_watch: DiskWatch) -> None:
        self.limits = limits
        self.state = NodeState.STARTING
        self.parked_count = 0
        self._disk_watch = disk_watch

    def admit_write(self, message_count: int) -> None:
        self.admit_passing(message_count)
        self._disk_watch.refuse_if_full()

    def admit_passing(self, message_count: int) -> None:
        """Of messages that other nodes may be the ones to write."""
        self._require_ready()
        if not 1 <= message_count <= self.limits.messages_per_request_max:
            raise RequestTooLarge(
                f"a request holds 1 to {self.limits.messages_per_request_max} messages, not {message_count}",
                message_count=message_count,
            )

    def admit_change(self) -> None:
        """Of metadata: it needs the disk as well."""
        self.admit_relief()
        self._disk_watch.refuse_if_full()

    def admit_relief(self) -> None:
        """Deleting topics and shortening their retention is how room is made: a full disk must not refuse that."""
        self._require_ready()

    def admit_read(self) -> None:
        if self.state not in (NodeState.READY, NodeState.DRAINING):
            self._require_ready()

    def admit_parking(self) -> None:
        if self.parked_count >= self.limits.parked_read_count_max:
            raise LimitExceeded(
                f"{self.parked_count} reads wait already, which is the limit; poll without wait"
            )

    def _require_ready(self) -> None:
        if self.state is not NodeState.READY:
            raise NotReady(
                f"the broker is {self.state.value}; try another node or again later", state=self.state.value
            )
