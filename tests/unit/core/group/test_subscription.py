"""What consumers put into a JoinGroup, as far as the broker reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.groups import subscription

from goqueue.core.group.subscription import is_same_subscription, subscribed_topics

topics = st.lists(st.text("abc.-_", max_size=8), max_size=5)


@given(topics, st.binary(max_size=10))
def test_topics_are_found_whatever_follows_them(names: list[str], rest: bytes) -> None:
    assert subscribed_topics(subscription(*names, owned=rest)) == sorted(names)


@given(topics.filter(bool), st.data())
def test_cut_bytes_are_no_subscription(names: list[str], data: st.DataObject) -> None:
    whole = subscription(*names)
    assert subscribed_topics(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


@given(st.binary(max_size=30))
def test_garbage_does_no_harm(garbage: bytes) -> None:
    found = subscribed_topics(garbage)
    assert found is None or sum(map(len, found)) <= len(garbage)


def test_count_that_cannot_be_is_not_believed() -> None:
    assert subscribed_topics(b"\0\0\x7f\xff\xff\xff") is None
    assert subscribed_topics(b"\0\0\xff\xff\xff\xff") is None
    assert subscribed_topics(b"\0\0\0\0\0\1\xff\xff") is None


@pytest.mark.parametrize(
    ("protocol_type", "before", "now", "is_same"),
    [
        ("consumer", subscription("a", "b"), subscription("b", "a", owned=b"x"), True),
        ("consumer", subscription("a"), subscription("b"), False),
        ("consumer", b"?", b"?", True),
        ("consumer", b"?", b"!", False),
        ("connect", subscription("a"), subscription("a", owned=b"x"), False),
        ("connect", b"x", b"x", True),
    ],
)
def test_subscriptions_are_compared_by_their_topics(
    protocol_type: str, before: bytes, now: bytes, is_same: bool
) -> None:
    assert is_same_subscription(protocol_type, before, now) is is_same
