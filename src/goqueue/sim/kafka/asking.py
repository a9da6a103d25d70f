"""A request that is made again until there is an answer that says more than "try again"."""

from __future__ import annotations

from random import Random
from typing import Any

from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.client import KafkaClient
from goqueue.sim.kafka.world import RETRIABLE, pause


async def ask(client: KafkaClient, rng: Random, api: str, version: int, /, **fields: Any) -> Any:
    """Of whatever API it is; the classes of answers are made at run time."""
    while True:
        try:
            answer = await client.call(api, version, **fields)
            if RETRIABLE.isdisjoint(_codes(answer)):
                return answer
        except NoAnswer:
            pass
        await pause(rng)


def _codes(answer: Any) -> set[int]:
    """Every error code of an answer about transactions."""
    codes = {getattr(answer, "error_code", 0)}
    for topic in getattr(answer, "responses", ()):
        codes |= {one.error_code for one in topic.partition_responses}
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        codes |= {one.partition_error_code for one in topic.results_by_partition}
    for topic in getattr(answer, "topics", ()):
        codes |= {one.error_code for one in topic.partitions}
    return codes
