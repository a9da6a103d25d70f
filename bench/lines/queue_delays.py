"""Many pending delays: the memory they cost, how long a start after kill -9 takes with them, and how late others are then.

Those that are pending come by Kafka's protocol, the fastest way in, and are due tomorrow. Those that are measured come
by REST after the restart.
"""

from __future__ import annotations

import asyncio
import time

import msgspec

from bench.child import Broker
from bench.delays import publish_delayed
from bench.kafka_values import index_of, value_of
from bench.line import Bound, Goal, Line, percentile, require, spread
from bench.queue_bench import BATCH_COUNT, CONNECTION_COUNT
from bench.queue_plans import Dialect, Queue
from bench.queue_rest import Connection, RestQueue, RestTaker
from bench.scale import Run
from bench.workspace import fresh_folder

_TOPIC = "delays"
_VALUE_BYTES = 20
_DAY_MS = 86_400_000
_SPREAD_MS = 3_600_000  # over which the pending ones are due
_FIRST_MS = 2_000  # from now to the first of those whose lateness is measured
_EVERY_MS = 1  # one of them is due
_TIMEOUT_S = 600.0
_MEMORY_MB_MAX = 1_000


class _Totals(msgspec.Struct):
    pending: int


class _DelayStats(msgspec.Struct):
    totals: _Totals


def run(run: Run) -> list[Line]:
    scale = run.scale.queue
    with fresh_folder(run.folder) as folder:
        with Broker(folder) as broker:
            empty_s, empty_bytes = broker.ready_s, broker.resident_bytes()
            filled_s = _fill(broker, scale.delayed_count)
            pending_bytes = broker.resident_bytes()
        with Broker(folder) as broker:
            _require_pending(broker, scale.delayed_count)
            restarted_bytes = broker.resident_bytes()
            lateness_ms = sorted(asyncio.run(_bounded(broker, scale.fired_count)))
            _require_pending(broker, scale.delayed_count)
            return [
                _memory(scale.delayed_count, pending_bytes, empty_bytes, restarted_bytes),
                Line(
                    "queue.delays.restart",
                    f"start after kill -9 with {scale.delayed_count:,} pending delays",
                    "s",
                    spread([broker.ready_s]),
                    details={"empty_s": empty_s, "publish_per_s": scale.delayed_count / filled_s},
                ),
                Line(
                    "queue.delays.lateness",
                    f"from when a message is due until a waiting poll has it, p99, with {scale.delayed_count:,} pending",
                    "ms",
                    spread([percentile(lateness_ms, 0.99)]),
                    details={"p50_ms": percentile(lateness_ms, 0.5), "most_ms": lateness_ms[-1]},
                ),
            ]


def _memory(delayed_count: int, pending_bytes: int, empty_bytes: int, restarted_bytes: int) -> Line:
    return Line(
        "queue.delays.memory",
        f"memory of the broker with {delayed_count:,} pending delays",
        "MB",
        spread([pending_bytes / 1e6]),
        goal=Goal(Bound.VALUE_BELOW, _MEMORY_MB_MAX),
        details={
            "bytes_per_delay": (pending_bytes - empty_bytes) / delayed_count,
            "rss_mb_after_restart": restarted_bytes / 1e6,
        },
    )


def _fill(broker: Broker, count: int) -> float:
    """Seconds until all of them are acknowledged and pending."""
    asyncio.run(_queue(broker).create())
    first_ms = int(time.time() * 1_000) + _DAY_MS
    started = time.perf_counter()
    publish_delayed(broker, _TOPIC, (first_ms + index % _SPREAD_MS for index in range(count)), _VALUE_BYTES)
    seconds = time.perf_counter() - started
    _require_pending(broker, count)
    return seconds


def _queue(broker: Broker) -> RestQueue:
    return RestQueue(Queue(Dialect.REST, _TOPIC, broker.port, broker.pid))


def _require_pending(broker: Broker, count: int) -> None:
    async def ask() -> int:
        connection = await Connection.open(broker.port)
        stats = await connection.ask("GET", f"/delay/stats?topic={_TOPIC}", _DelayStats)
        await connection.close()
        return stats.totals.pending

    found = asyncio.run(ask())
    require(found == count, f"{count} delays should be pending, {found} are")


async def _bounded(broker: Broker, fired_count: int) -> list[float]:
    async with asyncio.timeout(_TIMEOUT_S):
        return await _lateness(broker, fired_count)


async def _lateness(broker: Broker, fired_count: int) -> list[float]:
    """In milliseconds; early is a failure."""
    queue = _queue(broker)
    due_ms = await _publish_due(broker, fired_count)
    takers = [await queue.taker() for _ in range(CONNECTION_COUNT)]
    came_ms: dict[int, float] = {}
    await asyncio.gather(*(_take(taker, came_ms, fired_count) for taker in takers))
    for taker in takers:
        await taker.close()
    lateness_ms = [came_ms[index] - due for index, due in enumerate(due_ms)]
    require(min(lateness_ms) >= 0, f"a message came {-min(lateness_ms):.1f} ms before it was due")
    return lateness_ms


async def _publish_due(broker: Broker, fired_count: int) -> list[int]:
    """When each of them is due, the last of them published well before the first is."""
    connection = await Connection.open(broker.port)
    first_ms = int(time.time() * 1_000) + _FIRST_MS
    due_ms = [first_ms + index * _EVERY_MS for index in range(fired_count)]
    for start in range(0, fired_count, BATCH_COUNT):
        messages = [
            {"value": value_of(start + at, _VALUE_BYTES).decode(), "deliverAt": str(due)}
            for at, due in enumerate(due_ms[start : start + BATCH_COUNT])
        ]
        body = msgspec.json.encode({"messages": messages, "acks": "all"})
        await connection.ask_raw("POST", f"/topics/{_TOPIC}/messages", body)
        require(
            time.time() * 1_000 < due_ms[start],
            "the machine is so busy that delays end while they are published",
        )
    await connection.close()
    return due_ms


async def _take(taker: RestTaker, came_ms: dict[int, float], count: int) -> None:
    while len(came_ms) < count:
        messages = await taker.poll(BATCH_COUNT, 1.0)
        now_ms = time.time() * 1_000
        for message in messages:
            index = index_of(message.value.encode())
            require(index not in came_ms, f"message {index} was given twice")
            came_ms[index] = now_ms
        if messages:
            await taker.ack(messages)
