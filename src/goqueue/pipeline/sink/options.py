"""Options of a write: what is promised, where rows without a topic go, what becomes of rows that cannot be written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from goqueue.log.compression import Codec
from goqueue.model.errors import InvalidName
from goqueue.model.names import check_new_topic_name
from goqueue.pipeline.connection import CONNECTION_OPTIONS, Connection
from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.options import Given, Option, duration_ms, one_of, parse_options, text, whole, yes_or_no

TOPIC_MARK: Final = "{topic}"
MIB: Final = 1024 * 1024
_MINUTE_MS: Final = 60_000
_INT_MAX: Final = 2**31 - 1
_APP_ID_LENGTH_MAX: Final = 160  # a joint's id has 200
_ALL: Final = "all"
_ACKS: Final = {"all": _ALL, "-1": _ALL, "1": "leader", "leader": "leader", "0": "none", "none": "none"}


class Guarantee(StrEnum):
    """What a reader of committed records sees."""

    EXACTLY_ONCE = "exactly_once"  # a job's, or a micro-batch's, rows all at once, and once
    PER_TASK = "per_task"  # each task's rows all at once; once, unless the stream is restarted in between
    AT_LEAST_ONCE = "at_least_once"  # rows as they come; those of a repeated task again


class BadRows(StrEnum):
    FAIL = "fail"
    DEAD_LETTER = "dead_letter"
    SKIP = "skip"


def _topic(value: str) -> str:
    try:
        return check_new_topic_name(value)
    except InvalidName as error:
        raise ValueError(str(error)) from None


def _dead_letter_topic(value: str) -> str:
    _topic(value.replace(TOPIC_MARK, "t"))
    return value


def _app_id(value: str) -> str:
    if not 1 <= len(value) <= _APP_ID_LENGTH_MAX or not value.isprintable() or "{" in value or "}" in value:
        raise ValueError(f"write 1 to {_APP_ID_LENGTH_MAX} printable characters without braces")
    return value


def _timeout_ms(value: str) -> int:
    found = duration_ms(value)
    if not 1 <= found <= _INT_MAX:
        raise ValueError(
            f"write 1 ms to {_INT_MAX} ms; the broker has a limit of its own, a day unless it is changed"
        )
    return found


TOPIC = Option[str | None](
    "topic", _topic, None, "The topic of all rows, whatever their column `topic` says."
)
PARTITION = Option[int | None](
    "partition", whole(0, _INT_MAX), None, "The partition of rows whose column `partition` names none."
)
GUARANTEE = Option(
    "guarantee",
    one_of(*Guarantee),
    Guarantee.EXACTLY_ONCE.value,
    "exactly_once: one transaction for the job or micro-batch; per_task: one for each task, for jobs that take longer than "
    "a transaction may; at_least_once: none, and only so can rows be delayed.",
)
ACKS = Option(
    "acks", one_of(*_ACKS), "all", "all, 1 or 0: what a batch's answer waits for. Transactions need all."
)
BATCH_SIZE = Option(
    "batch.size",
    whole(1_024, 16 * MIB),
    MIB,
    "Bytes of records in one batch before compression, at most the topic's max.message.bytes.",
)
COMPRESSION = Option(
    "compression.type",
    one_of(*(codec.name.lower() for codec in Codec)),
    "none",
    "none, gzip, snappy, lz4 or zstd.",
)
TIMEOUT = Option(
    "transaction.timeout.ms",
    _timeout_ms,
    15 * _MINUTE_MS,
    "How long a transaction may take, from a task's first row to the commit of the whole; then the broker aborts it. At most "
    "a day, unless the broker is set otherwise.",
)
SCHEMA_ID = Option[int | None](
    "schema.id", whole(0, _INT_MAX), None, "Put before each value, as Confluent's serializers do."
)
CREATE_TOPICS = Option(
    "createTopics",
    yes_or_no,
    False,
    "Create topics that do not exist, with the broker's default partition count.",
)
BAD_ROWS = Option(
    "badRows",
    one_of(*BadRows),
    BadRows.FAIL.value,
    "fail: the write fails and says which row; dead_letter: bad rows go to deadLetterTopic in the same transaction; "
    "skip: they are left out and counted.",
    also=("mode",),
)
DEAD_LETTER_TOPIC = Option(
    "deadLetterTopic",
    _dead_letter_topic,
    f"{TOPIC_MARK}.dlq",
    f"Where bad rows go; {TOPIC_MARK} stands for the row's own topic, so rows without one need a name without it. "
    "Created if it does not exist.",
)
APP_ID = Option[str | None](
    "txnAppId",
    _app_id,
    None,
    "With txnVersion: the name under which a batch write is done once, however often it is repeated (foreachBatch). Writes "
    "with another option `topic` are others, whatever their name.",
)
APP_VERSION = Option(
    "txnVersion",
    whole(0, 2**63 - 2),  # the broker forgets soon what ends with the last number there is
    -1,
    "A number that grows with each write of txnAppId; one that was committed is not written again.",
)
REPORT_PATH = Option[str | None](
    "reportPath",
    text,
    None,
    "A file on the driver that gets the counts of each commit as JSON, of rows left out as well.",
)
CHECKPOINT = Option("checkpointLocation", text, "", "Spark's own; taken and left to it.")
QUERY_NAME = Option("queryName", text, "", "Spark's own: the name of a streaming query.")

SINK_OPTIONS: tuple[Option[Any], ...] = (  # Any: of whatever types
    TOPIC,
    PARTITION,
    GUARANTEE,
    ACKS,
    BATCH_SIZE,
    COMPRESSION,
    TIMEOUT,
    SCHEMA_ID,
    CREATE_TOPICS,
    BAD_ROWS,
    DEAD_LETTER_TOPIC,
    APP_ID,
    APP_VERSION,
    REPORT_PATH,
    CHECKPOINT,
    QUERY_NAME,
)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one write, checked against each other. Crosses to the tasks."""

    connection: Connection
    topic: str | None = None
    partition: int | None = None
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    acks: str = _ALL
    batch_bytes: int = MIB
    codec: Codec = Codec.NONE
    timeout_ms: int = 15 * _MINUTE_MS
    schema_id: int | None = None
    makes_topics: bool = False
    bad_rows: BadRows = BadRows.FAIL
    dead_letter_topic: str = f"{TOPIC_MARK}.dlq"
    app_id: str | None = None
    app_version: int = 0
    report_path: str | None = None

    @property
    def is_transactional(self) -> bool:
        return self.guarantee is not Guarantee.AT_LEAST_ONCE


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """One error names everything that is wrong with them."""
    values = parse_options(given, (*SINK_OPTIONS, *CONNECTION_OPTIONS))
    problems = [*Connection.problems(values), *_contradictions(values)]
    if problems:
        raise OptionError("; ".join(problems))
    return SinkOptions(
        Connection.of(values),
        topic=values[TOPIC],
        partition=values[PARTITION],
        guarantee=Guarantee(values[GUARANTEE]),
        acks=_ACKS[values[ACKS]],
        batch_bytes=values[BATCH_SIZE],
        codec=Codec[values[COMPRESSION].upper()],
        timeout_ms=values[TIMEOUT],
        schema_id=values[SCHEMA_ID],
        makes_topics=values[CREATE_TOPICS],
        bad_rows=BadRows(values[BAD_ROWS]),
        dead_letter_topic=values[DEAD_LETTER_TOPIC],
        app_id=values[APP_ID],
        app_version=values[APP_VERSION],
        report_path=values[REPORT_PATH],
    )


def _contradictions(values: Given) -> list[str]:
    problems = []
    guarantee = values[GUARANTEE]
    if guarantee != Guarantee.AT_LEAST_ONCE and _ACKS[values[ACKS]] != _ALL:
        problems.append(
            f"acks is {values[ACKS]} and guarantee is {guarantee}; a transaction needs acks=all, and only "
            "guarantee=at_least_once takes less"
        )
    if DEAD_LETTER_TOPIC in values and values[BAD_ROWS] != BadRows.DEAD_LETTER:
        problems.append(
            f"deadLetterTopic is given and badRows is {values[BAD_ROWS]}; it is used with badRows=dead_letter"
        )
    if values[BAD_ROWS] == BadRows.DEAD_LETTER and values[DEAD_LETTER_TOPIC] == values[TOPIC]:
        problems.append(
            f"deadLetterTopic and topic are both {values[TOPIC]}; bad rows need a topic of their own"
        )
    if (APP_ID in values) != (APP_VERSION in values):
        problems.append("txnAppId and txnVersion belong together; one of them is missing")
    if APP_ID in values and guarantee != Guarantee.EXACTLY_ONCE:
        problems.append(f"txnAppId is given and guarantee is {guarantee}; it works with exactly_once")
    return problems
