"""How far the partitions of a topic have come in changing, over REST."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from goqueue.client.connection import ApiError, Connection, error_of, segment


class PendingPartition(Struct, frozen=True):
    partition: int
    leader: str
    replicas: list[str]
    isr: list[str]


class Hold(Struct, frozen=True):
    partition: int
    offset: int


class WaitingGroup(Struct, frozen=True):
    group: str
    has_members: bool
    committed: int | None
    is_settled: bool


class Gate(Struct, frozen=True):
    blocked: int
    behind: int
    until: int
    groups: list[WaitingGroup]


class KeyedScaling(Struct, frozen=True):
    stage: str
    key_count: int
    old_count: int
    unfenced: list[int]
    holds: list[Hold]
    gates: list[Gate]
    unsettled: list[str]
    unanswered: list[str]
    undrained: list[int]
    discard_read: bool


class ScalingStatus(Struct, frozen=True):
    name: str
    status: str
    partitions: int
    partitions_ready: int
    pending: list[PendingPartition]
    keyed: KeyedScaling | None


def scaling_status(url: str, topic: str) -> ScalingStatus:
    connection = Connection(url, timeout_s=60.0)
    try:
        reply = connection.request("GET", f"/admin/topics/{segment(topic)}/partitions/scaling-status")
    finally:
        connection.close()
    if reply.status >= 300:
        raise error_of(reply)
    try:
        return msgspec.json.decode(reply.body, type=ScalingStatus)
    except msgspec.DecodeError as error:
        sentence = f"the answer is not what a GoQueue broker sends: {error}"
        raise ApiError("INTERNAL", reply.status, sentence) from error
