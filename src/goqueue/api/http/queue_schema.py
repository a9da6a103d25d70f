"""What the decoders of the queue's bodies enforce and their types cannot say, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from goqueue.api.http.ack_bodies import (
    VISIBILITY_MS_MAX,
    AckBatch,
    Nack,
    NackBatch,
    RejectBatch,
    Visibility,
    VisibilityBatch,
)
from goqueue.api.http.durations import duration_schema
from goqueue.api.http.message_headers import TRACE_PATTERN
from goqueue.api.http.recurring import NewRecurring, RecurringMessage
from goqueue.api.http.redrive import Filter, RedriveBody
from goqueue.api.http.setting_schema import Schema
from goqueue.model.priority import LANE_COUNT, Priority
from goqueue.model.recurrence import EVERY_MS_MAX, EVERY_MS_MIN
from goqueue.node.config import NodeConfig

_INSTANT: Schema = {"anyOf": [{"format": "date-time"}, {"pattern": "^[0-9]{1,14}$"}]}
_PRIORITY: Schema = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": LANE_COUNT - 1},
        {"enum": [priority.name.lower() for priority in Priority]},
    ]
}


def queue_rules(config: NodeConfig) -> Mapping[type[Struct], Schema]:
    handles: Schema = {"receipt_handles": {"maxItems": config.limits.messages_per_request_max}}
    duration = duration_schema(VISIBILITY_MS_MAX)
    timeout: Schema = {"timeout": duration}
    one_of: Schema = {"oneOf": [{"required": ["timeout"]}, {"required": ["extension_seconds"]}]}
    return {
        AckBatch: {"properties": handles},
        Nack: {"properties": {"delay": duration}},
        NackBatch: {"properties": {**handles, "delay": duration}},
        RejectBatch: {"properties": handles},
        Visibility: {"properties": timeout, **one_of},
        VisibilityBatch: {"properties": {**handles, **timeout}, **one_of},
        Filter: {"not": {"required": ["key", "key_base64"]}},
        RedriveBody: {"dependentRequired": {"offset": ["partition"]}},
        NewRecurring: {
            "properties": {
                "every": duration_schema(EVERY_MS_MAX, ms_min=EVERY_MS_MIN),
                "start_at": _INSTANT,
                "end_at": _INSTANT,
            },
            "oneOf": [{"required": ["every"]}, {"required": ["cron"]}],
            "dependentRequired": {"timezone": ["cron"]},
        },
        RecurringMessage: {
            "properties": {"priority": _PRIORITY},
            "oneOf": [{"required": ["value"]}, {"required": ["value_base64"]}],
            "not": {"required": ["key", "key_base64"]},
        },
    }


def message_fields(config: NodeConfig) -> Schema:
    """The fields of a message that travel as headers. The topic's own maximum of a delay may be lower."""
    return {
        "delay": duration_schema(config.topic_defaults.delay_max_ms),
        "deliverAt": _INSTANT,
        "priority": _PRIORITY,
        "traceparent": {"pattern": f"^{TRACE_PATTERN}$"},
    }
