"""Topics read back over REST, past Spark: what is compared with the expected numbers is not what made them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from demo.expected import Window
from goqueue.client.rest import Message, RestClient
from goqueue.model import dead_letter_headers as letters

_PAGE: Final = 1_000


class _Revenue(Struct, frozen=True):
    start: datetime
    category: str
    orders: int
    cents: int


def messages_of(client: RestClient, topic: str) -> Iterator[Message]:
    """All that is committed, partition by partition."""
    for partition in client.partitions(topic):
        offset = partition.earliest
        while offset < partition.high_watermark:
            page = client.read(topic, partition.partition, offset=offset, limit=_PAGE)
            yield from page.messages
            if page.next_offset <= offset:
                break
            offset = page.next_offset


def revenue_of(client: RestClient, topic: str) -> tuple[dict[Window, int], int]:
    """Cents by window and category, and how many of them came more than once."""
    found: dict[Window, int] = {}
    count = 0
    for message in messages_of(client, topic):
        row = msgspec.json.decode(message.value or b"", type=_Revenue)
        found[int(row.start.timestamp() * 1_000), row.category] = row.cents
        count += 1
    return found, count - len(found)


def dead_letters_of(client: RestClient, topic: str) -> Counter[tuple[str, str]]:
    """How many dead letters there are for each reason, with what the last worker said."""
    found: Counter[tuple[str, str]] = Counter()
    for message in messages_of(client, topic):
        headers = dict(message.headers)
        reason, error = headers.get(letters.REASON), headers.get(letters.ERROR)
        found[(reason or b"").decode(), (error or b"").decode()] += 1
    return found
