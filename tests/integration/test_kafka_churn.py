"""A group under continuous produce whose members come, leave, are killed and stall: nothing is lost, nothing is skipped.

`make soak CYCLES=50` runs as many changes as one likes; a few run with every test run. With a cooperative protocol
only partitions that move pause: the table says for how long each kind was still.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.broker import Broker, Lines

CYCLES = int(os.environ.get("GOQUEUE_SOAK_CYCLES", "2"))
MEMBER = Path(__file__).parents[1] / "support" / "group_member.py"
TOPIC = "churn"
PARTITION_COUNT = 6
STEADY_COUNT = 3
MEMBER_COUNT_MAX = 5
PROGRESS_TIMEOUT_S = 60.0
UNNOTICED_S = 7.0  # a session, and the heartbeat in whose answer the others hear of it
PROTOCOLS: dict[str, dict[str, object]] = {
    "eager": {
        "partition.assignment.strategy": "range",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
    },
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
    },
    "kip848": {"group.protocol": "consumer"},
}
# Of KIP-848 groups the broker says how long a session is.
BROKER_SETTINGS = {
    "GOQUEUE_GROUPS__CONSUMER_SESSION_MS": "6000",
    "GOQUEUE_GROUPS__CONSUMER_HEARTBEAT_MS": "500",
}


class Member:
    def __init__(self, name: str, kafka: str, protocol: dict[str, object]) -> None:
        self.name = name
        self.end = "alive"
        config = {
            "bootstrap.servers": kafka,
            "group.id": "churners",
            "client.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **protocol,
        }
        self._process = subprocess.Popen(
            [sys.executable, str(MEMBER), json.dumps(config), TOPIC],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self._lines = Lines(self._process.stdout, name)

    def events(self) -> list[dict[str, Any]]:
        whole = [line for line in self._lines.text().splitlines(keepends=True) if line.endswith("\n")]
        return [json.loads(line) for line in whole]

    def leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self.end = "left"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)
        self.end = "killed"

    def stall(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        self.end = "stalled"

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self.end = "alive"

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()  # and has come to no end before
            self._process.wait(30)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._lines.join()


@dataclass(slots=True)
class Feed:
    """Writes numbered values for as long as it may, and knows where each went."""

    kafka: str
    stored: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    failures: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self.kafka, "enable.idempotence": True, "linger.ms": 2})
        serial = 0
        while not self.ended.wait(0.01):
            for _ in range(5):
                value = f"v{serial}"
                producer.produce(TOPIC, value, partition=serial % PARTITION_COUNT, on_delivery=self._stored)
                serial += 1
            producer.poll(0)
        assert producer.flush(60) == 0

    def _stored(self, error: Any, record: Any) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        values = self.stored[record.partition()]
        assert record.offset() == len(values)
        values.append(record.value().decode())


class Churn:
    def __init__(self, kafka: str, protocol: dict[str, object], rng: random.Random) -> None:
        self._kafka = kafka
        self._protocol = protocol
        self._rng = rng
        self.members: list[Member] = []

    def alive(self) -> list[Member]:
        return [member for member in self.members if member.end == "alive"]

    def join(self) -> str:
        self.members.append(Member(f"m{len(self.members)}", self._kafka, self._protocol))
        return "joins"

    def step(self) -> tuple[str, str]:
        """One change of the group, chosen by chance: what it is, and to whom."""
        alive = self.alive()
        choices = ["join"] if len(alive) < STEADY_COUNT else ["leave", "kill", "stall"]
        if len(alive) == STEADY_COUNT:
            choices = ["join", "leave", "kill", "stall"]
        if len(alive) >= MEMBER_COUNT_MAX:
            choices = ["leave", "kill"]
        match self._rng.choice(choices):
            case "join":
                return self.join(), self.members[-1].name
            case "leave":
                victim = self._rng.choice(alive)
                victim.leave()
                return "leaves", victim.name
            case "kill":
                victim = self._rng.choice(alive)
                victim.kill()
                return "is killed", victim.name
            case _:
                victim = self._rng.choice(alive)
                victim.stall()
                self._until_processed(30)
                victim.go_on()
                return "stalls beyond its session", victim.name

    def _until_processed(self, count: int) -> None:
        """Until the others have gone on by so many records in every partition: they have taken over by then."""
        others = self.alive()
        before = _counts(others)
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while time.monotonic() < deadline:
            now = _counts(others)
            if all(now[one] - before[one] >= count for one in range(PARTITION_COUNT)):
                return
            time.sleep(0.05)
        raise AssertionError(f"no progress without the stalled member: {before} to {_counts(others)}")

    def until_progress(self, count: int = 20) -> None:
        """Every partition is served again."""
        before = _counts(self.members)
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while time.monotonic() < deadline:
            now = _counts(self.members)
            if all(now[one] - before[one] >= count for one in range(PARTITION_COUNT)):
                return
            time.sleep(0.05)
        ends = [(member.name, member.end, member.events()[-1:]) for member in self.members]
        raise AssertionError(f"partitions stand still: {before} to {_counts(self.members)}; {ends}")

    def until_read(self, ends: dict[int, int]) -> None:
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while time.monotonic() < deadline:
            reached = _reached(self.members)
            if all(reached.get(partition, 0) >= end for partition, end in ends.items()):
                return
            time.sleep(0.1)
        raise AssertionError(f"the end was not reached: {_reached(self.members)} of {ends}")


def create_topic(kafka: str) -> None:
    """With a client that is gone before the broker is: librdkafka 2.16 can spin for ever when it goes after it."""
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(TOPIC, PARTITION_COUNT, 1)])[TOPIC].result(30)


def _processed(member: Member) -> list[dict[str, Any]]:
    return [event for event in member.events() if event["event"] == "processed"]


def _counts(members: list[Member]) -> dict[int, int]:
    counts: dict[int, int] = defaultdict(int)
    for member in members:
        for event in _processed(member):
            counts[event["partition"]] += 1
    return counts


def _reached(members: list[Member]) -> dict[int, int]:
    reached: dict[int, int] = {}
    for member in members:
        for event in _processed(member):
            reached[event["partition"]] = max(reached.get(event["partition"], 0), event["offset"] + 1)
    return reached


def check_nothing_lost(members: list[Member], stored: dict[int, list[str]]) -> None:
    seen: dict[int, dict[int, str]] = defaultdict(dict)
    for member in members:
        for event in _processed(member):
            seen[event["partition"]][event["offset"]] = event["value"]
    for partition, values in stored.items():
        missing = [offset for offset in range(len(values)) if offset not in seen[partition]]
        assert not missing, (
            f"partition {partition}: offsets {missing[:10]} of {len(values)} were never processed"
        )
        wrong = [offset for offset, value in enumerate(values) if seen[partition][offset] != value]
        assert not wrong, f"partition {partition}: other values at {wrong[:10]}"


def check_nothing_skipped(members: list[Member]) -> None:
    """While a member owns a partition it reads on without a gap."""
    for member in members:
        expected: dict[int, int] = {}
        for event in member.events():
            if event["event"] in ("assigned", "revoked", "lost"):
                for partition in event["partitions"]:
                    expected.pop(partition, None)
            elif event["event"] == "processed":
                partition, offset = event["partition"], event["offset"]
                assert expected.get(partition, offset) == offset, f"{member.name} jumps to {event}"
                expected[partition] = offset + 1


def check_one_owner(members: list[Member]) -> None:
    """Of two members that did not stall, the second is given a partition after the first has given it up."""
    spans: dict[int, list[tuple[float, float, str]]] = defaultdict(list)
    for member in members:
        events = member.events()
        since: dict[int, float] = {}
        for event in events:
            if event["event"] == "assigned":
                since |= dict.fromkeys(event["partitions"], event["at"])
            elif event["event"] in ("revoked", "lost"):
                for partition in event["partitions"]:
                    if partition in since:
                        spans[partition].append((since.pop(partition), event["at"], member.name))
        last = events[-1]["at"] if events else 0.0
        for partition, start in since.items():
            spans[partition].append((start, last, member.name))
    for partition, owned in spans.items():
        owned.sort()
        for (_, end, first), (start, _, second) in pairwise(owned):
            assert first == second or end <= start, (
                f"partition {partition}: {second} had it before {first} let go"
            )


def pauses(members: list[Member], changes: list[tuple[float, str, str]]) -> list[tuple[str, float, float]]:
    """For each change: the longest silence of partitions that stayed with their owner, and of those that moved or were
    the changed member's."""
    rows = []
    marks = [at for at, _, _ in changes] + [float("inf")]
    by_partition: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for member in members:
        for event in _processed(member):
            by_partition[event["partition"]].append((event["at"], member.name))
    for number, (at, what, whose) in enumerate(changes):
        stayed = moved = 0.0
        for events in by_partition.values():
            events.sort()
            before = [one for one in events if one[0] < at][-1:]
            around = before + [one for one in events if at <= one[0] < marks[number + 1]]
            gap = max((b[0] - a[0] for a, b in pairwise(around)), default=0.0)
            owners = {name for _, name in around}
            if len(owners) > 1 or whose in owners:
                moved = max(moved, gap)
            else:
                stayed = max(stayed, gap)
        rows.append((what, stayed, moved))
    return rows


def check_only_moved_partitions_were_revoked(members: list[Member], ends: list[float]) -> None:
    """What a cooperative member gives up goes to somebody else: the next to process it is another, unless somebody came to an
    end meanwhile, or had come to one that the group did not know yet: what was meant for them comes back."""
    order: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for member in members:
        for event in _processed(member):
            order[event["partition"]].append((event["at"], member.name))
    for owned in order.values():
        owned.sort()
    for member in members:
        if member.end != "alive":
            continue  # one that leaves gives up everything
        for event in member.events():
            if event["event"] != "revoked":
                continue
            for partition in event["partitions"]:
                later = [(at, name) for at, name in order[partition] if at > event["at"]]
                if later and not any(event["at"] - UNNOTICED_S < end < later[0][0] for end in ends):
                    assert later[0][1] != member.name, f"{member.name} gave up {partition} for nothing"


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_group_that_changes_all_the_time_loses_and_skips_nothing(tmp_path: Path, name: str) -> None:
    rng = random.Random(f"{name}-{CYCLES}")
    with Broker(tmp_path, env=BROKER_SETTINGS) as broker:
        create_topic(broker.kafka)
        feed = Feed(broker.kafka)
        feeding = threading.Thread(target=feed.run)
        feeding.start()
        churn = Churn(broker.kafka, PROTOCOLS[name], rng)
        changes: list[tuple[float, str, str]] = []
        try:
            for _ in range(STEADY_COUNT):
                churn.join()
            churn.until_progress()
            for _ in range(CYCLES):
                at = time.monotonic()
                changes.append((at, *churn.step()))
                churn.until_progress()
            feed.ended.set()
            feeding.join()
            churn.until_read({partition: len(values) for partition, values in feed.stored.items()})
        finally:
            feed.ended.set()
            feeding.join()
            for member in churn.members:
                member.stop()
        assert not feed.failures
        check_nothing_lost(churn.members, feed.stored)
        check_nothing_skipped(churn.members)
        is_lost = any(event["event"] == "lost" for one in churn.members for event in one.events())
        if not is_lost and not any("stalls" in what for _, what, _ in changes):
            check_one_owner(churn.members)
        if name != "eager":
            check_only_moved_partitions_were_revoked(
                churn.members, [at for at, what, _ in changes if what != "joins"]
            )
        total = sum(map(len, feed.stored.values()))
        print(
            f"\n{name}: {total} records, {len(churn.members)} members, {CYCLES} changes, none lost, none skipped"
        )
        print("  change                        longest silence: stayed   moved")
        for what, stayed, moved in pauses(churn.members, changes):
            print(f"  a member {what:<28} {stayed:7.2f} s {moved:7.2f} s")
