"""A million messages leased at once: the memory they cost, and what a poll takes then.

Members may hold a thousand each by default; here they may hold their share of all, so that a few are enough.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

from bench.child import Broker
from bench.kafka_values import value_of
from bench.line import Line, Rounds, require, spread
from bench.queue_bench import BATCH_COUNT, CONNECTION_COUNT, VALUE_BYTES
from bench.queue_plans import Dialect, Queue
from bench.queue_rest import Message, RestQueue, RestTaker
from bench.scale import Run
from bench.workspace import fresh_folder

_PUBLISH_COUNT = 1_000
_POLL_COUNT = 1_000
_TIMED_COUNT = 50  # polls
_VISIBILITY = "1h"
_TIMEOUT_S = 900.0


def run(run: Run) -> list[Line]:
    with fresh_folder(run.folder) as folder:
        config = folder / "bench.toml"
        config.write_text(
            f"[queue]\nin_flight_count_max = {run.scale.queue.leased_count * 2}\n", encoding="utf-8"
        )
        with Broker(folder / "data", "--config", str(config)) as broker:
            return asyncio.run(_bounded(broker, run.scale.queue.leased_count))


async def _bounded(broker: Broker, leased_count: int) -> list[Line]:
    async with asyncio.timeout(_TIMEOUT_S):
        return await _measure(broker, leased_count)


async def _measure(broker: Broker, leased_count: int) -> list[Line]:
    queue = RestQueue(Queue(Dialect.REST, "leased", broker.port, broker.pid))
    await queue.create()
    timed_count = 2 * _TIMED_COUNT * BATCH_COUNT
    await _publish(queue, leased_count + timed_count)
    takers = [await queue.taker() for _ in range(CONNECTION_COUNT)]
    seen: set[int] = set()
    before_ms = await _timed_polls(takers[0], seen)
    before_bytes = broker.resident_bytes()
    shares = iter([_POLL_COUNT] * (leased_count // _POLL_COUNT))
    await asyncio.gather(*(_hold(taker, seen, shares) for taker in takers))
    leased_bytes = broker.resident_bytes()
    after_ms = await _timed_polls(takers[0], seen)
    require(len(seen) == leased_count + timed_count, f"{len(seen)} messages were leased in all")
    unsettled_count = await queue.unsettled_count()
    require(unsettled_count == len(seen), f"{len(seen)} are leased, {unsettled_count} are not acknowledged")
    return [
        Rounds(after_ms, before_ms).line(
            "queue.leased.poll",
            f"a poll of {BATCH_COUNT} messages while {leased_count:,} are leased",
            "ms",
            reference="the same while none is",
        ),
        Line(
            "queue.leased.memory",
            f"memory for {leased_count:,} leases at once",
            "MB",
            spread([(leased_bytes - before_bytes) / 1e6]),
            details={
                "bytes_per_lease": (leased_bytes - before_bytes) / leased_count,
                "rss_mb": leased_bytes / 1e6,
            },
        ),
    ]


async def _publish(queue: RestQueue, count: int) -> None:
    publisher = await queue.publisher()
    for start in range(0, count, _PUBLISH_COUNT):
        end = min(start + _PUBLISH_COUNT, count)
        await publisher.publish([value_of(index, VALUE_BYTES) for index in range(start, end)])
    await publisher.close()


async def _timed_polls(taker: RestTaker, seen: set[int]) -> list[float]:
    times_ms: list[float] = []
    for _ in range(_TIMED_COUNT):
        started = time.perf_counter()
        messages = await taker.poll(BATCH_COUNT, 5.0, visibility=_VISIBILITY)
        times_ms.append((time.perf_counter() - started) * 1_000)
        require(len(messages) == BATCH_COUNT, f"a poll gave {len(messages)} of {BATCH_COUNT} messages")
        _enter(messages, seen)
    return times_ms


async def _hold(taker: RestTaker, seen: set[int], shares: Iterator[int]) -> None:
    """Take one share after the other, as long as there are some for anybody."""
    for share in shares:
        left_count = share
        while left_count:
            messages = await taker.poll(left_count, 5.0, visibility=_VISIBILITY)
            require(bool(messages), "a poll gave nothing, though messages are left")
            _enter(messages, seen)
            left_count -= len(messages)


def _enter(messages: Sequence[Message], seen: set[int]) -> None:
    for message in messages:
        require(message.offset not in seen, f"offset {message.offset} was leased twice")
        seen.add(message.offset)
