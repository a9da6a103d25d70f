"""Changes of a topic's settings step by step, as Kafka's tools send them (KIP-339)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from msgspec import Struct

from goqueue.model.errors import InvalidRequest, InvalidSetting
from goqueue.model.settings import (
    SETTINGS,
    SettingType,
    TopicSettings,
    as_texts,
    check_settings,
    split_list,
    unknown_setting,
)


class SettingAction(IntEnum):
    """By Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class SettingOp(Struct, frozen=True):
    name: str
    action: SettingAction
    text: str | None = None  # none to DELETE


def apply_incremental(
    overrides: Mapping[str, str], ops: Sequence[SettingOp], defaults: TopicSettings
) -> dict[str, str]:
    """The overrides after these steps, all of them or none. Adding to a list that was not set begins with its default."""
    changed = dict(overrides)
    named: set[str] = set()
    for op in ops:
        if op.name in named:
            raise InvalidRequest(f"setting {op.name!r} is changed twice in one request", setting=op.name)
        named.add(op.name)
        if op.name not in SETTINGS:
            raise unknown_setting(op.name)
        if op.action is SettingAction.DELETE:
            changed.pop(op.name, None)
        else:
            text = _stepped(op, changed.get(op.name, as_texts(defaults)[op.name]))
            changed |= check_settings({op.name: text})
    return changed


def _stepped(op: SettingOp, current: str) -> str:
    if op.text is None:
        raise InvalidRequest(f"setting {op.name!r} needs a value to {op.action.name}", setting=op.name)
    if op.action is SettingAction.SET:
        return op.text
    if SETTINGS[op.name].type is not SettingType.LIST:
        raise InvalidSetting(
            f"setting {op.name!r} is no list; it takes SET and DELETE, not {op.action.name}", setting=op.name
        )
    old, given = split_list(current), split_list(op.text)
    if op.action is SettingAction.APPEND:
        return ",".join(old + [part for part in given if part not in old])
    return ",".join(part for part in old if part not in given)
