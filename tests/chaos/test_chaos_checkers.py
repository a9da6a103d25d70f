"""Each anomaly is found in a history that has it, and in no history that has not: a checker that finds nothing proves nothing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from tests.chaos.checkers import CHECKERS, check
from tests.chaos.history import Event, Op, Phase, Place
from tests.chaos.transaction_checkers import input_of, output_of

OK, FAIL, UNKNOWN, INVOKE = Phase.OK, Phase.FAIL, Phase.UNKNOWN, Phase.INVOKE


class Story:
    """A history as it is told: every event comes a millisecond after the one before."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._numbers = itertools.count(1)

    def add(self, process: str, op: Op, phase: Phase, **values: object) -> Story:
        at_us = (len(self.events) + 1) * 1_000
        self.events.append(Event(at_us, "load", process, op, phase, **values))  # type: ignore[arg-type]  # a test's words
        return self

    def begin(self, process: str, op: Op, **values: object) -> int:
        number = next(self._numbers)
        self.add(process, op, INVOKE, number=number, **values)
        return number

    def done(self, process: str, op: Op, phase: Phase = OK, **values: object) -> Story:
        """One that is over as soon as it has begun."""
        number = self.begin(process, op, **values)
        return self.add(process, op, phase, number=number, **values)

    def published(
        self, value: str, offset: int, *, phase: Phase = OK, due_ms: int = 0, topic: str = "t"
    ) -> Story:
        number = self.begin("producer", Op.PUBLISH, topic=topic, value=value, due_ms=due_ms)
        where = {"partition": 0, "offset": offset} if phase is OK else {}
        return self.add("producer", Op.PUBLISH, phase, number=number, topic=topic, **where)

    def read(self, *records: tuple[int, str], process: str = "reader", group: str = "") -> Story:
        return self.add(
            process, Op.POLL, OK, topic="t", group=group, places=_places(records), is_committed_only=True
        )

    def final(self, *records: tuple[int, str], end: int | None = None, topic: str = "t") -> Story:
        end = end if end is not None else records[-1][0] + 1
        values = {"partition": 0, "offset": end, "places": _places(records), "is_committed_only": True}
        return self.add("final", Op.FINAL, OK, topic=topic, **values)

    def transacted(self, phase: Phase, *values: str, position: int = 0) -> Story:
        more = {"places": _places([(position, "")]), "values": values, "note": "t", "group": "g"}
        return self.done("worker", Op.TRANSACT, phase, topic="out", **more)

    def committed(self, process: str, offset: int, phase: Phase = OK) -> Story:
        return self.done(process, Op.COMMIT, phase, topic="t", group="g", places=_places([(offset, "")]))

    def told(self, offset: int, note: str = "") -> Story:
        places = _places([(offset, "")])
        return self.done("member", Op.COMMITTED, OK, topic="t", group="g", places=places, note=note)

    def taken(
        self, process: str, *records: tuple[int, str], lease_ms: int = 5_000, wall_ms: int = 0
    ) -> Story:
        values = {"places": _places(records), "lease_ms": lease_ms, "wall_ms": wall_ms}
        number = self.begin(process, Op.TAKE, topic="t", group="g")
        return self.add(process, Op.TAKE, OK, number=number, topic="t", group="g", **values)

    def finished(self, process: str, op: Op, record: tuple[int, str], phase: Phase = OK) -> Story:
        return self.done(process, op, phase, topic="t", group="g", places=_places([record]))


def _places(records: Sequence[tuple[int, str]]) -> tuple[Place, ...]:
    return tuple(Place(0, offset, value) for offset, value in records)


def _found(story: Story) -> set[str]:
    return {name for name, one in check(story.events).items() if one.count}


BAD: dict[str, Story] = {
    "lost-write": Story().published("a", 0).published("b", 1).published("c", 2).final((0, "a"), (2, "c")),
    "unseen": Story().published("a", 0).published("b", 1).final((0, "a")),
    "duplicate": Story().published("a", 0).final((0, "a"), (1, "a")),
    "inconsistent-offsets": Story()
    .published("a", 0, phase=UNKNOWN)
    .published("b", 0, phase=UNKNOWN)
    .read((0, "a"), process="one")
    .read((0, "b"), process="two"),
    "nonmonotonic-send": Story().published("a", 1).published("b", 0).final((0, "b"), (1, "a")),
    "nonmonotonic-poll": Story()
    .published("a", 0)
    .published("b", 1)
    .read((0, "a"), (1, "b"))
    .read((1, "b"))
    .final((0, "a"), (1, "b")),
    "poll-skip": Story()
    .published("a", 0)
    .published("b", 1)
    .published("c", 2)
    .read((0, "a"), (2, "c"))
    .final((0, "a"), (1, "b"), (2, "c")),
    "phantom": Story().published("a", 0, phase=FAIL).read((0, "a")),
    "aborted-read": Story()
    .transacted(FAIL, output_of("a", "1"))
    .add(
        "reader", Op.POLL, OK, topic="out", places=_places([(0, output_of("a", "1"))]), is_committed_only=True
    ),
    "torn-transaction": Story()
    .transacted(UNKNOWN, output_of("a", "1"), output_of("b", "1"))
    .final((0, output_of("a", "1")), topic="out"),
    "open-transaction": Story().add("final", Op.OPEN, OK, topic="out", partition=0, offset=7),
    "lost-commit": Story().committed("member", 5).told(3),
    "commit-ahead": Story().committed("member", 5).told(7),
    "unprocessed": Story()
    .published("a", 0)
    .published("b", 1)
    .read((1, "b"), group="g")
    .committed("member", 2)
    .told(2, note="last")
    .final((0, "a"), (1, "b")),
    "two-owners": Story()
    .add("anna", Op.ASSIGN, OK, topic="t", group="g", places=_places([(0, "")]))
    .add("bert", Op.ASSIGN, OK, topic="t", group="g", places=_places([(0, "")]))
    .committed("anna", 5),
    "acked-again": Story()
    .published("a", 0)
    .taken("anna", (0, "a"))
    .finished("anna", Op.ACK, (0, "a"))
    .taken("bert", (0, "a")),
    "two-holders": Story()
    .published("a", 0)
    .taken("anna", (0, "a"))
    .taken("bert", (0, "a"))
    .finished("bert", Op.ACK, (0, "a")),
    "queue-lost": Story()
    .published("a", 0)
    .published("b", 1)
    .taken("anna", (0, "a"))
    .finished("anna", Op.ACK, (0, "a"))
    .final((0, "a"), (1, "b")),
    "dead-doubled": Story()
    .published("a", 0)
    .taken("anna", (0, "a"))
    .finished("anna", Op.NACK, (0, "a"))
    .final((0, "a"))
    .final((0, "a"), (1, "a"), topic="t.dlq"),
    "before-due": Story()
    .published("a", 0, due_ms=2_000)
    .taken("anna", (0, "a"), wall_ms=1_999)
    .finished("anna", Op.ACK, (0, "a")),
    "delay-lost": Story().published("a", 0, due_ms=2_000).final(end=0),
    "delay-doubled": Story().published("a", 0, due_ms=2_000).final((0, "a"), (1, "a")),
    "did-not-finish": Story().done("anna", Op.WORK, UNKNOWN, note="it still waits"),
    "undrained": Story().add("anna", Op.DRAIN, UNKNOWN, note="g is behind in t/0 by 7"),
}
# What comes along with an anomaly because it is the same mistake seen from another side.
_ALSO = {"dead-doubled": {"duplicate"}}


def test_there_is_a_bad_history_for_every_checker() -> None:
    assert set(BAD) == {checker.name for checker in CHECKERS}


@pytest.mark.parametrize("name", BAD)
def test_an_anomaly_is_found_and_nothing_else_is(name: str) -> None:
    assert _found(BAD[name]) == {name} | _ALSO.get(name, set())


def test_a_good_history_of_a_log_has_no_anomaly() -> None:
    story = (
        Story()
        .published("a", 0)
        .published("b", 1, phase=UNKNOWN)
        .published("c", 2)
        .published("d", 0, phase=FAIL)
    )
    story.add("reader", Op.ASSIGN, OK, topic="t", places=_places([(0, "")])).read((0, "a"), (2, "c"))
    story.add("reader", Op.ASSIGN, OK, topic="t", places=_places([(0, "")])).read((0, "a"))
    assert _found(story.final((0, "a"), (2, "c"), end=5)) == set()


def test_what_one_producer_sent_is_there_in_its_order() -> None:
    assert (
        _found(Story().published("a", 1).published("b", 0, phase=UNKNOWN).final((0, "b"), (1, "a"))) == set()
    )
    assert _found(Story().published("a", -1).published("b", 0).final((0, "b"), (1, "a"))) == {
        "nonmonotonic-send"
    }
    outputs = output_of("a", "1"), output_of("b", "1")
    story = Story().transacted(OK, *outputs).final((0, outputs[1]), (1, outputs[0]), topic="out")
    assert _found(story) == {"nonmonotonic-send"}
    other = Story().published("a", 1).done("other", Op.PUBLISH, topic="t", value="b", partition=0, offset=0)
    assert _found(other.final((0, "b"), (1, "a"))) == set()


def test_a_topic_that_is_not_there_at_the_end_has_lost_everything() -> None:
    assert _found(Story().published("a", 0).final(end=0, topic="other")) == {"unseen"}
    assert _found(Story().published("a", -1).final(end=0, topic="other")) == {"lost-write"}
    assert _found(Story().published("a", 0, due_ms=1).final(end=0, topic="other")) == {"delay-lost"}
    assert _found(Story().transacted(OK, output_of("a", "1")).final(end=0)) == {"lost-write"}


def test_a_queue_that_never_gave_anything_has_lost_everything() -> None:
    story = Story().published("a", 0)
    story.begin("anna", Op.TAKE, topic="t", group="g")
    assert _found(story.final((0, "a"))) == {"queue-lost"}


def test_what_was_never_confirmed_may_be_there_or_not() -> None:
    story = Story().published("a", 0, phase=UNKNOWN).published("b", 0, phase=UNKNOWN)
    assert _found(story.final((0, "b"))) == set()


def test_a_transaction_that_was_committed_is_there_as_a_whole() -> None:
    outputs = output_of("a", "1"), output_of("b", "1")
    assert _found(Story().transacted(OK, *outputs).final(end=0, topic="out")) == {"lost-write"}
    assert _found(Story().transacted(OK, *outputs).final(*enumerate(outputs), topic="out")) == set()


def test_outputs_that_count_without_their_offsets_are_found() -> None:
    story = Story().transacted(UNKNOWN, output_of("a", "1")).transacted(OK, output_of("a", "2"))
    assert _found(story.final((0, output_of("a", "1")), (1, output_of("a", "2")), topic="out")) == {
        "torn-transaction"
    }


def test_offsets_that_count_without_their_outputs_are_found() -> None:
    story = Story().published("a", 0).published("b", 1).transacted(OK, output_of("b", "1"), position=2)
    story.read((0, "a"), (1, "b"), group="g").told(2, note="last")
    story.final((0, "a"), (1, "b")).final((0, output_of("b", "1")), topic="out")
    assert _found(story) == {"torn-transaction"}


def test_an_output_says_which_input_it_is_of() -> None:
    assert input_of(output_of("p-1>x", "worker-2")) == "p-1>x"


def test_a_commit_that_was_refused_may_be_told_or_not() -> None:
    assert _found(Story().committed("member", 5).committed("member", 9, UNKNOWN).told(5)) == set()
    assert _found(Story().committed("member", 5).committed("member", 9, UNKNOWN).told(9)) == set()


def test_a_member_may_commit_what_nobody_else_was_given() -> None:
    story = (
        Story()
        .add("anna", Op.ASSIGN, OK, topic="t", group="g", places=_places([(0, "")]))
        .committed("anna", 5)
    )
    story.add("anna", Op.REVOKE, OK, topic="t", group="g", places=_places([(0, "")]))
    story.add("bert", Op.ASSIGN, OK, topic="t", group="g", places=_places([(0, "")])).committed("bert", 7)
    assert _found(story.committed("anna", 6, FAIL)) == set()


def test_a_record_may_come_again_when_its_lease_is_over_or_given_up() -> None:
    story = Story().published("a", 0).taken("anna", (0, "a"), lease_ms=1).taken("bert", (0, "a"))
    story.finished("bert", Op.NACK, (0, "a")).taken("anna", (0, "a")).finished("anna", Op.ACK, (0, "a"))
    assert _found(story) == set()


def test_an_ack_that_nobody_confirmed_does_not_keep_a_record_from_coming_again() -> None:
    story = Story().published("a", 0).taken("anna", (0, "a"), lease_ms=1)
    story.finished("anna", Op.ACK, (0, "a"), UNKNOWN).taken("bert", (0, "a")).finished(
        "bert", Op.ACK, (0, "a")
    )
    assert _found(story) == set()


def test_a_dead_record_is_not_lost() -> None:
    story = Story().published("a", 0).taken("anna", (0, "a")).finished("anna", Op.NACK, (0, "a"))
    assert _found(story.final((0, "a")).final((0, "a"), topic="t.dlq")) == set()


def test_a_client_of_whose_end_nothing_is_known_did_not_finish() -> None:
    story = Story()
    story.begin("anna", Op.WORK)
    assert _found(story) == {"did-not-finish"}
    assert _found(Story().done("anna", Op.WORK).add("anna", Op.DRAIN, OK)) == set()


def test_a_group_that_ends_before_the_last_record_has_not_drained() -> None:
    story = Story().published("a", 0).published("b", 1).read((0, "a"), group="g").committed("anna", 1)
    story.told(1, note="last").final((0, "a"), (1, "b"))
    assert _found(story) == {"undrained"}


def test_what_was_acknowledged_without_an_offset_is_somewhere_at_the_end() -> None:
    assert _found(Story().published("a", -1).final((0, "b"), end=1)) == {"lost-write", "phantom"}
    assert _found(Story().published("a", -1).final((7, "a"))) == set()
