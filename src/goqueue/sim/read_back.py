"""Reading a whole log back over REST after a start, as the checkers want it."""

from __future__ import annotations

from random import Random
from typing import cast

from goqueue.sim.checkers import ReadBack
from goqueue.sim.clients import TopicPlan
from goqueue.sim.history import History
from goqueue.sim.http import SimHttpClient

_PAGE = 50


async def read_back(client: SimHttpClient, topic: TopicPlan, partition: int) -> ReadBack:
    """Every record, and every range that the broker says it cannot serve."""
    facts = await client.request("GET", f"/topics/{topic.name}/partitions")
    rows = cast(list[dict[str, object]], facts.body["partitions"])
    row = rows[partition]
    earliest, end = cast(int, row["earliest"]), cast(int, row["high_watermark"])
    log = ReadBack(topic.name, partition, earliest, end, is_compacted=topic.is_compacted)
    log.reported_damage = cast(list[str], row["damage"])
    offset = earliest
    while offset < end:
        answer = await client.request(
            "GET", f"/topics/{topic.name}/partitions/{partition}/messages?offset={offset}&limit={_PAGE}"
        )
        if answer.code == "DATA_CORRUPT":
            details = cast(dict[str, int], answer.body["details"])
            log.holes.append((details["start"], details["end"]))
            offset = max(details["end"], offset + 1)
            continue
        if answer.status != 200:
            raise AssertionError(f"reading {topic.name}/{partition} at {offset} gave {answer}")
        for message in cast(list[dict[str, object]], answer.body["messages"]):
            at = cast(int, message["offset"])
            log.values[at] = cast(str, message["value"])
            log.keys[at] = cast(str | None, message.get("key"))
            log.timestamps[at] = cast(str, message["timestamp"])
        offset = cast(int, answer.body["next_offset"])
    return log


async def check_seeks(
    client: SimHttpClient, log: ReadBack, history: History, rng: Random, *, count: int = 3
) -> None:
    """A seek by time finds the first record that is not older, whatever segments and indexes say."""
    if not log.values or log.holes:
        return
    for _ in range(count):
        timestamp = rng.choice(list(log.timestamps.values()))
        expected = min(offset for offset, at in log.timestamps.items() if at >= timestamp)
        answer = await client.request(
            "GET", f"/topics/{log.topic}/partitions/{log.partition}/messages?timestamp={timestamp}&limit=1"
        )
        messages = cast(list[dict[str, object]], answer.body.get("messages", []))
        if not messages or messages[0]["offset"] != expected:
            history.violate(
                f"{log.topic}/{log.partition}: seek to {timestamp} gave {answer}, not offset {expected}"
            )
