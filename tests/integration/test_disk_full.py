"""A real broker on a real disk that fills up: a small tmpfs, mounted for the test and unmounted after it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker import Broker

from goqueue.client.rest import ApiError, NewMessage, RestClient
from goqueue.model.acks import Acks

SIZE_MIB = 24
VALUE = b"x" * 60_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "goqueue-test", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def is_refused(client: RestClient, topic: str) -> bool:
    """Whether the broker refuses a message because of its disk, which is the only reason it may have."""
    try:
        (result,) = client.publish(topic, [NewMessage(VALUE, partition=0)], acks=Acks.LEADER)
    except ApiError as error:
        if (error.code, error.status) == ("DISK_FULL", 507):
            return True
        raise
    if result.error is not None:  # the disk filled up before the broker looked at it again
        assert result.code == "DISK_FULL"
        return True
    return False


def fill(client: RestClient, topic: str) -> int:
    """Publish until the broker refuses; how many messages it stored."""
    stored = 0
    while not is_refused(client, topic):
        stored += 1
    return stored


def count(client: RestClient, topic: str) -> int:
    """How many messages can be read."""
    offset = found = 0
    while True:
        page = client.read(topic, 0, offset=offset, limit=1_000)
        assert all(message.value == VALUE for message in page.messages)
        found += len(page.messages)
        offset = page.next_offset
        if offset >= page.high_watermark:
            return found


def wait_until_admitted(client: RestClient, topic: str) -> None:
    """Send a message again until it is taken; the broker's clock decides when."""
    deadline = time.monotonic() + 60
    while is_refused(client, topic):
        assert time.monotonic() < deadline, "writes did not resume"


def test_a_full_disk_refuses_writes_before_it_is_full_and_everything_else_goes_on(small_disk: Path) -> None:
    settings = {"GOQUEUE_DISK__CHECK_INTERVAL_MS": "20"}
    with Broker(small_disk / "data", env=settings) as broker, RestClient(broker.url) as client:
        client.create_topic("kept", partition_count=1)
        client.create_topic("bulk", partition_count=1, config={"segment.bytes": "1048576"})
        assert client.publish("kept", [NewMessage(VALUE)])[0].offset == 0
        stored = fill(client, "bulk")
        assert 0 < free_bytes(small_disk) < 0.11 * SIZE_MIB * 1024 * 1024
        assert count(client, "bulk") == stored
        with pytest.raises(ApiError, match="full"):
            client.create_topic("another")
        broker.kill9()

    with Broker(small_disk / "data", env=settings) as broker, RestClient(broker.url) as client:
        assert count(client, "bulk") == stored
        assert is_refused(client, "kept")
        client.delete_topic("bulk")
        wait_until_admitted(client, "kept")
        assert count(client, "kept") == 2

        filler = small_disk / "filler"
        filler.write_bytes(bytes(int(free_bytes(small_disk) * 0.95)))
        fill(client, "kept")
        filler.unlink()
        wait_until_admitted(client, "kept")
        assert broker.stop() == 0


def test_a_disk_without_a_single_free_byte_loses_nothing(small_disk: Path) -> None:
    """With the protection out of the way, so that the writes themselves fail."""
    settings = {"GOQUEUE_DISK__REFUSE_PERCENT": "100", "GOQUEUE_DISK__CHECK_INTERVAL_MS": "60000"}
    with Broker(small_disk / "data", env=settings) as broker, RestClient(broker.url) as client:
        client.create_topic("bulk", partition_count=1, config={"segment.bytes": "1048576"})
        stored = 0
        while True:
            (result,) = client.publish("bulk", [NewMessage(VALUE, partition=0)])
            if result.error is not None:
                assert result.code == "DISK_FULL"
                break
            stored += 1
        assert count(client, "bulk") == stored
        broker.kill9()
    with Broker(small_disk / "data", env=settings) as broker, RestClient(broker.url) as client:
        assert count(client, "bulk") == stored
