"""Publishing over REST."""

from __future__ import annotations

import base64

import pytest
from msgspec import structs
from tests.support.asgi import Client, Json
from tests.support.rest_api import with_api

from goqueue.model.acks import Acks
from goqueue.model.record import NewRecord, Producer
from goqueue.node.config import NodeConfig
from goqueue.node.node import Node
from goqueue.node.requests import NewMessage, Outcome

TARGET = "/topics/orders/messages"


class RecordingPublisher:
    """Stores nothing; remembers what it was asked to store."""

    def __init__(self) -> None:
        self.messages: list[NewMessage] = []
        self.acks: Acks | None = None
        self.producer: Producer | None = None

    async def publish(
        self, topic: str, messages: list[NewMessage], *, acks: Acks, producer: Producer | None = None
    ) -> list[Outcome]:
        self.messages, self.acks, self.producer = messages, acks, producer
        return [Outcome(message.partition or 0, at) for at, message in enumerate(messages)]


def recorded(body: Json) -> RecordingPublisher:
    """What a publish of this body asks of the node."""
    publisher = RecordingPublisher()

    async def main(client: Client, node: Node) -> None:
        node._spread.publishing = publisher  # type: ignore[assignment]  # a fake with the one method that is used
        assert (await client.post(TARGET, body)).status == 200

    with_api(main)
    return publisher


def message(**fields: Json) -> NewMessage:
    return recorded({"messages": [fields]}).messages[0]


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def stored(partition: int, offset: int) -> Json:
    return {"partition": partition, "offset": offset, "priority": 2, "delayed": False}


def test_stored_messages_answer_their_partition_and_offset() -> None:
    async def main(client: Client, node: Node) -> None:
        body = {"messages": [{"value": "a", "partition": 2}, {"value": "b", "partition": 2}]}
        response = await client.post(TARGET, body)
        assert response.status == 200
        assert response.json() == {"results": [stored(2, 0), stored(2, 1)]}

    with_api(main)


def test_text_is_stored_as_utf8() -> None:
    assert message(key="ключ", value="größe") == NewMessage(NewRecord("ключ".encode(), "größe".encode()))


def test_an_empty_key_is_a_key_and_null_is_none() -> None:
    assert message(key="", value="").record == NewRecord(b"", b"")
    assert message(key=None, value="").record == NewRecord(None, b"")
    assert message(value="").record == NewRecord(None, b"")


def test_base64_is_stored_as_bytes() -> None:
    assert message(key_base64=encoded(b"\xff"), value_base64=encoded(b"\x00\xfe")).record == NewRecord(
        b"\xff", b"\x00\xfe"
    )
    assert message(value_base64="").record == NewRecord(None, b"")


def test_a_null_value_is_a_tombstone() -> None:
    assert message(key="k", value=None).record == NewRecord(b"k", None)


def test_headers_keep_their_order_and_repeat() -> None:
    headers = {"b": "1", "a": ["2", None, "3"], "n": None}
    assert message(value="v", headers=headers).record.headers == (
        ("b", b"1"),
        ("a", b"2"),
        ("a", None),
        ("a", b"3"),
        ("n", None),
    )
    binary = {"b": encoded(b"\xff"), "c": [encoded(b"1"), None]}
    assert message(value="v", headers={"b": "1"}, headers_base64=binary).record.headers == (
        ("b", b"1"),
        ("b", b"\xff"),
        ("c", b"1"),
        ("c", None),
    )


def test_a_mixed_batch_keeps_its_order() -> None:
    body = {"messages": [{"value": "0"}, {"value": None}, {"value_base64": encoded(b"2")}, {"value": "3"}]}
    assert [one.record.value for one in recorded(body).messages] == [b"0", None, b"2", b"3"]


def test_a_whole_number_may_be_written_with_a_fraction_of_zero() -> None:
    assert message(value="v", partition=2.0) == NewMessage(NewRecord(None, b"v"), 2)
    assert message(value_base64=encoded(b"v"), partition=2.0).partition == 2


def test_acks_are_all_unless_said_otherwise() -> None:
    messages = [{"value": "v"}]
    assert recorded({"messages": messages}).acks is Acks.ALL
    for acks in Acks:
        assert recorded({"messages": messages, "acks": acks.value}).acks is acks
        assert recorded({"acks": acks.value, "messages": [{"value": None}]}).acks is acks


def test_a_producer_is_passed_on() -> None:
    fields = {"producer_id": 7, "epoch": 1, "sequence": 0}
    assert recorded({"messages": [{"value": "v"}], **fields}).producer == Producer(7, 1, 0)
    assert recorded({"messages": [{"value": None}], **fields}).producer == Producer(7, 1, 0)
    assert recorded({"messages": [{"value": "v"}]}).producer is None


def test_a_repeated_sequence_answers_the_original_offset() -> None:
    async def main(client: Client, node: Node) -> None:
        identity = (await client.post("/producers/init", {})).json()
        body = {"messages": [{"value": "v", "partition": 0}], "sequence": 0, **identity}
        first = await client.post(TARGET, body)
        again = await client.post(TARGET, body)
        assert first.json() == again.json() == {"results": [stored(0, 0)]}
        gap = await client.post(TARGET, body | {"sequence": 5})
        assert (gap.status, gap.json()["code"]) == (409, "OUT_OF_ORDER_SEQUENCE")
        assert gap.json()["results"][0]["code"] == "OUT_OF_ORDER_SEQUENCE"

    with_api(main)


def test_an_idempotent_request_must_go_to_one_partition() -> None:
    async def main(client: Client, node: Node) -> None:
        body = {
            "messages": [{"value": "v", "partition": at} for at in (0, 1)],
            "producer_id": 1,
            "epoch": 0,
            "sequence": 0,
        }
        response = await client.post(TARGET, body)
        assert (response.status, response.json()["code"]) == (400, "INVALID_REQUEST")
        assert "results" not in response.json()

    with_api(main)


def test_some_failures_are_207_with_a_result_for_each() -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.post(
            TARGET, {"messages": [{"value": "a", "partition": 9}, {"value": "b", "partition": 0}]}
        )
        assert response.status == 207
        failed, good = response.json()["results"]
        assert failed.pop("error").startswith("topic 'orders' has no partition 9")
        assert failed == {"partition": 9, "offset": None, "code": "PARTITION_NOT_FOUND"}
        assert good == stored(0, 0)

    with_api(main)


def test_when_all_fail_the_status_is_the_first_errors() -> None:
    async def main(client: Client, node: Node) -> None:
        large = {"value": "x" * 200}
        response = await client.post(TARGET, {"messages": [large, {"value": "a", "partition": 9}]})
        body = response.json()
        assert (response.status, body["status"], body["code"]) == (413, 413, "MESSAGE_TOO_LARGE")
        assert body["details"]["size_bytes"] > 200
        assert [result["code"] for result in body["results"]] == ["MESSAGE_TOO_LARGE", "PARTITION_NOT_FOUND"]

    with_api(
        main,
        config=NodeConfig(topic_defaults=structs.replace(NodeConfig().topic_defaults, max_message_bytes=200)),
    )


@pytest.mark.parametrize(
    ("body", "mentions"),
    [
        ({"messages": []}, "$.messages"),
        ({"messages": [{}]}, "neither value nor value_base64"),
        ({"messages": [{"value": "a"}, {"key": "k"}]}, "$.messages[1]"),
        ({"messages": [{"value": "a", "value_base64": "YQ=="}]}, "both value and value_base64"),
        ({"messages": [{"value": None, "value_base64": "YQ=="}]}, "both value and value_base64"),
        ({"messages": [{"value": "a", "key": None, "key_base64": "YQ=="}]}, "key and key_base64"),
        ({"messages": [{"value": "a", "delays": "5s"}]}, "`delays`"),
        ({"messages": [{"value": "a"}], "ack": "all"}, "`ack`"),
        ({"messages": [{"value": 5}]}, "$.messages[0].value"),
        ({"messages": [{"value_base64": "Y"}]}, "$.messages[0].value_base64"),
        ({"messages": [{"value": "a", "partition": -1}]}, "$.messages[0].partition"),
        ({"messages": [{"value": "a", "partition": 1.5}]}, "$.messages[0].partition"),
        ({"messages": [{"value": "a", "headers": {"h": 1}}]}, "$.messages[0].headers"),
        ({"messages": [{"value": "a"}], "acks": "some"}, "$.acks"),
        ({"messages": [{"value": "a"}], "acks": None}, "$.acks"),
        ({"messages": [{"value": "a"}], "producer_id": 1}, "producer_id, epoch and sequence"),
        ({"messages": [{"value": None}], "producer_id": 1, "epoch": 0}, "producer_id, epoch and sequence"),
        ({"messages": [{"value": "a"}], "producer_id": 1, "epoch": 40_000, "sequence": 0}, "$.epoch"),
        ({"messages": {"value": "a"}}, "$.messages"),
        ([], "object"),
        ({}, "messages"),
    ],
)
def test_a_wrong_body_is_refused_and_named(body: Json, mentions: str) -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.post(TARGET, body)
        assert (response.status, response.json()["code"]) == (400, "INVALID_REQUEST")
        assert mentions in response.json()["error"]
        assert (await client.get("/topics/orders")).json()["total_messages"] == 0

    with_api(main)


def test_a_query_parameter_is_refused() -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.post(f"{TARGET}?acks=none", {"messages": [{"value": "v"}]})
        assert (response.status, response.json()["details"]) == (400, {"parameter": "acks"})

    with_api(main)
