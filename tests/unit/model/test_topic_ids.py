"""Topics by Kafka's 128-bit ids: one for each number, and back."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.topic_ids import topic_id, topic_number, topic_uuid

NUMBERS = st.integers(1, 2**64 - 1)


@given(NUMBERS)
def test_a_number_comes_back_from_its_id(number: int) -> None:
    assert topic_number(topic_id(number)) == number
    assert topic_uuid(number).bytes == topic_id(number)


@given(NUMBERS, NUMBERS)
def test_different_topics_have_different_ids(one: int, other: int) -> None:
    assert (topic_uuid(one) == topic_uuid(other)) is (one == other)


@given(st.uuids())
def test_an_id_that_no_topic_can_have_is_told_apart(uuid: UUID) -> None:
    number = topic_number(uuid.bytes)
    assert number is None or topic_uuid(number) == uuid


def test_ids_that_kafka_keeps_for_itself_are_nobodys() -> None:
    assert [topic_number(UUID(int=reserved).bytes) for reserved in (0, 1)] == [None, None]
    assert topic_uuid(1).int > 1
    assert topic_number(UUID(int=topic_uuid(1).int - 1).bytes) is None


@pytest.mark.parametrize("number", [0, -1, 2**64])
def test_a_number_that_the_catalogue_never_gives_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="is not from 1"):
        topic_uuid(number)


def test_ids_stay_what_they_were() -> None:
    assert str(topic_uuid(1)) == "676f7175-6575-6500-0000-000000000001"
