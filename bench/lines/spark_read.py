"""Topics into Spark: over the network and from segment files, against a reader that decodes nothing, Parquet, and Spark's
own connector for Kafka on our broker and on Apache Kafka.

All sides read the same rows and columns into Spark's sink that drops them. Before they are measured each is read once into
sums over all columns, which have to be those that were written; and of every pass Spark's own count has to be right.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from crc32c import crc32c
from pyspark.sql import DataFrame, SparkSession

from bench.child import Broker
from bench.kafka_lines import Figures, compare
from bench.line import Bound, Goal, Line, alternate, require
from bench.peers.known import APACHE_KAFKA
from bench.peers.peer import KafkaServer, PeerAbsent
from bench.peers.spark_connector import FORMAT as CONNECTOR_FORMAT
from bench.peers.spark_connector import NAME as CONNECTOR
from bench.peers.spark_connector import connector_title
from bench.scale import Run
from bench.sides import interleave
from bench.spark_bench import CORES, Pass
from bench.spark_null import FORMAT as NULL_FORMAT
from bench.spark_null import save_batches
from bench.spark_rows import RECORD_BYTES, Content, Pool, Sums, content
from bench.spark_topics import Filled, fill_broker, fill_folder, read_topic
from bench.workspace import fresh_folder
from goqueue.log.compression import Codec
from goqueue.pipeline.columns import KAFKA_COLUMNS, arrow_schema
from goqueue.pipeline.origin import Origin

SIZES = {100: "100b", 1_024: "1k"}
PARTITION_COUNT = 4
TASK_COUNT = 4 * CORES
_BATCH_BYTES = 1_000_000  # as large as producers make them when there is much to send
_SMALL_BATCH_BYTES = 16_384  # as large as Java's make them by default
_POOL_COUNT = 16
_KEY_COUNT = 1_000_000
_SMALL = "small"
_CONNECTOR_ON_KAFKA = "connector_on_kafka"
_READ_BYTES = 4 * 1024 * 1024
_VS_NULL = Goal(Bound.RATIO_AT_LEAST, 0.8)
_VS_CONNECTOR = Goal(Bound.RATIO_AT_LEAST, 1.0)
_HASHED = "key, value, partition, offset, timestamp, timestampType"  # topics differ by name only
_FIGURES: Figures[Pass] = {
    "rows_per_s_per_core": lambda one: one.rate_per_core,
    "mb_per_s_per_core": lambda one: one.mb_per_s_per_core,
    "cpu_s_per_million": lambda one: one.cpu_s_per_million,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read the rows."""

    name: str
    title: str
    frame: DataFrame
    content: Content
    is_slim: bool = False


def run(run: Run) -> list[Line]:
    if not run.spark.has_spark():
        return []
    lines: list[Line] = []
    with ExitStack() as stack:
        kafka = _apache_kafka(run, stack)
        for value_bytes in SIZES:
            lines += _of_size(run, value_bytes, kafka)
    return lines


def _apache_kafka(run: Run, stack: ExitStack) -> KafkaServer | None:
    if not run.spark.has_connector:
        return None
    try:
        return stack.enter_context(APACHE_KAFKA.start(stack.enter_context(fresh_folder(run.folder))))
    except PeerAbsent as absent:
        run.spark.absent[_CONNECTOR_ON_KAFKA] = str(absent)
        return None


def _of_size(run: Run, value_bytes: int, kafka: KafkaServer | None) -> list[Line]:
    with fresh_folder(run.folder) as folder:
        topics = _topics(run, value_bytes)
        data = folder / "data"
        fill_folder(data, [*topics.values()])
        plain = topics[Codec.NONE.name]
        _save_copies(data, plain, folder)
        with Broker(data) as broker, _copied(kafka, plain):
            address = f"127.0.0.1:{broker.ports['kafka']}"
            readings = _readings(run, topics, folder, address, kafka)
            _verify(readings)
            taken = interleave(
                readings,
                run.scale.spark.round_count,
                lambda one: run.spark.to_nowhere(one.frame, one.content.row_count, one.content.row_bytes),
            )
        lines = _lines({one.name: one for one in readings}, taken, value_bytes)
        lines.append(_decode_line(run, data, plain))
    return lines


def _topics(run: Run, value_bytes: int) -> dict[str, Filled]:
    """By codec; and one in batches as small as Java's producers make them."""
    scale = run.scale.spark
    row_count = scale.small_row_count if value_bytes == min(SIZES) else scale.large_row_count
    rows = topic_content(row_count, value_bytes, _BATCH_BYTES)
    topics = {codec.name: Filled(f"rows-{codec.name.lower()}", rows, codec) for codec in scale.codecs}
    if value_bytes == min(SIZES):
        topics[_SMALL] = Filled(f"rows-{_SMALL}", topic_content(row_count, value_bytes, _SMALL_BATCH_BYTES))
    return topics


def topic_content(row_count: int, value_bytes: int, batch_bytes: int) -> Content:
    batch_rows = batch_bytes // (value_bytes + RECORD_BYTES)
    pool_count = _POOL_COUNT * _BATCH_BYTES // batch_bytes
    pool = Pool(pool_count, batch_rows=batch_rows, value_bytes=value_bytes, key_count=_KEY_COUNT)
    batch_count = max(1, row_count // PARTITION_COUNT // batch_rows)
    return content(pool, batch_count=batch_count, partition_count=PARTITION_COUNT)


def _save_copies(data: Path, topic: Filled, folder: Path) -> None:
    """The same rows as Arrow batches and as Parquet, a file for each task."""
    access = Origin(path=str(data)).access(topic=topic.name)
    schema = arrow_schema(KAFKA_COLUMNS)
    rows = [batch for _, batch in read_topic(access, topic.name, KAFKA_COLUMNS)]
    parquet = folder / "parquet"
    parquet.mkdir()
    for number in range(TASK_COUNT):
        share = rows[len(rows) * number // TASK_COUNT : len(rows) * (number + 1) // TASK_COUNT]
        save_batches(folder / "arrow", number, schema, iter(share))
        with pq.ParquetWriter(parquet / f"{number:05d}.parquet", schema, compression="snappy") as writer:
            for batch in share:
                writer.write_batch(batch)


@contextmanager
def _copied(kafka: KafkaServer | None, topic: Filled) -> Iterator[None]:
    """The topic in Apache Kafka, too, while it is measured."""
    if kafka is None:
        yield
        return
    kafka.create_topic(topic.name, partition_count=topic.content.partition_count)
    fill_broker(kafka.address, topic)
    yield
    kafka.delete_topic(topic.name)


def _readings(
    run: Run, topics: Mapping[str, Filled], folder: Path, address: str, kafka: KafkaServer | None
) -> list[Reading]:
    spark = run.spark.session()
    plain = topics[Codec.NONE.name]
    null = spark.read.format(NULL_FORMAT).option("path", str(folder / "arrow")).load()
    parquet = spark.read.parquet(str(folder / "parquet"))
    readings = [
        Reading("null", "a reader that decodes nothing", null, plain.content),
        Reading("parquet", "Parquet", parquet, plain.content),
    ]
    files, network = Origin(path=str(folder / "data")), Origin(address)
    for kind, topic in topics.items():
        told = "batches of 16 KB" if kind == _SMALL else f"compression {topic.codec.name.lower()}"
        for transport, origin in (("files", files), ("network", network)):
            frame = origin.read(spark, [topic.name], minPartitions=TASK_COUNT)
            name = f"{transport}.{kind.lower()}"
            readings.append(Reading(name, f"{transport}, {told}", frame, topic.content))
    slim = files.read(spark, [plain.name], minPartitions=TASK_COUNT, columns="offset,key")
    readings.append(Reading("files.slim", "files, offset and key only", slim, plain.content, is_slim=True))
    if run.spark.has_connector:
        frame = _connector_frame(spark, address, plain.name)
        readings.append(Reading(CONNECTOR, f"{connector_title()} on our broker", frame, plain.content))
    if kafka is not None:
        frame = _connector_frame(spark, kafka.address, plain.name)
        title = f"{connector_title()} on {APACHE_KAFKA.title}"
        readings.append(Reading(_CONNECTOR_ON_KAFKA, title, frame, plain.content))
    return readings


def _connector_frame(spark: SparkSession, address: str, topic: str) -> DataFrame:
    reader = spark.read.format(CONNECTOR_FORMAT).option("kafka.bootstrap.servers", address)
    reader = reader.option("subscribe", topic).option("minPartitions", str(TASK_COUNT))
    return reader.option("startingOffsets", "earliest").load()


def _verify(readings: Sequence[Reading]) -> None:
    """Each of them gives what was written. It is what warms Spark up, too."""
    hashes: dict[Pool, tuple[str, int]] = {}
    for one in readings:
        columns = ["count(1)", "sum(crc32(key))", "sum(offset)"]
        if not one.is_slim:
            columns += ["sum(crc32(value))", f"bit_xor(xxhash64({_HASHED}))"]
        found = one.frame.selectExpr(*columns).first()
        assert found is not None
        wanted = one.content.sums()
        sums = Sums(found[0], found[1], wanted.value_crc if one.is_slim else found[3], found[2])
        require(sums == wanted, f"{one.title}: {sums} was read of {wanted}")
        if not one.is_slim:
            first, value = hashes.setdefault(one.content.pool, (one.title, found[4]))
            require(found[4] == value, f"{one.title} gives other rows than {first}")


def _lines(
    readings: Mapping[str, Reading], taken: Mapping[str, Sequence[Pass]], value_bytes: int
) -> list[Line]:
    size = SIZES[value_bytes]

    def against(name: str, peers: Sequence[str], goal: Goal | None) -> list[Line]:
        there = [readings[peer] for peer in peers if peer in readings]
        return compare(
            [readings[name], *there],
            taken,
            name=f"spark.read.{size}.{name}",
            title=f"rows into Spark, {value_bytes:,} B, {readings[name].title}",
            unit="rows/s",
            value=lambda one: one.rate,
            figures=_FIGURES,
            goals=dict.fromkeys(peers, goal) if goal else None,
        )

    measured = [name for name in readings if name.startswith(("files.", "network."))]
    lines = [line for name in measured if name != "files.slim" for line in against(name, ["null"], _VS_NULL)]
    lines += against("files.none", ["parquet"], None)
    if CONNECTOR in readings:
        lines += against("network.none", [CONNECTOR, _CONNECTOR_ON_KAFKA], _VS_CONNECTOR)
    whole = replace(readings["files.none"], name="all_columns")
    lines += compare(
        [readings["files.slim"], whole],
        {"files.slim": taken["files.slim"], whole.name: taken["files.none"]},
        name=f"spark.read.{size}.files.slim",
        title=f"rows into Spark, {value_bytes:,} B, files, columns=offset,key",
        unit="rows/s",
        value=lambda one: one.rate,
        figures=_FIGURES,
    )
    return lines


def _decode_line(run: Run, data: Path, topic: Filled) -> Line:
    """Batches to columns in this process, without Spark."""
    access = Origin(path=str(data)).access(topic=topic.name)
    row_count, row_bytes = topic.content.row_count, topic.content.row_bytes

    def decode() -> int:
        return sum(batch.num_rows for _, batch in read_topic(access, topic.name, KAFKA_COLUMNS))

    def read_and_check() -> int:
        for path in sorted((data / "logs" / topic.name).glob("*/*.log")):
            _checksum(path)
        return row_count

    rate = partial(_rate, row_count)
    rounds = alternate(run.scale.spark.round_count, lambda: rate(decode), lambda: rate(read_and_check))
    return rounds.line(
        f"spark.decode.{SIZES[topic.content.pool.value_bytes]}",
        f"batches to columns in one process, {topic.content.pool.value_bytes:,} B; against read + crc32c",
        "rows/s",
        reference="read + crc32c",
        details={"mb_per_s": sum(rounds.values) / len(rounds.values) * row_bytes / 1e6},
    )


def _rate(row_count: int, work: Callable[[], int]) -> float:
    begun = time.perf_counter()
    found = work()
    seconds = time.perf_counter() - begun
    require(found == row_count, f"{found} of {row_count} rows were decoded")
    return row_count / seconds


def _checksum(path: Path) -> int:
    found = 0
    with path.open("rb", buffering=0) as file:
        while data := file.read(_READ_BYTES):
            found = crc32c(data, found)
    return found
