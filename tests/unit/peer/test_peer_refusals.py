"""Errors of other nodes, by their codes."""

from __future__ import annotations

from goqueue.model.errors import FetchSessionNotFound, GoQueueError
from goqueue.peer.refusals import fetch_error


def test_a_session_that_a_leader_does_not_know_is_called_so() -> None:
    error = fetch_error(70, "node-2", "", -1)
    assert isinstance(error, FetchSessionNotFound)
    assert "70 (FETCH_SESSION_NOT_FOUND)" in error.sentence


def test_an_error_that_no_follower_expects_has_no_name_that_it_does_not_deserve() -> None:
    error = fetch_error(77, "node-2", "orders", 0)
    assert type(error) is GoQueueError
    assert error.sentence.endswith("with Kafka's error 77")
