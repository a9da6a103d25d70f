"""The moment of a backup: the broker's own logs first, and those that decide unchanged until the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import fs

from goqueue.pipeline.backup import cut as module
from goqueue.pipeline.backup.cut import take_cut
from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.files.storage import Listed, LocalStorage, open_storage
from goqueue.pipeline.span import Place

SEGMENT = "00000000000000000000.log"
TOPICS = ("__cluster_metadata", "__consumer_offsets", "__ledger.orders", "__transaction_state", "orders")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for topic in TOPICS:
        (tmp_path / "logs" / topic / "0").mkdir(parents=True)
        (tmp_path / "logs" / topic / "0" / SEGMENT).write_bytes(b"12345")
        (tmp_path / "logs" / topic / "0" / "checkpoint").write_bytes(topic.encode())
    (tmp_path / "logs" / "empty" / "0").mkdir(parents=True)
    return tmp_path


def grow(folder: Path, topic: str) -> None:
    with open(folder / "logs" / topic / "0" / SEGMENT, "ab") as file:
        file.write(b"6")


def watched(monkeypatch: pytest.MonkeyPatch, on_look: Callable[[str], None]) -> list[str]:
    """The topics that are looked at, in order; each time something may happen."""
    looked: list[str] = []
    stat = module._stat

    def look(name: str, path: str) -> Listed:
        found = stat(name, path)
        looked.append(Path(path).parts[-3])
        on_look(looked[-1])
        return found

    monkeypatch.setattr(module, "_stat", look)
    return looked


def sizes(folder: Path) -> dict[str, int]:
    cut = take_cut(LocalStorage(str(folder)), now_ms=lambda: 7, sleep=lambda _: None)
    assert cut.taken_ms == 7
    return {
        one.place.topic: next((entry.size for entry in one.listing if entry.name == SEGMENT), 0)
        for one in cut.partitions
    }


def test_logs_that_decide_are_looked_at_first_and_last_and_offsets_before_topics(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = watched(monkeypatch, lambda _: None)
    assert sizes(folder) == dict.fromkeys(TOPICS, 5) | {"empty": 0}
    deciding = ["__cluster_metadata", "__ledger.orders", "__transaction_state"]
    assert looked == [*deciding, "__consumer_offsets", "orders", *deciding]


def test_what_is_written_after_a_look_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched(
        monkeypatch, lambda topic: grow(folder, topic) if topic in ("orders", "__consumer_offsets") else None
    )
    assert sizes(folder) == dict.fromkeys(TOPICS, 5) | {"empty": 0}


@pytest.mark.parametrize("deciding", ["__cluster_metadata", "__ledger.orders", "__transaction_state"])
def test_a_decision_in_between_makes_it_look_again(
    deciding: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided = [deciding, "orders"]  # the decision, and then what came of it

    def decide(topic: str) -> None:
        if topic == "__consumer_offsets" and decided:
            grow(folder, decided.pop(0))
            grow(folder, decided.pop(0))

    watched(monkeypatch, decide)
    assert sizes(folder) == dict.fromkeys(TOPICS, 5) | {"empty": 0, deciding: 6, "orders": 6}


def test_another_segment_in_between_makes_it_list_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled: list[Path] = []

    def roll(topic: str) -> None:
        if topic == "orders" and not rolled:
            rolled.append(folder / "logs/orders/0/00000000000000000009.log")
            rolled[0].write_bytes(b"123")

    watched(monkeypatch, roll)
    cut = take_cut(LocalStorage(str(folder)), now_ms=lambda: 7, sleep=lambda _: None)
    orders = next(one for one in cut.partitions if one.place == Place("orders", 0))
    assert [(entry.name, entry.size) for entry in orders.listing if entry.name.endswith(".log")] == [
        (SEGMENT, 5),
        ("00000000000000000009.log", 3),
    ]


def test_a_topic_that_is_deleted_in_between_is_not_in_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete(topic: str) -> None:
        if topic == "__consumer_offsets":
            (folder / "logs/orders").rename(folder / "trash") if (folder / "logs/orders").exists() else None

    watched(monkeypatch, delete)
    assert "orders" not in sizes(folder)


def test_a_broker_that_never_pauses_is_refused_after_a_while(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched(monkeypatch, lambda topic: grow(folder, topic) if topic == "__transaction_state" else None)
    monkeypatch.setattr(module, "_LOOK_COUNT_MAX", 3)
    monkeypatch.setattr(module, "_LISTING_COUNT_MAX", 3)
    with pytest.raises(PipelineError, match="too busy for a backup of its folder"):
        sizes(folder)


def test_a_copy_in_an_object_store_is_taken_as_it_is_listed(folder: Path) -> None:
    storage = open_storage(str(folder), fs.LocalFileSystem())
    cut = take_cut(storage, now_ms=lambda: 1)
    assert {one.place.topic: one.checkpoint for one in cut.partitions if one.place.topic != "empty"} == {
        topic: topic.encode() for topic in TOPICS
    }


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="logs is not there"):
        take_cut(LocalStorage(str(tmp_path)), now_ms=lambda: 1)
