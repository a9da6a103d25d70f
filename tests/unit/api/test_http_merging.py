"""What several nodes answer becomes one answer."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from goqueue.api.http import merging
from goqueue.api.http.delayed import DelayedMessage, DelayedMessages, DelayedQuery, DelayState
from goqueue.api.http.exchange import Refused, Request
from goqueue.api.http.gathering import PAGE_COUNT_MAX, Gathering
from goqueue.api.http.group_bodies import GroupLine, GroupList, RebalanceStats
from goqueue.api.http.queue_stats import ReliabilityStats, ReliabilityTotals
from goqueue.api.http.redrive import Redriven
from goqueue.api.http.routes import ROUTES
from goqueue.api.http.where import Where
from goqueue.node.cluster.ports import Answer
from goqueue.node.forwarding import Elsewhere
from goqueue.node.groups.member_requests import GroupMode

DELAYED = next(one for one in ROUTES if one.path == "/topics/{topic}/delayed")


def message(partition: int, offset: int, second: int) -> DelayedMessage:
    at = f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000Z"
    return DelayedMessage("t", partition, offset, at, 0.0, DelayState.PENDING, 2)


class Nodes:
    """Each has messages that are due every other second; this one has those of even seconds."""

    def __init__(self, count: int) -> None:
        self.messages = [[message(node, at, 2 * at + node) for at in range(count)] for node in range(2)]
        self.asked: list[str] = []
        self.refusal: Answer | None = None
        self.forwarder = self

    async def all_of(self, topic: str | None, here: Any, there: Any) -> list[Any]:
        return [await here([0]), await there("n2", [1, 3])]

    def check_leads(self, topic: str, partitions: Any) -> None:
        assert (topic, partitions) == ("t", [0])

    async def ask(self, route: Any, path: Any, query: DelayedQuery, body: Any) -> DelayedMessages:
        return self._page(0, query)

    async def forward(
        self, target: str, method: str, path: str, headers: Any, body: bytes, *, timeout_s: float
    ) -> Answer:
        self.asked.append(path)
        assert headers == {"goqueue-partitions": "1,3"}
        if self.refusal is not None:
            return self.refusal
        texts = dict(pair.split("=") for pair in path.partition("?")[2].split("&"))
        page = self._page(1, DelayedQuery(int(texts["limit"]), int(texts["skip"])))
        return Answer(200, {}, msgspec.json.encode(page))

    def _page(self, node: int, query: DelayedQuery) -> DelayedMessages:
        own = self.messages[node]
        return DelayedMessages(own[query.skip : query.skip + query.limit], len(own))


def gather(nodes: Nodes, query: str) -> DelayedMessages:
    scope = {"raw_path": b"/topics/t/delayed", "query_string": query.encode(), "headers": []}
    anything: Any = nodes
    request = Request(DELAYED, {"topic": "t"}, scope, anything, anything)
    found = asyncio.run(Gathering(anything, anything, nodes.ask).merged(request, "t"))
    assert isinstance(found, DelayedMessages)
    return found


def test_a_page_of_all_nodes_is_the_page_that_one_node_would_give() -> None:
    page = gather(Nodes(5), "limit=3&skip=2")
    assert page.count == 10
    assert [(one.partition, one.offset) for one in page.messages] == [(0, 1), (1, 1), (0, 2)]


def test_a_page_far_behind_is_put_together_from_pages_that_nodes_give() -> None:
    nodes = Nodes(PAGE_COUNT_MAX + 5)
    page = gather(nodes, f"limit=2&skip={PAGE_COUNT_MAX + 1}")
    first = (PAGE_COUNT_MAX + 1) // 2
    assert [(one.partition, one.offset) for one in page.messages] == [(1, first), (0, first + 1)]
    assert len(nodes.asked) == 2


def test_a_page_behind_the_end_is_empty_and_costs_no_endless_asking() -> None:
    nodes = Nodes(3)
    assert gather(nodes, "limit=2&skip=100000").messages == []
    assert len(nodes.asked) == 1


def test_a_node_that_refuses_its_part_refuses_the_whole() -> None:
    nodes = Nodes(3)
    nodes.refusal = Answer(404, {}, b'{"error":"no","code":"TOPIC_NOT_FOUND"}')
    with pytest.raises(Refused):
        gather(nodes, "")
    nodes.refusal = Answer(503, {}, b'{"error":"no","code":"NOT_LEADER"}')
    with pytest.raises(Elsewhere):
        gather(nodes, "")


def test_groups_of_all_coordinators_are_one_list_by_name() -> None:
    def listed(*names: str) -> GroupList:
        return GroupList([GroupLine(name, GroupMode.QUEUE, "share", "Stable") for name in names])

    merged = merging.GROUPS.join([listed("b", "d"), listed("a"), listed("c")], [])
    assert [one.id for one in merged.groups] == ["a", "b", "c", "d"]


def test_totals_are_of_all_nodes() -> None:
    one = ReliabilityStats(ReliabilityTotals(1, 2, 3, 4, 5, 6, 7), [], 2)
    merged = merging.RELIABILITY.join([one, one], [])
    assert (merged.totals, merged.count) == (ReliabilityTotals(2, 4, 6, 8, 10, 12, 14), 4)


def test_rebalances_of_nodes_count_as_often_as_they_were() -> None:
    first = RebalanceStats(3, False, 5, 0, {"joined": 3}, 10, 40, 20.0)
    second = RebalanceStats(1, True, 1, 1, {"joined": 0, "left": 1}, 60, 60, 60.0)
    none = RebalanceStats(0, False, 0, 0, {}, None, None, None)
    merged = merging.REBALANCES.join([first, second, none], [])
    assert merged == RebalanceStats(4, True, 6, 1, {"joined": 3, "left": 1}, 60, 60, 30.0)


def test_dead_letters_that_went_back_are_counted_together_with_what_could_not() -> None:
    one = Redriven(
        moved=1, failed=2, matched=3, pending=0, parked=0, skipped=4, remaining=5, dry_run=False, errors=["a"]
    )
    merged = merging.redriven([one, one], ["b"], dry_run=False)
    assert (merged.moved, merged.failed, merged.skipped, merged.remaining) == (2, 4, 8, 10)
    assert merged.errors == ["a", "a", "b"]


def test_every_route_that_several_nodes_answer_says_how_their_answers_become_one() -> None:
    for route in ROUTES:
        if route.where in (Where.TOPIC, Where.EVERY_NODE, Where.COORDINATORS):
            assert route.merge in vars(merging).values(), route.path
            if route.merge.items:
                assert {"limit", "skip"} <= set(route.query.__struct_fields__), route.path


def test_every_route_with_a_partition_or_a_group_in_its_path_belongs_to_one_node() -> None:
    own = {
        "/admin/coordinators/groups/{group}",  # any node knows
    }
    for route in ROUTES:
        if route.path in own:
            continue
        if "{group}" in route.path:
            assert route.where is Where.GROUP, route.path
        if "{partition}" in route.path and not route.path.startswith("/admin"):
            assert route.where is Where.PARTITION, route.path
