"""Operators of a cluster over REST, through any node: plans that move replicas and are paused, resumed or given up; nodes that are
drained, or vote no more; preferred leaders; topics that grow, are made and deleted; settings.

What was ordered while things fail may be done or not, now or later. When nothing fails any more they take back whatever holds the
cluster up (drained nodes, paused plans) and wait until no plan is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from goqueue.model.codes import Code
from goqueue.model.duration import format_instant
from goqueue.model.errors import GoQueueError
from goqueue.sim.cluster.operator_checkers import OPERATOR_CHECKERS, Orders
from goqueue.sim.cluster.queue_world import cancelled
from goqueue.sim.cluster.rest import RestClient
from goqueue.sim.cluster.world import World
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.history import now_ms

_LOOK_S = 0.5
_SETTING = "retention.ms"
_SETTING_MIN = 10**9  # nothing is deleted
_FAR_MS = 10**7
_GROWN = "tasks"  # if there is one; the order of keys would not survive it elsewhere
_COUNT_MAX = 5


class Operators:
    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.child()
        self._client = RestClient(world.cluster.names, world.child())
        self._orders = Orders(world.cluster, world.history)
        self._serial = 0
        self.topics: dict[str, int] = {}  # they take what others have made
        self.waits_for = ""
        self._working: list[asyncio.Task[None]] = []
        self._kinds: tuple[Callable[[], Awaitable[None]], ...] = (
            self._move,
            self._move,
            self._move,
            self._empty,
            self._balance,
            self._drain,
            self._elect,
            self._change_voters,
            self._grow,
            self._set,
            self._make_and_delete,
        )

    async def start(self) -> None:
        self._working.append(self._world.start("operator", self._run()))

    async def _run(self) -> None:
        try:
            while not self._world.is_calm:
                await asyncio.sleep(self._rng.expovariate(1.0))
                try:
                    await self._rng.choice(self._kinds)()
                except (NoAnswer, GoQueueError):  # it cannot be done just now, or nobody knows
                    await self._client.pause()
            await self._tidy_up()
        finally:
            self._client.close()

    # ---------------------------------------------------------------- plans

    async def _move(self) -> None:
        """Some partitions, each to as many nodes as it has now."""
        metadata = await self._client.order("GET", "/cluster/metadata")
        names = [node["name"] for node in (await self._client.order("GET", "/cluster/nodes"))["nodes"]]
        parts: list[tuple[str, dict[str, Any]]] = [
            (topic["name"], one)
            for topic in metadata["topics"]
            for one in topic["partitions"]
            if not topic["name"].startswith("__") or one["partition"] < 2
        ]
        moves = []
        for topic, one in self._rng.sample(parts, min(len(parts), self._rng.randint(1, 4))):
            count = len(one["state"]["replicas"]) - len(one["state"]["adding"])
            replicas = self._rng.sample(names, min(count, len(names)))
            moves.append({"topic": topic, "partition": one["partition"], "replicas": replicas})
        await self._carry_out({"plan": moves})

    async def _empty(self) -> None:
        """A node that is to have nothing any more."""
        await self._carry_out({"drain": self._rng.choice(self._world.cluster.names)})

    async def _balance(self) -> None:
        await self._carry_out({"balance": True})

    async def _carry_out(self, order: dict[str, object]) -> None:
        """Begin a plan, and change one's mind."""
        more = {
            "parallel": self._rng.choice((1, 2, 5)),
            "throttle_bytes_per_second": self._rng.choice((None, None, 5_000, 20_000)),
        }
        plan = await self._client.order("POST", "/admin/reassignment", {**order, **more})
        path = f"/admin/reassignment/{plan['id']}"
        for _ in range(self._rng.choice((0, 1, 2, 3))):
            await asyncio.sleep(self._rng.expovariate(2))
            match self._rng.choice(("pause", "resume", "cancel")):
                case "cancel":
                    await self._client.order("DELETE", path)
                case action:
                    await self._client.order("POST", f"{path}/{action}")

    # ---------------------------------------------------------------- nodes and leaders

    async def _drain(self) -> None:
        """For maintenance, which takes some time."""
        body = {"node": self._rng.choice(self._world.cluster.names)}
        await self._client.order("POST", "/cluster/drain", body)
        await asyncio.sleep(self._rng.uniform(0.1, 4.0))
        await self._client.order("POST", "/cluster/undrain", body)

    async def _elect(self) -> None:
        await self._client.order("POST", "/cluster/rebalance", {})

    async def _change_voters(self) -> None:
        """One votes no more, for a while."""
        cluster = self._world.cluster
        name = self._rng.choice(cluster.names)
        if cluster.keeps_voters:
            return
        cluster.is_changing_voters = True
        try:
            await self._client.order("DELETE", f"/cluster/voters/{name}")
            await asyncio.sleep(self._rng.uniform(0.1, 4.0))
            await self._client.order("POST", "/cluster/voters", {"node": name})
        finally:
            cluster.is_changing_voters = False

    # ---------------------------------------------------------------- topics

    async def _grow(self) -> None:
        found = await self._client.order("GET", f"/topics/{_GROWN}")
        if found["partitions"] < _COUNT_MAX:
            body = {"count": found["partitions"] + 1}
            await self._client.order("POST", f"/admin/topics/{_GROWN}/partitions", body)

    async def _set(self) -> None:
        self._serial += 1
        value = str(_SETTING_MIN + self._serial)
        asked = self._orders.ask_setting("events", _SETTING, value)
        await self._client.order("PATCH", "/topics/events", {"config": {_SETTING: value}})
        asked.is_done = True

    async def _make_and_delete(self) -> None:
        """Every other one at once again: some nodes may take the second for the first."""
        self._serial += 1
        name = f"fleeting-{self._serial}"
        await self._make(name)
        await asyncio.sleep(self._rng.uniform(0.0, 3.0))
        await self._delete(name)
        if self._serial % 2:
            await self._make(name)
            await asyncio.sleep(self._rng.uniform(0.0, 1.0))
            await self._delete(name)

    async def _make(self, name: str) -> None:
        """With something in it, and something that waits beside it."""
        if name in self._orders.deleted:
            self._orders.deleted.remove(name)
        self._orders.made.append(name)  # also if nobody says so
        await self._client.order("POST", "/topics", {"name": name, "num_partitions": 2})
        messages = [{"value": "now"}, {"value": "later", "deliver_at": format_instant(now_ms() + _FAR_MS)}]
        await self._client.order("POST", f"/topics/{name}/messages", {"messages": messages})

    async def _delete(self, name: str) -> None:
        await self._client.order("DELETE", f"/topics/{name}")
        self._orders.made.remove(name)
        self._orders.deleted.append(name)

    # ---------------------------------------------------------------- the end

    async def _tidy_up(self) -> None:
        for name in self._world.cluster.names:
            await self._client.until_done("POST", "/cluster/undrain", {"node": name})
        await self._let_all_vote()
        for name in list(self._orders.made):
            await self._client.until_done("DELETE", f"/topics/{name}", done=(Code.TOPIC_NOT_FOUND,))
            self._orders.made.remove(name)
            self._orders.deleted.append(name)
        while not await self._are_plans_over():  # noqa: ASYNC110 - nobody calls when they are
            await asyncio.sleep(_LOOK_S)

    async def _let_all_vote(self) -> None:
        while True:
            try:
                voters = (await self._client.order("GET", "/cluster/voters"))["voters"]
                missing = [name for name in self._world.cluster.names if name not in voters]
                if not missing:
                    return
                await self._client.order("POST", "/cluster/voters", {"node": missing[0]})
            except (NoAnswer, GoQueueError):  # it has not caught up yet, or another change is under way
                await self._client.pause()

    async def _are_plans_over(self) -> bool:
        try:
            plans = (await self._client.order("GET", "/admin/reassignment"))["reassignments"]
            for plan in plans:
                if plan["state"] == "paused":
                    await self._client.order("POST", f"/admin/reassignment/{plan['id']}/resume")
            return all(plan["state"] not in ("running", "paused") for plan in plans)
        except (NoAnswer, GoQueueError):
            await self._client.pause()
            return False

    async def finish(self) -> None:
        self.waits_for = "operators until no plan is left"
        await asyncio.gather(*self._working)
        while unsettled := self._orders.unsettled():
            self.waits_for = f"operators: {unsettled[:5]}"
            await asyncio.sleep(_LOOK_S)
        self.waits_for = ""

    async def end(self) -> None:
        await cancelled(self._working)

    def check(self) -> None:
        for checker in OPERATOR_CHECKERS:
            checker.check(self._orders)
