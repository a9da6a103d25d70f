"""What the decoders of the groups' bodies enforce and their types cannot say, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from goqueue.api.http.group_bodies import (
    CommitOffsets,
    GroupChanges,
    Join,
    JoinCooperative,
    PolledMessage,
    PollParameters,
    ResetOffsets,
)
from goqueue.api.http.read import PARTITION_MAX
from goqueue.api.http.setting_schema import GROUP_SETTINGS_SCHEMA_NULLABLE, Schema, number_pattern
from goqueue.api.http.topic_bodies import NAME_PATTERN
from goqueue.model.names import NAME_LENGTH_MAX
from goqueue.node.config import NodeConfig
from goqueue.node.groups.offsets import ResetTo
from goqueue.node.groups.stream_members import REBALANCE_MS_MIN

GROUP_PATTERN: Final = r"^(?!\.{1,2}$)[^\u0000-\u001f\u007f/\\]+$"

_INSTANT: Schema = {"anyOf": [{"format": "date-time"}, {"pattern": "^[0-9]{1,15}$"}]}
_TOPIC: Schema = {"pattern": NAME_PATTERN, "minLength": 1, "maxLength": NAME_LENGTH_MAX}


def group_rules(config: NodeConfig) -> Mapping[type[Struct], Schema]:
    groups, wait_ms_max = config.groups, config.limits.wait_ms_max
    joining: Schema = {
        "topics": {"items": _TOPIC},
        "session_timeout": _duration(groups.session_ms_min, groups.session_ms_max),
        "rebalance_timeout": _duration(REBALANCE_MS_MIN, groups.consumer_rebalance_ms_max),
    }
    return {
        JoinCooperative: {"properties": joining},
        Join: {
            "properties": joining,
            "if": {"properties": {"mode": {"const": "queue"}}, "required": ["mode"]},
            "then": {
                "not": {"anyOf": [{"required": ["strategy"]}, {"required": ["rebalance_timeout"]}]},
                "properties": {"auto_commit": {"const": False}},
            },
        },
        PollParameters: {
            "properties": {
                "timeout": {"pattern": _texts(0, wait_ms_max, {"(ms)?": 1, "s": 1_000, "m": 60_000})},
                "visibility": {"pattern": _texts(1, 12 * 3_600_000)},
            }
        },
        PolledMessage: {
            "required": ["topic", "partition", "offset", "timestamp", "headers"],
            "allOf": [
                {"oneOf": [{"required": [name]}, {"required": [f"{name}_base64"]}]}
                for name in ("key", "value")
            ],
        },
        GroupChanges: {"properties": {"config": GROUP_SETTINGS_SCHEMA_NULLABLE}},
        CommitOffsets: {
            "properties": {
                "offsets": {
                    "minProperties": 1,
                    "propertyNames": _TOPIC,
                    "additionalProperties": {
                        "minProperties": 1,
                        "propertyNames": {"pattern": f"^{number_pattern(0, PARTITION_MAX)}$"},
                    },
                }
            },
            "dependentRequired": {"generation": ["member_id"]},
        },
        ResetOffsets: {
            "properties": {"topic": _TOPIC, "timestamp": _INSTANT},
            "allOf": [_exactly_with(ResetTo.OFFSET), _exactly_with(ResetTo.TIMESTAMP)],
            "dependentRequired": {"offset": ["topic"], "partitions": ["topic"]},
        },
    }


def _duration(ms_min: int, ms_max: int) -> Schema:
    return {
        "anyOf": [
            {"type": "integer", "minimum": ms_min, "maximum": ms_max},
            {"type": "string", "pattern": _texts(ms_min, ms_max)},
        ]
    }


def _texts(ms_min: int, ms_max: int, units_ms: Mapping[str, int] | None = None) -> str:
    """The forms that a duration may have. Others may be taken too; these always are."""
    units_ms = units_ms or {"(ms)?": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
    forms = [
        number_pattern(-(-ms_min // unit_ms), ms_max // unit_ms) + unit
        for unit, unit_ms in units_ms.items()
        if -(-ms_min // unit_ms) <= ms_max // unit_ms
    ]
    return f"^({'|'.join(forms)})$"


def _exactly_with(kind: ResetTo) -> Schema:
    """The field of that name is given where `to` says so, and only there."""
    return {
        "if": {"properties": {"to": {"const": kind.value}}, "required": ["to"]},
        "then": {"required": [kind.value]},
        "else": {"not": {"required": [kind.value]}},
    }
