"""A topic with `scaling=keyed` (ADR 35): producers that know of its partitions late or never, groups of both protocols that commit, and
an operator who has it grow and shrink while things fail."""

from __future__ import annotations

import asyncio
from functools import partial

from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError
from goqueue.sim.cluster.keyed_checkers import EverythingIsProcessed, KeyedChecker, KeysInOrder, StoredOnce
from goqueue.sim.cluster.keyed_history import KeyedHistory, Place
from goqueue.sim.cluster.keyed_members import KafkaSharing, KeyedWork, WatchingMember
from goqueue.sim.cluster.keyed_producers import KeyedProducer
from goqueue.sim.cluster.readers import end_of, fetch
from goqueue.sim.cluster.rest import RestClient
from goqueue.sim.cluster.stage import Stage
from goqueue.sim.cluster.world import World
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.client import KafkaClient
from goqueue.sim.kafka.history import NEVER, Part, now_s
from goqueue.sim.kafka.members import ClassicMember, ConsumerMember, Member
from goqueue.sim.kafka.workers import Consuming, Worker

TOPIC = "keyed"
_COUNT_MIN, _COUNT_MAX = 2, 12
_LOOK_S = 0.5
_BYTES_MAX = 10_000_000
_PATH = f"/admin/topics/{TOPIC}/partitions"


class Keyed:
    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.child()
        self._history = KeyedHistory(world.history)
        self._rest = RestClient(world.cluster.names, world.child())
        self._stage = Stage(world, "keyed", {TOPIC: 0})
        self._groups = {"keyed-classic": True, "keyed-modern": False}
        self._producers: list[KeyedProducer] = []
        self._producing: list[asyncio.Task[None]] = []
        self._workers: list[asyncio.Task[None]] = []
        self._scaling: asyncio.Task[None] | None = None
        self._waits_for = ""
        self.topics: dict[
            str, int
        ] = {}  # its own is nobody else's: partitions that go take their offsets with them

    @property
    def waits_for(self) -> str:
        errors = [one.last_error for one in self._producers if one.last_error]
        return self._waits_for and f"{self._waits_for}; {errors}"

    async def start(self) -> None:
        count = self._rng.choice((2, 2, 4))
        config = {"scaling": "keyed", "segment.bytes": self._rng.choice((1_024, 20_000))}
        await self._rest.until_done(
            "POST",
            "/topics",
            {"name": TOPIC, "num_partitions": count, "config": config},
            done=(Code.TOPIC_EXISTS,),
        )
        await self._stage.learn_topic_ids()
        for at in range(self._rng.randint(2, 3)):
            name = f"keyed-p{at}"
            producer = KeyedProducer(
                self._world,
                self._history,
                TOPIC,
                name,
                key_count=self._rng.randint(2, 6),
                is_hasty=bool(at % 2),
            )
            self._producers.append(producer)
            self._producing.append(self._world.start(name, producer.run(self._rng.randint(30, 80))))
        for group, is_classic in self._groups.items():
            for name in [f"{group}-w{number}" for number in range(self._rng.choice((1, 2)))]:
                worker = Worker(
                    self._stage.world,
                    name,
                    group,
                    partial(self._new_member, group, is_classic),
                    partial(self._new_work, group),
                )
                self._workers.append(self._stage.start(name, worker.run()))
        self._scaling = self._world.start("keyed-operator", self._scale_on())

    def _new_member(self, group: str, is_classic: bool, client: KafkaClient, name: str) -> Member:
        world = self._stage.world
        if not is_classic:
            return ConsumerMember(world, client, group, TOPIC, name)
        sharing = KafkaSharing(client, TOPIC)
        return WatchingMember(ClassicMember(world, client, group, TOPIC, sharing), sharing)

    def _new_work(self, group: str, client: KafkaClient) -> KeyedWork:
        return KeyedWork(self._history, group, Consuming(self._stage.world, client, group))

    # ---------------------------------------------------------------- more and fewer partitions

    async def _scale_on(self) -> None:
        """Again and again."""
        while not self._world.is_calm:
            await asyncio.sleep(self._rng.expovariate(0.4))
            if await self._is_steady():
                await self._order()
        while not await self._is_steady():
            await self._rest.pause()

    async def _is_nothing_older(self, at_s: float) -> bool:
        """A batch that comes again when the partition that holds it is gone is stored again (ADR 40): before one goes, what is under way has
        to arrive."""
        while not self._world.is_calm and self._has_older(at_s):  # noqa: ASYNC110 - nobody calls when not
            await asyncio.sleep(_LOOK_S)
        return not self._has_older(at_s)

    def _has_older(self, at_s: float) -> bool:
        return min(one.oldest_s for one in self._producers) < at_s

    async def _order(self) -> None:
        try:
            found = await self._rest.order("GET", f"/topics/{TOPIC}")
            now = int(found["partitions"])
            factor = self._rng.choice((2, 3))
            wanted = self._rng.choice((factor * now, now // factor))
            is_allowed = wanted > now or (wanted * factor == now and self._may_shrink)
            if is_allowed and _COUNT_MIN <= wanted <= _COUNT_MAX:
                if wanted < now and not await self._is_nothing_older(now_s()):
                    return
                body: dict[str, object] = {"count": wanted}
                if wanted < now:
                    body["discard_read"] = self._rng.random() < 0.7
                    self._history.shrink()
                else:
                    self._history.grow(wanted)
                await self._rest.order("POST", _PATH, body)
        except (NoAnswer, GoQueueError):  # it cannot be done just now, or nobody knows
            await self._rest.pause()

    @property
    def _may_shrink(self) -> bool:
        """Every group has committed where nothing ever goes, so the broker waits for it whether it has members or not. One that is new
        when a topic shrinks that has grown is promised no order (docs/cluster.md), and what is read may go without it."""
        commits = self._stage.history.commits.values()
        known = {
            one.group
            for one in commits
            if one.answered_s != NEVER and not one.is_refused and one.part.partition < _COUNT_MIN
        }
        return known.issuperset(self._groups)

    async def _is_steady(self) -> bool:
        """And what is read may go, if it does not otherwise."""
        asked_s = now_s()
        try:
            keyed = (await self._rest.order("GET", f"{_PATH}/scaling-status"))["keyed"]
            self._waits_for = f"keyed until it is steady: {keyed}"
            if keyed["stage"] == "draining" and not keyed["discard_read"]:
                await self._rest.order("POST", _PATH, {"count": keyed["key_count"], "discard_read": True})
            if keyed["stage"] == "steady":
                self._waits_for = ""
                self._history.be_steady(asked_s)
                return True
        except (NoAnswer, GoQueueError):
            pass
        await self._rest.pause()
        return False

    # ---------------------------------------------------------------- the end

    async def finish(self) -> None:
        self._stage.world.is_calm = True
        self._waits_for = "keyed until producers are done"
        await asyncio.gather(*self._producing)
        if self._scaling is not None:
            await self._scaling
        for group in self._groups:
            while lacking := self._history.unprocessed(group):
                self._waits_for = f"{group} until it has processed {lacking[:5]}"
                await asyncio.sleep(_LOOK_S)
        self._stage.world.is_done = True
        self._waits_for = "keyed until members have left"
        await asyncio.gather(*self._workers)
        self._waits_for = "keyed until everything is read"
        while not await self._read_everything():  # noqa: ASYNC110 - it is tried again
            await asyncio.sleep(_LOOK_S)
        self._waits_for = ""

    async def _read_everything(self) -> bool:
        client = self._world.client("keyed-last-look")
        try:
            count = int((await self._rest.order("GET", f"/topics/{TOPIC}"))["partitions"])
            for part in [Part(TOPIC, index) for index in range(count)]:
                leader = await client.leader_of(part)
                end = await end_of(client, leader.host, part, leader.epoch)
                offset = 0
                while end is not None and offset < end:
                    found = await fetch(
                        client, leader.host, part, offset, epoch=leader.epoch, wait_ms=0, bytes_max=_BYTES_MAX
                    )
                    if isinstance(found, int) or found.next_offset == offset:
                        return False
                    for at, value in found.values.items():
                        self._history.see(value, Place(part, at))
                    offset = found.next_offset
                if end is None:
                    return False
        except (NoAnswer, GoQueueError):
            return False
        finally:
            client.close()
        return True

    async def end(self) -> None:
        tasks = [*self._producing, *([] if self._scaling is None else [self._scaling])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._stage.end()
        self._rest.close()
        self._stage.tell(self._world.history)

    def check(self) -> None:
        checkers: tuple[KeyedChecker, ...] = (
            KeysInOrder(),
            EverythingIsProcessed(list(self._groups)),
            StoredOnce(),
        )
        for checker in checkers:
            checker.check(self._history)
