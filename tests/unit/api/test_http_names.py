"""Trap 32: a name that could leave its directory is refused on every route that takes one."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from tests.support.asgi import Client
from tests.support.rest_api import with_api

from goqueue.api.http.routes import ROUTES
from goqueue.node.node import Node

BODIES = {
    "/topics/{topic}": {"config": {}},
    "/topics/{topic}/messages": {"messages": [{"value": "v"}]},
    "/admin/topics/{topic}/partitions": {"count": 9},
    "/topics/{topic}/redrive": {},
    "/topics/{topic}/recurring": {"name": "s", "every": "5m", "message": {"value": "v"}},
}
NAMED = [(route.method, route.path) for route in ROUTES if "{topic}" in route.path]
BAD_NAMES = [
    "",
    ".",
    "..",
    "../etc",
    "a/b",
    "/",
    "a\\b",
    "x" * 300,
    "a\x00b",
    "a\nb",
    "\x7f",
    "a b",
    "ü",
    "%2e%2e",
    "~",
]
BAD_SEGMENTS = [
    "",
    ".",
    "..",
    "%2e%2e",
    "%2E%2e",
    "%2e",
    "..%2f..%2fetc",
    "a%2Fb",
    "a%5cb",
    "x" * 300,
    "a%00b",
    "a%0ab",
    "%7f",
    "%20",
    "%c3%bc",
    "%ff",
    "%252e%252e",
    "a%zzb",
    "%",
]


def test_the_table_has_routes_with_names() -> None:
    assert len(NAMED) >= 6


@pytest.mark.parametrize(("method", "path"), NAMED)
def test_a_bad_name_in_a_path_is_refused(method: str, path: str) -> None:
    async def main(client: Client, node: Node) -> None:
        body = json.dumps(BODIES.get(path, {})).encode()
        for segment in BAD_SEGMENTS:
            for prefix in ("", "/v1"):
                target = prefix + path.format(topic=segment, partition=0, offset=0, group="g", schedule="s")
                response = await client.request(method, target, body)
                assert (response.status, response.json()["code"]) == (400, "INVALID_NAME"), target

    with_api(main)


@pytest.mark.parametrize("name", [*BAD_NAMES, "__cluster_metadata", "__mine"])
def test_a_bad_name_of_a_new_topic_is_refused(name: str) -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.post("/topics", {"name": name})
        assert (response.status, response.json()["code"]) == (400, "INVALID_NAME")
        assert [facts.name for facts in node.topics.list()] == ["orders"]

    with_api(main)


@pytest.mark.parametrize(("method", "path"), NAMED)
def test_an_internal_topic_is_not_there(method: str, path: str) -> None:
    async def main(client: Client, node: Node) -> None:
        body = json.dumps(BODIES.get(path, {})).encode()
        target = path.format(topic="__cluster_metadata", partition=0, offset=0, group="g", schedule="s")
        response = await client.request(method, target, body)
        assert (response.status, response.json()["code"]) == (404, "TOPIC_NOT_FOUND")

    with_api(main)


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "...", "x" * 249, "_single"])
def test_every_legal_name_can_be_created_and_reached(name: str) -> None:
    async def main(client: Client, node: Node) -> None:
        assert (await client.post("/topics", {"name": name})).status == 201
        encoded = "".join(f"%{ord(letter):02x}" for letter in name)
        for segment in (quote(name), encoded):
            assert (await client.get(f"/topics/{segment}")).json()["name"] == name

    with_api(main)
