"""The queue load generator: one asyncio process for every protocol. A child process.

A plan comes in as one line of JSON and an answer goes out as one. Every queue gets the same messages in the same
batches by as many connections. A message that is refused, lost, changed or given twice fails the run, and so does a
queue that still has something when everything was acknowledged.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import assert_never

import msgspec
import uvloop

from bench.child import Child, cpu_s
from bench.kafka_values import value_of
from bench.line import BenchFailed, percentile, require
from bench.queue_amqp import AmqpQueue
from bench.queue_client import Publisher, QueueClient, Taker, Tally
from bench.queue_nats import NatsQueue
from bench.queue_plans import Answer, Cost, Dialect, Failed, Plan, Queue, Wake, Woken, Work, Worked
from bench.queue_redis import RedisQueue
from bench.queue_rest import RestQueue
from bench.queue_share import ShareQueue

_TIMEOUT_S = 240.0
_ANSWER_TIMEOUT_S = _TIMEOUT_S + 60.0
_TAKE_WAIT_S = 0.02
_PARK_WAIT_S = 5.0
_PARK_S = 0.003  # until a taker that said it would wait surely does
_STAMP_BYTES = 12
_SETTLE_TRY_COUNT = 50
_SETTLE_S = 0.1

_CLIENTS: dict[Dialect, Callable[[Queue], QueueClient]] = {
    Dialect.REST: RestQueue,
    Dialect.SHARE: ShareQueue,
    Dialect.AMQP_QUORUM: AmqpQueue,
    Dialect.AMQP_CLASSIC: AmqpQueue,
    Dialect.JETSTREAM: NatsQueue,
    Dialect.REDIS: RedisQueue,
}
_plans = msgspec.json.Decoder[Plan](Plan)
_answers = msgspec.json.Decoder[Answer](Answer)


class QueueLoad(Child):
    """The parent's side."""

    def __init__(self) -> None:
        super().__init__("bench.queue_load")

    def work(self, plan: Work) -> Worked:
        answer = self._ask(plan)
        assert isinstance(answer, Worked)
        return answer

    def wake(self, plan: Wake) -> Woken:
        answer = self._ask(plan)
        assert isinstance(answer, Woken)
        return answer

    def _ask(self, plan: Plan) -> Answer:
        self.tell(msgspec.json.encode(plan))
        answer: Answer = _answers.decode(self.line(timeout_s=_ANSWER_TIMEOUT_S))
        if isinstance(answer, Failed):
            raise BenchFailed(f"{plan.queue.dialect}: {answer.reason}")
        return answer


def main() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin.buffer:
            answer = runner.run(_run(_plans.decode(line)))
            print(msgspec.json.encode(answer).decode(), flush=True)


async def _run(plan: Plan) -> Answer:
    client = _CLIENTS[plan.queue.dialect](plan.queue)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await client.create()
            answer = await _measure(client, plan)
            await _require_settled(client)
            await client.delete()
            return answer
    except TimeoutError:
        return Failed(f"it took longer than {_TIMEOUT_S:g} s, or an answer did not come")
    except Exception as error:  # noqa: BLE001 - whatever a client library raises is told to the parent, which fails the run
        return Failed(_first_of(error))


def _first_of(error: Exception) -> str:
    """A group of tasks wraps what ended the first of them."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


async def _measure(client: QueueClient, plan: Plan) -> Answer:
    match plan:
        case Work():
            return await _work(client, plan)
        case Wake():
            return await _wake(client, plan)
        case _:
            assert_never(plan)


# -------------------------------------------------------------------- batches


class _Meter:
    """Wall time, and processor time of the server and of this process, from here to `cost`."""

    def __init__(self, server_pid: int) -> None:
        self._pid = server_pid
        self._server_s, self._client_s = cpu_s(server_pid), _own_cpu_s()
        self._started = time.perf_counter()

    def cost(self) -> Cost:
        seconds = time.perf_counter() - self._started
        return Cost(seconds, cpu_s(self._pid) - self._server_s, _own_cpu_s() - self._client_s)


async def _work(client: QueueClient, plan: Work) -> Worked:
    values = [value_of(index, plan.value_bytes) for index in range(plan.count)]
    spans = iter(range(0, plan.count, plan.batch_count))
    publishers = [await client.publisher() for _ in range(plan.connection_count)]
    meter = _Meter(plan.queue.pid)
    async with asyncio.TaskGroup() as group:
        for publisher in publishers:
            group.create_task(_publish(publisher, values, spans, plan))
    published = meter.cost()
    for publisher in publishers:
        await publisher.close()
    tally = Tally(plan.count, values[0][_STAMP_BYTES:])
    takers = [await client.taker() for _ in range(plan.connection_count)]
    meter = _Meter(plan.queue.pid)
    async with asyncio.TaskGroup() as group:
        for taker in takers:
            group.create_task(_drain(taker, tally, plan.batch_count))
    drained = meter.cost()
    for taker in takers:
        await taker.close()
    return Worked(plan.count, published, drained)


async def _publish(publisher: Publisher, values: list[bytes], spans: Iterator[int], plan: Work) -> None:
    for start in spans:
        batch = values[start : start + plan.batch_count]
        rank_count = len(plan.priorities)
        priorities = (
            [plan.priorities[at % rank_count] for at in range(start, start + len(batch))]
            if rank_count
            else []
        )
        await publisher.publish(batch, priorities)


async def _drain(taker: Taker, tally: Tally, batch_count: int) -> None:
    """Until all of them together have everything."""
    while not tally.is_complete:
        taken = await taker.take(batch_count, _TAKE_WAIT_S)
        for value in taken.values:
            tally.add(value)
        if taken.values:
            await taken.ack()


# -------------------------------------------------------------------- one at a time


async def _wake(client: QueueClient, plan: Wake) -> Woken:
    publisher, taker = await client.publisher(), await client.taker()
    values = [value_of(index, plan.value_bytes) for index in range(plan.count)]
    tally = Tally(plan.count, values[0][_STAMP_BYTES:])
    latencies_ms: list[float] = []
    for value in values:
        taking = asyncio.create_task(_take_one(taker, tally))
        await asyncio.sleep(_PARK_S)
        require(not taking.done(), "a message came before it was published")
        started = time.perf_counter()
        await publisher.publish([value])
        latencies_ms.append((await taking - started) * 1_000)
    await publisher.close()
    await taker.close()
    latencies_ms.sort()
    return Woken(percentile(latencies_ms, 0.5), percentile(latencies_ms, 0.99), latencies_ms[-1])


async def _take_one(taker: Taker, tally: Tally) -> float:
    """When it came."""
    while True:
        taken = await taker.take(1, _PARK_WAIT_S)
        came = time.perf_counter()
        if taken.values:
            tally.add(taken.values[0])
            await taken.ack()
            return came


async def _require_settled(client: QueueClient) -> None:
    """Acks that are not answered may still be on their way."""
    left_count = 0
    for _ in range(_SETTLE_TRY_COUNT):
        left_count = await client.unsettled_count()
        if left_count == 0:
            return
        await asyncio.sleep(_SETTLE_S)
    raise BenchFailed(f"everything was acknowledged, and the server still has {left_count} messages")


def _own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
