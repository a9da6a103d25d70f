"""The routes about plans to move partitions, on a node that is alone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.asgi import Client
from tests.support.rest_api import with_api

from goqueue.node.node import Node

Json = dict[str, Any]


def test_a_node_alone_has_no_plans() -> None:
    async def main(client: Client, node: Node) -> None:
        found = await client.get("/admin/reassignment")
        assert (found.status, found.json()) == (200, {"reassignments": []})
        for method, path in (("GET", ""), ("POST", "/pause"), ("POST", "/resume"), ("DELETE", "")):
            answer = await client.request(method, f"/admin/reassignment/1{path}")
            assert (answer.status, answer.json()["code"]) == (404, "REASSIGNMENT_NOT_FOUND")

    with_api(main)


def test_a_node_alone_has_nowhere_to_move_anything() -> None:
    async def main(client: Client, node: Node) -> None:
        for body in ({"balance": True}, {"drain": "node-1", "dry_run": True}):
            answer = await client.post("/admin/reassignment", body)
            assert answer.status == 409
            assert "this node is alone" in answer.json()["error"]

    with_api(main)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"plan": [{"topic": "t", "partition": 0, "replicas": []}]}, "$.plan[0].replicas"),
        ({"plan": [{"topic": "t", "partition": -1, "replicas": [1]}]}, "$.plan[0].partition"),
        ({"drain": ""}, "$.drain"),
        ({"parallel": 0}, "$.parallel"),
        ({"throttle_bytes_per_second": 0}, "$.throttle_bytes_per_second"),
        ({"throttle": 5}, "throttle"),
    ],
)
def test_an_order_that_is_not_as_documented_is_refused(body: Json, path: str) -> None:
    async def main(client: Client, node: Node) -> None:
        answer = await client.post("/admin/reassignment", body)
        assert answer.status == 400
        assert path in answer.json()["error"]

    with_api(main)


def test_the_number_of_a_plan_is_a_number() -> None:
    async def main(client: Client, node: Node) -> None:
        answer = await client.get("/admin/reassignment/first")
        assert (answer.status, answer.json()["code"]) == (400, "INVALID_REQUEST")

    with_api(main)
