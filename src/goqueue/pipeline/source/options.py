"""The typed values that the rest of the source works with, checked against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b

from goqueue.pipeline.columns import ALL_COLUMNS, HEADERS_COLUMN, KAFKA_COLUMNS
from goqueue.pipeline.connection import Connection
from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.options import Given, parse_options
from goqueue.pipeline.source.bounds import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    AtTimes,
    Bound,
    Earliest,
    Latest,
)
from goqueue.pipeline.source.declared import (
    ASSIGN,
    BATCH_ONLY,
    COLUMNS,
    DEFAULT_FETCH_BYTES,
    DEFAULT_TRIGGER_DELAY_MS,
    ENDING_BY_TIMESTAMP,
    ENDING_OFFSETS,
    ENDING_TIMESTAMP,
    FAIL_ON_DATA_LOSS,
    FETCH_BYTES,
    GROUP_ID,
    GROUP_ID_PREFIX,
    INCLUDE_HEADERS,
    ISOLATION,
    MAX_BYTES,
    MAX_OFFSETS,
    MAX_PARTITIONS,
    MAX_RECORDS,
    MIN_OFFSETS,
    MIN_PARTITIONS,
    ON_DAMAGE,
    PATH,
    PATTERN,
    PUSHDOWN,
    READ_COMMITTED,
    SOURCE_OPTIONS,
    STARTING_BY_TIMESTAMP,
    STARTING_OFFSETS,
    STARTING_TIMESTAMP,
    STRATEGY,
    STREAM_ONLY,
    SUBSCRIBE,
    TRANSPORT,
    TRIGGER_DELAY,
    WHOLE_PARTITIONS,
)
from goqueue.pipeline.source.subscription import Subscription


class Mode(Enum):
    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one micro-batch may have."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    bytes_max: int | None = None
    delay_ms_max: int = DEFAULT_TRIGGER_DELAY_MS


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many tasks a plan may have."""

    tasks_min: int = 1
    tasks_max: int | None = None
    records_max: int | None = None
    keeps_whole: bool = (
        False  # a partition is never cut: whoever writes what it reads keeps the order of keys
    )


@dataclass(frozen=True, slots=True)
class Access:
    """Where the bytes come from: what an executor needs to open its own transport."""

    connection: Connection | None = None
    path: str | None = None
    skips_damage: bool = False
    committed: bool = True
    fails_on_loss: bool = True
    fetch_bytes: int = DEFAULT_FETCH_BYTES


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Everything that was asked for. It crosses to executors, so it is plain."""

    access: Access
    subscription: Subscription
    starting: Bound
    ending: Bound
    columns: tuple[str, ...]
    limits: Limits = Limits()
    sizes: Sizes = Sizes()
    group_id: str | None = None
    pushes_filters: bool = False
    ignored: tuple[str, ...] = ()  # given, but without meaning for this kind of read


def source_options(given: Mapping[str, str], mode: Mode) -> SourceOptions:
    """The typed options, or one error with all that is wrong with them."""
    found = parse_options(given, SOURCE_OPTIONS)
    _check([*_contradictions(found), *_mode_problems(found, mode)])
    subscription = Subscription(found[SUBSCRIBE], found[PATTERN] or None, found[ASSIGN])
    return SourceOptions(
        access=_access(found),
        subscription=subscription,
        starting=_starting(found, mode),
        ending=_ending(found),
        columns=columns_of(found),
        limits=Limits(found[MAX_OFFSETS], found[MIN_OFFSETS], found[MAX_BYTES], found[TRIGGER_DELAY]),
        sizes=Sizes(
            found[MIN_PARTITIONS] or 1, found[MAX_PARTITIONS], found[MAX_RECORDS], found[WHOLE_PARTITIONS]
        ),
        group_id=_group_id(found, subscription),
        pushes_filters=found[PUSHDOWN],
        ignored=_ignored(found, mode),
    )


def columns_asked_for(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns alone: Spark asks for the schema before it says whether it reads a batch or a stream."""
    found = parse_options(given, SOURCE_OPTIONS)
    _check(_contradictions(found))
    return columns_of(found)


def columns_of(found: Given) -> tuple[str, ...]:
    asked = found[COLUMNS]
    if asked is None:
        names = KAFKA_COLUMNS
    elif asked == ("*",):
        names = ALL_COLUMNS
    else:
        by_lower = {name.lower(): name for name in ALL_COLUMNS}
        unknown = [name for name in asked if name.lower() not in by_lower]
        if unknown:
            raise OptionError(f"columns has {', '.join(unknown)}; there are {', '.join(ALL_COLUMNS)}")
        names = tuple(dict.fromkeys(by_lower[name.lower()] for name in asked))
    if found[INCLUDE_HEADERS] and HEADERS_COLUMN not in names:
        names = (*names, HEADERS_COLUMN)
    return names


def _check(problems: list[str]) -> None:
    if problems:
        raise OptionError("; ".join(problems))


def _mode_problems(found: Given, mode: Mode) -> list[str]:
    if mode is Mode.STREAM:
        return [
            f"{option.name} is for batches: a stream has no end" for option in BATCH_ONLY if option in found
        ]
    problems = []
    if _has(_starting(found, mode), Latest(), LATEST):
        problems.append(
            "a batch cannot begin at latest, where nothing is yet: give earliest, offsets or a timestamp"
        )
    if _has(_ending(found), Earliest(), EARLIEST):
        problems.append(
            "a batch cannot end at earliest, where it begins: give latest, offsets or a timestamp"
        )
    return problems


def _ignored(found: Given, mode: Mode) -> tuple[str, ...]:
    """Spark pushes nothing down into streams; what limits a stream, or shows its progress, means nothing to a batch."""
    useless = STREAM_ONLY if mode is Mode.BATCH else (PUSHDOWN,)
    return tuple(option.name for option in useless if option in found)


def _has(bound: Bound, whole: Bound, number: int) -> bool:
    """Whether all partitions, or one by name, are to be at that end."""
    return bound == whole or (
        isinstance(bound, AtOffsets) and number in (offset for _, offset in bound.offsets)
    )


def _contradictions(found: Given) -> list[str]:
    problems = []
    ways = [option.name for option in (SUBSCRIBE, PATTERN, ASSIGN) if option in found]
    if len(ways) != 1:
        told = f"{' and '.join(ways)} are given" if ways else "none is given"
        problems.append(f"one of subscribe, subscribePattern and assign is needed, and {told}")
    most, least = found[MAX_OFFSETS], found[MIN_OFFSETS]
    if most is not None and least is not None and least > most:
        problems.append(f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}")
    if TRIGGER_DELAY in found and MIN_OFFSETS not in found:
        problems.append("maxTriggerDelay says how long to wait for minOffsetsPerTrigger, which is not given")
    tasks_max, tasks_min = found[MAX_PARTITIONS], found[MIN_PARTITIONS]
    if tasks_max is not None and tasks_min is not None and tasks_min > tasks_max:
        problems.append(f"minPartitions {tasks_min} is more than maxPartitions {tasks_max}")
    if found[WHOLE_PARTITIONS] and MAX_RECORDS in found:
        problems.append("maxRecordsPerPartition cuts partitions, which wholePartitions forbids")
    return [*problems, *_access_problems(found)]


def _access_problems(found: Given) -> list[str]:
    if found[TRANSPORT] == "network":
        strange = [option.name for option in (PATH, ON_DAMAGE) if option in found]
        problems = [f"{name} is for transport=files" for name in strange]
        return problems + Connection.problems(found)
    if PATH not in found:
        return ["transport=files needs path, the folder with the topics"]
    return [
        f"{option.name} has no meaning with transport=files"
        for option in (GROUP_ID, GROUP_ID_PREFIX)
        if option in found
    ]


def _access(found: Given) -> Access:
    is_network = found[TRANSPORT] == "network"
    return Access(
        connection=Connection.of(found) if is_network else None,
        path=None if is_network else found[PATH],
        skips_damage=found[ON_DAMAGE] == "skip",
        committed=found[ISOLATION] == READ_COMMITTED,
        fails_on_loss=found[FAIL_ON_DATA_LOSS],
        fetch_bytes=found[FETCH_BYTES],
    )


def _starting(found: Given, mode: Mode) -> Bound:
    is_strict = found[STRATEGY] == "error"
    timestamp = found[STARTING_TIMESTAMP]
    if timestamp is not None:
        return AtTime(timestamp, is_strict=is_strict)
    by_timestamp = found[STARTING_BY_TIMESTAMP]
    if isinstance(by_timestamp, AtTimes):
        return AtTimes(by_timestamp.times, is_strict=is_strict)
    default = Earliest() if mode is Mode.BATCH else Latest()
    return found[STARTING_OFFSETS] or default


def _ending(found: Given) -> Bound:
    timestamp = found[ENDING_TIMESTAMP]
    if timestamp is not None:
        return AtTime(timestamp, is_strict=False)
    return found[ENDING_BY_TIMESTAMP] or found[ENDING_OFFSETS]


def _group_id(found: Given, subscription: Subscription) -> str | None:
    """A group of the prefix must be the same after a restart, so it is named after what is read."""
    if found[GROUP_ID]:
        return found[GROUP_ID]
    if not found[GROUP_ID_PREFIX]:
        return None
    digest = blake2b(repr(subscription).encode(), digest_size=4).hexdigest()
    return f"{found[GROUP_ID_PREFIX]}-{digest}"
