"""Every option of the source, declared: its name, how it is read, its default, and a line for the docs.

Names, defaults and precedence are those of Spark's Kafka connector, so that a program moves by changing its format. What
this source adds is at the end of the list.
"""

from __future__ import annotations

from typing import Any

from goqueue.pipeline.columns import ALL_COLUMNS
from goqueue.pipeline.connection import CONNECTION_OPTIONS
from goqueue.pipeline.options import Option, comma_list, duration_ms, one_of, text, whole, yes_or_no
from goqueue.pipeline.source.bounds import Bound, Latest, read_offsets, read_timestamps
from goqueue.pipeline.source.subscription import read_assign, read_pattern

DEFAULT_FETCH_BYTES = 1 << 20
DEFAULT_TRIGGER_DELAY_MS = 15 * 60_000
TASKS_MAX = 100_000
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"

SUBSCRIBE = Option[tuple[str, ...]]("subscribe", comma_list, (), "Topics to read, with a comma between them.")
PATTERN = Option[str](
    "subscribePattern",
    read_pattern,
    "",
    "Topics whose whole name matches this regular expression; new ones are picked up.",
)
ASSIGN = Option[tuple[tuple[str, tuple[int, ...]], ...]](
    "assign",
    read_assign,
    (),
    'Partitions to read, as JSON: `{"orders": [0, 1]}`. One of subscribe, subscribePattern and assign is needed.',
)
STARTING_OFFSETS = Option[Bound | None](
    "startingOffsets",
    read_offsets,
    None,
    'Where a new query begins: `earliest`, `latest`, or JSON `{"orders": {"0": 23, "1": -2}}` with -2 for earliest and -1 for latest. '
    "Default: earliest for a batch, latest for a stream. A batch cannot begin at latest.",
)
STARTING_TIMESTAMP = Option[int | None](
    "startingTimestamp",
    whole(0),
    None,
    "Begin at the first record that is at least this new (milliseconds since 1970). Comes before the other two ways.",
)
STARTING_BY_TIMESTAMP = Option[Bound | None](
    "startingOffsetsByTimestamp",
    read_timestamps,
    None,
    'The same for each partition: `{"orders": {"0": 1700000000000}}`. Comes before startingOffsets.',
)
STRATEGY = Option[str](
    "startingOffsetsByTimestampStrategy",
    one_of("error", "latest"),
    "error",
    "What to do where no record is new enough to begin at: `error`, or `latest` to wait for the next.",
)
ENDING_OFFSETS = Option[Bound](
    "endingOffsets",
    read_offsets,
    Latest(),
    "Where a batch ends: `latest`, or JSON as for startingOffsets. Not for streams.",
)
ENDING_TIMESTAMP = Option[int | None](
    "endingTimestamp",
    whole(0),
    None,
    "End before the first record that is at least this new, or at latest if there is none.",
)
ENDING_BY_TIMESTAMP = Option[Bound | None](
    "endingOffsetsByTimestamp", read_timestamps, None, "The same for each partition."
)
MAX_OFFSETS = Option[int | None](
    "maxOffsetsPerTrigger",
    whole(1),
    None,
    "The most offsets of one micro-batch, shared among partitions in proportion to what each has waiting.",
)
MIN_OFFSETS = Option[int | None](
    "minOffsetsPerTrigger",
    whole(1),
    None,
    "Wait until so many offsets are there, or maxTriggerDelay has passed.",
)
TRIGGER_DELAY = Option[int](
    "maxTriggerDelay",
    duration_ms,
    DEFAULT_TRIGGER_DELAY_MS,
    "The longest wait for minOffsetsPerTrigger: `30s`, `15m`.",
)
MIN_PARTITIONS = Option[int | None](
    "minPartitions", whole(1, TASKS_MAX), None, "At least so many Spark tasks, if there are as many offsets."
)
FAIL_ON_DATA_LOSS = Option[bool](
    "failOnDataLoss",
    yes_or_no,
    True,
    "Fail when records that were to be read are gone; otherwise warn and go on with what is there.",
)
INCLUDE_HEADERS = Option[bool]("includeHeaders", yes_or_no, False, "Add the column `headers`.")
GROUP_ID = Option[str](
    "group.id",
    text,
    "",
    "Publish a stream's progress as this consumer group's offsets, for tools that show lag. Never read back.",
)
GROUP_ID_PREFIX = Option[str](
    "groupIdPrefix", text, "", "The same with a group named after the prefix and what is subscribed to."
)

ISOLATION = Option[str](
    "isolation",
    one_of(READ_COMMITTED, READ_UNCOMMITTED),
    READ_COMMITTED,
    "`read_committed` leaves out open and aborted transactions; `read_uncommitted` reads all.",
    also=("isolation.level",),
)
COLUMNS = Option[tuple[str, ...] | None](
    "columns",
    comma_list,
    None,
    f"Columns to read, with a comma between them, or `*` for all: {', '.join(ALL_COLUMNS)}. Fewer are faster: Spark does not tell the source which it needs.",
)
MAX_BYTES = Option[int | None](
    "maxBytesPerTrigger",
    whole(1),
    None,
    "About the most bytes (as stored) of one micro-batch: records are sampled, at least one of each partition is read.",
)
MAX_RECORDS = Option[int | None](
    "maxRecordsPerPartition",
    whole(1),
    None,
    "At most so many offsets in one Spark task; there are at most 100,000 tasks.",
)
MAX_PARTITIONS = Option[int | None](
    "maxPartitions",
    whole(1, TASKS_MAX),
    None,
    "At most so many Spark tasks, unless maxRecordsPerPartition asks for more.",
)
WHOLE_PARTITIONS = Option[bool](
    "wholePartitions",
    yes_or_no,
    False,
    "Each partition in one Spark task, from its first offset to its last, so that what a task writes keeps the order of keys.",
)
TRANSPORT = Option[str](
    "transport",
    one_of("network", "files"),
    "network",
    "`network` fetches from the broker, `files` reads segment files under `path`.",
)
PATH = Option[str]("path", text, "", "For `files`: the data folder, a backup or an archive of it.")
ON_DAMAGE = Option[str](
    "onDamage", one_of("fail", "skip"), "fail", "For `files`: what to do with a damaged batch."
)
PUSHDOWN = Option[bool](
    "pushdown",
    yes_or_no,
    False,
    "Let filters on topic, partition, offset and timestamp narrow what a batch reads. Needs `spark.sql.python.filterPushdown.enabled=true`.",
)
FETCH_BYTES = Option[int](
    "fetch.max.bytes",
    whole(1 << 10, 1 << 30),
    DEFAULT_FETCH_BYTES,
    "The most bytes of one fetch.",
)

SOURCE_OPTIONS: tuple[Option[Any], ...] = (  # Any: of whatever types
    *CONNECTION_OPTIONS,
    SUBSCRIBE,
    PATTERN,
    ASSIGN,
    STARTING_OFFSETS,
    STARTING_TIMESTAMP,
    STARTING_BY_TIMESTAMP,
    STRATEGY,
    ENDING_OFFSETS,
    ENDING_TIMESTAMP,
    ENDING_BY_TIMESTAMP,
    MAX_OFFSETS,
    MIN_OFFSETS,
    TRIGGER_DELAY,
    MAX_BYTES,
    MIN_PARTITIONS,
    MAX_PARTITIONS,
    WHOLE_PARTITIONS,
    MAX_RECORDS,
    FAIL_ON_DATA_LOSS,
    ISOLATION,
    COLUMNS,
    INCLUDE_HEADERS,
    TRANSPORT,
    PATH,
    ON_DAMAGE,
    PUSHDOWN,
    FETCH_BYTES,
    GROUP_ID,
    GROUP_ID_PREFIX,
)
STREAM_ONLY = (MAX_OFFSETS, MIN_OFFSETS, TRIGGER_DELAY, MAX_BYTES, GROUP_ID, GROUP_ID_PREFIX)
BATCH_ONLY = (ENDING_OFFSETS, ENDING_TIMESTAMP, ENDING_BY_TIMESTAMP)
