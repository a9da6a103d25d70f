"""Each checker of the queue workload says nothing about a sound history and something about a broken one."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from goqueue.core.dead_letter import ATTEMPTS, GROUP, OFFSET, PARTITION, REASON, TOPIC
from goqueue.sim.broker import EPOCH_MS
from goqueue.sim.loop import SimLoop
from goqueue.sim.queue.checkers import (
    CommittedNeverGoesBack,
    CountsGrowByOne,
    DeliveredIsStored,
    KeyOrder,
    NeverAfterAck,
    NeverEarly,
    NeverTooMany,
    NeverTwoHolders,
    QueueChecker,
    ReceiptsCountOnce,
    StoredOnce,
)
from goqueue.sim.queue.clock import JumpingClock
from goqueue.sim.queue.dead_letters import Conservation, DeadAtTheLimit
from goqueue.sim.queue.history import (
    Action,
    Asked,
    Committed,
    Delivery,
    Fate,
    FinalRecord,
    Left,
    LostPoll,
    Place,
    QueueHistory,
    Sent,
)

PLACE, NEXT, DEAD = Place("jobs", 0, 5), Place("jobs", 0, 6), Place("jobs.dlq", 0, 0)
VALUE = Sent("a", "jobs", "k", 2, None, True, Fate.DONE, PLACE)


def delivery(count: int = 1, at_s: float = 1.0, **changes: object) -> Delivery:
    """Of PLACE, with a lease of three seconds."""
    at_ms = EPOCH_MS + int(at_s * 1_000)
    made = Delivery(
        "g",
        "1.0",
        f"m{count}",
        PLACE,
        "a",
        "k",
        2,
        count,
        at_ms,
        at_ms + 3_000,
        at_s - 0.1,
        at_s + 0.1,
        "r",
        [],
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # by the names of its fields


def asked(action: Action, fate: Fate = Fate.DONE, at_s: float = 2.0) -> Asked:
    return Asked(action, at_s, at_s + 0.1, fate)


def history(*deliveries: Delivery) -> QueueHistory:
    made = QueueHistory(retries_max=3, groups={"g": ("jobs",)})
    made.deliveries += deliveries
    made.sent["a"] = replace(VALUE)
    made.final[PLACE] = FinalRecord("a", "k", {})
    return made


def problems(checker: QueueChecker, facts: QueueHistory) -> list[str]:
    loop = SimLoop(Random(0))
    try:
        checker.check(facts, JumpingClock(loop))
    finally:
        loop.close()
    return facts.violations


def test_record_has_one_holder_until_its_lease_is_over() -> None:
    assert not problems(NeverTwoHolders(), history(delivery(1), delivery(2, 5.0)))
    assert problems(NeverTwoHolders(), history(delivery(1), delivery(2, 3.0)))


@pytest.mark.parametrize("action", [Action.NACK, Action.ACK])
def test_record_that_was_given_up_may_have_another_holder(action: Action) -> None:
    first = delivery(1, asked=[asked(action, Fate.UNKNOWN, 1.5)])
    assert not problems(NeverTwoHolders(), history(first, delivery(2, 3.0)))


def test_extended_lease_is_a_lease() -> None:
    longer = asked(Action.EXTEND)
    longer.deadline_ms = EPOCH_MS + 9_000
    assert problems(NeverTwoHolders(), history(delivery(1, asked=[longer]), delivery(2, 5.0)))


def test_member_that_left_holds_nothing() -> None:
    facts = history(delivery(1), delivery(2, 3.0))
    facts.left.append(Left("g", "m1", 2.0))
    assert not problems(NeverTwoHolders(), facts)


@pytest.mark.parametrize("action", [Action.ACK, Action.REJECT])
def test_finished_record_does_not_come_again(action: Action) -> None:
    assert not problems(NeverAfterAck(), history(delivery(1), delivery(2, 9.0, asked=[asked(action)])))
    assert problems(NeverAfterAck(), history(delivery(1, asked=[asked(action)]), delivery(2, 9.0)))
    unknown = delivery(1, asked=[asked(action, Fate.UNKNOWN)])
    assert not problems(NeverAfterAck(), history(unknown, delivery(2, 9.0)))


def test_receipt_counts_once_and_only_while_it_is_the_last() -> None:
    twice = delivery(asked=[asked(Action.NACK), asked(Action.ACK)])
    assert problems(ReceiptsCountOnce(), history(twice))
    late = delivery(1, asked=[asked(Action.ACK, at_s=6.0)])
    assert problems(ReceiptsCountOnce(), history(late, delivery(2, 5.0)))
    refused = delivery(1, asked=[asked(Action.ACK, Fate.REFUSED, 6.0)])
    assert not problems(ReceiptsCountOnce(), history(refused, delivery(2, 5.0)))


def test_delayed_message_waits_for_its_time() -> None:
    facts = history(delivery(1, 5.0))
    facts.sent["a"].due_ms = EPOCH_MS + 4_000
    assert not problems(NeverEarly(), facts)
    facts.sent["a"].due_ms = EPOCH_MS + 6_000
    assert problems(NeverEarly(), facts)


def test_counts_grow_by_one_unless_an_answer_was_lost() -> None:
    assert not problems(CountsGrowByOne(), history(delivery(1), delivery(2, 5.0)))
    assert problems(CountsGrowByOne(), history(delivery(1), delivery(1, 5.0)))
    facts = history(delivery(1), delivery(3, 9.0))
    facts.lost_polls.append(LostPoll("g", 4.0))
    assert not problems(CountsGrowByOne(), facts)
    assert problems(CountsGrowByOne(), history(delivery(1), delivery(3, 9.0)))
    assert problems(CountsGrowByOne(), history(delivery(1, 9.0), delivery(2, 1.0)))


def test_what_is_given_is_in_the_log() -> None:
    assert not problems(DeliveredIsStored(), history(delivery()))
    assert problems(DeliveredIsStored(), history(delivery(place=NEXT)))
    assert problems(DeliveredIsStored(), history(delivery(value="b")))
    assert problems(DeliveredIsStored(), history(delivery(lane=0)))


def test_member_holds_no_more_than_it_may() -> None:
    first, second = delivery(member="m"), delivery(1, 2.0, place=NEXT, member="m")
    assert not problems(NeverTooMany(2), history(first, second))
    assert "held 2 records" in problems(NeverTooMany(1), history(first, second))[0]
    late = delivery(1, 5.0, place=NEXT, member="m")
    assert not problems(NeverTooMany(1), history(first, late))
    given_up = delivery(member="m", asked=[asked(Action.NACK, Fate.UNKNOWN, 1.5)])
    assert not problems(NeverTooMany(1), history(given_up, second))


def test_damage_to_a_ledger_is_an_excuse_for_its_own_records_only() -> None:
    facts = history(delivery(1, asked=[asked(Action.ACK)]), delivery(2, 9.0))
    facts.damage.doubted.add(("g", NEXT))
    assert problems(NeverAfterAck(), facts)
    facts.violations.clear()
    facts.damage.doubted.add(("g", PLACE))
    assert not problems(NeverAfterAck(), facts)
    facts.deliveries.clear()
    assert "never finished" in problems(Conservation(), facts)[0]


def test_record_that_was_deleted_need_not_be_finished() -> None:
    facts = history()
    facts.deleted["jobs", 0] = PLACE.offset + 1
    assert not problems(Conservation(), facts)


def test_what_retention_or_damage_takes_is_not_missed() -> None:
    facts = history(delivery())
    facts.final.clear()
    facts.fading.add("jobs")
    assert not problems(DeliveredIsStored(), facts)
    assert not problems(StoredOnce(), facts)
    facts.fading.clear()
    facts.damage.values.add("a")
    assert not problems(DeliveredIsStored(), facts)
    assert not problems(StoredOnce(), facts)


def test_message_is_stored_once_and_a_cancelled_one_never() -> None:
    assert not problems(StoredOnce(), history())
    facts = history()
    facts.final[NEXT] = facts.final[PLACE]
    assert problems(StoredOnce(), facts)
    facts = history()
    facts.sent["a"].cancel = Fate.DONE
    assert problems(StoredOnce(), facts)
    facts = history()
    facts.final.clear()
    assert problems(StoredOnce(), facts)
    facts.violations.clear()
    facts.sent["a"].is_durable = False
    assert not problems(StoredOnce(), facts)


def test_committed_offset_goes_forward() -> None:
    facts = history(delivery(2, 5.0))
    facts.committed += [
        Committed("g", "1.0", "jobs", 0, 5, 1.0, 1.1),
        Committed("g", "1.0", "jobs", 0, 5, 2.0, 2.1),
    ]
    assert not problems(CommittedNeverGoesBack(), facts)
    facts.committed.append(Committed("g", "1.0", "jobs", 0, 4, 3.0, 3.1))
    assert "went from 5 to 4" in problems(CommittedNeverGoesBack(), facts)[0]


def test_nothing_before_the_committed_offset_is_given() -> None:
    facts = history(delivery(2, 5.0))
    facts.committed.append(Committed("g", "1.0", "jobs", 0, 6, 1.0, 1.1))
    assert problems(CommittedNeverGoesBack(), facts)


def test_next_of_a_key_waits_until_the_one_before_is_finished() -> None:
    checker = KeyOrder("jobs")
    done = delivery(1, asked=[asked(Action.ACK)])
    assert not problems(checker, history(done, delivery(1, 3.0, place=NEXT)))
    assert not problems(checker, history(delivery(1), delivery(1, 3.0, place=NEXT, key="other")))
    assert problems(checker, history(delivery(1), delivery(1, 3.0, place=NEXT)))
    overtaken = delivery(2, 9.0)
    assert problems(checker, history(done, delivery(1, 3.0, place=NEXT), overtaken))


def letter(attempts: int, reason: str = "retries exhausted") -> FinalRecord:
    headers = {
        TOPIC: "jobs",
        PARTITION: "0",
        OFFSET: "5",
        GROUP: "g",
        ATTEMPTS: str(attempts),
        REASON: reason,
    }
    return FinalRecord("a", "k", headers)


def test_dead_letter_comes_at_the_limit() -> None:
    facts = history(delivery(4, 9.0))
    facts.final[DEAD] = letter(4)
    assert not problems(DeadAtTheLimit(), facts)
    facts.final[DEAD] = letter(3)
    assert problems(DeadAtTheLimit(), facts)


def test_dead_letter_comes_once() -> None:
    facts = history(delivery(4, 9.0))
    facts.final[DEAD] = facts.final[DEAD._replace(offset=1)] = letter(4)
    assert "2 times" in problems(DeadAtTheLimit(), facts)[0]


def test_rejected_record_is_a_dead_letter_and_only_then() -> None:
    facts = history(delivery(1, asked=[asked(Action.REJECT)]))
    assert "not among the dead letters" in problems(DeadAtTheLimit(), facts)[0]
    facts.violations.clear()
    facts.final[DEAD] = letter(1, "rejected")
    assert not problems(DeadAtTheLimit(), facts)
    facts.deliveries = [delivery(1)]
    assert problems(DeadAtTheLimit(), facts)


def test_nobody_is_given_more_than_the_retries_allow() -> None:
    assert problems(DeadAtTheLimit(), history(delivery(5, 9.0)))


def test_acknowledged_record_is_no_dead_letter() -> None:
    facts = history(delivery(4, 9.0, asked=[asked(Action.ACK)]))
    facts.final[DEAD] = letter(4)
    assert problems(DeadAtTheLimit(), facts)


def test_every_record_is_finished_in_every_group() -> None:
    assert problems(Conservation(), history())
    assert problems(Conservation(), history(delivery(1, asked=[asked(Action.ACK, Fate.REFUSED)])))
    assert not problems(Conservation(), history(delivery(1, asked=[asked(Action.ACK)])))
    facts = history()
    facts.final[DEAD] = letter(4)
    assert not problems(Conservation(), facts)
