"""Settings of a queue group, which Kafka calls a share group: how its members live, and what it has otherwise than the
topics it reads. Kafka has names of its own for some; they are translated where they come in, so that every setting is
stored under one name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from goqueue.model.errors import InvalidRequest, InvalidSetting
from goqueue.model.settings import HOUR_MS, SETTINGS, OneOf, Setting, SettingType, Whole, check_settings

SHARE_AUTO_OFFSET_RESET = "share.auto.offset.reset"
SHARE_HEARTBEAT = "share.heartbeat.interval.ms"
SHARE_ISOLATION = "share.isolation.level"
SHARE_SESSION = "share.session.timeout.ms"


class OffsetReset(StrEnum):
    LATEST = "latest"
    EARLIEST = "earliest"


class ShareIsolation(StrEnum):
    """Nobody is given a record that may yet be aborted."""

    READ_COMMITTED = "read_committed"


# Those of a topic that a group may have otherwise.
LEASE_SETTING_NAMES = (
    "visibility.ms",
    "max.retries",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "dlq.topic",
    "ordering",
)
GROUP_SETTINGS: Mapping[str, Setting] = {
    **{name: SETTINGS[name] for name in LEASE_SETTING_NAMES},
    SHARE_AUTO_OFFSET_RESET: Setting(
        SettingType.STRING,
        OneOf(OffsetReset),
        "Where the group begins in a partition that it has not read yet.",
    ),
    SHARE_ISOLATION: Setting(
        SettingType.STRING,
        OneOf(ShareIsolation),
        "Which records of transactions the group gets: those that were committed.",
    ),
    SHARE_HEARTBEAT: Setting(
        SettingType.INT, Whole(100, 60_000), "How often a member of the group is to be heard of."
    ),
    SHARE_SESSION: Setting(
        SettingType.INT,
        Whole(1_000, HOUR_MS // 2),
        "How long a member of the group may be silent before what it holds goes to others.",
    ),
}


class Alias(Struct, frozen=True):
    """Kafka's name for a setting."""

    name: str  # ours
    setting: Setting
    more_by: int = 0  # where both are numbers: how much larger Kafka's is

    def ours(self, text: str) -> str:
        return str(int(text) - self.more_by) if self.more_by else text

    def theirs(self, text: str) -> str:
        return str(int(text) + self.more_by) if self.more_by else text


ALIASES: Mapping[str, Alias] = {
    "share.record.lock.duration.ms": Alias("visibility.ms", SETTINGS["visibility.ms"]),
    "share.delivery.count.limit": Alias(
        "max.retries",
        Setting(
            SettingType.INT,
            Whole(1, 1_001),
            "How often a message is given at most: once more than it is retried.",
        ),
        more_by=1,
    ),
    "errors.deadletterqueue.topic.name": Alias("dlq.topic", SETTINGS["dlq.topic"]),
}
GROUP_SETTING_NAMES = (*GROUP_SETTINGS, *ALIASES)

_BY_THE_NODE = "it is one for all groups of a node, set where the node is configured"
_NOT_STREAMS = "there are no groups of Kafka Streams' own here"
NOT_TAKEN: Mapping[str, str] = {
    "consumer.session.timeout.ms": _BY_THE_NODE,
    "consumer.heartbeat.interval.ms": _BY_THE_NODE,
    "share.partition.max.record.locks": "how much is under way is limited per member, by the node",
    "share.renew.acknowledge.enable": "a member may always extend the time that it holds a record",
    "errors.deadletterqueue.copy.record.enable": "a dead letter always holds the whole record",
    "streams.session.timeout.ms": _NOT_STREAMS,
    "streams.heartbeat.interval.ms": _NOT_STREAMS,
    "streams.num.standby.replicas": _NOT_STREAMS,
}


def changed(overrides: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The overrides after these changes, all of them or none, by our names. None takes a setting back."""
    after = dict(overrides)
    named: dict[str, str] = {}
    for name, text in changes.items():
        ours = _our_name(name)
        if ours in named:
            raise InvalidRequest(
                f"group settings {named[ours]!r} and {name!r} are the same; give one of them", setting=name
            )
        named[ours] = name
        if text is None:
            after.pop(ours, None)
        else:
            after[ours] = _our_text(name, text)
    return dict(sorted(after.items()))


def lease_settings(overrides: Mapping[str, str]) -> dict[str, str]:
    """Of a group's overrides those that cover a topic's settings."""
    return {name: text for name, text in overrides.items() if name in LEASE_SETTING_NAMES}


def group_setting(name: str) -> Setting:
    alias = ALIASES.get(name)
    if alias is not None:
        return alias.setting
    if name not in GROUP_SETTINGS:
        raise _unknown(name)
    return GROUP_SETTINGS[name]


def _our_name(name: str) -> str:
    group_setting(name)
    return ALIASES[name].name if name in ALIASES else name


def _our_text(name: str, text: str) -> str:
    setting = group_setting(name)
    try:
        setting.rule.parse(text)
    except ValueError:
        raise InvalidSetting(
            f"group setting {name!r} is {text!r}; it must be {setting.rule.describe()}",
            setting=name,
            value=text,
        ) from None
    alias = ALIASES.get(name)
    text = alias.ours(text) if alias is not None else text
    ours = _our_name(name)
    return check_settings({ours: text})[ours] if ours in SETTINGS else str(setting.rule.parse(text))


def _unknown(name: str) -> InvalidSetting:
    if name in NOT_TAKEN:
        return InvalidSetting(
            f"group setting {name!r} is Kafka's and is not taken here: {NOT_TAKEN[name]}", setting=name
        )
    return InvalidSetting(
        f"unknown group setting {name!r}; there are {', '.join(GROUP_SETTING_NAMES)}", setting=name
    )
