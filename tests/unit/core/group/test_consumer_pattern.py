"""Topic patterns: RE2's meaning, and no pattern that takes long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.core.group.consumer_pattern import PATTERN_LENGTH_MAX, TopicPattern
from goqueue.model.errors import InvalidRegularExpression

MEANINGS = [
    ("orders", "orders", True),
    ("orders", "orders2", False),
    ("", "a", False),
    ("orders-.*", "orders-eu", True),
    ("orders-.+", "orders-", False),
    (".*-(eu|us)", "orders-us", True),
    (".*-(eu|us)", "orders-asia", False),
    ("(eu|)x", "x", True),
    ("^orders.*$", "orders1", True),
    ("^a$|^b$", "b", True),
    ("a^b", "ab", False),
    ("a$b", "ab", False),
    (r"\Aa\z", "a", True),
    ("a{2,3}", "aa", True),
    ("a{2,3}", "aaaa", False),
    ("a{2}", "aaa", False),
    ("a{2,}", "aaaaa", True),
    ("a{0}b", "b", True),
    ("a{,2}", "a{,2}", True),
    ("a{x}", "a{x}", True),
    ("a{", "a{", True),
    ("a??b", "b", True),
    ("a*?b", "aab", True),
    ("[a-c]+", "abc", True),
    ("[^a-c]", "d", True),
    ("[^a-c]", "a", False),
    ("[]a]+", "a]", True),
    ("[^]a]", "]", False),
    ("[a-]+", "a-", True),
    ("[-a]+", "a-", True),
    (r"[\d_.]+", "1_2.3", True),
    (r"[\W]", ".", True),
    (r"[a\-z]+", "-z", True),
    (r"[a\-z]+", "b", False),
    ("[[:alpha:]]+", "aZ", True),
    ("[[:^alpha:]]+", "a", False),
    ("[[:digit:]x]+", "1x2", True),
    (r"\d\D\w\W", "1a_.", True),
    (r"a\.b", "a.b", True),
    (r"a\.b", "aXb", False),
    (r"\x41\x{62}", "Ab", True),
    (r"\Qa.b\E+", "a.bb", True),
    (r"\Qa.b\E+", "aXb", False),
    (r"\Qa|b", "a|b", True),
    ("(?i)ORDERS", "orders", True),
    ("(?i)o[R-T]", "OS", True),
    ("(?i:a)b", "AB", False),
    ("(?i:a)b", "Ab", True),
    ("(?i)a(?-i)b", "AB", False),
    ("(?:ab)+", "abab", True),
    ("(?P<region>eu|us)", "us", True),
    ("(?<region>eu|us)", "us", True),
    ("((a))*", "aaa", True),
    ("(a*)*b", "aab", True),
    ("()*a", "a", True),
    ("(){1000}a", "a", True),
    ("é?a", "a", True),
    ("[é-ü]?a", "a", True),
]


@pytest.mark.parametrize(("pattern", "name", "expected"), MEANINGS)
def test_pattern_means_what_it_means_in_re2(pattern: str, name: str, expected: bool) -> None:
    assert TopicPattern(pattern).matches(name) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "(a",
        "[",
        "[a",
        "[]",
        "[b-a]",
        "[[:nope:]]",
        "*",
        "+a",
        "a|*",
        "(?:*)",
        "a**",
        "a+*",
        "a{2}*",
        "a{2}{3}",
        "a{3,2}",
        "a{1001}",
        "\\",
        r"\1",
        r"\b",
        r"\Z",
        r"\pL",
        r"\xZZ",
        r"\x",
        r"\x{}",
        r"\x{41",
        "(?=a)",
        "(?!a)",
        "(?<=a)b",
        "(?<!a)b",
        "(?P<>a)",
        "(?P<a-b>a)",
        "(?P<a",
        "(?P=a)",
        "(?z)",
        "(?",
        "(?#comment)",
    ],
)
def test_what_re2_does_not_take_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        TopicPattern(pattern)


def test_long_pattern_is_refused() -> None:
    assert TopicPattern("a" * PATTERN_LENGTH_MAX).matches("a" * PATTERN_LENGTH_MAX)
    with pytest.raises(InvalidRegularExpression, match="256"):
        TopicPattern("a" * (PATTERN_LENGTH_MAX + 1))


@pytest.mark.parametrize("pattern", ["(" * 100 + ")" * 100, "(((a{100}){100}){100})", "((|a){300}){2}"])
def test_pattern_that_would_grow_without_bound_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        TopicPattern(pattern)


def test_nested_repetition_of_nothing_is_quick() -> None:
    assert TopicPattern("((((()){1000}){1000}){1000}){1000}").matches("") is True


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(a|a)*b",
        "(a|aa)+b",
        "(.*)*b",
        ".*.*.*.*.*.*.*.*b",
        "(a?){200}a{20}b",
        "(x+x+)+y|(a*)*b",
        ".*a.{200}b",
        "([a-z]+)*[0-9]b",
    ],
)
def test_catastrophic_pattern_is_matched_in_no_time(pattern: str) -> None:
    compiled = TopicPattern(pattern)
    names = ["a" * 249, "ab" * 124, *("ab"[bit % 2] * (bit + 1) + "a" * 200 for bit in range(48))]
    start = time.process_time()
    for name in names:
        compiled.matches(name)
    assert time.process_time() - start < 5


def patterns() -> st.SearchStrategy[str]:
    atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\.", "^", "$", "-"])

    def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.lists(inner, max_size=3).map("".join),
            st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,1}?", "{1,}"])).map(
                lambda two: f"({two[0]}){two[1]}"
            ),
        )

    return st.recursive(atoms, grow, max_leaves=6)


@given(pattern=patterns(), name=st.text("ab1.-", min_size=1, max_size=6))
def test_pattern_agrees_with_pythons(pattern: str, name: str) -> None:
    assert TopicPattern(pattern).matches(name) is (re.fullmatch(pattern, name) is not None)


@given(pattern=st.text(r"ab.*+?|()[]{}^$\-,1:QEix<>P", max_size=20), name=st.text("ab1.-", max_size=6))
def test_any_text_is_a_pattern_or_is_refused(pattern: str, name: str) -> None:
    try:
        compiled = TopicPattern(pattern)
    except InvalidRegularExpression:
        return
    compiled.matches(name)
