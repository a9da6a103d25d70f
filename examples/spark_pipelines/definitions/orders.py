"""A topic copied to another, each record once: the values that are JSON objects with an amount."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

BROKER = os.environ.get("GOQUEUE_BOOTSTRAP", "127.0.0.1:9092")
ORDERS = os.environ.get("ORDERS_TOPIC", "orders")
PAID = os.environ.get("PAID_TOPIC", "orders-paid")

spark = SparkSession.active()


@dp.temporary_view
def orders() -> DataFrame:
    reader = spark.readStream.format("goqueue").option("bootstrap.servers", BROKER)
    return reader.option("subscribe", ORDERS).option("startingOffsets", "earliest").load()


dp.create_sink("paid", "goqueue", {"bootstrap.servers": BROKER, "topic": PAID})


@dp.append_flow(target="paid")
def paid_orders() -> DataFrame:
    has_amount = "get_json_object(CAST(value AS STRING), '$.amount') IS NOT NULL"
    return spark.readStream.table("orders").where(has_amount).select("key", "value")
