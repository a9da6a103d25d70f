"""Incremental fetch sessions: what is remembered, what is told, and what nobody may do to another's."""

from __future__ import annotations

from itertools import count

import pytest

from goqueue.api.kafka import fetch_sessions
from goqueue.api.kafka.fetch_sessions import FetchSessions, Session
from goqueue.model.errors import FetchSessionNotFound, InvalidFetchSessionEpoch, TopicNotFound
from goqueue.node.fetch import Fetched, Wanted


def wanted(*partitions: int, offset: int = 0) -> list[Wanted]:
    return [Wanted("t", partition, offset, 1_000) for partition in partitions]


def nothing(watermark: int = 5) -> Fetched:
    return Fetched(None, watermark, watermark, 0)


def something(size: int = 10) -> Fetched:
    return Fetched(None, 6, 6, 0, chunks=[memoryview(bytes(size))], size_bytes=size)


def begun(sessions: FetchSessions, *partitions: int) -> Session:
    session = sessions.begin(0, 0, wanted(*partitions), ())
    assert session is not None
    return session


@pytest.fixture
def sessions() -> FetchSessions:
    numbers = count(7)
    return FetchSessions(lambda: next(numbers))


def news(session: Session, *fetched: Fetched) -> list[int]:
    return [want.partition for want, _ in session.changed(session.wanted(), fetched)]


def test_only_what_has_changed_is_told(sessions: FetchSessions) -> None:
    session = begun(sessions, 0, 1, 2)
    assert news(session, nothing(), nothing(), nothing()) == [0, 1, 2]  # the client knows nothing yet
    assert news(session, nothing(), nothing(), nothing()) == []
    assert news(session, nothing(), nothing(6), nothing()) == [1]
    assert news(session, Fetched(TopicNotFound("t")), nothing(6), nothing()) == [0]
    assert news(session, nothing(), nothing(6), nothing()) == [0]  # after an error it hears when all is well


def test_who_is_sent_to_another_replica_is_told_so_every_time(sessions: FetchSessions) -> None:
    session = begun(sessions, 0)
    sent_on = Fetched(None, 5, 5, 0, closest=2)
    assert news(session, nothing()) == [0]
    assert news(session, sent_on) == [0]
    assert news(session, sent_on) == [0]


def test_one_that_gave_data_goes_to_the_end_of_the_line(sessions: FetchSessions) -> None:
    session = begun(sessions, 0, 1, 2)
    assert news(session, something(), nothing(), nothing()) == [0, 1, 2]
    assert [want.partition for want in session.wanted()] == [1, 2, 0]


def test_a_request_that_stands_alone_has_no_session(sessions: FetchSessions) -> None:
    assert sessions.begin(0, -1, wanted(0), ()) is None


def test_a_request_changes_and_forgets_partitions_of_its_session(sessions: FetchSessions) -> None:
    session = begun(sessions, 0, 1)
    again = sessions.begin(session.id, 1, wanted(1, 2, offset=9), [("t", 0), ("unknown", 5)])
    assert again is session
    assert [(want.partition, want.offset) for want in session.wanted()] == [(1, 9), (2, 9)]


def test_a_session_that_is_not_there_and_an_epoch_that_is_not_next_are_refused(
    sessions: FetchSessions,
) -> None:
    session = begun(sessions, 0)
    with pytest.raises(FetchSessionNotFound):
        sessions.begin(session.id + 1, 1, [], ())
    with pytest.raises(InvalidFetchSessionEpoch):
        sessions.begin(session.id, 2, [], ())
    sessions.begin(session.id, -1, [], ())  # closed
    with pytest.raises(FetchSessionNotFound):
        sessions.begin(session.id, 1, [], ())


def test_what_another_connection_does_to_a_session_meanwhile_breaks_no_answer(
    sessions: FetchSessions,
) -> None:
    session = begun(sessions, 0, 1)
    asked = session.wanted()
    sessions.begin(session.id, 1, wanted(2), [("t", 0)])
    told = session.changed(asked, [something(), nothing()])
    assert [want.partition for want, _ in told] == [1]


def test_the_oldest_sessions_make_room(sessions: FetchSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "SESSION_COUNT_MAX", 2)
    first, second = begun(sessions, 0), begun(sessions, 0)
    sessions.begin(first.id, 1, [], ())  # used again
    begun(sessions, 0)
    with pytest.raises(FetchSessionNotFound):
        sessions.begin(second.id, 1, [], ())
    assert sessions.begin(first.id, 2, [], ()) is first


def test_a_session_cannot_grow_beyond_the_limit(
    sessions: FetchSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITION_COUNT_MAX", 4)
    assert sessions.begin(0, 0, wanted(*range(5)), ()) is None
    session = begun(sessions, 0, 1, 2)
    with pytest.raises(FetchSessionNotFound):
        sessions.begin(session.id, 1, wanted(3, 4), ())
    begun(sessions, 0, 1, 2, 3)  # its room is free again
