"""Topic settings by the names Kafka gave them, so that one setting has one name on every protocol.

A topic stores only what was set on it; `resolve` lays that over the broker's defaults. Values travel as text
(as Kafka's configs do) and are checked here, in one place, with an error that names what would be right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from msgspec import Struct, structs

from goqueue.model.errors import InvalidSetting
from goqueue.model.partitioner import Partitioner

UNLIMITED = -1
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class CleanupPolicy(StrEnum):
    DELETE = "delete"
    COMPACT = "compact"
    COMPACT_DELETE = "compact,delete"

    @property
    def compacts(self) -> bool:
        return self is not CleanupPolicy.DELETE

    @property
    def deletes(self) -> bool:
        return self is not CleanupPolicy.COMPACT


class TimestampType(StrEnum):
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class CompressionType(StrEnum):
    PRODUCER = "producer"  # keep what the producer chose
    NONE = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class TopicSettings(Struct, frozen=True):
    """Every setting with its default. Milliseconds and bytes unless the name says otherwise."""

    cleanup_policy: CleanupPolicy = CleanupPolicy.DELETE
    retention_ms: int = 168 * HOUR_MS
    retention_bytes: int = UNLIMITED
    segment_bytes: int = 64 * 1024 * 1024
    segment_ms: int = 7 * DAY_MS
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1024 * 1024
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    delete_retention_ms: int = DAY_MS
    compression_type: CompressionType = CompressionType.PRODUCER
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    partitioner: Partitioner = Partitioner.MURMUR3


Value = int | float | str


def _whole(least: int, most: int, *, unlimited: bool = False) -> Callable[[str], Value]:
    def parse(text: str) -> int:
        number = int(text)
        if unlimited and number == UNLIMITED:
            return number
        if not least <= number <= most:
            raise ValueError
        return number

    parse.__doc__ = f"a whole number from {least} to {most}" + (", or -1 for no limit" if unlimited else "")
    return parse


def _ratio(text: str) -> float:
    """a number from 0 to 1"""
    number = float(text)
    if not 0 <= number <= 1:
        raise ValueError
    return number


def _one_of(kind: type[StrEnum]) -> Callable[[str], Value]:
    def parse(text: str) -> StrEnum:
        return kind(text)

    parse.__doc__ = "one of " + ", ".join(member.value for member in kind)
    return parse


_LONG_MAX = 2**63 - 1
_PARSERS: Mapping[str, Callable[[str], Value]] = {
    "cleanup.policy": _one_of(CleanupPolicy),
    "retention.ms": _whole(1, _LONG_MAX, unlimited=True),
    "retention.bytes": _whole(1, _LONG_MAX, unlimited=True),
    "segment.bytes": _whole(1024, 1024 * 1024 * 1024),
    "segment.ms": _whole(1, _LONG_MAX),
    "index.interval.bytes": _whole(64, 1024 * 1024),
    "max.message.bytes": _whole(1, MESSAGE_BYTES_MAX),
    "min.cleanable.dirty.ratio": _ratio,
    "min.compaction.lag.ms": _whole(0, _LONG_MAX),
    "delete.retention.ms": _whole(0, _LONG_MAX),
    "compression.type": _one_of(CompressionType),
    "message.timestamp.type": _one_of(TimestampType),
    "partitioner": _one_of(Partitioner),
}
SETTING_NAMES = tuple(_PARSERS)


def describe_setting(name: str) -> str:
    """What a setting takes, in words."""
    return str(_PARSERS[name].__doc__)


def check_settings(overrides: Mapping[str, str]) -> dict[str, str]:
    """The overrides in their canonical form, or an error about the first that is wrong."""
    return {name: _as_text(_parse(name, text)) for name, text in overrides.items()}


def resolve(overrides: Mapping[str, str], defaults: TopicSettings) -> TopicSettings:
    """The settings in force: the overrides laid over the defaults."""
    changes = {name.replace(".", "_"): _parse(name, text) for name, text in overrides.items()}
    return structs.replace(defaults, **changes)


def as_texts(settings: TopicSettings) -> dict[str, str]:
    """Every setting by its public name."""
    return {name: _as_text(getattr(settings, name.replace(".", "_"))) for name in SETTING_NAMES}


def unknown_setting(name: str) -> InvalidSetting:
    return InvalidSetting(
        f"unknown topic setting {name!r}; there are {', '.join(SETTING_NAMES)}", setting=name
    )


def _parse(name: str, text: str) -> Value:
    parser = _PARSERS.get(name)
    if parser is None:
        raise unknown_setting(name)
    try:
        return parser(text)
    except ValueError:
        raise InvalidSetting(
            f"setting {name!r} is {text!r}; it must be {parser.__doc__}", setting=name, value=text
        ) from None


def _as_text(value: Value) -> str:
    return str(value.value) if isinstance(value, StrEnum) else str(value)
