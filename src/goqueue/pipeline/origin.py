"""Where topics are: a broker, or a folder of segment files. Jobs and pipelines read and write through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from goqueue.client.kafka import KafkaCluster
from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.source.network import connect
from goqueue.pipeline.source.options import Access, Mode, source_options

FORMAT = "goqueue"
BOOTSTRAP_DEFAULT = "127.0.0.1:9092"


class Written(Struct, frozen=True):
    """What a write has done. Nothing is known of one that a server of Spark Connect has carried out."""

    rows: dict[str, int] = {}  # by topic
    bad_rows: dict[str, int] = {}  # by reason; those are not among the rows

    @property
    def count(self) -> int:
        return sum(self.rows.values())


@dataclass(frozen=True, slots=True)
class Origin:
    """Give `bootstrap` for a broker, or `path` for segment files. `options` go to every read and write as they are."""

    bootstrap: str | None = None
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.bootstrap is not None and self.path is not None:
            raise OptionError(
                f"bootstrap is {self.bootstrap!r} and path is {self.path!r}; topics are read from one of them"
            )

    def read(self, spark: SparkSession, topics: Sequence[str], /, **options: str | int | bool) -> DataFrame:
        """The records of these topics as rows; options as `spark.read.format("goqueue")` takes them."""
        reader = spark.read.format(FORMAT).options(**self.place()).option("subscribe", ",".join(topics))
        return reader.options(**_texts(options)).load()

    def stream(self, spark: SparkSession, topics: Sequence[str], /, **options: str | int | bool) -> DataFrame:
        reader = spark.readStream.format(FORMAT).options(**self.place())
        return reader.option("subscribe", ",".join(topics)).options(**_texts(options)).load()

    def write(self, frame: DataFrame, /, **options: str | int | bool) -> Written:
        """Append the rows to topics, all or none of them."""
        if self.path is not None:
            raise OptionError(f"{self.path!r} is a folder; rows are written to a broker: give its address")
        with TemporaryDirectory(prefix="gq-") as folder:
            report = Path(folder) / "written.json"
            writer = frame.write.format(FORMAT).mode("append").options(**self.place())
            writer.options(**_texts(options)).option("reportPath", str(report)).save()
            return msgspec.json.decode(report.read_bytes(), type=Written) if report.exists() else Written()

    def access(self, *, topic: str, **options: str | int | bool) -> Access:
        """What tasks need that read without rows of Spark's."""
        given = {**self.place(), "subscribe": topic, **_texts(options)}
        return source_options(given, Mode.BATCH).access

    def connect(self) -> KafkaCluster:
        """A client of the broker, for what is not reading and writing."""
        connection = self.access(topic="any").connection
        if connection is None:
            raise OptionError(f"{self.path!r} is a folder; give a broker's address")
        return connect(connection)

    def place(self) -> dict[str, str]:
        """The options that say where it is, for reads and writes of one's own."""
        if self.path is not None:
            place = {"transport": "files", "path": self.path}
        else:
            place = {"bootstrap.servers": self.bootstrap or BOOTSTRAP_DEFAULT}
        return {**place, **self.options}


def _texts(options: Mapping[str, str | int | bool]) -> dict[str, str]:
    """Options as Spark passes them on: text."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
    }
