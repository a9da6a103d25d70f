"""Topic names: whatever is accepted is safe as a part of a path."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.errors import InvalidName
from goqueue.model.names import (
    METADATA_TOPIC,
    NAME_LENGTH_MAX,
    check_new_topic_name,
    check_topic_name,
    is_internal,
)

NEARLY_LEGAL = st.text(st.sampled_from("ab.Z9_-./\\\0\n :~*é٣"), max_size=6)
LEGAL = st.text(st.sampled_from("abcXYZ019._-"), min_size=1, max_size=NAME_LENGTH_MAX)


@given(st.one_of(st.text(max_size=8), NEARLY_LEGAL, LEGAL))
@settings(max_examples=400, deadline=None)
def test_every_accepted_name_is_safe_as_a_part_of_a_path(name: str) -> None:
    try:
        accepted = check_topic_name(name)
    except InvalidName:
        return
    assert accepted == name
    assert name not in ("", ".", "..")
    assert len(name.encode()) <= NAME_LENGTH_MAX
    assert not set(name) & {"/", "\\", "\0", "\n", " ", "~"}
    assert os.path.basename(name) == name
    assert os.path.normpath(os.path.join("data", "logs", name)) == os.path.join("data", "logs", name)


@given(LEGAL)
@settings(max_examples=60, deadline=None)
def test_letters_digits_dots_underscores_and_dashes_make_a_name(name: str) -> None:
    if name not in (".", ".."):
        assert check_topic_name(name) == name


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "must not be empty"),
        (".", "'.' is not a topic name"),
        ("..", "'..' is not a topic name"),
        ("a/b", "may hold only letters, digits, '.', '_' and '-'"),
        ("../b", "may hold only letters"),
        ("a\\b", "may hold only letters"),
        ("a\n", "may hold only letters"),
        ("a\0", "may hold only letters"),
        ("a b", "may hold only letters"),
        ("größe", "may hold only letters"),
        ("٣", "may hold only letters"),
        ("x" * 250, "at most 249 characters; this one has 250"),
    ],
)
def test_bad_name_is_refused_with_what_would_be_right(name: str, sentence: str) -> None:
    with pytest.raises(InvalidName) as caught:
        check_topic_name(name)
    assert sentence in caught.value.sentence
    assert caught.value.details["name"] == name[:NAME_LENGTH_MAX]


def test_longest_name_is_accepted_and_fits_a_file_name() -> None:
    assert check_topic_name("x" * NAME_LENGTH_MAX)
    assert NAME_LENGTH_MAX <= 255


@pytest.mark.parametrize("name", ["...", "a..", ".hidden", "-", "_", "_a", "CON"])
def test_odd_but_legal_name_is_accepted(name: str) -> None:
    assert check_new_topic_name(name) == name


@pytest.mark.parametrize("name", [METADATA_TOPIC, "__", "__consumer_offsets"])
def test_internal_name_can_be_asked_for_but_not_created(name: str) -> None:
    assert is_internal(name)
    assert check_topic_name(name) == name
    with pytest.raises(InvalidName, match="names that start with '__' are internal; choose another"):
        check_new_topic_name(name)
