"""REST clients of a cluster: any node gives what the right one would give, and goes on giving it when a node dies."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.support.cluster_rest import Json, Rest
from tests.support.kafka_clients import until
from tests.support.local_cluster import LocalCluster

NODES = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(Path(tmp_path_factory.mktemp("cluster")), patience=5) as running:
        yield running


@pytest.fixture
def rest(cluster: LocalCluster) -> Rest:
    return Rest(cluster)


def one_replica_each(rest: Rest, name: str) -> None:
    """Each partition is on one node only, so that nobody can answer for another."""
    assignments = {str(at): [f"node-{at + 1}"] for at in range(3)}
    config = {"min.insync.replicas": "1"}
    rest.post(1, "/topics", {"name": name, "replica_assignments": assignments, "config": config}, 201)


def messages_of(rest: Rest, node: int, topic: str, partition: int) -> list[Json]:
    found: list[Json] = rest.get(node, f"/topics/{topic}/partitions/{partition}/messages?limit=1000")[
        "messages"
    ]
    return found


def test_messages_are_published_and_read_by_any_node_with_every_field(rest: Rest) -> None:
    one_replica_each(rest, "fields")
    for node in NODES:
        body = {
            "messages": [
                {"value": f"{node}", "partition": 0, "key": "k", "headers": {"a": ["1", None], "b": "2"}},
                {"value_base64": "/w==", "partition": 1, "priority": "high"},
                {"value": None, "key_base64": "/w==", "partition": 2},
                {"value": "nowhere", "partition": 3},
                {"value": f"{node}", "partition": 0, "traceparent": f"00-{'1' * 32}-{'2' * 16}-01"},
            ]
        }
        said = rest.call(node, "POST", "/topics/fields/messages", body)
        assert said.status == 207
        results = said.body["results"]
        assert [one["partition"] for one in results] == [0, 1, 2, 3, 0]
        assert results[3]["code"] == "PARTITION_NOT_FOUND"
        assert results[1]["priority"] == 1
        assert results[4]["offset"] == results[0]["offset"] + 1
    for partition in range(3):
        told = [messages_of(rest, node, "fields", partition) for node in NODES]
        assert told[0] == told[1] == told[2]
    first, second = messages_of(rest, 1, "fields", 0)[:2]
    assert (first["key"], first["headers"]) == ("k", {"a": ["1", None], "b": "2"})
    assert second["headers"]["traceparent"].startswith("00-1111")
    assert messages_of(rest, 1, "fields", 1)[0]["value_base64"] == "/w=="
    assert messages_of(rest, 1, "fields", 2)[0]["value"] is None


def test_messages_of_an_idempotent_producer_are_stored_once_whichever_node_they_are_sent_to(
    rest: Rest,
) -> None:
    one_replica_each(rest, "once")
    producer = rest.post(2, "/producers/init", {})
    body = {**producer, "sequence": 0, "messages": [{"value": "a", "partition": 2}] * 3}
    told = [rest.post(node, "/topics/once/messages", body) for node in NODES]
    assert told[0] == told[1] == told[2]
    assert len(messages_of(rest, 1, "once", 2)) == 3
    apart = {**body, "sequence": 3, "messages": [{"value": "a", "partition": at} for at in range(2)]}
    assert rest.call(1, "POST", "/topics/once/messages", apart).status == 400


def test_a_topic_is_described_by_what_its_leaders_know(rest: Rest) -> None:
    one_replica_each(rest, "seen")
    sent = [{"value": "x", "partition": at} for at in range(3) for _ in range(at + 1)]
    rest.post(1, "/topics/seen/messages", {"messages": sent})
    for node in NODES:
        described = rest.get(node, "/topics/seen")
        assert described["total_messages"] == 6
        assert [described["partition_offsets"][str(at)]["latest"] for at in range(3)] == [1, 2, 3]
        partitions = rest.get(node, "/topics/seen/partitions")["partitions"]
        assert [one["high_watermark"] for one in partitions] == [1, 2, 3]
        assert [one["leader"] for one in partitions] == ["node-1", "node-2", "node-3"]
        assert [one["isr"] for one in partitions] == [["node-1"], ["node-2"], ["node-3"]]
    grown = rest.post(
        2, "/admin/topics/seen/partitions", {"count": 4, "replica_assignments": {"3": ["node-3", 1]}}
    )
    assert (grown["old_count"], grown["new_count"], grown["partitions_added"]) == (3, 4, 1)
    status = rest.get(2, "/admin/topics/seen/partitions/scaling-status")
    assert (status["partitions"], status["name"]) == (4, "seen")
    assert rest.get(2, "/topics/seen/partitions")["partitions"][3]["replicas"] == ["node-3", "node-1"]


def test_what_the_cluster_cannot_do_is_said(rest: Rest) -> None:
    for body, code in (
        ({"name": "no", "replication_factor": 4}, "INVALID_REPLICATION_FACTOR"),
        ({"name": "no", "replica_assignments": {"0": ["node-9"]}}, "INVALID_REPLICA_ASSIGNMENT"),
        ({"name": "no", "replica_assignments": {"1": ["node-1"]}}, "INVALID_REPLICA_ASSIGNMENT"),
        (
            {"name": "no", "num_partitions": 2, "replica_assignments": {"0": [1]}},
            "INVALID_REPLICA_ASSIGNMENT",
        ),
        ({"name": "no", "replicas": 2}, "INVALID_REQUEST"),
    ):
        said = rest.call(3, "POST", "/topics", body)
        assert (said.status, said.body["code"]) == (400, code)
    for node in NODES:
        assert rest.call(node, "GET", "/topics/no/partitions/0/messages").body["code"] == "TOPIC_NOT_FOUND"
        assert rest.call(node, "GET", "/topics/no/delayed").body["code"] == "TOPIC_NOT_FOUND"
        assert rest.call(node, "POST", "/groups/g/heartbeat", {"wrong": 1}).status == 400
        assert rest.call(node, "GET", "/groups/nobody").body["code"] == "GROUP_NOT_FOUND"


def test_delayed_messages_and_schedules_are_found_from_any_node(rest: Rest) -> None:
    one_replica_each(rest, "later")
    for node in NODES:
        sent = [{"value": "x", "partition": at, "delay": f"{node}h"} for at in range(3)]
        results = rest.post(node, "/topics/later/messages", {"messages": sent})["results"]
        assert all(one["delayed"] for one in results)
        rest.post(
            node,
            "/topics/later/recurring",
            {"name": f"s{node}", "every": "1h", "message": {"value": "x", "partition": node - 1}},
            201,
        )
    pages = [rest.get(node, "/topics/later/delayed?limit=3&skip=2") for node in NODES]
    for page in pages:
        assert page["count"] == 12
        assert [(one["partition"], one["offset"]) for one in page["messages"]] == [
            (one["partition"], one["offset"]) for one in pages[0]["messages"]
        ]
        assert len(page["messages"]) == 3
    for node in NODES:
        assert rest.get(node, "/topics/later/delayed/0/0")["partition"] == 0
        schedules = rest.get(node, "/topics/later/recurring")
        assert [one["name"] for one in schedules["schedules"]] == ["s1", "s2", "s3"]
        assert rest.get(node, "/topics/later/recurring/s2")["partition"] == 1
        assert rest.call(node, "DELETE", f"/topics/later/delayed/{node % 3}/0").status == 200
        assert rest.get(node, "/delay/stats?topic=later")["totals"]["cancelled"] == node
    assert rest.call(1, "DELETE", "/topics/later/recurring/s3").status == 200
    assert rest.call(2, "GET", "/topics/later/recurring/s3").status == 404
    other = {"name": "s2", "every": "2h", "message": {"value": "x", "key": "k"}}
    assert rest.call(3, "POST", "/topics/later/recurring", other).body["code"] == "SCHEDULE_EXISTS"


def test_a_queue_group_gets_the_messages_of_all_nodes_and_settles_them_at_any(rest: Rest) -> None:
    one_replica_each(rest, "work")
    joined = {"client_id": "c", "topics": ["work"], "mode": "queue"}
    members = [rest.post(node, "/groups/workers/join", joined)["member_id"] for node in NODES]
    sent = [{"value": str(at), "partition": at % 3} for at in range(12)]
    rest.post(1, "/topics/work/messages", {"messages": sent})
    got: list[Json] = []
    for node, member in zip(NODES, members, strict=True):
        page = rest.get(node, f"/groups/workers/poll?member_id={member}&limit=4&timeout=10s")["messages"]
        assert len(page) == 4
        got += page
    assert sorted(int(one["value"]) for one in got) == list(range(12))
    handles = [one["receipt_handle"] for one in got]
    said = rest.call(2, "POST", "/messages/ack/batch", {"receipt_handles": [*handles[:9], "nonsense"]})
    assert said.status == 207
    results = said.body["results"]
    assert [one["receipt_handle"] for one in results] == [*handles[:9], "nonsense"]
    assert [(one["partition"], one["offset"]) for one in results[:9]] == [
        (one["partition"], one["offset"]) for one in got[:9]
    ]
    assert results[9]["code"] == "RECEIPT_NOT_FOUND"
    for node, handle in zip(NODES, handles[9:], strict=True):
        rest.post(node, "/messages/visibility", {"receipt_handle": handle, "timeout": "60s"})
    rest.post(3, "/messages/nack", {"receipt_handle": handles[9], "delay": 0})
    rest.post(1, "/messages/reject", {"receipt_handle": handles[10], "reason": "no"})
    again = rest.get(2, f"/groups/workers/poll?member_id={members[0]}&timeout=10s")["messages"]
    assert [(one["value"], one["delivery_count"]) for one in again] == [(got[9]["value"], 2)]
    for node in NODES:
        offsets = rest.get(node, "/groups/workers/offsets")["offsets"]["work"]
        assert sorted(offsets) == ["0", "1", "2"]
        assert [one["id"] for one in rest.get(node, "/groups")["groups"] if one["id"] == "workers"]
        stats = rest.get(node, "/reliability/stats?group=workers")
        assert (stats["count"], sum(one["in_flight"] for one in stats["groups"])) == (3, 2)
        assert rest.get(node, "/priority/stats?group=workers")["count"] == 3
    moved = rest.post(1, "/groups/workers/offsets/reset", {"to": "latest", "topic": "work"})["offsets"]
    assert [one["new_offset"] for one in moved] == [4, 4, 4]


def test_a_member_that_leaves_gives_back_what_it_holds_on_every_node(rest: Rest) -> None:
    one_replica_each(rest, "left")
    joined = {"client_id": "c", "topics": ["left"], "mode": "queue"}
    first, second = (rest.post(node, "/groups/leavers/join", joined)["member_id"] for node in (1, 2))
    rest.post(1, "/topics/left/messages", {"messages": [{"value": "x", "partition": at} for at in range(3)]})
    got = rest.get(3, f"/groups/leavers/poll?member_id={first}&timeout=10s&limit=3")["messages"]
    assert len(got) == 3
    rest.post(2, "/groups/leavers/leave", {"member_id": first})
    found = 0
    while found < 3:
        page = rest.get(1, f"/groups/leavers/poll?member_id={second}&timeout=10s")["messages"]
        assert page, "what the other held has not come back"
        assert all(one["delivery_count"] == 2 for one in page)
        found += len(page)


def test_a_client_that_hangs_up_while_it_waits_at_another_node_takes_nothing(
    rest: Rest, cluster: LocalCluster
) -> None:
    one_replica_each(rest, "gone")
    joined = {"client_id": "c", "topics": ["gone"], "mode": "queue"}
    first, second = (rest.post(1, "/groups/goers/join", joined)["member_id"] for _ in range(2))
    asked = next(node for node in NODES if node != rest.coordinator(1, "goers"))
    address = urlsplit(cluster.nodes[asked].url)
    for partition in range(3):
        waiting = http.client.HTTPConnection(address.hostname or "", address.port)
        waiting.request("GET", f"/groups/goers/poll?member_id={first}&timeout=60s")
        rest.post(asked, "/groups/goers/heartbeat", {"member_id": first})
        waiting.close()
        rest.get(asked, f"/groups/goers/poll?member_id={second}&timeout=0")
        rest.post(1, "/topics/gone/messages", {"messages": [{"value": "x", "partition": partition}]})
        page = rest.get(asked, f"/groups/goers/poll?member_id={second}&timeout=20s")["messages"]
        assert [one["partition"] for one in page] == [partition]


def test_a_stream_group_reads_the_partitions_of_all_nodes(rest: Rest) -> None:
    one_replica_each(rest, "stream")
    sent = [{"value": str(at), "partition": at % 3} for at in range(9)]
    rest.post(1, "/topics/stream/messages", {"messages": sent})
    member = rest.post(2, "/groups/readers/join", {"client_id": "c", "topics": ["stream"]})["member_id"]
    got: list[int] = []
    for node in (*NODES, *NODES):
        page = rest.get(node, f"/groups/readers/poll?member_id={member}&limit=4&timeout=0")["messages"]
        got += [int(one["value"]) for one in page]
    assert sorted(got) == list(range(9))
    offsets = {"stream": {str(at): at + 1 for at in range(3)}}
    committed = rest.post(3, "/groups/readers/offsets", {"offsets": offsets, "member_id": member})
    for node in NODES:
        assert rest.get(node, "/groups/readers/offsets") == committed
    assert [one["lag"] for one in committed["offsets"]["stream"].values()] == [2, 1, 0]
    beyond = {"offsets": {"stream": {"0": 9}}, "member_id": member}
    assert rest.call(1, "POST", "/groups/readers/offsets", beyond).body["code"] == "OFFSET_OUT_OF_RANGE"
    waiting: list[Json] = []
    path = f"/groups/readers/poll?member_id={member}&timeout=20s"
    for partition in range(3):
        poll = threading.Thread(target=lambda: waiting.append(rest.get(1, path)))
        poll.start()
        rest.post(2, "/topics/stream/messages", {"messages": [{"value": "late", "partition": partition}]})
        poll.join()
        assert [one["partition"] for one in waiting[-1]["messages"]] == [partition]


def test_a_node_says_whether_it_is_ready_and_who_coordinates(rest: Rest) -> None:
    assert (
        rest.eventually(NODES, "GET", "/admin/coordinators/groups/anybody").status == 200
    )  # so there are some
    for node in NODES:
        ready = rest.get(node, "/readyz?verbose")
        assert ready["checks"]["cluster"] == "ok"
        until(partial(coordinates_everywhere, rest, node), f"node {node} knows them")
    assert len({rest.coordinator(node, "anybody") for node in NODES}) == 1


def coordinates_everywhere(rest: Rest, node: int) -> bool:
    coordinators = rest.get(node, "/admin/coordinators")
    return {one["node"] for one in coordinators["groups"]} == {"node-1", "node-2", "node-3"}


class _Publisher:
    """Sends to one node after the other, and keeps what was acknowledged."""

    def __init__(self, rest: Rest, name: str) -> None:
        self._rest = rest
        self._name = name
        self.acked: dict[tuple[int, int], str] = {}
        self.unknown: set[str] = set()
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def acked_of(self, partition: int) -> list[int]:
        """The offsets."""
        return [offset for at, offset in list(self.acked) if at == partition]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        serial = 0
        while not self._enough.is_set():
            values = [f"{self._name}-{serial + at}" for at in range(6)]
            node = NODES[serial // 6 % 3]
            serial += 6
            body = {"messages": [{"value": one, "partition": at % 3} for at, one in enumerate(values)]}
            try:
                said = self._rest.call(node, "POST", "/topics/safe/messages", body)
            except OSError:
                self.unknown |= set(values)
                continue
            results = said.body.get("results")
            if results is None:
                self.unknown |= set(values)
                continue
            for at, (value, one) in enumerate(zip(values, results, strict=True)):
                if "error" in one:
                    self.unknown.add(value)
                else:
                    assert one["partition"] == at % 3
                    self.acked[one["partition"], one["offset"]] = value


class _Looker:
    """Asks one node for what all nodes know together: it is told everything or that it cannot be, and never a part."""

    def __init__(self, rest: Rest, node: int) -> None:
        self.rest = rest
        self.node = node
        self.told_count = 0
        self.wrong: list[object] = []
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._enough.is_set():
            self._look("/topics/kept", lambda body: body["total_messages"] == 6)
            self._look("/topics/kept/delayed", lambda body: body["count"] == len(body["messages"]) == 6)
            self._look("/topics/kept/delayed/1/0", lambda body: body["partition"] == 1)
            self._look("/topics/kept/recurring", lambda body: body["count"] == 3)
            self._look("/topics/kept/recurring/r1", lambda body: body["name"] == "r1")
            self._look("/topics/kept/partitions/2/messages", lambda body: len(body["messages"]) == 2)
            for group in ("kept-0", "kept-1", "kept-2"):
                self._look(f"/groups/{group}", lambda body: len(body["members"]) == 1)
                self._look(f"/groups/{group}/offsets", lambda body: len(body["offsets"]["kept"]) == 3)
            self._look("/groups", lambda body: {f"kept-{at}" for at in range(3)} <= _names(body))

    def _look(self, path: str, is_whole: Callable[[Json], bool]) -> None:
        said = self.rest.call(self.node, "GET", path)
        if said.status == 200 and is_whole(said.body):
            self.told_count += 1
        elif said.status not in (503, 504):
            self.wrong.append((path, said))


def _names(body: Json) -> set[str]:
    return {one["id"] for one in body["groups"]}


def test_what_all_nodes_know_is_told_whole_or_not_at_all_while_a_node_dies(
    rest: Rest, cluster: LocalCluster
) -> None:
    rest.post(1, "/topics", {"name": "kept", "num_partitions": 3, "replication_factor": 3}, 201)
    sent = [{"value": "x", "partition": at % 3} for at in range(6)]
    later = [{"value": "x", "partition": at, "delay": "1h"} for at in range(3)]
    rest.post(1, "/topics/kept/messages", {"messages": [*sent, *later]})
    for at in range(3):
        body = {"name": f"r{at}", "every": "1h", "message": {"value": "x", "partition": at}}
        rest.post(1, "/topics/kept/recurring", body, 201)
        joined = {"client_id": "c", "topics": ["kept"], "session_timeout": "30m"}
        member = rest.post(2, f"/groups/kept-{at}/join", joined)["member_id"]
        offsets = {"kept": {"0": 1, "1": 1, "2": 1}}
        rest.post(3, f"/groups/kept-{at}/offsets", {"offsets": offsets, "member_id": member})
    dead = rest.leaders(1, "kept")[1]
    lookers = [_Looker(rest, node) for node in NODES if node != dead]
    for one in lookers:
        one.start()
    _until_told(lookers)
    cluster.kill9(dead)
    _until_told(lookers)
    cluster.restart(dead)
    _until_told(lookers)
    for one in lookers:
        one.stop()
        assert not one.wrong, one.wrong[:3]


def _until_told(lookers: Sequence[_Looker]) -> None:
    """A few times more, by each."""
    before = [one.told_count for one in lookers]
    deadline = time.monotonic() + 90  # so long only where the machine has other things to do
    while any(one.told_count < count + 40 for one, count in zip(lookers, before, strict=True)):
        assert not any(one.wrong for one in lookers), [one.wrong[:3] for one in lookers]
        assert time.monotonic() < deadline
        lookers[0].rest.call(lookers[0].node, "GET", "/readyz")


def test_nothing_acknowledged_is_lost_when_a_leader_dies(rest: Rest, cluster: LocalCluster) -> None:
    """The last: the cluster has a node less for a while."""
    rest.post(1, "/topics", {"name": "safe", "num_partitions": 3, "replication_factor": 3}, 201)
    joined = {"client_id": "c", "topics": ["safe"], "mode": "queue", "session_timeout": "30m"}
    member = rest.post(2, "/groups/savers/join", joined)["member_id"]
    publishers = [_Publisher(rest, f"p{at}") for at in range(3)]
    for one in publishers:
        one.start()
    _until_acked(rest, 1, publishers)
    dead = rest.leaders(1, "safe")[0]
    alive = [node for node in NODES if node != dead]
    cluster.kill9(dead)
    # Each publisher calls the dead node a third of the time, and each request is for all partitions: that all of them are
    # stored means that the others have taken over.
    _until_acked(rest, alive[0], publishers)
    for one in publishers:
        one.stop()
    acked = {place: value for one in publishers for place, value in one.acked.items()}
    unknown = {value for one in publishers for value in one.unknown}
    stored = _stored(rest, alive)
    assert {place: stored.get(place) for place in acked} == acked
    values = list(stored.values())
    again = (
        {value for value in values if values.count(value) > 1} if len(set(values)) < len(values) else set()
    )
    assert again <= unknown, "what was acknowledged, or refused, is stored twice"
    _consume(rest, alive, member, set(stored))
    cluster.restart(dead)
    for partition in range(3):
        path = f"/topics/safe/partitions/{partition}/messages?limit=1000"
        said = rest.eventually([dead], "GET", path)
        assert [one["value"] for one in said.body["messages"]] == [
            value for (at, _), value in sorted(stored.items()) if at == partition
        ][:1000]


def _until_acked(rest: Rest, node: int, publishers: Sequence[_Publisher]) -> None:
    """In every partition a few more, of each publisher."""
    before = [len(one.acked_of(at)) for one in publishers for at in range(3)]
    deadline = time.monotonic() + 90  # so long only where the machine has other things to do
    while True:
        counts = [len(one.acked_of(at)) for one in publishers for at in range(3)]
        if all(now >= then + 20 for now, then in zip(counts, before, strict=True)):
            return
        assert time.monotonic() < deadline, (before, counts)
        rest.call(node, "GET", "/readyz")


def _stored(rest: Rest, nodes: list[int]) -> dict[tuple[int, int], str]:
    found: dict[tuple[int, int], str] = {}
    for partition in range(3):
        offset = 0
        while True:
            path = f"/topics/safe/partitions/{partition}/messages?limit=1000&offset={offset}"
            said = rest.eventually(nodes, "GET", path)
            assert said.status == 200, said
            if not said.body["messages"]:
                break
            found |= {(partition, one["offset"]): one["value"] for one in said.body["messages"]}
            offset = said.body["next_offset"]
    return found


def _consume(rest: Rest, nodes: list[int], member: str, wanted: set[tuple[int, int]]) -> None:
    """All of it comes to the queue group, and is settled."""
    settled: set[tuple[int, int]] = set()
    turn = 0
    while settled < wanted:
        turn += 1
        node = nodes[turn % len(nodes)]
        poll = rest.call(node, "GET", f"/groups/savers/poll?member_id={member}&limit=500&timeout=5s")
        if poll.status in (503, 504):
            continue
        assert poll.status == 200, poll
        handles = {one["receipt_handle"]: (one["partition"], one["offset"]) for one in poll.body["messages"]}
        if not handles:
            continue
        said = rest.call(node, "POST", "/messages/ack/batch", {"receipt_handles": list(handles)})
        if said.status in (503, 504):
            continue
        assert [one["receipt_handle"] for one in said.body["results"]] == list(handles), json.dumps(said.body)
        for one in said.body["results"]:
            if "error" not in one or one["code"] == "MESSAGE_SETTLED":
                settled.add(handles[one["receipt_handle"]])
