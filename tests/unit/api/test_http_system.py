"""Probes, version and numbers; how paths and methods find their route."""

from __future__ import annotations

import pytest
from tests.support.asgi import Client
from tests.support.rest_api import with_api, with_unstarted_api

from goqueue import __version__
from goqueue.api.http.routes import ROUTES
from goqueue.node.node import Node

PROBES = ("/health", "/healthz", "/livez")


@pytest.mark.parametrize("path", PROBES)
def test_a_node_that_drains_is_alive(path: str) -> None:
    async def main(client: Client, node: Node) -> None:
        await node.drain()
        response = await client.get(path)
        assert response.status == 200
        assert response.json()["status"] == "draining"
        assert response.json()["timestamp"].endswith("Z")
        assert response.json()["uptime"] >= 0

    with_api(main)


@pytest.mark.parametrize("path", PROBES)
def test_a_node_that_failed_is_not_alive(path: str) -> None:
    async def main(client: Client, node: Node) -> None:
        node.failed.set()
        response = await client.get(path)
        assert (response.status, response.json()["code"]) == (503, "NOT_READY")

    with_api(main)


def test_a_node_is_ready_between_start_and_drain() -> None:
    async def main(client: Client, node: Node) -> None:
        statuses = [(await client.get("/readyz")).status]
        await node.start()
        statuses.append((await client.get("/readyz")).status)
        await node.drain()
        statuses.append((await client.get("/readyz")).status)
        assert statuses == [503, 200, 503]

    with_unstarted_api(main)


@pytest.mark.parametrize("query", ["verbose", "verbose=true", "verbose="])
def test_verbose_readiness_shows_checks_and_broker(query: str) -> None:
    async def main(client: Client, node: Node) -> None:
        body = (await client.get(f"/readyz?{query}")).json()
        assert body["checks"]["node"] == "ok"
        assert body["broker"] == {
            "node_id": "node-1",
            "version": __version__,
            "topics": 1,
            "partitions": 3,
        }
        await node.drain()
        body = (await client.get(f"/readyz?{query}")).json()
        assert (body["code"], body["status"], body["details"]) == ("NOT_READY", 503, {"state": "draining"})
        assert body["checks"]["node"] == "draining"
        assert body["broker"]["topics"] == 1

    with_api(main)


@pytest.mark.parametrize("query", ["", "?verbose=false"])
def test_readiness_is_terse_unless_asked(query: str) -> None:
    async def main(client: Client, node: Node) -> None:
        assert set((await client.get(f"/readyz{query}")).json()) == {"status", "timestamp", "uptime"}

    with_api(main)


def test_version_stats_and_metrics_are_what_the_node_says() -> None:
    async def main(client: Client, node: Node) -> None:
        assert (await client.get("/version")).json()["version"] == __version__
        assert (await client.get("/stats")).json()["topics"] == 1
        metrics = await client.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain")
        assert b"goqueue_broker_topics 1.0" in metrics.body

    with_api(main)


@pytest.mark.parametrize(("method", "path"), [(route.method, route.path) for route in ROUTES])
def test_every_path_is_served_under_v1_too(method: str, path: str) -> None:
    async def main(client: Client, node: Node) -> None:
        target = path.format(topic="absent", partition=0, offset=0, group="g", schedule="s", plan=1, node="n")
        plain = await client.request(method, target)
        prefixed = await client.request(method, "/v1" + target)
        assert plain.status == prefixed.status
        assert b'"code":"ROUTE_NOT_FOUND"' not in prefixed.body

    with_api(main)


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "",
        "/nope",
        "/v1",
        "/v2/topics",
        "/v1/v1/topics",
        "/topics/orders/nope",
        "/topics/orders/messages/0",
    ],
)
def test_an_unknown_path_is_404(target: str) -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.get(target)
        assert (response.status, response.json()["code"]) == (404, "ROUTE_NOT_FOUND")

    with_api(main)


@pytest.mark.parametrize(
    ("method", "target", "allow"),
    [
        ("PUT", "/topics", "GET, HEAD, POST"),
        ("POST", "/topics/orders", "DELETE, GET, HEAD, PATCH"),
        ("GET", "/topics/orders/messages", "POST"),
        ("POST", "/topics/orders/partitions/0/messages", "GET, HEAD"),
        ("OPTIONS", "/health", "GET, HEAD"),
        ("HEAD", "/producers/init", "POST"),
    ],
)
def test_a_wrong_method_is_405_and_says_what_is_allowed(method: str, target: str, allow: str) -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.request(method, target)
        assert (response.status, response.json()["code"]) == (405, "METHOD_NOT_ALLOWED")
        assert response.headers["allow"] == allow

    with_api(main)


@pytest.mark.parametrize("target", ["/health", "/topics/orders", "/topics/orders/partitions/0/messages"])
def test_head_is_answered_as_get(target: str) -> None:
    async def main(client: Client, node: Node) -> None:
        assert (await client.request("HEAD", target)).status == 200

    with_api(main)


def test_percent_encoding_is_undone_once() -> None:
    async def main(client: Client, node: Node) -> None:
        assert (await client.get("/t%6fpics/%6frders")).json()["name"] == "orders"
        assert (await client.get("/topics/%256frders")).json()["details"] == {"name": "%6frders"}

    with_api(main)


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "/topics", b""),
        ("GET", "/metrics", b""),
        ("GET", "/nope", b""),
        ("POST", "/topics/orders/messages", b'{"messages":[{"value":"v"}]}'),
        ("GET", "/topics/orders/partitions/0/messages", b""),
    ],
)
def test_an_answer_is_two_events_and_says_its_length(method: str, target: str, body: bytes) -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.request(method, target, body)
        assert response.events == ("http.response.start", "http.response.body")
        assert int(response.headers["content-length"]) == len(response.body)

    with_api(main)
