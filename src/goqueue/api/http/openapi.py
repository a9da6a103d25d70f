"""The OpenAPI 3.1 document, made from the route table and the types in it.

`_rules` adds what a type cannot say but its decoder enforces, so that a client which trusts the document is never
refused for the form of its request. Limits come from the node's configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus

import msgspec
from msgspec import Struct

from goqueue import __version__
from goqueue.api.http.asgi import JSON
from goqueue.api.http.call import NoBody
from goqueue.api.http.group_schema import GROUP_PATTERN, group_rules
from goqueue.api.http.publish_body import Message, Publish
from goqueue.api.http.queue_schema import message_fields, queue_rules
from goqueue.api.http.read import PARTITION_MAX
from goqueue.api.http.read_body import ReadParameters, StoredMessage
from goqueue.api.http.route import AnyRoute
from goqueue.api.http.routes import CLUSTER_ERRORS, COMMON_ERRORS
from goqueue.api.http.setting_schema import (
    SETTINGS_SCHEMA,
    SETTINGS_SCHEMA_NULLABLE,
    Schema,
    number_pattern,
)
from goqueue.api.http.topic_bodies import LONG_MAX, NAME_PATTERN, NewPartitionCount, NewTopic, TopicChanges
from goqueue.model.codes import WIRE, Code
from goqueue.model.names import NAME_LENGTH_MAX
from goqueue.model.settings import INT_MAX
from goqueue.node.config import NodeConfig
from goqueue.node.groups.members import ID_LENGTH_MAX

_REF = "#/components/schemas/{name}"
_DESCRIPTION = (
    "Every path is served under `/v1` too. HEAD is answered as GET is, without the body. Unknown fields and query "
    "parameters are refused. A publish is acknowledged with `acks` = `all` unless it asks for less."
)
_PATH_SCHEMAS: Mapping[str, Schema] = {
    "group": {"type": "string", "pattern": GROUP_PATTERN, "minLength": 1, "maxLength": ID_LENGTH_MAX},
    "topic": {"type": "string", "pattern": NAME_PATTERN, "minLength": 1, "maxLength": NAME_LENGTH_MAX},
    "partition": {"type": "integer", "minimum": 0, "maximum": PARTITION_MAX},
    "offset": {"type": "integer", "minimum": 0, "maximum": LONG_MAX},
    "node": {"type": "string", "minLength": 1, "maxLength": NAME_LENGTH_MAX},
    "plan": {"type": "integer", "minimum": 0, "maximum": INT_MAX},
    "schedule": {"type": "string", "pattern": NAME_PATTERN, "minLength": 1, "maxLength": NAME_LENGTH_MAX},
}


def build_document(routes: tuple[AnyRoute, ...], config: NodeConfig) -> bytes:
    schemas, components = _schemas(routes)
    for kind, rules in _rules(config).items():
        _merge(components[kind.__name__], rules)
    common = COMMON_ERRORS if config.is_solo else (*COMMON_ERRORS, *CLUSTER_ERRORS)
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(
            route, schemas, components, common
        )
    for kind in {route.query for route in routes}:
        components.pop(kind.__name__)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "GoQueue", "version": __version__, "description": _DESCRIPTION},
        "servers": [{"url": "/"}, {"url": "/v1"}],
        "paths": paths,
        "components": {"schemas": components},
    }
    return msgspec.json.encode(document)


def _schemas(routes: tuple[AnyRoute, ...]) -> tuple[dict[object, Schema], dict[str, Schema]]:
    """The schema of each type that a route names, and the components these refer to."""
    kinds: list[object] = []
    for route in routes:
        for kind in (route.query, route.body, route.answer, route.error, *route.more_answers.values()):
            if kind not in (None, NoBody, *kinds):
                kinds.append(kind)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    for component in components.values():
        if "description" in component:
            component["description"] = " ".join(component["description"].split())
    return dict(zip(kinds, schemas, strict=True)), components


def _operation(
    route: AnyRoute,
    schemas: Mapping[object, Schema],
    components: Mapping[str, Schema],
    common: Iterable[Code],
) -> Schema:
    operation: Schema = {
        "operationId": "_".join([route.method.lower(), *re.findall(r"\w+", route.path)]),
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(components[route.query.__name__])],
        "responses": _responses(route, schemas, common),
    }
    if route.description:
        operation["description"] = route.description
    if route.body is not NoBody:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas[route.body]}}}
    return operation


def _path_parameters(route: AnyRoute) -> Iterable[Schema]:
    for name in re.findall(r"{(\w+)}", route.path):
        yield {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS[name]}


def _query_parameters(query: Schema) -> Iterable[Schema]:
    for name, schema in query["properties"].items():
        description = schema.pop("description", "")
        is_required = name in query.get("required", ())
        parameter: Schema = {"name": name, "in": "query", "description": description, "schema": schema}
        yield {**parameter, "required": True} if is_required else parameter


def _responses(route: AnyRoute, schemas: Mapping[object, Schema], common: Iterable[Code]) -> Schema:
    codes: dict[int, list[Code]] = {}
    for code in dict.fromkeys((*common, *route.errors)):
        codes.setdefault(WIRE[code].http, []).append(code)
    answer = {"type": "string"} if route.media_type != JSON else {"type": "object"}
    responses = {
        status: _response(", ".join(codes[status]), schemas[route.error]) for status in sorted(codes)
    }
    for status, kind in route.more_answers.items():
        responses[status] = _response(HTTPStatus(status).phrase, schemas[kind])
    success = _response(
        HTTPStatus(route.status).phrase, schemas.get(route.answer, answer), media_type=route.media_type
    )
    return {str(status): response for status, response in {route.status: success, **responses}.items()}


def _response(description: str, schema: Schema, *, media_type: str = JSON) -> Schema:
    return {"description": description, "content": {media_type: {"schema": schema}}}


def _rules(config: NodeConfig) -> Mapping[type[Struct], Schema]:
    limits = config.limits
    producer = ["producer_id", "epoch", "sequence"]
    return {
        NewTopic: {
            "properties": {
                "num_partitions": {
                    "maximum": limits.partitions_per_topic_max,
                    "default": config.default_partition_count,
                },
                "replication_factor": {"maximum": max(1, len(config.cluster.peers))},
                "config": SETTINGS_SCHEMA,
            },
            "not": {
                "anyOf": [
                    _both("retention_hours", "retention.ms"),
                    _both("retention_bytes", "retention.bytes"),
                ]
            },
        },
        NewPartitionCount: {"properties": {"count": {"maximum": limits.partitions_per_topic_max}}},
        TopicChanges: {"properties": {"config": SETTINGS_SCHEMA_NULLABLE}},
        Publish: {
            "properties": {"messages": {"maxItems": limits.messages_per_request_max}},
            "dependentRequired": {name: [other for other in producer if other != name] for name in producer},
        },
        Message: {
            "properties": message_fields(config),
            "oneOf": [{"required": ["value"]}, {"required": ["value_base64"]}],
            "not": {"anyOf": [{"required": ["key", "key_base64"]}, {"required": ["delay", "deliverAt"]}]},
        },
        StoredMessage: {
            "required": ["offset", "timestamp", "headers", "priority"],
            "allOf": [
                {"oneOf": [{"required": [name]}, {"required": [f"{name}_base64"]}]}
                for name in ("key", "value")
            ],
        },
        ReadParameters: {"properties": {"wait": {"pattern": _wait_pattern(limits.wait_ms_max)}}},
        **queue_rules(config),
        **group_rules(config),
    }


def _both(field: str, setting: str) -> Schema:
    """A new topic that gives one setting in two ways."""
    return {"required": [field, "config"], "properties": {"config": {"required": [setting]}}}


def _wait_pattern(wait_ms_max: int) -> str:
    """The forms that `wait` may have, up to the limit."""
    forms = (
        number_pattern(0, wait_ms_max) + "(ms)?",
        number_pattern(0, wait_ms_max // 1_000) + "s",
        number_pattern(0, wait_ms_max // 60_000) + "m",
    )
    return f"^({'|'.join(forms)})$"


def _merge(schema: Schema, more: Schema) -> None:
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(schema.get(name), dict):
            _merge(schema[name], value)
        else:
            schema[name] = value
