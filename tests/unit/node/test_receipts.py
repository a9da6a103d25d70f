"""Receipts: whoever was given one can show it, and nobody can make one up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.errors import ReceiptNotFound
from goqueue.node.queue.receipts import Issue, Issuer, Receipts, read_issue, read_receipt

KEY = b"k" * 64
ISSUE = Issue("orders", 2, 7, 1)
ISSUER = Receipts(KEY).issuer(5, ISSUE)
DELIVERIES = st.lists(st.tuples(st.integers(0, 10**15), st.integers(1, 2**31)), min_size=1, max_size=20)


@given(DELIVERIES)
@settings(max_examples=100, deadline=None)
def test_a_receipt_says_what_it_is_for_and_is_known_again_in_any_company(
    deliveries: list[tuple[int, int]],
) -> None:
    texts = ISSUER.make(deliveries)
    receipts = [read_receipt(text) for text in texts]
    assert [(one.offset, one.deliveries) for one in receipts] == deliveries
    assert {read_issue(one.issue) for one in receipts} == {ISSUE}
    assert Receipts(KEY).issuer(5, ISSUE).refusals(receipts) == {}
    assert [ISSUER.make([one])[0] for one in deliveries] == texts


def test_receipts_of_neighbours_differ_in_their_proof() -> None:
    texts = ISSUER.make([(offset, count) for offset in range(200) for count in (1, 2)])
    assert len({text[-24:] for text in texts}) == 400


@pytest.mark.parametrize("at", range(len(ISSUER.make([(41, 1)])[0])))
def test_a_receipt_with_one_other_character_is_refused(at: int) -> None:
    (genuine,) = ISSUER.make([(41, 1)])
    for character in "0123456789abcdef:.- +_é":
        forged = genuine[:at] + character + genuine[at + 1 :]
        if forged == genuine:
            continue
        try:
            receipt = read_receipt(forged)
        except ReceiptNotFound:
            continue
        if read_issue(receipt.issue) == ISSUE:
            assert list(ISSUER.refusals([receipt])) == [forged]


def test_one_forged_receipt_among_others_is_the_only_one_that_is_refused() -> None:
    texts = ISSUER.make([(offset, 1) for offset in range(5)])
    forged = texts[2].replace(":2:", ":3:")
    receipts = [read_receipt(text) for text in [*texts[:2], forged, *texts[3:]]]
    assert list(ISSUER.refusals(receipts)) == [forged]


@pytest.mark.parametrize(
    "other",
    [
        Receipts(b"x" * 64).issuer(5, ISSUE),
        Receipts(KEY).issuer(6, ISSUE),
        Receipts(KEY).issuer(5, ISSUE._replace(partition=3)),
        Receipts(KEY).issuer(5, ISSUE._replace(group=8)),
        Receipts(KEY).issuer(5, ISSUE._replace(incarnation=2)),
    ],
    ids=["another broker", "another topic of the name", "another partition", "another group", "after a seek"],
)
def test_who_did_not_give_a_receipt_refuses_its_proof(other: Issuer) -> None:
    (mine,), (others,) = ISSUER.make([(41, 1)]), other.make([(41, 1)])
    assert mine[-24:] != others[-24:]


@pytest.mark.parametrize("text", ["", "a:b:c", "orders:2:x:1:7.1.00", "é" * 30, "o" * 601, "::::"])
def test_what_is_no_receipt_is_refused_by_name(text: str) -> None:
    with pytest.raises(ReceiptNotFound) as refusal:
        read_receipt(text)
    assert repr(text[:600]) in refusal.value.sentence


@pytest.mark.parametrize("text", ["orders:2:1:1:", "2:1:1:7.1." + "0" * 24, "orders:2:1:1:7.z." + "0" * 24])
def test_what_names_no_window_has_no_issuer(text: str) -> None:
    assert read_issue(read_receipt(text).issue) is None
