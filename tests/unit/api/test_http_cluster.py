"""The routes about the cluster, on a node alone: it answers as a cluster of one."""

from __future__ import annotations

from tests.support.asgi import Client
from tests.support.rest_api import with_api

from goqueue.node.node import Node


def test_a_node_alone_is_a_cluster_of_one() -> None:
    async def main(client: Client, node: Node) -> None:
        name = node.config.node_id
        state = (await client.get("/cluster/state")).json()
        assert (state["node"], state["leader"], state["voters"]) == (name, name, [name])
        [view] = (await client.get("/cluster/nodes")).json()["nodes"]
        assert (view["name"], view["number"], view["status"]) == (name, 1, "alive")
        assert view["is_controller"]
        assert view["leader_count"] == view["replica_count"] == 3

    with_api(main)


def test_a_node_alone_leads_all_its_partitions_and_is_well() -> None:
    async def main(client: Client, node: Node) -> None:
        health = (await client.get("/cluster/health")).json()
        assert (health["status"], health["controller"]) == ("ok", node.config.node_id)
        assert health["partitions_without_leader"] == health["partitions_short_of_replicas"] == 0
        [topic] = (await client.get("/cluster/metadata")).json()["topics"]
        assert topic["name"] == "orders"
        assert [one["state"]["leader"] for one in topic["partitions"]] == [1, 1, 1]

    with_api(main)


def test_a_node_alone_cannot_be_drained_and_has_nothing_to_balance() -> None:
    async def main(client: Client, node: Node) -> None:
        own = {"node": node.config.node_id}
        refused = await client.post("/cluster/drain", own)
        assert (refused.status, refused.json()["code"]) == (409, "NOT_ENOUGH_REPLICAS")
        assert (await client.post("/cluster/undrain", own)).json()["state"] == "alive"
        for order in ("drain", "undrain"):
            other = await client.post(f"/cluster/{order}", {"node": "absent"})
            assert (other.status, other.json()["code"]) == (404, "NODE_NOT_FOUND")
        balanced = await client.post("/cluster/rebalance", {})
        assert (balanced.status, balanced.json()) == (200, {"moved": []})

    with_api(main)


def test_a_node_alone_is_its_only_voter_and_cannot_be_removed() -> None:
    async def main(client: Client, node: Node) -> None:
        own = node.config.node_id
        assert (await client.get("/cluster/voters")).json() == {"voters": [own], "controller": own}
        for method, path, body, refusal in (
            ("POST", "/cluster/voters", {"node": own}, (409, "VOTERS_REFUSED")),
            ("DELETE", f"/cluster/voters/{own}", None, (409, "VOTERS_REFUSED")),
            ("DELETE", f"/cluster/nodes/{own}", None, (409, "VOTERS_REFUSED")),
            ("POST", "/cluster/voters", {"node": "absent"}, (404, "NODE_NOT_FOUND")),
            ("DELETE", "/cluster/voters/absent", None, (404, "NODE_NOT_FOUND")),
        ):
            answer = await (client.request(method, path) if body is None else client.post(path, body))
            assert (answer.status, answer.json()["code"]) == refusal, path

    with_api(main)
