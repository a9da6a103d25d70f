"""Writes src/goqueue/wire/schemas.json from the classes of `kio`, which are generated from Kafka's own schemas.

`make schemas` runs it; a test fails when the file and `kio` differ. Why a file: docs/adr/0019-kafka-codec.md."""

from __future__ import annotations

import json
import sys
import typing
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map

TARGET = Path(__file__).parents[1] / "src" / "goqueue" / "wire" / "schemas.json"
# What clients and their tools call, here or in a release that is planned. Left out: KRaft, the traffic between brokers,
# delegation tokens, telemetry and Kafka Streams' own groups.
_WORDS = """
produce fetch list_offsets metadata api_versions offset_for_leader_epoch find_coordinator
join_group sync_group heartbeat leave_group consumer_group_heartbeat consumer_group_describe
list_groups describe_groups delete_groups offset_commit offset_fetch offset_delete
share_group_heartbeat share_group_describe share_fetch share_acknowledge
describe_share_group_offsets alter_share_group_offsets delete_share_group_offsets
init_producer_id add_partitions_to_txn add_offsets_to_txn txn_offset_commit end_txn
write_txn_markers describe_producers describe_transactions list_transactions
create_topics delete_topics create_partitions delete_records describe_topic_partitions
describe_configs alter_configs incremental_alter_configs list_config_resources
describe_cluster describe_log_dirs elect_leaders
alter_partition_reassignments list_partition_reassignments
sasl_handshake sasl_authenticate describe_acls create_acls delete_acls
describe_user_scram_credentials alter_user_scram_credentials
describe_client_quotas alter_client_quotas
"""
WANTED = frozenset(_WORDS.split())
_TIME = {"timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}


def tables() -> dict[str, Any]:
    """API name to its key and, for each version, how request and response are laid out."""
    found = {}
    for key, name in sorted(api_key_map.items()):
        if name in WANTED:
            versions = sorted(schema_name_map[name])
            found[name] = {
                "key": key,
                "request": _layouts([(v, load_request_schema(key, v)) for v in versions]),
                "response": _layouts([(v, load_response_schema(key, v)) for v in versions]),
            }
    return found


def _layouts(classes: list[tuple[int, Any]]) -> list[dict[str, Any]]:
    """Neighbouring versions that look the same share one."""
    layouts: list[dict[str, Any]] = []
    for version, kind in classes:
        layout = {"flexible": kind.__flexible__, "struct": kind.__name__, "fields": _fields(kind)}
        if layouts and {**layouts[-1], "versions": None} == {**layout, "versions": None}:
            layouts[-1]["versions"][1] = version
        else:
            layouts.append({"versions": [version, version], **layout})
    return layouts


def _fields(kind: Any) -> list[dict[str, Any]]:
    hints = typing.get_type_hints(kind)
    return [_field(field, hints[field.name]) for field in fields(kind)]


def _field(field: Field[Any], hint: Any) -> dict[str, Any]:
    is_nullable, hint = _without_none(hint)
    is_array = get_origin(hint) is tuple
    if is_array:
        is_item_nullable, hint = _without_none(get_args(hint)[0])
        is_nullable = is_nullable or (is_item_nullable and not is_dataclass(hint))
    name = field.name
    entry: dict[str, Any] = {}
    if isinstance(hint, type) and is_dataclass(hint):
        entry["struct"] = hint.__name__
        entry["fields"] = _fields(hint)
    else:
        kafka_type = field.metadata["kafka_type"]
        if kafka_type.startswith("timedelta"):
            name += "_ms"
        entry["type"] = {"error_code": "int16", **_TIME}.get(kafka_type, kafka_type)
    entry["name"] = name
    if is_array:
        entry["array"] = True
    is_number = not is_array and entry.get("type", "").startswith(("int", "uint"))
    if is_nullable and not is_number and entry.get("type") != "uuid":
        entry["nullable"] = True
    if "tag" in field.metadata:
        entry["tag"] = field.metadata["tag"]
    default = -1 if is_nullable and is_number else _default(field)
    if default is not None:
        entry["default"] = default
    return entry


def _without_none(hint: Any) -> tuple[bool, Any]:
    if get_origin(hint) in (UnionType, typing.Union):
        rest = [one for one in get_args(hint) if one is not NoneType]
        return NoneType in get_args(hint), rest[0]
    return False, hint


def _default(field: Field[Any]) -> int | str | bool | float | None:
    """Only where it differs from what its type begins with."""
    value = field.default
    if value is MISSING or value is None or isinstance(value, UUID | tuple | bytes):
        return None
    if isinstance(value, timedelta):
        return int(value.total_seconds() * 1_000)
    if isinstance(value, bool | int | str | float):
        return value or None
    return None  # a struct of defaults


def main() -> int:
    text = (
        "{\n"
        + ",\n".join(
            f'"{name}": {json.dumps(table, separators=(",", ":"))}' for name, table in tables().items()
        )
        + "\n}\n"
    )
    if "--check" not in sys.argv:
        TARGET.write_text(text)
    elif TARGET.read_text() != text:
        print(f"{TARGET} is not what kio says; run make schemas", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
