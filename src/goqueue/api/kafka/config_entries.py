"""Settings as Kafka's tools see them: the value in force, where it comes from, and what it covers.

A topic's setting covers the node's default, which covers the product's. To Kafka the two defaults are settings of the
broker and have names of their own there. A group's setting covers those of the topics it reads, each of which may differ; what
is shown beneath it is the node's default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from goqueue.model.group_settings import (
    ALIASES,
    GROUP_SETTINGS,
    SHARE_AUTO_OFFSET_RESET,
    SHARE_HEARTBEAT,
    SHARE_ISOLATION,
    SHARE_SESSION,
    OffsetReset,
    ShareIsolation,
    group_setting,
)
from goqueue.model.settings import SETTING_NAMES, SettingType, TopicSettings, as_texts, setting_facts
from goqueue.node.config import NodeConfig
from goqueue.node.internal_topics import PARTITION_COUNT
from goqueue.node.requests import TopicFacts


class Source(IntEnum):
    """By Kafka's numbers."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Origin(NamedTuple):
    """One place that gives a setting a value, under the name that it has there."""

    name: str
    value: str
    source: Source


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """`origins` are all places that give a value, the one in force first."""

    name: str
    origins: tuple[Origin, ...]
    type: SettingType
    documentation: str
    is_read_only: bool

    @property
    def value(self) -> str:
        return self.origins[0].value

    @property
    def source(self) -> Source:
        return self.origins[0].source


# Topic settings by the names of the broker's defaults for them.
BROKER_NAMES: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.message.bytes": "message.max.bytes",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "compression.type": "compression.type",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
    "partitioner": "partitioner",
    "scaling": "scaling",
    "visibility.ms": "visibility.ms",
    "max.retries": "max.retries",
    "retry.backoff.ms": "retry.backoff.ms",
    "retry.backoff.max.ms": "retry.backoff.max.ms",
    "dlq.topic": "dlq.topic",
    "ordering": "ordering",
    "delay.max.ms": "delay.max.ms",
}


class _BrokerSetting(NamedTuple):
    type: SettingType
    read: Callable[[NodeConfig], int | bool]
    documentation: str


_BROKER_SETTINGS: Mapping[str, _BrokerSetting] = {
    "num.partitions": _BrokerSetting(
        SettingType.INT,
        lambda config: config.default_partition_count,
        "Partitions of a topic that is created without a number.",
    ),
    "default.replication.factor": _BrokerSetting(
        SettingType.INT,
        lambda config: min(3, max(1, len(config.cluster.peers))),
        "Replicas of a partition of a topic that is created without a number.",
    ),
    "auto.create.topics.enable": _BrokerSetting(
        SettingType.BOOLEAN,
        lambda config: config.auto_create_topics,
        "Whether a topic is made when a client first names it.",
    ),
    "offsets.topic.num.partitions": _BrokerSetting(
        SettingType.INT, lambda _: PARTITION_COUNT, "Partitions of the topic that owns the groups."
    ),
    "transaction.state.log.num.partitions": _BrokerSetting(
        SettingType.INT, lambda _: PARTITION_COUNT, "Partitions of the topic that owns the transactions."
    ),
    "log.flush.interval.ms": _BrokerSetting(
        SettingType.LONG,
        lambda config: config.log.flush_interval_ms,
        "How soon a message with acks=1 is flushed to disk.",
    ),
    "log.flush.offset.checkpoint.interval.ms": _BrokerSetting(
        SettingType.INT,
        lambda config: config.log.checkpoint_interval_ms,
        "Bounds what a restart after a crash has to scan.",
    ),
    "log.retention.check.interval.ms": _BrokerSetting(
        SettingType.LONG,
        lambda config: config.log.cleanup_interval_ms,
        "How often retention and compaction run.",
    ),
    "max.connections": _BrokerSetting(
        SettingType.INT, lambda config: config.limits.connection_count_max, "Open client connections."
    ),
    "socket.request.max.bytes": _BrokerSetting(
        SettingType.INT, lambda config: config.limits.request_bytes_max, "Size of a request."
    ),
}
_ADVERTISED = "advertised.listeners"
_GROUP_DEFAULTS: Mapping[str, Callable[[NodeConfig], str]] = {
    SHARE_AUTO_OFFSET_RESET: lambda _: OffsetReset.LATEST.value,
    SHARE_ISOLATION: lambda _: ShareIsolation.READ_COMMITTED.value,
    SHARE_HEARTBEAT: lambda config: str(config.groups.share_heartbeat_ms),
    SHARE_SESSION: lambda config: str(config.groups.share_session_ms),
}


def topic_entries(topic: TopicFacts, defaults: TopicSettings) -> list[ConfigEntry]:
    """Every setting of a topic; `defaults` are the node's."""
    of_node = as_texts(defaults)
    entries: list[ConfigEntry] = []
    for name in SETTING_NAMES:
        facts = setting_facts(name)
        origins = _broker_origins(BROKER_NAMES[name], of_node[name], facts.default)
        if name in topic.overrides:
            origins = (Origin(name, topic.overrides[name], Source.TOPIC), *origins)
        entries.append(ConfigEntry(name, origins, facts.type, facts.documentation, is_read_only=False))
    return entries


def group_entries(overrides: Mapping[str, str], config: NodeConfig) -> list[ConfigEntry]:
    """Every setting of a queue group, under our names and under Kafka's."""
    ours = {name: _group_origins(name, overrides, config) for name in GROUP_SETTINGS}
    theirs = {
        kafka_name: tuple(Origin(kafka_name, alias.theirs(one.value), one.source) for one in ours[alias.name])
        for kafka_name, alias in ALIASES.items()
    }
    return [
        ConfigEntry(
            name, origins, group_setting(name).type, group_setting(name).documentation, is_read_only=False
        )
        for name, origins in (ours | theirs).items()
    ]


def _group_origins(name: str, overrides: Mapping[str, str], config: NodeConfig) -> tuple[Origin, ...]:
    if name in BROKER_NAMES:
        of_node = as_texts(config.topic_defaults)[name]
        origins = _broker_origins(BROKER_NAMES[name], of_node, setting_facts(name).default)
    else:
        read = _GROUP_DEFAULTS[name]
        origins = _broker_origins(f"group.{name}", read(config), read(NodeConfig()))
    return (Origin(name, overrides[name], Source.GROUP), *origins) if name in overrides else origins


def broker_entries(config: NodeConfig, *, number: int, host: str, port: int) -> list[ConfigEntry]:
    """What a node was told when it started, by Kafka's names. A restart is needed to change any of it."""
    usual = NodeConfig()
    listeners = Origin(_ADVERTISED, f"PLAINTEXT://{host}:{port}", Source.STATIC_BROKER)
    entries = [
        ConfigEntry(_ADVERTISED, (listeners,), SettingType.LIST, "Where clients connect.", is_read_only=True),
        *(
            ConfigEntry(
                name,
                _broker_origins(name, str(number), "1"),
                SettingType.INT,
                "The number of this broker.",
                is_read_only=True,
            )
            for name in ("broker.id", "node.id")
        ),
        *(
            ConfigEntry(
                name,
                _broker_origins(name, _text(setting.read(config)), _text(setting.read(usual))),
                setting.type,
                setting.documentation,
                is_read_only=True,
            )
            for name, setting in _BROKER_SETTINGS.items()
        ),
    ]
    of_node = as_texts(config.topic_defaults)
    for name, broker_name in BROKER_NAMES.items():
        facts = setting_facts(name)
        origins = _broker_origins(broker_name, of_node[name], facts.default)
        entries.append(ConfigEntry(broker_name, origins, facts.type, facts.documentation, is_read_only=True))
    return entries


def _broker_origins(name: str, value: str, default: str) -> tuple[Origin, ...]:
    usual = Origin(name, default, Source.DEFAULT)
    return (usual,) if value == default else (Origin(name, value, Source.STATIC_BROKER), usual)


def _text(value: int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
