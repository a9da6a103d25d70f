"""Topic settings by the names Kafka gave them, so that one setting has one name on every protocol.

A topic stores only what was set on it; `resolve` lays that over the broker's defaults. Values travel as text
(as Kafka's configs do) and are checked here, in one place, with an error that names what would be right.
"""

from __future__ import annotations

from collections.abc import Mapping
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

    @classmethod
    def _missing_(cls, value: object) -> CleanupPolicy | None:
        return cls.COMPACT_DELETE if value == "delete,compact" else None  # Kafka takes either order

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
_LONG_MAX = 2**63 - 1


class Whole(Struct, frozen=True):
    """A whole number within bounds, or -1 where no limit is possible."""

    least: int
    most: int = _LONG_MAX
    or_unlimited: bool = False

    def parse(self, text: str) -> int:
        number = int(text)
        if not (self.least <= number <= self.most or (self.or_unlimited and number == UNLIMITED)):
            raise ValueError
        return number

    def describe(self) -> str:
        return f"a whole number from {self.least} to {self.most}" + (
            ", or -1 for no limit" if self.or_unlimited else ""
        )


class Ratio(Struct, frozen=True):
    def parse(self, text: str) -> float:
        number = float(text)
        if not 0 <= number <= 1:
            raise ValueError
        return number

    def describe(self) -> str:
        return "a number from 0 to 1"


class OneOf(Struct, frozen=True):
    kind: type[StrEnum]

    def parse(self, text: str) -> StrEnum:
        return self.kind(text)

    def describe(self) -> str:
        return "one of " + ", ".join(member.value for member in self.kind)


Rule = Whole | Ratio | OneOf
RULES: Mapping[str, Rule] = {
    "cleanup.policy": OneOf(CleanupPolicy),
    "retention.ms": Whole(1, or_unlimited=True),
    "retention.bytes": Whole(1, or_unlimited=True),
    "segment.bytes": Whole(1024, 1024 * 1024 * 1024),
    "segment.ms": Whole(1),
    "index.interval.bytes": Whole(64, 1024 * 1024),
    "max.message.bytes": Whole(1024, MESSAGE_BYTES_MAX),  # room for a batch header and a small message
    "min.cleanable.dirty.ratio": Ratio(),
    "min.compaction.lag.ms": Whole(0),
    "delete.retention.ms": Whole(0),
    "compression.type": OneOf(CompressionType),
    "message.timestamp.type": OneOf(TimestampType),
    "partitioner": OneOf(Partitioner),
}
SETTING_NAMES = tuple(RULES)


def describe_setting(name: str) -> str:
    """What a setting takes, in words."""
    return RULES[name].describe()


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
    rule = RULES.get(name)
    if rule is None:
        raise unknown_setting(name)
    try:
        return rule.parse(text)
    except ValueError:
        raise InvalidSetting(
            f"setting {name!r} is {text!r}; it must be {rule.describe()}", setting=name, value=text
        ) from None


def _as_text(value: Value) -> str:
    return str(value.value) if isinstance(value, StrEnum) else str(value)
