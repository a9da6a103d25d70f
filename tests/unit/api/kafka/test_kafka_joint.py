"""EnrolInJoint and EndJoint, as the pipeline's client asks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # messages are made at run time

import pytest
from tests.support.kafka_calls import Kafka, requests, with_kafka
from tests.support.nodes import create
from tests.support.transactional import Sender, committed

from goqueue.core.txn.events import ProducerEpoch
from goqueue.node.node import Node
from goqueue.wire.schema import api_key, api_names

_E = requests("end_joint")
NONE, NOT_AVAILABLE, INVALID_REQUEST, STATE, TIMEOUT, CONCURRENT, ABORTABLE = (
    0,
    15,
    42,
    48,
    50,
    51,
    120,
)
TRANSACTION = 1  # of a coordinator


async def enrol(kafka: Kafka, member: str = "m", **fields: Any) -> Any:
    fields = {"joint_id": "query", "batch_id": 0, "member": member, "timeout_ms": 60_000, **fields}
    return await kafka.call("enrol_in_joint", 0, **fields)


async def end(kafka: Kafka, *winners: Any, is_commit: bool = True, **fields: Any) -> Any:
    fields = {"joint_id": "query", "batch_id": 0, **fields}
    named = [
        _E.Winner(
            transactional_id=one.transactional_id,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
        )
        for one in winners
    ]
    return await kafka.call("end_joint", 0, is_commit=is_commit, winners=named, **fields)


async def write(node: Node, member: Any, *values: bytes) -> None:
    who = ProducerEpoch(member.producer_id, member.producer_epoch)
    await Sender(member.transactional_id, who=who).write(node, *values)


def outcome(answer: Any) -> tuple[int, bool]:
    return answer.error_code, answer.was_committed


def test_members_write_and_the_winners_are_committed() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        first, second, loser = [await enrol(kafka, name) for name in ("a", "b", "a2")]
        assert (first.error_code, first.error_message, first.is_committed) == (NONE, None, False)
        assert first.transactional_id == "{query}/0/a"
        assert (first.producer_id > 0, first.producer_epoch) == (True, 0)
        for member, value in ((first, b"1"), (loser, b"lost"), (second, b"2")):
            await write(node, member, value)
        committing = await end(kafka, first, second)
        assert outcome(committing) == (NONE, False)
        assert (committing.error_message, committing.refused_transactional_id) == (None, None)
        assert await committed(node) == [b"1", b"2"]

    with_kafka(main)


def test_what_is_committed_already_says_so() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        member = await enrol(kafka)
        assert outcome(await end(kafka, member)) == (NONE, False)
        assert outcome(await end(kafka, member)) == (NONE, True)
        assert outcome(await end(kafka, is_commit=False)) == (NONE, True)
        again = await enrol(kafka)
        assert (again.error_code, again.is_committed) == (NONE, True)
        assert (again.transactional_id, again.producer_id, again.producer_epoch) == (None, -1, -1)

    with_kafka(main)


def test_a_winner_that_is_gone_is_named() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        sound, gone = await enrol(kafka, "sound"), await enrol(kafka, "gone")
        await write(node, sound, b"x")
        await enrol(kafka, "gone")
        refused = await end(kafka, sound, gone)
        assert outcome(refused) == (ABORTABLE, False)
        assert refused.refused_transactional_id == "{query}/0/gone"
        assert "'{query}/0/gone' is epoch 1 of producer" in refused.error_message
        assert outcome(await end(kafka, is_commit=False)) == (NONE, False)
        assert await committed(node) == []

    with_kafka(main)


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"joint_id": "a{b"}, INVALID_REQUEST, "no braces"),
        ({"joint_id": ""}, INVALID_REQUEST, "1 to 200"),
        ({"batch_id": -1}, INVALID_REQUEST, "-1 is not"),
        ({"member": ""}, INVALID_REQUEST, "member's name"),
        ({"timeout_ms": 0}, TIMEOUT, "1 to 86400000 ms, not 0"),
    ],
)
def test_a_bad_enrolment_is_refused_with_words(fields: dict[str, Any], code: int, words: str) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        refused = await enrol(kafka, **fields)
        assert refused.error_code == code
        assert words in refused.error_message
        assert (refused.is_committed, refused.transactional_id) == (False, None)

    with_kafka(main)


def test_a_bad_end_is_refused_with_words() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        member = await enrol(kafka)
        answers: Sequence[Any] = [
            await end(kafka, joint_id="}"),
            await end(kafka, batch_id=-1, is_commit=False),
            await end(kafka, member, is_commit=False),
        ]
        assert [answer.error_code for answer in answers] == [INVALID_REQUEST] * 3
        assert "an abort has no winners" in answers[2].error_message
        assert outcome(await end(kafka, member)) == (NONE, False)

    with_kafka(main)


def test_a_member_that_left_something_open_is_told_to_try_again() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        await write(node, await enrol(kafka), b"half")
        assert (await enrol(kafka)).error_code == CONCURRENT

    with_kafka(main)


def test_a_full_disk_is_a_reason_to_try_again() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        member = await enrol(kafka)
        node._disk_watch._level = "full"
        assert (await enrol(kafka, "other")).error_code == NOT_AVAILABLE
        assert outcome(await end(kafka, member)) == (NONE, False)

    with_kafka(main)


def test_a_member_cannot_commit_alone() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        member = await enrol(kafka)
        await write(node, member, b"x")
        ending = {
            "transactional_id": member.transactional_id,
            "producer_id": member.producer_id,
            "producer_epoch": member.producer_epoch,
        }
        for version in kafka.versions("end_txn"):
            assert (await kafka.call("end_txn", version, committed=True, **ending)).error_code == STATE
        assert (await kafka.call("end_txn", 5, committed=False, **ending)).error_code == NONE
        assert (await end(kafka, member)).error_code == ABORTABLE

    with_kafka(main)


def test_the_joint_and_its_members_have_one_coordinator() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        member = await enrol(kafka)
        found = await kafka.call(
            "find_coordinator",
            4,
            key_type=TRANSACTION,
            coordinator_keys=["{query}", member.transactional_id],
        )
        assert len({(one.node_id, one.host, one.port, one.error_code) for one in found.coordinators}) == 1

    with_kafka(main)


def test_our_own_apis_are_announced_with_keys_that_kafka_does_not_have() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        announced = {one.api_key for one in (await kafka.call("api_versions", 4)).api_keys}
        own = {api_key("enrol_in_joint"), api_key("end_joint"), api_key("ask_queue")}
        assert own == {20_000, 20_001, 20_010}
        assert own - announced == {20_010}  # for other nodes only
        assert max(api_key(name) for name in api_names() if api_key(name) not in own) < 1_000

    with_kafka(main)
