"""Members of queue groups over REST: whichever node they ask has the group's coordinator poll for them, and the leaders of the
partitions settle what they say of it.

The answer does not tell when a lease began, so the history has the earliest end that it may have, and the latest beginning.
"""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

from goqueue.model.codes import Code
from goqueue.model.duration import parse_instant_ms
from goqueue.model.errors import GoQueueError
from goqueue.peer.refusals import error_told
from goqueue.sim.cluster.queue_world import QueueWorld
from goqueue.sim.cluster.rest import RestClient, refusal
from goqueue.sim.queue.history import Action, Delivery, Place, Told

_ERA = ""  # nobody sends these groups elsewhere, so whatever a ledger forgets is a mistake
_FORGOTTEN = (Code.UNKNOWN_MEMBER, Code.FENCED_MEMBER_EPOCH, Code.GROUP_NOT_FOUND)
# Longer than any lease, unless it was extended while the leader's clock was ahead: who is silent for that long holds nothing.
_SESSION_S = 30
_SILENT_S_MAX = 10  # how long a member has been silent at the most when its life ends
_PATHS = {
    Action.ACK: "ack",
    Action.NACK: "nack",
    Action.REJECT: "reject",
    Action.EXTEND: "visibility",
}


class RestWay:
    """`member` is how the run calls somebody; the coordinator has another name for it."""

    missed_s = float(_SESSION_S - _SILENT_S_MAX)

    def __init__(self, world: QueueWorld, group: str, topic: str) -> None:
        self._world = world
        self._group = group
        self._topic = topic
        self._rng = world.child()
        self._client: RestClient = world.client()
        self._ids: dict[str, str] = {}

    def close(self) -> None:
        self._client.close()

    async def poll(self, member: str, limit: int, wait_ms: int) -> list[Delivery]:
        id = self._ids.get(member) or await self._join(member)
        visibility_ms = self._rng.choice((1_000, 3_000, 6_000))
        query = f"member_id={quote(id)}&limit={limit}&timeout={wait_ms}ms&visibility={visibility_ms}ms"
        sent_s = self._world.loop.time()
        try:
            body = await self._client.order("GET", f"/groups/{self._group}/poll?{query}")
        except GoQueueError as error:
            if error.code in _FORGOTTEN:
                del self._ids[member]
            raise
        return [self._delivery(one, member, visibility_ms, sent_s) for one in body["messages"]]

    async def _join(self, member: str) -> str:
        body = {
            "client_id": member,
            "topics": [self._topic],
            "mode": "queue",
            "session_timeout": f"{_SESSION_S}s",
        }
        joined = await self._client.order("POST", f"/groups/{self._group}/join", body)
        return self._ids.setdefault(member, joined["member_id"])

    def _delivery(self, one: dict[str, Any], member: str, visibility_ms: int, sent_s: float) -> Delivery:
        clocks, now_s = self._world.clocks, self._world.loop.time()
        return Delivery(
            self._group,
            _ERA,
            member,
            Place(one["topic"], one["partition"], one["offset"]),
            one["value"],
            one["key"],
            one["priority"],
            one["delivery_count"],
            clocks.latest_ms(sent_s, now_s),
            clocks.earliest_ms(sent_s, now_s) + visibility_ms,
            sent_s,
            now_s,
            one["receipt_handle"],
        )

    async def tell(
        self, member: str, action: Action, deliveries: list[Delivery]
    ) -> list[Told | GoQueueError]:
        body: dict[str, object] = {"receipt_handles": [one.receipt for one in deliveries]}
        match action:
            case Action.NACK if self._rng.random() < 0.5:
                body["delay"] = self._rng.choice((0, 700))
            case Action.REJECT:
                body["reason"] = "never"
            case Action.EXTEND:
                body["timeout"] = self._rng.choice((0, 2_000, 8_000))
            case _:
                pass
        answer = await self._client.ask("POST", f"/messages/{_PATHS[action]}/batch", body)
        results = answer.body.get("results")
        if results is None:
            raise refusal(answer)
        return [_told(one, action) for one in cast("list[dict[str, Any]]", results)]

    async def leave(self, member: str) -> None:
        id = self._ids.pop(member, None)
        if id is not None:
            await self._client.order("POST", f"/groups/{self._group}/leave", {"member_id": id})


def _told(result: dict[str, Any], action: Action) -> Told | GoQueueError:
    if "code" in result:
        return error_told(result["code"], result.get("error", ""), {})
    deadline_ms = parse_instant_ms(result["next_visible_at"]) if action is Action.EXTEND else None
    return Told(result["committed_offset"], result.get("action") == "dead_letter", deadline_ms)
