"""Simulated clients: producers of every kind and readers. They know only what the broker tells them."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from random import Random
from typing import cast

from goqueue.model.acks import Acks
from goqueue.sim.broker import HOST, PORT
from goqueue.sim.history import History, Place, Sent
from goqueue.sim.http import Answer, NoAnswer, SimHttpClient

# After these the message is certainly not in the log. Other errors leave it open.
_DEFINITE = {"DISK_FULL", "NOT_READY", "TOPIC_NOT_FOUND", "PARTITION_OFFLINE", "OUT_OF_ORDER_SEQUENCE"}


class Gate:
    """Open while the broker is up and has been read back; clients wait at it in between."""

    def __init__(self) -> None:
        self._open = asyncio.Event()

    def open(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._open.clear()

    async def wait(self) -> None:
        await self._open.wait()


@dataclass(frozen=True, slots=True)
class TopicPlan:
    name: str
    partition_count: int
    is_compacted: bool
    config: dict[str, str]


class SimProducer:
    """Sends `count` requests of one to five messages, each message with a value that never comes again."""

    def __init__(
        self,
        name: str,
        topic: TopicPlan,
        history: History,
        gate: Gate,
        rng: Random,
        *,
        acks: Acks,
        is_idempotent: bool,
    ) -> None:
        self._name = name
        self._topic = topic
        self._history = history
        self._gate = gate
        self._rng = rng
        self._acks = acks
        self._is_idempotent = is_idempotent
        self._client = SimHttpClient(HOST, PORT)
        self._serial = 0
        self._producer_id: int | None = None
        self._sequence = 0
        self._partition = rng.randrange(topic.partition_count)

    async def run(self, request_count: int) -> None:
        with closing(self._client):
            for _ in range(request_count):
                await asyncio.sleep(self._rng.expovariate(8))
                await self._gate.wait()
                messages = [self._message() for _ in range(self._rng.randint(1, 5))]
                if self._is_idempotent:
                    await self._send_until_settled(messages)
                else:
                    await self._send_once(messages)

    def _message(self) -> dict[str, object]:
        self._serial += 1
        value = f"{self._name}-{self._serial}-" + "x" * self._rng.choice((0, 10, 100, 600))
        key = f"k{self._rng.randrange(6)}" if self._topic.is_compacted or self._rng.random() < 0.3 else None
        message: dict[str, object] = {"value": value}
        if key is not None:
            message["key"] = key
        if self._is_idempotent:
            message["partition"] = self._partition
        self._history.send(Sent(value, key, self._acks, self._is_idempotent))
        return message

    async def _send_once(self, messages: list[dict[str, object]]) -> None:
        try:
            answer = await self._publish({"messages": messages, "acks": self._acks.value})
        except NoAnswer:
            return
        self._settle(messages, answer)

    async def _send_until_settled(self, messages: list[dict[str, object]]) -> None:
        while True:
            try:
                if self._producer_id is None:
                    answer = await self._client.request("POST", "/producers/init", {})
                    if answer.status != 200:
                        raise NoAnswer(f"no producer id: {answer}")
                    self._producer_id, self._sequence = cast(int, answer.body["producer_id"]), 0
                answer = await self._publish(
                    {
                        "messages": messages,
                        "acks": self._acks.value,
                        "producer_id": self._producer_id,
                        "epoch": 0,
                        "sequence": self._sequence,
                    }
                )
            except NoAnswer:
                await self._pause()
                continue
            if answer.status == 200:
                self._sequence += len(messages)
                self._settle(messages, answer)
                return
            if "OUT_OF_ORDER_SEQUENCE" in str(
                answer.body
            ):  # a power cut took what only `leader` had promised
                self._producer_id = None
                return
            await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.05, 0.5))
        await self._gate.wait()

    async def _publish(self, body: dict[str, object]) -> Answer:
        return await self._client.request("POST", f"/topics/{self._topic.name}/messages", body)

    def _settle(self, messages: list[dict[str, object]], answer: Answer) -> None:
        results = cast(list[dict[str, object]], answer.body.get("results", []))
        if not results and answer.code in _DEFINITE:
            results = [{"code": answer.code} for _ in messages]
        now_s = asyncio.get_running_loop().time()
        for message, result in zip(messages, results, strict=False):
            value = cast(str, message["value"])
            if result.get("offset") is not None:
                place = Place(self._topic.name, cast(int, result["partition"]), cast(int, result["offset"]))
                self._history.acknowledged(place, value, self._acks, now_s)
            elif result.get("code") in _DEFINITE and not self._is_idempotent:
                self._history.refused.add(value)


class SimReader:
    """Follows one partition for ever, from wherever it is, with long polls of random length."""

    def __init__(self, topic: str, partition: int, history: History, gate: Gate, rng: Random) -> None:
        self._topic = topic
        self._partition = partition
        self._history = history
        self._gate = gate
        self._rng = rng
        self._client = SimHttpClient(HOST, PORT)
        self._offset = 0

    async def run(self) -> None:
        with closing(self._client):
            while True:
                await self._gate.wait()
                await self._poll()
                await asyncio.sleep(self._rng.uniform(0.01, 0.3))

    async def _poll(self) -> None:
        wait_ms = self._rng.choice((0, 200, 2_000))
        limit = self._rng.choice((1, 7, 100))
        path = f"/topics/{self._topic}/partitions/{self._partition}/messages"
        try:
            self._take(
                await self._client.request(
                    "GET", f"{path}?offset={self._offset}&limit={limit}&wait={wait_ms}ms"
                )
            )
        except NoAnswer:
            return  # the broker is down or the connection broke; the next poll connects again

    def _take(self, answer: Answer) -> None:
        details = cast(dict[str, int], answer.body.get("details", {}))
        if answer.status == 200:
            now_s = asyncio.get_running_loop().time()
            watermark = cast(int, answer.body["high_watermark"])
            for message in cast(list[dict[str, object]], answer.body["messages"]):
                place = Place(self._topic, self._partition, cast(int, message["offset"]))
                self._history.observed(place, cast(str, message["value"]), now_s)
                if place.offset >= watermark or place.offset < self._offset:
                    self._history.violate(
                        f"{place} was served; asked from {self._offset}, watermark {watermark}"
                    )
            self._offset = cast(int, answer.body["next_offset"])
        elif answer.code == "OFFSET_OUT_OF_RANGE":
            self._offset = details["latest"] if self._offset > details["latest"] else details["earliest"]
        elif answer.code == "DATA_CORRUPT":
            self._offset = details["end"]
