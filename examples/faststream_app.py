"""A FastStream application on GoQueue: it reads orders, and writes an invoice for each.

pip install "faststream[confluent]"
KAFKA=127.0.0.1:9092 faststream run examples.faststream_app:app
"""

from __future__ import annotations

import os

from faststream import FastStream
from faststream.confluent import KafkaBroker

broker = KafkaBroker(os.environ.get("KAFKA", "127.0.0.1:9092"))
app = FastStream(broker)


@broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest")
@broker.publisher("invoices")
async def bill(order: dict[str, int]) -> dict[str, int]:
    return {"order": order["id"], "total": order["price"] * order["count"]}
