"""How the control plane looks where HTTP carries it: paths, headers and bodies. Both ends, `goqueue.peer` and
`goqueue.api.cluster`, take them from here."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from goqueue.core.cluster.commands import Order
from goqueue.core.raft.messages import AnswerVote, AskVote, Message, TimeoutNow
from goqueue.node.cluster.ports import (
    Beat,
    BeatAnswer,
    ClusterHealth,
    ClusterState,
    Confirmed,
    Copying,
    Done,
    Join,
    NodeView,
)

SIGNATURE_HEADER = "goqueue-peer"
ANSWER_HEADER = "goqueue-peer-answer"

VOTE = "/cluster/vote"
APPEND = "/cluster/append"
JOIN = "/cluster/join"
HEARTBEAT = "/cluster/heartbeat"
LEAVE = "/cluster/leave"
COMMAND = "/cluster/command"
STATE = "/cluster/state"
METADATA = "/cluster/metadata"
HEALTH = "/cluster/health"
NODES = "/cluster/nodes"
COPYING = "/cluster/copying"
CONFIRMED = "/cluster/confirmed"


class Leave(Struct, frozen=True):
    """Take the node of this name out of the cluster, for good."""

    name: str


class NodeViews(Struct, frozen=True):
    nodes: list[NodeView]


class ErrorBody(Struct, frozen=True):
    """The form of all errors of this project's HTTP."""

    error: str
    code: str = ""
    status: int = 0
    details: dict[str, Any] = {}  # whatever the other side's errors hold


ENCODER = msgspec.json.Encoder()
MESSAGES: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
COMMANDS: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)
JOINS = msgspec.json.Decoder(Join)
BEATS = msgspec.json.Decoder(Beat)
LEAVES = msgspec.json.Decoder(Leave)
DONES = msgspec.json.Decoder(Done)
BEAT_ANSWERS = msgspec.json.Decoder(BeatAnswer)
STATES = msgspec.json.Decoder(ClusterState)
CONFIRMEDS = msgspec.json.Decoder(Confirmed)
HEALTHS = msgspec.json.Decoder(ClusterHealth)
NODE_VIEWS = msgspec.json.Decoder(NodeViews)
COPYINGS = msgspec.json.Decoder(list[Copying])
ERRORS = msgspec.json.Decoder(ErrorBody)


def path_of(message: Message) -> str:
    """Elections have a path of their own, so that they are told apart in logs and have a limit that fits them."""
    return VOTE if isinstance(message, AskVote | AnswerVote | TimeoutNow) else APPEND
