"""What the simulated disk loses, and what it may never lose."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from goqueue.log.disk import NotCached, read_file, replace_file
from goqueue.sim.disk import Counters, Mount, Operation, PowerLost, SimDisk, SimFile

SEEDS = range(200)


def durable_file(disk: Mount, path: str, content: bytes) -> SimFile:
    file = disk.open(path, create=True)
    file.append([content])
    file.sync()
    disk.sync_dir(path.rpartition("/")[0])
    return file


def outcomes(scenario: Callable[[SimDisk, Mount], object]) -> list[dict[str, bytes]]:
    """What each of many power cuts after the scenario leaves."""
    found = []
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        scenario(disk, disk.mount())
        disk.crash()
        found.append(disk.snapshot())
    return found


def test_what_was_synced_survives_every_power_cut() -> None:
    def scenario(_: SimDisk, mount: Mount) -> None:
        mount.make_dir("d/deep")
        mount.sync_dir("")
        mount.sync_dir("d")
        durable_file(mount, "d/deep/a", b"kept").append([b" and more"])

    for left in outcomes(scenario):
        assert left["d/deep/a"].startswith(b"kept")


def test_an_unsynced_append_survives_whole_torn_or_not_at_all() -> None:
    tail = bytes(range(1, 256)) * 20

    def scenario(_: SimDisk, mount: Mount) -> None:
        durable_file(mount, "a", b"base").append([tail])

    survived = [left["a"] for left in outcomes(scenario)]
    assert all((b"base" + tail).startswith(content) for content in survived)
    torn = [content for content in survived if 4 < len(content) < 4 + len(tail)]
    aligned = [content for content in torn if len(content) % 512 == 0]
    assert b"base" in survived
    assert b"base" + tail in survived
    assert len(torn) > len(aligned) > len(torn) / 2


def test_a_lost_append_before_a_surviving_one_reads_as_zeros() -> None:
    def scenario(_: SimDisk, mount: Mount) -> None:
        file = durable_file(mount, "a", b"base")
        file.append([b"x" * 10])
        file.append([b"y" * 10])

    survived = {left["a"] for left in outcomes(scenario)}
    assert b"base" + bytes(10) + b"y" * 10 in survived
    assert b"base" + b"x" * 10 in survived


def test_an_unsynced_truncate_may_not_have_happened() -> None:
    def scenario(_: SimDisk, mount: Mount) -> None:
        durable_file(mount, "a", b"0123456789").truncate(4)

    assert {left["a"] for left in outcomes(scenario)} == {b"0123456789", b"0123"}


def test_a_file_whose_name_was_not_synced_may_vanish_although_its_content_was() -> None:
    def scenario(_: SimDisk, mount: Mount) -> None:
        file = mount.open("a", create=True)
        file.append([b"x"])
        file.sync()

    found = outcomes(scenario)
    assert {} in found
    assert {"a": b"x"} in found


def test_all_below_a_directory_that_did_not_survive_is_gone() -> None:
    def scenario(_: SimDisk, mount: Mount) -> None:
        mount.make_dir("d")
        durable_file(mount, "d/a", b"x")

    found = outcomes(scenario)
    assert {} in found
    assert {"d/a": b"x"} in found


def test_names_of_one_directory_survive_in_order() -> None:
    def scenario(_: SimDisk, mount: Mount) -> None:
        for name in "abcd":
            mount.open(name, create=True)
        mount.remove("a")

    found = ["".join(left) for left in outcomes(scenario)]
    assert sorted(set(found)) == ["", "a", "ab", "abc", "abcd", "bcd"]


def test_a_rename_without_sync_dir_may_be_undone_but_never_halved() -> None:
    def scenario(_: SimDisk, mount: Mount) -> None:
        durable_file(mount, "old", b"old")
        durable_file(mount, "new", b"new")
        mount.rename("new", "old")

    found = outcomes(scenario)
    assert {"old": b"new"} in found
    assert {"old": b"old", "new": b"new"} in found
    assert all(left in ({"old": b"new"}, {"old": b"old", "new": b"new"}) for left in found)


def test_a_rename_between_directories_is_kept_in_both_or_in_neither() -> None:
    def scenario(_: SimDisk, mount: Mount) -> None:
        mount.make_dir("x")
        mount.make_dir("y")
        mount.sync_dir("")
        durable_file(mount, "x/a", b"a")
        mount.open("x/before", create=True)
        mount.rename("x/a", "y/a")
        mount.open("y/after", create=True)

    for left in outcomes(scenario):
        assert ("x/a" in left) != ("y/a" in left)
        assert "y/a" in left or "y/after" not in left


def test_sync_dir_of_either_side_makes_a_rename_between_directories_durable() -> None:
    for side in ("x", "y"):

        def scenario(_: SimDisk, mount: Mount, side: str = side) -> None:
            mount.make_dir("x")
            mount.make_dir("y")
            mount.sync_dir("")
            durable_file(mount, "x/a", b"a")
            mount.rename("x/a", "y/a")
            mount.sync_dir(side)

        assert all(left == {"y/a": b"a"} for left in outcomes(scenario))


def test_a_removal_without_sync_dir_may_be_undone() -> None:
    def scenario(_: SimDisk, mount: Mount) -> None:
        durable_file(mount, "a", b"x")
        mount.remove("a")

    found = outcomes(scenario)
    assert {} in found
    assert {"a": b"x"} in found


def test_a_tree_may_be_removed_in_part() -> None:
    def scenario(_: SimDisk, mount: Mount) -> None:
        mount.make_dir("d")
        mount.sync_dir("")
        durable_file(mount, "d/a", b"a")
        durable_file(mount, "d/b", b"b")
        mount.remove_tree("d")

    assert {tuple(left) for left in outcomes(scenario)} == {(), ("d/b",), ("d/a", "d/b")}


def test_kill_keeps_everything_that_was_written() -> None:
    disk = SimDisk(Random(1))
    disk.mount().open("a", create=True).append([b"unsynced"])
    disk.kill()
    assert read_file(disk.mount(), "a") == b"unsynced"
    assert disk.snapshot() == {}


@pytest.mark.parametrize("end", ["crash", "kill", "mount"])
def test_nothing_works_through_a_dead_mount(end: str) -> None:
    disk = SimDisk(Random(1))
    mount = disk.mount()
    file = durable_file(mount, "a", b"x")
    getattr(disk, end)()
    operations: list[Callable[[], object]] = [
        lambda: file.append([b"y"]),
        lambda: file.read(0, 1),
        lambda: file.read(0, 1, cached_only=True),
        lambda: file.truncate(0),
        file.size,
        file.sync,
        lambda: mount.open("a"),
        lambda: mount.open("b", create=True),
        lambda: mount.list(""),
        lambda: mount.make_dir("d"),
        lambda: mount.rename("a", "b"),
        lambda: mount.remove("a"),
        lambda: mount.remove_tree("a"),
        lambda: mount.sync_dir("nowhere"),
        mount.usage,
    ]
    for operation in operations:
        with pytest.raises(PowerLost):
            operation()
    assert disk.snapshot() == {"a": b"x"}


def test_after_a_failed_sync_the_next_succeeds_and_the_data_may_still_be_lost() -> None:
    def scenario(disk: SimDisk, mount: Mount) -> None:
        file = durable_file(mount, "a", b"base")
        file.append([b"x" * 1_000])
        disk.fail_next("sync")
        with pytest.raises(OSError, match="Input/output error") as raised:
            file.sync()
        assert raised.value.errno == errno.EIO
        file.append([b"later"])
        file.sync()
        assert file.read(0, 2_000) == b"base" + b"x" * 1_000 + b"later"

    survived = {left["a"] for left in outcomes(scenario)}
    assert b"base" + bytes(1_000) + b"later" in survived
    assert b"base" + b"x" * 1_000 + b"later" in survived


def test_a_failure_strikes_once_after_the_given_number_of_operations() -> None:
    disk = SimDisk(Random(1), not_cached_rate=0.0)
    file = durable_file(disk.mount(), "a", b"x")
    disk.fail_next("read", error=errno.EACCES, after=2)
    assert [file.read(0, 1), file.read(0, 1)] == [b"x", b"x"]
    with pytest.raises(PermissionError):
        file.read(0, 1)
    assert file.read(0, 1) == b"x"


def test_a_failed_append_leaves_a_prefix() -> None:
    lengths = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        file = disk.mount().open("a", create=True)
        disk.fail_next("append")
        with pytest.raises(OSError, match="Input/output error"):
            file.append([b"0123456789"])
        assert b"0123456789".startswith(file.read(0, 100))
        lengths.add(file.size())
    assert lengths == set(range(11))


@pytest.mark.parametrize("operation", ["open", "make_dir", "rename", "remove", "remove_tree", "sync_dir"])
def test_a_failed_change_of_names_has_no_effect(operation: Operation) -> None:
    disk = SimDisk(Random(1))
    mount = disk.mount()
    mount.make_dir("d")
    durable_file(mount, "a", b"x")
    before = mount.list("")
    attempts: dict[Operation, Callable[[], object]] = {
        "open": lambda: mount.open("new", create=True),
        "make_dir": lambda: mount.make_dir("new"),
        "rename": lambda: mount.rename("a", "b"),
        "remove": lambda: mount.remove("a"),
        "remove_tree": lambda: mount.remove_tree("d"),
        "sync_dir": lambda: mount.sync_dir("d"),
    }
    disk.fail_next(operation)
    with pytest.raises(OSError, match="Input/output error"):
        attempts[operation]()
    assert mount.list("") == before
    attempts[operation]()


def test_a_full_disk_takes_a_prefix_and_accepts_appends_again_once_freed() -> None:
    disk = SimDisk(Random(1), capacity_bytes=100)
    mount = disk.mount()
    file = durable_file(mount, "a", b"x" * 60)
    assert mount.usage() == (100, 40)
    with pytest.raises(OSError, match="No space left") as raised:
        file.append([b"y" * 41])
    assert raised.value.errno == errno.ENOSPC
    assert 60 <= file.size() <= 100
    file.truncate(60)
    disk.free(1)
    file.append([b"y" * 41])
    assert mount.usage() == (101, 0)
    mount.remove("a")
    assert mount.usage() == (101, 101)


def test_power_is_cut_in_the_middle_of_the_chosen_operation() -> None:
    survived = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        cuts: list[str] = []
        disk.on_power_cut = partial(cuts.append, "cut")
        file = durable_file(disk.mount(), "a", b"")
        disk.crash_after(3)
        file.append([b"one"])
        file.sync()
        with pytest.raises(PowerLost):
            file.append([b"two"])
        with pytest.raises(PowerLost):
            file.read(0, 1)
        assert cuts == ["cut"]
        content = read_file(disk.mount(), "a")
        assert content is not None
        assert content.startswith(b"one")
        survived.add(content)
    assert {b"one", b"onetwo"} < survived


def test_a_sync_that_the_power_cut_interrupts_may_be_complete() -> None:
    survived = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        file = durable_file(disk.mount(), "a", b"")
        file.append([b"x"])
        disk.crash_after(1)
        with pytest.raises(PowerLost):
            file.sync()
        survived.add(disk.snapshot()["a"])
    assert survived == {b"", b"x"}


def test_replace_file_leaves_old_or_new_wherever_the_power_is_cut() -> None:
    found = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        replace_file(disk.mount(), "a", b"old")
        mount = disk.mount()
        disk.crash_after(1 + seed % 6)
        try:
            replace_file(mount, "a", b"new")
            finished = True
        except PowerLost:
            finished = False
        disk.crash()
        content = disk.snapshot()["a"]
        assert content == b"new" if finished else content in (b"old", b"new")
        found.add(content)
    assert found == {b"old", b"new"}


def test_a_flipped_bit_is_read_at_once_and_survives() -> None:
    disk = SimDisk(Random(1))
    mount = disk.mount()
    file = durable_file(mount, "a", b"\0\0")
    durable_file(mount, "b", b"\0")
    assert disk.flip_bit("a", 9) == ("a", 9)
    assert file.read(0, 2) == b"\0\2"
    flip = disk.flip_random_bit("b*")
    assert flip is not None
    assert flip.path == "b"
    disk.crash()
    assert disk.snapshot() == {"a": b"\0\2", "b": bytes([1 << flip.bit])}
    assert disk.flip_random_bit("none*") is None


def test_a_slow_disk_stalls_its_caller() -> None:
    stalls: list[float] = []
    disk = SimDisk(Random(1), stall=stalls.append, not_cached_rate=0.0)
    file = durable_file(disk.mount(), "a", b"x")
    disk.slow("sync", 0.5)
    file.sync()
    disk.slow("sync", 0.0)
    file.sync()
    assert len(stalls) == 1
    assert 0.25 <= stalls[0] <= 0.75
    disk.slow("read", 0.5)
    with pytest.raises(NotCached):
        file.read(0, 1, cached_only=True)
    assert len(stalls) == 1


def test_some_reads_are_not_cached() -> None:
    file = durable_file(SimDisk(Random(1), not_cached_rate=0.5).mount(), "a", b"x")
    misses = 0
    for _ in range(100):
        try:
            file.read(0, 1, cached_only=True)
        except NotCached:
            misses += 1
    assert 20 < misses < 80


def test_operations_are_counted() -> None:
    disk = SimDisk(Random(1))
    durable_file(disk.mount(), "a", b"12345").read(1, 3)
    assert disk.counters == Counters(operations=5, syncs=2, read_bytes=3, written_bytes=5)


def busy_run(seed: int) -> list[dict[str, bytes]]:
    """A random program over several lives; what each of its power cuts left."""
    rng = Random(seed)
    disk = SimDisk(Random(rng.getrandbits(64)), capacity_bytes=20_000)
    snapshots = []
    for _ in range(10):
        mount = disk.mount()
        mount.make_dir("d")
        disk.crash_after(rng.randint(1, 60))
        for _ in range(50):
            try:
                step(rng, mount)
            except PowerLost:
                break
            except OSError:
                continue
        disk.crash()
        snapshots.append(disk.snapshot())
    return snapshots


def step(rng: Random, mount: Mount) -> None:
    path = rng.choice(["a", "b", "d/a", "d/b"])
    match rng.randrange(7):
        case 0 | 1:
            mount.open(path, create=True).append([rng.randbytes(rng.randrange(2_000))])
        case 2:
            mount.open(path).sync()
        case 3:
            mount.open(path).truncate(rng.randrange(1_000))
        case 4:
            mount.rename(path, rng.choice(["a", "d/b"]))
        case 5:
            mount.remove(path)
        case _:
            mount.sync_dir(rng.choice(["", "d"]))


def test_the_same_seed_leaves_the_same_bytes() -> None:
    assert busy_run(7) == busy_run(7)
    assert busy_run(7) != busy_run(8)
