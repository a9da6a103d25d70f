"""A real broker under load, killed with kill -9 again and again: nothing that was acknowledged may be missing.

`make kill CYCLES=100` runs as many cycles as one likes; a few run with every test run.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.broker import Broker, command_line

from goqueue.client.rest import ApiError, NewMessage, RestClient, Unreachable
from goqueue.model.acks import Acks

CYCLES = int(os.environ.get("GOQUEUE_KILL_CYCLES", "5"))
PRODUCER_COUNT = 4
PARTITION_COUNT = 3
ACKED_PER_CYCLE = 400


@dataclass(slots=True)
class Ledger:
    """What the broker said is stored. Shared by the producers' threads."""

    acked: dict[tuple[int, int], bytes] = field(default_factory=dict)
    sent: set[bytes] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    enough: threading.Event = field(default_factory=threading.Event)
    target: int = 0


def _produce(url: str, name: str, ledger: Ledger, rng: random.Random) -> None:
    """Publish until the broker is gone."""
    serial = 0
    with RestClient(url, timeout_s=20) as client:
        while True:
            messages = []
            for _ in range(rng.randint(1, 40)):
                serial += 1
                messages.append(NewMessage(f"{name}-{serial}-".encode() + rng.randbytes(rng.randrange(300))))
            with ledger.lock:
                ledger.sent.update(message.value or b"" for message in messages)
            try:
                results = client.publish("load", messages, acks=rng.choice(list(Acks)))
            except (Unreachable, ApiError):
                return
            with ledger.lock:
                for message, result in zip(messages, results, strict=True):
                    assert result.error is None, result
                    assert result.partition is not None
                    assert result.offset is not None
                    assert (
                        ledger.acked.setdefault((result.partition, result.offset), message.value or b"")
                        == message.value
                    )
                if len(ledger.acked) >= ledger.target:
                    ledger.enough.set()


def _verify(url: str, ledger: Ledger) -> None:
    """Every acknowledged message is at its place, every offset is there, and nothing is served that nobody sent."""
    with RestClient(url) as client:
        for partition in range(PARTITION_COUNT):
            found: dict[int, bytes] = {}
            offset = 0
            while True:
                page = client.read("load", partition, offset=offset, limit=1000)
                for message in page.messages:
                    found[message.offset] = message.value or b""
                offset = page.next_offset
                if offset >= page.high_watermark:
                    break
            assert sorted(found) == list(range(offset))
            assert set(found.values()) <= ledger.sent
            missing = {
                place: value
                for place, value in ledger.acked.items()
                if place[0] == partition and found.get(place[1]) != value
            }
            assert missing == {}


def test_no_acknowledged_message_is_lost_however_often_the_broker_is_killed(tmp_path: Path) -> None:
    rng = random.Random(20261115)
    ledger = Ledger()
    for cycle in range(CYCLES):
        with Broker(tmp_path / "data") as broker:
            if cycle == 0:
                with RestClient(broker.url) as client:
                    client.create_topic(
                        "load", partition_count=PARTITION_COUNT, config={"segment.bytes": "200000"}
                    )
            _verify(broker.url, ledger)
            ledger.enough.clear()
            ledger.target = len(ledger.acked) + rng.randrange(1, ACKED_PER_CYCLE)
            threads = [
                threading.Thread(
                    target=_produce,
                    args=(broker.url, f"c{cycle}p{number}", ledger, random.Random(rng.random())),
                )
                for number in range(PRODUCER_COUNT)
            ]
            for thread in threads:
                thread.start()
            assert ledger.enough.wait(60)
            broker.kill9()
            for thread in threads:
                thread.join()
    with Broker(tmp_path / "data") as broker:
        _verify(broker.url, ledger)
        assert broker.stop() == 0
    checked = subprocess.run(command_line("check", str(tmp_path / "data")), capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    print(f"{CYCLES} kills, {len(ledger.acked)} messages acknowledged, none lost\n{checked.stdout}")
