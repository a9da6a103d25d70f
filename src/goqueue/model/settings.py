"""Topic settings by the names Kafka gave them, so that one setting has one name on every protocol.

A topic stores only what was set on it; `resolve` lays that over the broker's defaults. Values travel as text
(as Kafka's configs do) and are checked here, in one place, with an error that names what would be right.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, structs

from goqueue.model.errors import InvalidName, InvalidSetting
from goqueue.model.names import check_new_topic_name
from goqueue.model.partitioner import Partitioner

UNLIMITED = -1
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def split_list(text: str) -> list[str]:
    """The members of a list setting."""
    return [part.strip() for part in text.split(",")] if text.strip() else []


class CleanupPolicy(StrEnum):
    DELETE = "delete"
    COMPACT = "compact"
    COMPACT_DELETE = "compact,delete"

    @classmethod
    def _missing_(cls, value: object) -> CleanupPolicy | None:
        """To Kafka it is a list: in any order, with spaces around the commas."""
        sorted_parts = ",".join(sorted(split_list(value))) if isinstance(value, str) else ""
        return next((member for member in cls if member.value == sorted_parts), None)

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


class Ordering(StrEnum):
    NONE = "none"
    KEY = "key"


class ScalingMode(StrEnum):
    NONE = "none"
    KEYED = "keyed"


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
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = HOUR_MS
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    partitioner: Partitioner = Partitioner.MURMUR3
    visibility_ms: int = 30_000
    max_retries: int = 3
    retry_backoff_ms: int = 1_000
    retry_backoff_max_ms: int = 60_000
    dlq_topic: str = ""
    ordering: Ordering = Ordering.NONE
    delay_max_ms: int = 366 * DAY_MS
    scaling: ScalingMode = ScalingMode.NONE


Value = int | float | str


class Whole(Struct, frozen=True):
    """A whole number within bounds, or -1 where no limit is possible."""

    least: int
    most: int = LONG_MAX
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


class TopicName(Struct, frozen=True):
    """The name of another topic, or nothing."""

    def parse(self, text: str) -> str:
        try:
            return check_new_topic_name(text) if text else text
        except InvalidName as error:
            raise ValueError from error

    def describe(self) -> str:
        return "the name of a topic, or empty"


class Switch(Struct, frozen=True):
    def parse(self, text: str) -> bool:
        value = text.strip().lower()
        if value not in ("true", "false"):
            raise ValueError
        return value == "true"

    def describe(self) -> str:
        return "true or false"


Rule = Whole | Ratio | OneOf | TopicName | Switch


class SettingType(StrEnum):
    """Kafka's names of the types of settings."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"


class Setting(Struct, frozen=True):
    type: SettingType
    rule: Rule
    documentation: str


SETTINGS: Mapping[str, Setting] = {
    "cleanup.policy": Setting(
        SettingType.LIST,
        OneOf(CleanupPolicy),
        "What happens to old records: delete them, compact them to the last of each key, or both.",
    ),
    "retention.ms": Setting(
        SettingType.LONG, Whole(0, or_unlimited=True), "How long records are kept, where the policy deletes."
    ),
    "retention.bytes": Setting(
        SettingType.LONG,
        Whole(0, or_unlimited=True),
        "How large a partition grows before its oldest segments go, where the policy deletes.",
    ),
    "segment.bytes": Setting(
        SettingType.INT,
        Whole(1024, 1024 * 1024 * 1024),
        "At which size a segment is sealed and another begun.",
    ),
    "segment.ms": Setting(SettingType.LONG, Whole(1), "At which age a segment is sealed and another begun."),
    "index.interval.bytes": Setting(
        SettingType.INT, Whole(64, 1024 * 1024), "How many bytes of log lie between two entries of its index."
    ),
    "max.message.bytes": Setting(
        SettingType.INT,
        Whole(1024, MESSAGE_BYTES_MAX),  # room for a batch header and a small message
        "The largest batch that is taken, compressed if it is.",
    ),
    "min.cleanable.dirty.ratio": Setting(
        SettingType.DOUBLE, Ratio(), "Which part of a log must be new before it is compacted again."
    ),
    "min.compaction.lag.ms": Setting(
        SettingType.LONG, Whole(0), "How long a record stays in the log before compaction may remove it."
    ),
    "delete.retention.ms": Setting(
        SettingType.LONG, Whole(0), "How long a tombstone stays after compaction first meets it."
    ),
    "compression.type": Setting(
        SettingType.STRING,
        OneOf(CompressionType),
        "How batches are stored: as the producer chose, or as set here.",
    ),
    "message.timestamp.type": Setting(
        SettingType.STRING,
        OneOf(TimestampType),
        "Whether a record keeps its producer's time or gets the broker's.",
    ),
    "message.timestamp.before.max.ms": Setting(
        SettingType.LONG, Whole(0), "How far a producer's time may lie before the broker's."
    ),
    "message.timestamp.after.max.ms": Setting(
        SettingType.LONG, Whole(0), "How far a producer's time may lie after the broker's."
    ),
    "min.insync.replicas": Setting(
        SettingType.INT,
        Whole(1, INT_MAX),
        "How many replicas must have a message that is acknowledged with acks=all.",
    ),
    "unclean.leader.election.enable": Setting(
        SettingType.BOOLEAN,
        Switch(),
        "Whether a replica that is not in sync may lead when no other is left: then messages that were acknowledged may be lost.",
    ),
    "partitioner": Setting(
        SettingType.STRING,
        OneOf(Partitioner),
        "Which hash of a key chooses the partition, where the client does not.",
    ),
    "visibility.ms": Setting(
        SettingType.INT,
        Whole(1, 12 * HOUR_MS),
        "How long a member of a queue group holds a message before it is given again.",
    ),
    "max.retries": Setting(
        SettingType.INT,
        Whole(0, 1_000),
        "How often a message is given again before it goes to the dead letters.",
    ),
    "retry.backoff.ms": Setting(
        SettingType.INT,
        Whole(0, DAY_MS),
        "How long a message rests before its first retry; doubled for each.",
    ),
    "retry.backoff.max.ms": Setting(
        SettingType.INT, Whole(0, DAY_MS), "How long a message rests at most between two retries."
    ),
    "dlq.topic": Setting(
        SettingType.STRING,
        TopicName(),
        "Where dead letters go, if not to the topic's name with `.dlq` behind it.",
    ),
    "ordering": Setting(
        SettingType.STRING,
        OneOf(Ordering),
        "With `key`, a queue group has at most one message of each key under way, and keeps their order.",
    ),
    "delay.max.ms": Setting(SettingType.LONG, Whole(0), "How far ahead a delayed message may be due."),
    "scaling": Setting(
        SettingType.STRING,
        OneOf(ScalingMode),
        "With `keyed`, the broker keeps each key in its partition, and the order of each key for every group while partitions come "
        "and go. Chosen when the topic is created.",
    ),
}
RULES: Mapping[str, Rule] = {name: setting.rule for name, setting in SETTINGS.items()}
SETTING_NAMES = tuple(SETTINGS)

_BY_ACKS = (
    "acks decides when a message is on disk, with `all` before the answer and with `leader` within "
    "log.flush_interval_ms"
)
_ONE_FORMAT = "there is one record format, version 2"
_ALL_LOCAL = "all data is stored locally"
_NOT_THROTTLED = "replication is not throttled by topic"
# Settings of Kafka's that would change nothing here. Taking them would be a promise that nobody keeps.
NOT_TAKEN: Mapping[str, str] = {
    "flush.messages": _BY_ACKS,
    "flush.ms": _BY_ACKS,
    "max.compaction.lag.ms": "compaction starts by min.cleanable.dirty.ratio and has no deadline",
    "segment.jitter.ms": "segments are sealed by segment.bytes and segment.ms exactly",
    "file.delete.delay.ms": "the files of deleted segments go as soon as the new start of the log is on disk",
    "preallocate": "files grow as they are written",
    "segment.index.bytes": "an index grows with its segment; index.interval.bytes says how dense it is",
    "message.format.version": _ONE_FORMAT,
    "message.downconversion.enable": _ONE_FORMAT,
    "message.timestamp.difference.max.ms": (
        "use message.timestamp.before.max.ms and message.timestamp.after.max.ms"
    ),
    "remote.storage.enable": _ALL_LOCAL,
    "remote.log.copy.disable": _ALL_LOCAL,
    "remote.log.delete.on.disable": _ALL_LOCAL,
    "local.retention.bytes": _ALL_LOCAL,
    "local.retention.ms": _ALL_LOCAL,
    "leader.replication.throttled.replicas": _NOT_THROTTLED,
    "follower.replication.throttled.replicas": _NOT_THROTTLED,
}


class SettingFacts(Struct, frozen=True):
    """What there is to say about a setting. `default` is the product's; a node's may differ."""

    type: SettingType
    documentation: str
    default: str


def setting_facts(name: str) -> SettingFacts:
    setting = SETTINGS.get(name)
    if setting is None:
        raise unknown_setting(name)
    return SettingFacts(setting.type, setting.documentation, _as_text(_value(TopicSettings(), name)))


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
    return {name: _as_text(_value(settings, name)) for name in SETTING_NAMES}


def unknown_setting(name: str) -> InvalidSetting:
    if name in NOT_TAKEN:
        return InvalidSetting(
            f"topic setting {name!r} is Kafka's and is not taken here: {NOT_TAKEN[name]}", setting=name
        )
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


def _value(settings: TopicSettings, name: str) -> Value:
    value: Value = getattr(settings, name.replace(".", "_"))
    return value


def _as_text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.value) if isinstance(value, StrEnum) else str(value)
