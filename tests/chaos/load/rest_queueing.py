"""Members of a queue group over REST, each request to a node of chance: most of what they get they acknowledge, some they give
back, and some they keep until the lease is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from tests.chaos.history import Op, Phase, Place, wall_ms
from tests.chaos.load.draining import Drain, left_of_group
from tests.chaos.load.job import Job, Work
from tests.chaos.load.rest_publishing import RestPublisher

from goqueue.client.connection import ApiError, Connection, Unreachable, error_of

TOPIC: Final = "tasks"
GROUP: Final = "workers"
_PARTITIONS: Final = 3
_MEMBERS: Final = 3
_LIMIT: Final = 20
_VISIBILITY_MS: Final = 5_000
_TIMEOUT_S: Final = 10.0
_KEEP_RATE: Final = 0.03
_NACK_RATE: Final = 0.05
# With these the broker says that it did nothing.
_REFUSED: Final = frozenset(
    {"RECEIPT_NOT_FOUND", "LEASE_EXPIRED", "LEASE_SUPERSEDED", "MESSAGE_SETTLED", "NOT_LEADER", "NOT_READY"}
)


class Queue:
    name = "queue"
    topics: Mapping[str, int] = {TOPIC: _PARTITIONS}
    needs: Sequence[str] = ()

    def works(self, job: Job) -> Mapping[str, Work]:
        names = [f"queue-{index}" for index in range(_MEMBERS)]
        members = {name: QueueMember(job, name).run for name in names}
        return {"tasks": RestPublisher(job, TOPIC, "tasks").run, **members}


class QueueMember:
    def __init__(self, job: Job, name: str) -> None:
        self._job = job
        self._name = name
        self._chance = job.chance(name)
        self._connections = [Connection(f"http://{one}", timeout_s=_TIMEOUT_S) for one in job.http]
        self._member_id = ""

    def run(self) -> None:
        drain = Drain(self._job, self._name, left_of_group(self._job, GROUP, Queue.topics))
        while not drain.is_over:
            try:
                if not self._member_id:
                    self._join()
                self._take()
            except Unreachable as error:
                self._told(Op.TAKE, Phase.UNKNOWN, note=error.sentence)
                self._job.pause(0.1)
            except ApiError as error:
                self._told(Op.TAKE, Phase.UNKNOWN, note=f"{error.code}: {error.sentence}"[:200])
                if error.code in ("UNKNOWN_MEMBER", "GROUP_NOT_FOUND", "ILLEGAL_GENERATION"):
                    self._member_id = ""
                self._job.pause(0.1)

    def _join(self) -> None:
        body = {"client_id": self._name, "topics": [TOPIC], "mode": "queue", "session_timeout": "10s"}
        self._member_id = self._call("POST", f"/groups/{GROUP}/join", body=body)["member_id"]

    def _take(self) -> None:
        number = self._job.recorder.invoke(self._name, Op.TAKE, topic=TOPIC, group=GROUP)
        query = {
            "member_id": self._member_id,
            "limit": _LIMIT,
            "timeout": "1s",
            "visibility": f"{_VISIBILITY_MS}ms",
        }
        messages = self._call("GET", f"/groups/{GROUP}/poll", query=query, wait_s=1.0)["messages"]
        places = [Place(one["partition"], one["offset"], one["value"]) for one in messages]
        self._told(
            Op.TAKE, Phase.OK, number=number, places=places, lease_ms=_VISIBILITY_MS, wall_ms=wall_ms()
        )
        for message, place in zip(messages, places, strict=True):
            self._finish(message["receipt_handle"], place)

    def _finish(self, receipt: str, place: Place) -> None:
        chosen = self._chance.random()
        if chosen < _KEEP_RATE and not self._job.stopping.is_set():
            return  # as a worker that died
        is_nack = chosen < _KEEP_RATE + _NACK_RATE and not self._job.stopping.is_set()
        op, path = (Op.NACK, "/messages/nack") if is_nack else (Op.ACK, "/messages/ack")
        number = self._job.recorder.invoke(self._name, op, topic=TOPIC, group=GROUP, places=[place])
        try:
            self._call("POST", path, body={"receipt_handle": receipt})
        except Unreachable as error:
            phase = Phase.UNKNOWN if error.was_sent else Phase.FAIL
            self._told(op, phase, number=number, note=error.sentence)
        except ApiError as error:
            phase = Phase.FAIL if error.code in _REFUSED else Phase.UNKNOWN
            self._told(op, phase, number=number, note=f"{error.code}: {error.sentence}"[:200])
        else:
            self._told(op, Phase.OK, number=number, places=[place])

    def _call(self, method: str, path: str, *, wait_s: float = 0, **values: Any) -> Any:
        connection = self._chance.choice(self._connections)
        reply = connection.request(method, path, wait_s=wait_s, **values)
        if reply.status >= 300:
            raise error_of(reply)
        return msgspec.json.decode(reply.body)

    def _told(self, op: Op, phase: Phase, **values: Any) -> None:
        self._job.recorder.record(self._name, op, phase, topic=TOPIC, group=GROUP, **values)
