"""One total table from codes to protocols, and one error class for each code."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from tests.support import kafka_python

from goqueue.model import cluster_errors
from goqueue.model import errors as module
from goqueue.model.codes import WIRE, Code
from goqueue.model.errors import (
    DataCorrupt,
    GoQueueError,
    InvariantViolation,
    MessageTooLarge,
    OffsetOutOfRange,
    PartitionNotFound,
    TopicExists,
    TopicNotFound,
    invariant,
)

CLASSES = [
    kind
    for kind in (vars(module) | vars(cluster_errors)).values()
    if isinstance(kind, type) and issubclass(kind, GoQueueError) and kind is not GoQueueError
]
# grpc's own, 0 to 16; 0 is OK and 1 is for callers that cancel.
GRPC_ERRORS = range(2, 17)
GRPC_OF_HTTP = {  # which gRPC statuses a reader of the HTTP status would not be surprised by
    400: {3},
    401: {16},
    403: {7},
    404: {5, 12},
    405: {12},
    409: {6, 9, 10},
    413: {8},
    416: {11},
    429: {8},
    500: {13, 15},
    503: {14},
    504: {4},
    507: {8},
}


# The client's view of things is out of date, or the thing is in the making: asking again is right.
PASSES_THOUGH_A_CONFLICT = {
    Code.CORRUPT_BATCH,  # damaged on its way
    Code.NOT_ENOUGH_REPLICAS,
    Code.UNKNOWN_TOPIC_ID,
    Code.FENCED_LEADER_EPOCH,
    Code.UNKNOWN_LEADER_EPOCH,
    Code.FETCH_SESSION_NOT_FOUND,
    Code.INVALID_FETCH_SESSION_EPOCH,
    Code.MEMBER_ID_REQUIRED,
    Code.REBALANCE_IN_PROGRESS,
    Code.UNSTABLE_OFFSET,
    Code.CONCURRENT_TRANSACTIONS,
    Code.SHARE_SESSION_NOT_FOUND,
    Code.INVALID_SHARE_SESSION_EPOCH,
}


NEWER_THAN_THE_CLIENT = {Code.INVALID_REGULAR_EXPRESSION, Code.SHARE_SESSION_LIMIT_REACHED}


def test_table_is_total_and_has_nothing_else() -> None:
    assert set(WIRE) == set(Code)


def test_code_is_its_own_name() -> None:
    assert all(code.name == code.value for code in Code)


@pytest.mark.parametrize("code", list(Code))
def test_code_maps_to_statuses_that_exist_and_agree(code: Code) -> None:
    wire = WIRE[code]
    assert HTTPStatus(wire.http).value >= 400
    assert wire.grpc in GRPC_ERRORS
    assert wire.grpc in GRPC_OF_HTTP[wire.http]
    assert wire.kafka != 0, "0 is success"
    assert wire.kafka in kafka_python.errors.kafka_errors or code in NEWER_THAN_THE_CLIENT


def test_every_code_has_exactly_one_class() -> None:
    declared = [kind.__dict__["code"] for kind in CLASSES]  # its own, not one that it inherits
    assert sorted([*declared, GoQueueError.code]) == sorted(Code)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_fault_of_the_client_is_not_worth_a_retry_and_one_that_passes_is(kind: type[GoQueueError]) -> None:
    status = WIRE[kind.code].http
    if kind.retriable:
        assert status >= 500 or status == 429 or kind.code in PASSES_THOUGH_A_CONFLICT
    else:
        assert status < 500 or kind.code is Code.DATA_CORRUPT  # it stays damaged


@pytest.mark.parametrize(
    ("error", "details"),
    [
        (TopicNotFound("t"), {"topic": "t"}),
        (TopicExists("t"), {"topic": "t"}),
        (PartitionNotFound("t", 4, 4), {"topic": "t", "partition": 4, "partition_count": 4}),
        (OffsetOutOfRange(5, earliest=7, latest=9), {"offset": 5, "earliest": 7, "latest": 9}),
        (MessageTooLarge("the key", 5, 4), {"size_bytes": 5, "bytes_max": 4}),
        (
            DataCorrupt(start=3, end=5, file="f.log", position=61, reason="bad"),
            {"start": 3, "end": 5, "file": "f.log", "position": 61, "reason": "bad"},
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, GoQueueError) else "",
)
def test_error_names_the_offending_values_in_words_and_in_details(
    error: GoQueueError, details: dict[str, object]
) -> None:
    assert error.details == details
    assert str(error) == error.sentence
    for value in details.values():
        assert str(value) in error.sentence


def test_error_keeps_its_sentence_and_details() -> None:
    error = GoQueueError("a sentence", a=1, b="x")
    assert (error.sentence, error.details, error.code) == ("a sentence", {"a": 1, "b": "x"}, Code.INTERNAL)


def test_invariant_that_holds_is_silent_and_one_that_does_not_stops() -> None:
    invariant(True, "never seen")
    with pytest.raises(InvariantViolation, match="what cannot be") as caught:
        invariant(1 > 2, "what cannot be")
    assert isinstance(caught.value, AssertionError)
    assert not isinstance(caught.value, GoQueueError), "no supervisor may take it for an expected error"
