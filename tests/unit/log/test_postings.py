"""The lists of the lanes against plain lists: searched, saved, cut, shortened, damaged and found again."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.logs import FOLDER, LogOnDisk, copy_of, small_settings, timed_batch

from goqueue.log import postings
from goqueue.log.batch import decode_batch, decode_rows, read_header, record_of, stamped
from goqueue.log.compression import Codec
from goqueue.log.disk import Disk
from goqueue.log.lane_scan import Looked, lane_of_headers, look
from goqueue.log.postings import (
    LISTED_LANES,
    META_NAME,
    Loaded,
    PostingLists,
    PostingsDamaged,
    list_name,
    load_postings,
    remove_postings,
)
from goqueue.model.priority import NORMAL, PRIORITY_HEADER
from goqueue.model.record import Header, Producer
from goqueue.sim.disk import SimDisk

EPOCH = 3
EVERYTHING = 10**9
# What a header may say, and what it means.
PRIORITIES: list[tuple[bytes | None, int]] = [
    (b"0", 0),
    (b"1", 1),
    (b"2", 2),
    (b"3", 3),
    (b"4", 4),
    (b"critical", 0),
    (b" High ", 1),
    (b"5", NORMAL),
    (b"", NORMAL),
    (b"\xff", NORMAL),
    (None, NORMAL),
]


@contextmanager
def small_blocks() -> Iterator[None]:
    """Blocks of four, so that a few entries are many blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings, "BLOCK_COUNT", 4)
        patch.setattr(postings, "_BLOCK_BYTES", 32)
        yield


def empty_disk(seed: int = 0) -> tuple[SimDisk, Disk]:
    device = SimDisk(Random(seed), not_cached_rate=0.0)
    mount = device.mount()
    mount.make_dir(FOLDER)
    for parent in ("", "logs", "logs/topic"):
        mount.sync_dir(parent)
    return device, mount


def offsets_of(lists: PostingLists, start: int = 0) -> dict[int, list[int]]:
    return {lane: one.find(start, EVERYTHING, EVERYTHING) for lane, one in lists.lanes.items()}


def save(lists: PostingLists, log_start: int = 0, *, is_durable: bool = True) -> None:
    job = lists.begin_save(log_start, EPOCH, is_durable=is_durable)
    try:
        job.run()
    finally:
        lists.finish_save(job)


def loaded(disk: Disk) -> PostingLists:
    found = load_postings(disk, FOLDER)
    assert isinstance(found, Loaded), found
    assert found.epoch == EPOCH
    return found.lists


def listed(**lanes: list[int]) -> dict[int, array[int]]:
    """By `lane0=` and so on."""
    return {int(name[-1]): array("q", offsets) for name, offsets in lanes.items()}


# -------------------------------------------------------------------- looking at a log


class Scene:
    """A log with records of all kinds, and what is true of it."""

    def __init__(self) -> None:
        self.on_disk = LogOnDisk(settings=small_settings(segment_bytes=2_000))
        self.truth: dict[int, list[int]] = {lane: [] for lane in LISTED_LANES}

    def append(self, priorities: list[bytes | int | None], codec: Codec) -> None:
        """For each record what its header says; a number is one without, of so many bytes."""
        records = []
        for one in priorities:
            headers: tuple[Header, ...] = () if isinstance(one, int) else ((PRIORITY_HEADER, one),)
            value = b"gq-priority" * one if isinstance(one, int) else b"v"
            records.append((1_000, None, value, (("other", b"0"), *headers)))
        base = self.on_disk.append(timed_batch(records, codec=codec))
        meanings = dict(PRIORITIES)
        for at, one in enumerate(priorities):
            lane = NORMAL if isinstance(one, int) else meanings[one]
            if lane != NORMAL:
                self.truth[lane].append(base + at)


PRIORITY = st.one_of(st.integers(0, 3), st.sampled_from([text for text, _ in PRIORITIES]))
BATCH = st.tuples(st.lists(PRIORITY, min_size=1, max_size=6), st.sampled_from(list(Codec)))


@settings(deadline=None)
@given(st.lists(BATCH, min_size=1, max_size=15), st.integers(1, 600), st.integers(1, 9), st.data())
def test_a_look_finds_exactly_the_records_that_are_not_normal(
    batches: list[tuple[list[bytes | int | None], Codec]], bytes_max: int, count_max: int, data: st.DataObject
) -> None:
    scene = Scene()
    for priorities, codec in batches:
        scene.append(priorities, codec)
    log = scene.on_disk.log
    start = data.draw(st.integers(0, log.end))
    found: dict[int, list[int]] = {lane: [] for lane in LISTED_LANES}
    at = start
    while at < log.end:
        looked = look(log, at, log.end, bytes_max=bytes_max, count_max=count_max)
        assert looked.end > at
        for lane, offsets in looked.offsets.items():
            found[lane] += offsets
        at = looked.end
    assert found == {lane: [one for one in truth if one >= start] for lane, truth in scene.truth.items()}


@given(st.lists(BATCH, min_size=1, max_size=5))
def test_a_row_alone_gives_the_record_that_the_whole_batch_gives(
    batches: list[tuple[list[bytes | int | None], Codec]],
) -> None:
    scene = Scene()
    for priorities, codec in batches:
        scene.append(priorities, codec)
    for found in scene.on_disk.log.read(0, end=EVERYTHING, bytes_max=EVERYTHING).batches:
        for header in (found.header, read_header(stamped(bytes(found.data), 77))):
            rows = decode_rows(found.data, header)
            assert [record_of(header, row) for row in rows] == list(decode_batch(found.data, header))


def test_only_the_first_priority_of_a_record_counts() -> None:
    assert lane_of_headers(((PRIORITY_HEADER, b"0"), (PRIORITY_HEADER, b"4"))) == 0
    assert lane_of_headers((("x", b"0"), (PRIORITY_HEADER, b"low"))) == 3
    assert lane_of_headers(()) == NORMAL


def test_markers_and_what_is_behind_the_end_are_not_listed() -> None:
    scene = Scene()
    scene.append([b"0", b"0"], Codec.NONE)
    batch = timed_batch(
        [(1_000, None, b"v", ((PRIORITY_HEADER, b"0"),))], producer=Producer(7, 0, 0), is_transactional=True
    )
    scene.on_disk.append(batch)
    scene.on_disk.append_marker(7, 0, is_commit=False)
    assert look_all(scene, end=1).offsets[0].tolist() == [0]
    assert look_all(scene).offsets[0].tolist() == [0, 1, 2]  # an aborted one, too: the feed knows of it


def look_all(scene: Scene, *, end: int | None = None) -> Looked:
    log = scene.on_disk.log
    return look(log, log.log_start, log.end if end is None else end, bytes_max=10**9, count_max=10**9)


def test_a_look_goes_on_behind_a_damaged_batch() -> None:
    scene = Scene()
    for _ in range(3):
        scene.append([b"0", b"4"], Codec.NONE)
    scene.on_disk.stop()
    path = next(path for path in scene.on_disk.device.snapshot() if path.endswith(".log"))
    size = read_header(scene.on_disk.device.snapshot()[path]).size
    scene.on_disk.device.flip_bit(path, 8 * (size + 70))  # in the second batch
    scene.on_disk.open()
    looked = look_all(scene)
    assert (looked.offsets[0].tolist(), looked.offsets[4].tolist()) == ([0, 4], [1, 5])
    assert looked.end == 6


def test_a_look_goes_on_where_the_log_begins_now() -> None:
    scene = Scene()
    for _ in range(3):
        scene.append([b"0", b"4"], Codec.NONE)
    scene.on_disk.log.delete_before(3)
    looked = look(scene.on_disk.log, 0, 6, bytes_max=10**9, count_max=10**9)
    assert (looked.offsets[0].tolist(), looked.offsets[4].tolist()) == ([4], [3, 5])


# -------------------------------------------------------------------- the lists


class ListsMachine(RuleBasedStateMachine):
    """One partition's lists through saves, cuts, restarts and power cuts, beside a dict of plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = small_blocks()
        self.blocks.__enter__()
        self.device, self.disk = empty_disk()
        self.lists = PostingLists(self.disk, FOLDER, 0)
        self.truth: dict[int, list[int]] = {lane: [] for lane in LISTED_LANES}
        self.log_start = 0
        self.saved_end: int | None = None
        self.has_failed = False  # the kernel may have forgotten what was never written

    def teardown(self) -> None:
        self.blocks.__exit__(None, None, None)

    @rule(steps=st.lists(st.tuples(st.sampled_from(LISTED_LANES), st.integers(1, 3)), max_size=12))
    def add(self, steps: list[tuple[int, int]]) -> None:
        end = self.lists.end
        found = {lane: array("q") for lane in LISTED_LANES}
        for lane, step in steps:
            found[lane].append(end + step - 1)
            self.truth[lane].append(end + step - 1)
            end += step
        self.lists.add(found, end)

    @rule()
    def spill(self) -> None:
        save(self.lists, self.log_start, is_durable=False)

    @rule()
    def save(self) -> None:
        save(self.lists, self.log_start)
        self.saved_end = self.lists.end

    @rule(operation=st.sampled_from(["append", "sync", "rename", "open"]), after=st.integers(0, 3))
    def save_fails(self, operation: str, after: int) -> None:
        self.device.fail_next(operation, after=after)  # type: ignore[arg-type]  # one of its literals
        try:
            save(self.lists, self.log_start)
            self.saved_end = self.lists.end
        except OSError:
            self.saved_end = None  # what is on disk may be of no use
            self.has_failed = True
        self.device.calm()

    @rule(share=st.floats(0, 1))
    def log_start_moves(self, share: float) -> None:
        self.log_start += int(share * (self.lists.end - self.log_start))

    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        end = self.log_start + int(share * (self.lists.end - self.log_start))
        self.lists.cut(end)
        self.truth = {lane: [one for one in truth if one < end] for lane, truth in self.truth.items()}
        self.saved_end = None

    @precondition(lambda self: self.saved_end is not None)
    @rule()
    def restart(self) -> None:
        assert self.saved_end is not None
        self.lists = loaded(self.disk)
        assert self.lists.end == self.saved_end
        assert self.lists.start <= self.log_start
        self.truth = {
            lane: [one for one in truth if one < self.saved_end] for lane, truth in self.truth.items()
        }

    @precondition(lambda self: self.saved_end is not None)
    @rule()
    def power_cut(self) -> None:
        self.device.crash()
        self.disk = self.device.mount()
        if not self.has_failed or isinstance(load_postings(self.disk, FOLDER), Loaded):
            self.restart()
        else:
            self.lists = PostingLists(self.disk, FOLDER, 0)
            self.truth = {lane: [] for lane in LISTED_LANES}
            self.log_start, self.saved_end, self.has_failed = 0, None, False

    @invariant()
    def every_search_is_right(self) -> None:
        for lane, truth in self.truth.items():
            one = self.lists.lanes[lane]
            alive = [offset for offset in truth if offset >= self.log_start]
            middle = alive[len(alive) // 2] if alive else self.log_start
            assert one.find(self.log_start, EVERYTHING, EVERYTHING) == alive
            assert one.find(middle, EVERYTHING, 3) == [offset for offset in alive if offset >= middle][:3]
            assert one.find(self.log_start, middle, 5) == [offset for offset in alive if offset < middle][:5]
            assert one.count(middle, EVERYTHING) == sum(offset >= middle for offset in alive)
            assert one.count(self.log_start, middle) == sum(offset < middle for offset in alive)


TestLists = ListsMachine.TestCase
TestLists.settings = settings(deadline=None, max_examples=150, stateful_step_count=25)


def filled(disk: Disk, count: int = 40) -> PostingLists:
    lists = PostingLists(disk, FOLDER, 0)
    lists.add(
        listed(lane0=list(range(0, count, 4)), lane1=[1], lane3=list(range(2, count, 2)), lane4=[]), count
    )
    return lists


def test_a_power_cut_at_any_step_of_a_save_leaves_lists_that_are_right_or_none() -> None:
    with small_blocks():
        for step in range(1, 60):
            device, disk = empty_disk(seed=step)
            lists = filled(disk)
            save(lists)
            lists.add(listed(lane0=[40, 44], lane4=[41, 45]), 50)
            before, after = offsets_of(loaded(disk)), offsets_of(lists)
            device.crash_after(step)
            try:
                save(lists, log_start=24)
            except OSError:
                pass
            else:
                break
            found = load_postings(device.mount(), FOLDER)
            if isinstance(found, Loaded):
                wanted = before if found.lists.end == 40 else after
                start = found.lists.start
                assert offsets_of(found.lists, start) == {
                    lane: [one for one in offsets if one >= start] for lane, offsets in wanted.items()
                }
        else:
            pytest.fail("the save never ended")
        assert step > 10


def test_no_flipped_bit_in_a_list_is_believed() -> None:
    with small_blocks():
        device, disk = empty_disk()
        lists = filled(disk)
        save(lists)
        for path, content in device.snapshot().items():
            for bit in range(8 * len(content)):
                copy, mount = copy_of(device)
                copy.flip_bit(path, bit)
                assert isinstance(load_postings(mount, FOLDER), str)


def test_no_shortened_or_missing_list_is_believed() -> None:
    with small_blocks():
        device, disk = empty_disk()
        save(filled(disk))
        for path, content in device.snapshot().items():
            for size in range(len(content)):
                _, mount = copy_of(device)
                mount.open(path).truncate(size)
                assert isinstance(load_postings(mount, FOLDER), str)
            _, mount = copy_of(device)
            mount.remove(path)
            found = load_postings(mount, FOLDER)
            assert found is None if path.endswith(META_NAME) else isinstance(found, str)


def test_a_bit_that_flips_later_is_noticed_by_the_search() -> None:
    with small_blocks():
        _, disk = empty_disk()
        lists = filled(disk)
        save(lists)
        file = disk.open(f"{FOLDER}/{list_name(3)}")
        content = bytearray(file.read(0, file.size()))
        content[47] ^= 1  # in the second block
        file.truncate(0)
        file.append([bytes(content)])
        assert lists.lanes[3].find(0, 8, 9) == [2, 4, 6]
        with pytest.raises(PostingsDamaged):
            lists.lanes[3].find(0, EVERYTHING, EVERYTHING)


def test_what_was_written_behind_the_last_save_is_cut_off() -> None:
    _, disk = empty_disk()
    lists = filled(disk)
    save(lists)
    lists.add(listed(lane0=[40, 44]), 50)
    save(lists, is_durable=False)
    again = loaded(disk)
    assert (again.end, again.lanes[0].find(30, EVERYTHING, 9)) == (40, [32, 36])
    again.add(listed(lane0=[48]), 50)
    save(again)
    assert loaded(disk).lanes[0].find(30, EVERYTHING, 9) == [32, 36, 48]


def test_a_list_is_rewritten_when_more_than_half_of_it_is_before_the_start_of_the_log() -> None:
    with small_blocks():
        _, disk = empty_disk()
        lists = filled(disk, 400)
        save(lists, log_start=100)
        size = disk.open(f"{FOLDER}/{list_name(3)}").size()
        assert size == 8 * 199
        assert not lists.is_mostly_before(100)
        assert lists.is_mostly_before(300)
        lists.add(listed(lane3=[400]), 401)
        save(lists, log_start=300)
        assert disk.open(f"{FOLDER}/{list_name(3)}").size() == 8 * 51
        assert lists.start == 300
        assert loaded(disk).lanes[3].find(0, EVERYTHING, EVERYTHING) == [*range(300, 400, 2), 400]
        assert not any(entry.name.endswith(".tmp") for entry in disk.list(FOLDER))


def test_recovery_and_check_have_no_objection_to_the_lists() -> None:
    scene = Scene()
    for _ in range(8):
        scene.append([b"0", b"4", 1], Codec.NONE)
    lists = PostingLists(scene.on_disk.mount, FOLDER, 0)
    looked = look_all(scene)
    lists.add(looked.offsets, looked.end)
    save(lists)
    scene.on_disk.stop()
    report = scene.on_disk.open()
    assert (report.notes, report.damage, scene.on_disk.problems()) == ([], [], [])
    assert offsets_of(loaded(scene.on_disk.mount)) == scene.truth
    remove_postings(scene.on_disk.mount, FOLDER)
    assert load_postings(scene.on_disk.mount, FOLDER) is None
    assert not any("posting" in entry.name for entry in scene.on_disk.mount.list(FOLDER))


def test_lists_of_another_version_are_not_read() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings, "_VERSION", 9)
        _, disk = empty_disk()
        save(filled(disk))
    assert load_postings(disk, FOLDER) == "the lists are of version 9, not 1"
