"""The header that a node signs a request with: what it proves, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.cluster_errors import Unauthenticated, WrongCluster
from goqueue.node.cluster.replays import Replays
from goqueue.node.cluster.secret import WINDOW_MS, Secret

NOW_MS = 1_700_000_000_000
PATH = "/cluster/join"
BODY = b'{"name":"n2"}'


def signed(secret: Secret, **changes: Any) -> str:  # of whatever parameter
    values: dict[str, Any] = {
        "source": "n2",
        "target": "n1",
        "cluster_id": "c1",
        "timestamp_ms": NOW_MS,
        "nonce": "first",
    }
    return secret.sign("POST", PATH, BODY, **(values | changes))


def verify(secret: Secret, header: str, **changes: Any) -> str:  # as above
    values: dict[str, Any] = {
        "method": "POST",
        "path": PATH,
        "body": BODY,
        "target": "n1",
        "now_ms": NOW_MS,
        "cluster_id": "c1",
    }
    return secret.verify(header, **(values | changes))


def test_signed_request_proves_who_asks() -> None:
    assert verify(Secret(b"key"), signed(Secret(b"key"))) == "n2"


@pytest.mark.parametrize(
    "change",
    [
        {"method": "GET"},
        {"path": "/cluster/leave"},
        {"body": BODY + b" "},
        {"target": "n3"},
    ],
)
def test_request_that_was_altered_or_is_for_another_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated):
        verify(Secret(b"key"), signed(Secret(b"key")), **change)


@pytest.mark.parametrize(("own", "other"), [(b"key", b"yek"), (b"", b"key"), (b"key", b""), (b"", b"\0")])
def test_other_secret_is_refused(own: bytes, other: bytes) -> None:
    with pytest.raises(Unauthenticated, match="secret"):
        verify(Secret(own), signed(Secret(other)))


def test_nodes_without_a_secret_understand_each_other() -> None:
    assert verify(Secret(b""), signed(Secret(b""))) == "n2"


def test_replayed_request_is_refused() -> None:
    secret = Secret(b"key")
    header = signed(Secret(b"key"))
    verify(secret, header)
    with pytest.raises(Unauthenticated, match="came before"):
        verify(secret, header, now_ms=NOW_MS + WINDOW_MS)


@pytest.mark.parametrize("away_ms", [-WINDOW_MS - 1, WINDOW_MS + 1])
def test_request_from_another_time_is_refused_and_the_clocks_are_blamed(away_ms: int) -> None:
    with pytest.raises(Unauthenticated, match="check the clocks"):
        verify(Secret(b"key"), signed(Secret(b"key"), timestamp_ms=NOW_MS + away_ms))


def test_other_cluster_is_told_both_ids() -> None:
    with pytest.raises(WrongCluster) as refused:
        verify(Secret(b"key"), signed(Secret(b"key"), cluster_id="c2"))
    assert refused.value.details == {"cluster_id": "c1", "other": "c2"}


@pytest.mark.parametrize(("own", "other"), [(None, "c2"), ("c1", None), (None, None)])
def test_node_that_knows_no_cluster_yet_may_talk(own: str | None, other: str | None) -> None:
    assert verify(Secret(b"key"), signed(Secret(b"key"), cluster_id=other), cluster_id=own) == "n2"


def test_stranger_learns_nothing_of_the_cluster() -> None:
    with pytest.raises(Unauthenticated) as refused:
        verify(Secret(b"key"), signed(Secret(b"guess"), cluster_id="c2"))
    assert "c1" not in refused.value.sentence


@given(st.text(max_size=200))
def test_any_text_is_refused_as_a_header(text: str) -> None:
    with pytest.raises(Unauthenticated):
        verify(Secret(b"key"), text)


@given(st.data())
def test_header_with_any_character_changed_is_refused(data: st.DataObject) -> None:
    header = signed(Secret(b"key"))
    at = data.draw(st.integers(0, len(header) - 1))
    character = data.draw(st.characters(min_codepoint=33, max_codepoint=126))
    changed = header[:at] + character + header[at + 1 :]
    if changed == header:
        return
    with pytest.raises(Unauthenticated):
        verify(Secret(b"key"), changed)


def test_header_that_is_too_long_is_refused() -> None:
    with pytest.raises(Unauthenticated):
        verify(Secret(b"key"), signed(Secret(b"key"), nonce="x" * 10_000))


def test_header_is_admitted_before_the_body_has_come() -> None:
    claim = Secret(b"key").admit(
        signed(Secret(b"key")), "POST", PATH, target="n1", now_ms=NOW_MS, cluster_id="c1"
    )
    claim.check_body(BODY)
    with pytest.raises(Unauthenticated, match="body"):
        claim.check_body(b"another")


def test_answer_belongs_to_its_request() -> None:
    secret = Secret(b"key")
    header, other = signed(secret), signed(secret, nonce="second")
    signature = Secret(b"key").sign_answer(header, 200, b"done")
    assert secret.is_answer(header, 200, b"done", signature)
    assert not secret.is_answer(other, 200, b"done", signature)
    assert not secret.is_answer(header, 201, b"done", signature)
    assert not secret.is_answer(header, 200, b"gone", signature)
    assert not secret.is_answer(header, 200, b"done", "\xff")
    assert not Secret(b"yek").is_answer(header, 200, b"done", signature)


def test_requests_are_forgotten_after_the_window() -> None:
    replays = Replays(1_000)
    for at_ms in range(0, 10_000, 10):
        assert replays.admit("n2", f"nonce {at_ms}", at_ms, at_ms)
    assert len(replays) <= 102


def test_forgetting_for_lack_of_room_lets_no_replay_through() -> None:
    replays = Replays(1_000, nonce_count_max=3)
    for at_ms in range(5):
        assert replays.admit("n2", f"nonce {at_ms}", at_ms, 10)
    assert len(replays) == 3
    for at_ms in range(5):
        assert not replays.admit("n2", f"nonce {at_ms}", at_ms, 10)
    assert not replays.admit("n2", "late", 1, 10)
    assert replays.admit("n3", "of another, whose clock is behind", 1, 10)
    assert replays.admit("n2", "in time", 5, 10)


def test_busy_source_with_a_clock_ahead_shuts_no_other_out() -> None:
    replays = Replays(1_000, nonce_count_max=10)
    for at_ms in range(1_000, 1_100):
        for n in range(3):
            assert replays.admit("ahead", f"{at_ms} {n}", at_ms + 500, at_ms)
        for n in range(2):  # in the same millisecond
            assert replays.admit("n3", f"{at_ms} {n}", at_ms, at_ms)
            assert not replays.admit("n3", f"{at_ms} {n}", at_ms, at_ms)
        assert len(replays) == min(10, 5 * (at_ms - 999))
    for at_ms in range(1_000, 1_100):
        assert not replays.admit("ahead", f"{at_ms} 0", at_ms + 500, 1_100)
        assert not replays.admit("n3", f"{at_ms} 0", at_ms, 1_100)


def test_sources_that_ask_no_more_leave_their_places() -> None:
    replays = Replays(1_000, nonce_count_max=10)
    for n in range(10):
        assert replays.admit(f"n{n}", "a", n, n)
    for n in range(10):
        assert replays.admit("n1", f"later {n}", 5_000, 5_000)
    assert len(replays) == 10


def test_clocks_that_are_put_back_shut_nobody_out() -> None:
    replays = Replays(1_000, nonce_count_max=1)
    assert replays.admit("n2", "a", 50_000, 50_000)
    assert replays.admit("n2", "b", 50_001, 50_001)
    assert replays.admit("n2", "c", 10_000, 10_000)
