"""The topic routes."""

from __future__ import annotations

import json

import pytest
from tests.support.asgi import Client, Json, Response
from tests.support.rest_api import with_api

from goqueue.model.limits import Limits
from goqueue.node.config import NodeConfig
from goqueue.node.node import Node


async def patch(client: Client, topic: str, config: Json) -> Response:
    return await client.request("PATCH", f"/topics/{topic}", json.dumps({"config": config}).encode())


def test_a_topic_is_created_listed_described_and_deleted() -> None:
    async def main(client: Client, node: Node) -> None:
        created = await client.post("/topics", {"name": "events", "num_partitions": 2})
        assert created.status == 201
        summary = created.json()
        assert summary.keys() == {"name", "partitions", "created"}
        assert (summary["name"], summary["partitions"]) == ("events", 2)
        assert summary in (await client.get("/topics")).json()["topics"]
        description = (await client.get("/topics/events")).json()
        assert description | summary == description
        assert description["partition_offsets"] == {p: {"earliest": 0, "latest": 0} for p in ("0", "1")}
        assert (await client.request("DELETE", "/topics/events")).json() == {
            "name": "events",
            "deleted": True,
        }
        assert (await client.get("/topics/events")).json()["code"] == "TOPIC_NOT_FOUND"

    with_api(main)


def test_the_number_of_partitions_is_the_nodes_default() -> None:
    async def main(client: Client, node: Node) -> None:
        assert (await client.post("/topics", {"name": "events"})).json()["partitions"] == 5

    with_api(main, config=NodeConfig(default_partition_count=5))


def test_a_description_counts_messages_and_bytes() -> None:
    async def main(client: Client, node: Node) -> None:
        for partition in (0, 1, 1):
            message = {"value": "v", "partition": partition}
            await client.post("/topics/orders/messages", {"messages": [message]})
        description = (await client.get("/topics/orders")).json()
        assert description["total_messages"] == 3
        assert description["total_size_bytes"] > 0
        assert description["partition_offsets"]["1"] == {"earliest": 0, "latest": 2}

    with_api(main)


def test_settings_of_a_new_topic_are_overrides_in_force() -> None:
    async def main(client: Client, node: Node) -> None:
        new = {
            "name": "events",
            "replication_factor": 1,
            "retention_hours": 2,
            "retention_bytes": 4096,
            "config": {"cleanup.policy": "compact", "segment.bytes": 2048, "min.cleanable.dirty.ratio": 0.25},
        }
        assert (await client.post("/topics", new)).status == 201
        description = (await client.get("/topics/events")).json()
        assert description["overrides"] == {
            "cleanup.policy": "compact",
            "segment.bytes": "2048",
            "min.cleanable.dirty.ratio": "0.25",
            "retention.ms": "7200000",
            "retention.bytes": "4096",
        }
        assert description["config"] | description["overrides"] == description["config"]
        assert description["config"]["partitioner"] == "murmur3"

    with_api(main)


def test_retention_can_be_nothing_at_all() -> None:
    async def main(client: Client, node: Node) -> None:
        await client.post("/topics", {"name": "events", "retention_hours": 0, "retention_bytes": 0})
        overrides = (await client.get("/topics/events")).json()["overrides"]
        assert overrides == {"retention.ms": "0", "retention.bytes": "0"}

    with_api(main)


def test_switches_are_taken_as_json_or_as_text() -> None:
    async def main(client: Client, node: Node) -> None:
        for value in (False, "false", True, "true"):
            changed = await patch(client, "orders", {"unclean.leader.election.enable": value})
            assert changed.json()["overrides"] == {"unclean.leader.election.enable": str(value).lower()}

    with_api(main)


def test_a_topic_grows_and_says_by_how_much() -> None:
    async def main(client: Client, node: Node) -> None:
        await client.post("/topics", {"name": "events", "num_partitions": 2})
        grown = await client.post("/admin/topics/events/partitions", {"count": 5})
        assert grown.status == 200
        assert grown.json() == {"name": "events", "old_count": 2, "new_count": 5, "partitions_added": 3}
        partitions = (await client.get("/topics/events/partitions")).json()["partitions"]
        assert [one["partition"] for one in partitions] == [0, 1, 2, 3, 4]
        published = await client.post(
            "/topics/events/messages", {"messages": [{"value": "v", "partition": 4}]}
        )
        assert published.json()["results"][0]["offset"] == 0

    with_api(main)


@pytest.mark.parametrize(
    ("topic", "body", "code", "mentions"),
    [
        ("events", {"count": 2}, "INVALID_PARTITIONS", "can only get more"),
        ("events", {"count": 1}, "INVALID_PARTITIONS", "only one that was created with scaling=keyed"),
        ("events", {"count": 4}, "INVALID_PARTITIONS", "1 to 3"),
        ("events", {"count": 0}, "INVALID_REQUEST", "$.count"),
        ("events", {}, "INVALID_REQUEST", "count"),
        ("events", {"count": 3, "replica_assignments": {}}, "INVALID_REQUEST", "replica_assignments"),
        ("nowhere", {"count": 3}, "TOPIC_NOT_FOUND", "nowhere"),
        ("__cluster_metadata", {"count": 3}, "TOPIC_NOT_FOUND", "__cluster_metadata"),
    ],
)
def test_a_growth_that_cannot_be_is_refused_with_the_reason(
    topic: str, body: Json, code: str, mentions: str
) -> None:
    async def main(client: Client, node: Node) -> None:
        await client.post("/topics", {"name": "events", "num_partitions": 2})
        refused = await client.post(f"/admin/topics/{topic}/partitions", body)
        assert refused.json()["code"] == code
        assert mentions in refused.json()["error"]
        assert len(node.topics.partitions("events")) == 2

    with_api(main, config=NodeConfig(limits=Limits(partitions_per_topic_max=3)))


def test_retention_can_be_unlimited() -> None:
    async def main(client: Client, node: Node) -> None:
        await client.post("/topics", {"name": "events", "retention_hours": -1, "retention_bytes": -1})
        overrides = (await client.get("/topics/events")).json()["overrides"]
        assert overrides == {"retention.ms": "-1", "retention.bytes": "-1"}

    with_api(main)


@pytest.mark.parametrize(
    ("new", "code", "mentions"),
    [
        ({}, "INVALID_REQUEST", "name"),
        ({"name": 5}, "INVALID_REQUEST", "$.name"),
        ({"name": "e", "partitions": 3}, "INVALID_REQUEST", "partitions"),
        ({"name": "e", "num_partitions": 0}, "INVALID_REQUEST", "$.num_partitions"),
        ({"name": "e", "num_partitions": None}, "INVALID_REQUEST", "$.num_partitions"),
        ({"name": "e", "num_partitions": 4}, "INVALID_PARTITIONS", "1 to 3"),
        ({"name": "e", "replication_factor": 3}, "INVALID_REQUEST", "only 1 is possible"),
        ({"name": "e", "retention_hours": -2}, "INVALID_REQUEST", "retention_hours"),
        ({"name": "e", "config": {"flush.ms": 5}}, "INVALID_SETTING", "acks decides"),
        (
            {"name": "e", "config": {"unclean.leader.election.enable": 1}},
            "INVALID_SETTING",
            "must be true or false",
        ),
        (
            {"name": "e", "retention_hours": 1, "config": {"retention.ms": 1}},
            "INVALID_REQUEST",
            "retention_hours",
        ),
        (
            {"name": "e", "retention_bytes": 1, "config": {"retention.bytes": 1}},
            "INVALID_REQUEST",
            "retention_bytes",
        ),
        ({"name": "e", "config": {"colour": "red"}}, "INVALID_SETTING", "colour"),
        ({"name": "e", "config": {"partitioner": True}}, "INVALID_SETTING", "true"),
        ({"name": "e", "config": {"segment.bytes": None}}, "INVALID_REQUEST", "$.config"),
    ],
)
def test_a_wrong_new_topic_is_refused_with_the_reason(new: Json, code: str, mentions: str) -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.post("/topics", new)
        assert (response.status, response.json()["code"]) == (400, code)
        assert mentions in response.json()["error"]

    with_api(main, config=NodeConfig(limits=Limits(partitions_per_topic_max=3)))


def test_a_topic_cannot_be_created_twice() -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.post("/topics", {"name": "orders"})
        assert (response.status, response.json()["code"]) == (409, "TOPIC_EXISTS")

    with_api(main)


def test_there_is_a_limit_to_topics() -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.post("/topics", {"name": "events"})
        assert (response.status, response.json()["code"]) == (429, "LIMIT_EXCEEDED")

    with_api(main, config=NodeConfig(limits=Limits(topic_count_max=1)))


def test_settings_are_changed_and_taken_back() -> None:
    async def main(client: Client, node: Node) -> None:
        changed = await patch(client, "orders", {"retention.ms": 5.0, "compression.type": "zstd"})
        assert changed.status == 200
        assert changed.json()["overrides"] == {"retention.ms": "5", "compression.type": "zstd"}
        changed = await patch(client, "orders", {"retention.ms": None})
        assert changed.json()["overrides"] == {"compression.type": "zstd"}
        assert changed.json() == (await client.get("/topics/orders")).json()

    with_api(main)


def test_what_was_read_can_be_sent_back() -> None:
    async def main(client: Client, node: Node) -> None:
        config = (await client.get("/topics/orders")).json()["config"]
        assert (await patch(client, "orders", config)).json()["config"] == config

    with_api(main)


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"colour": None}, "INVALID_SETTING"),
        ({"retention.ms": "soon"}, "INVALID_SETTING"),
        ({"retention.ms": [1]}, "INVALID_REQUEST"),
        ([], "INVALID_REQUEST"),
    ],
)
def test_a_wrong_change_is_refused(config: Json, code: str) -> None:
    async def main(client: Client, node: Node) -> None:
        response = await patch(client, "orders", config)
        assert (response.status, response.json()["code"]) == (400, code)

    with_api(main)


def test_partitions_are_described() -> None:
    async def main(client: Client, node: Node) -> None:
        await client.post("/topics/orders/messages", {"messages": [{"value": "v", "partition": 1}]})
        partitions = (await client.get("/topics/orders/partitions")).json()["partitions"]
        assert [one["partition"] for one in partitions] == [0, 1, 2]
        written = partitions[1]
        assert (written["earliest"], written["high_watermark"], written["failure"]) == (0, 1, None)
        assert written["leader"] == "node-1"
        assert written["replicas"] == written["isr"] == ["node-1"]
        assert written["size_bytes"] > 0

    with_api(main)


def test_producer_ids_are_never_given_twice() -> None:
    async def main(client: Client, node: Node) -> None:
        identities = [(await client.post("/producers/init", {})).json() for _ in range(3)]
        assert len({identity["producer_id"] for identity in identities}) == 3
        assert {identity["epoch"] for identity in identities} == {0}
        assert (await client.post("/producers/init", {"transactional_id": "t"})).status == 400

    with_api(main)
