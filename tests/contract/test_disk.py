"""What every `Disk` keeps, and the log relies on."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from goqueue.log.disk import Disk, NotCached, read_file, replace_file
from goqueue.log.os_disk import OsDisk
from goqueue.sim.disk import SimDisk


@pytest.fixture(params=["os", "sim"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "os":
        return OsDisk(str(tmp_path / "root"))
    return SimDisk(Random(1)).mount()


def write(disk: Disk, path: str, content: bytes) -> None:
    disk.open(path, create=True).append([content])


def names(disk: Disk, path: str) -> list[str]:
    return [entry.name for entry in disk.list(path)]


def test_a_missing_file_is_only_created_when_asked(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open("a")
    assert disk.open("a", create=True).size() == 0
    assert disk.open("a").size() == 0


def test_a_file_is_not_created_in_a_missing_directory(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open("nowhere/a", create=True)


def test_a_directory_cannot_be_opened(disk: Disk) -> None:
    disk.make_dir("d")
    with pytest.raises(IsADirectoryError):
        disk.open("d")


def test_creating_an_existing_file_keeps_its_content(disk: Disk) -> None:
    write(disk, "a", b"old")
    assert disk.open("a", create=True).read(0, 10) == b"old"


def test_appended_chunks_are_read_back_in_order(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.append([b"one", memoryview(b"two"), b""])
    file.append([])
    file.append([b"three"])
    assert file.read(0, 100) == b"onetwothree"
    assert file.size() == 11


def test_an_append_of_very_many_chunks_is_complete(disk: Disk) -> None:
    file = disk.open("a", create=True)
    chunks = [b"%05d" % number for number in range(3_000)]
    file.append(chunks)
    assert file.read(0, file.size()) == b"".join(chunks)


def test_a_read_is_short_at_the_end_and_empty_behind_it(disk: Disk) -> None:
    write(disk, "a", b"0123456789")
    file = disk.open("a")
    assert file.read(3, 4) == b"3456"
    assert file.read(8, 10) == b"89"
    assert file.read(10, 1) == b""
    assert file.read(50, 1) == b""


def test_a_cached_read_gives_the_same_bytes_or_says_it_would_wait(disk: Disk) -> None:
    write(disk, "a", b"0123456789")
    file = disk.open("a")
    for position in range(12):
        try:
            data = file.read(position, 4, cached_only=True)
        except NotCached:
            continue
        assert data == b"0123456789"[position : position + 4]


def test_appends_through_one_handle_are_seen_by_another(disk: Disk) -> None:
    writer = disk.open("a", create=True)
    reader = disk.open("a")
    writer.append([b"x"])
    assert reader.read(0, 10) == b"x"
    reader.append([b"y"])
    assert writer.read(0, 10) == b"xy"


def test_truncate_drops_the_end_and_the_next_append_follows(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.append([b"0123456789"])
    file.truncate(4)
    assert file.size() == 4
    file.append([b"new"])
    assert file.read(0, 100) == b"0123new"


def test_truncate_beyond_the_end_fills_with_zeros(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.append([b"x"])
    file.truncate(3)
    assert file.read(0, 100) == b"x\0\0"


def test_sync_changes_nothing_that_is_visible(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.append([b"x"])
    file.sync()
    disk.sync_dir("")
    assert file.read(0, 10) == b"x"
    assert names(disk, "") == ["a"]


def test_list_is_sorted_and_tells_files_from_directories(disk: Disk) -> None:
    disk.make_dir("top/b")
    write(disk, "top/c", b"123")
    write(disk, "top/a", b"")
    assert [(entry.name, entry.is_dir) for entry in disk.list("top")] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]
    assert [entry.size for entry in disk.list("top") if not entry.is_dir] == [0, 3]


def test_list_of_a_missing_directory_is_empty(disk: Disk) -> None:
    assert disk.list("nowhere") == []
    assert disk.list("nowhere/deeper") == []


def test_list_of_a_file_is_refused(disk: Disk) -> None:
    write(disk, "a", b"")
    with pytest.raises(NotADirectoryError):
        disk.list("a")


def test_make_dir_creates_parents_and_may_be_repeated(disk: Disk) -> None:
    disk.make_dir("x/y/z")
    disk.make_dir("x/y/z")
    assert names(disk, "x/y") == ["z"]


def test_make_dir_over_a_file_is_refused(disk: Disk) -> None:
    write(disk, "a", b"")
    with pytest.raises(FileExistsError):
        disk.make_dir("a")


def test_rename_replaces_the_target(disk: Disk) -> None:
    write(disk, "a", b"new")
    write(disk, "b", b"old")
    disk.rename("a", "b")
    assert names(disk, "") == ["b"]
    assert read_file(disk, "b") == b"new"


def test_rename_of_a_missing_file_is_refused(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.rename("a", "b")


def test_rename_to_itself_changes_nothing(disk: Disk) -> None:
    write(disk, "a", b"x")
    disk.rename("a", "a")
    assert read_file(disk, "a") == b"x"


def test_a_directory_moves_with_all_below_it(disk: Disk) -> None:
    disk.make_dir("old/deep")
    disk.make_dir("elsewhere")
    write(disk, "old/deep/a", b"x")
    disk.rename("old", "elsewhere/new")
    assert names(disk, "") == ["elsewhere"]
    assert read_file(disk, "elsewhere/new/deep/a") == b"x"


def test_rename_does_not_replace_a_directory_in_use(disk: Disk) -> None:
    disk.make_dir("source")
    disk.make_dir("full")
    write(disk, "full/a", b"")
    write(disk, "file", b"")
    with pytest.raises(OSError, match=r"(?i)not empty") as raised:
        disk.rename("source", "full")
    assert raised.value.errno in (errno.ENOTEMPTY, errno.EEXIST)
    with pytest.raises(IsADirectoryError):
        disk.rename("file", "full")
    with pytest.raises(NotADirectoryError):
        disk.rename("source", "file")


def test_a_directory_cannot_move_into_itself(disk: Disk) -> None:
    disk.make_dir("a/b")
    with pytest.raises(OSError, match="Invalid argument"):
        disk.rename("a", "a/b/c")
    assert names(disk, "a") == ["b"]


def test_remove_takes_a_file_and_accepts_a_missing_one(disk: Disk) -> None:
    write(disk, "a", b"x")
    disk.remove("a")
    disk.remove("a")
    disk.remove("nowhere/a")
    assert read_file(disk, "a") is None


def test_remove_does_not_take_directories(disk: Disk) -> None:
    disk.make_dir("d")
    with pytest.raises(OSError, match=r"(?i)directory|permitted"):
        disk.remove("d")


def test_remove_tree_takes_all_below_and_accepts_a_missing_one(disk: Disk) -> None:
    disk.make_dir("d/deep")
    write(disk, "d/deep/a", b"x")
    write(disk, "d/b", b"x")
    write(disk, "kept", b"x")
    disk.remove_tree("d")
    disk.remove_tree("d")
    assert names(disk, "") == ["kept"]


def test_remove_tree_does_not_take_files(disk: Disk) -> None:
    write(disk, "a", b"x")
    with pytest.raises(NotADirectoryError):
        disk.remove_tree("a")


def test_an_open_file_stays_readable_when_its_name_is_removed_or_replaced(disk: Disk) -> None:
    disk.make_dir("d")
    write(disk, "d/a", b"removed")
    write(disk, "b", b"replaced")
    write(disk, "c", b"new")
    removed, replaced = disk.open("d/a"), disk.open("b")
    disk.remove_tree("d")
    disk.rename("c", "b")
    assert removed.read(0, 100) == b"removed"
    assert replaced.read(0, 100) == b"replaced"
    assert disk.open("b").read(0, 100) == b"new"


def test_sync_dir_needs_a_directory(disk: Disk) -> None:
    write(disk, "a", b"")
    with pytest.raises(FileNotFoundError):
        disk.sync_dir("nowhere")
    with pytest.raises(NotADirectoryError):
        disk.sync_dir("a")


def test_usage_has_no_more_free_than_there_is(disk: Disk) -> None:
    usage = disk.usage()
    assert 0 < usage.free_bytes <= usage.total_bytes


def test_replace_file_leaves_only_the_new_content(disk: Disk) -> None:
    disk.make_dir("d")
    replace_file(disk, "d/a", b"one")
    replace_file(disk, "d/a", b"two")
    assert read_file(disk, "d/a") == b"two"
    assert names(disk, "d") == ["a"]
