"""Two replicas of a partition that lead in turn, lose power and lose their tails: the one that follows becomes the same."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.logs import LogOnDisk, small_settings, timed_batch
from tests.support.replicas import batches_of, catch_up, replicate

from goqueue.log.batch import read_header
from goqueue.log.epochs import NO_EPOCH
from goqueue.log.recovery import cut_back, truncate_log
from goqueue.model.errors import StorageError
from goqueue.sim.disk import PowerLost

COUNTS = st.integers(1, 4)
CHUNKS = st.sampled_from([1, 150, 400, 10_000])
NODES = st.integers(0, 1)


class ReplicaMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32), segment_bytes=st.sampled_from([200, 400, 900]))
    def start(self, seed: int, segment_bytes: int) -> None:
        self.nodes = [
            LogOnDisk(seed + at, small_settings(segment_bytes=segment_bytes, index_interval_bytes=64))
            for at in range(2)
        ]
        self.epoch = 0
        self.written = 0
        self.leading = 0
        self.lead(by=1)

    @property
    def leader(self) -> LogOnDisk:
        return self.nodes[self.leading]

    @property
    def follower(self) -> LogOnDisk:
        return self.nodes[1 - self.leading]

    def lead(self, by: int) -> None:
        self.epoch += by
        self.leader.log.begin_epoch(self.epoch)
        self.leader.checkpoint()
        self.leader.is_led = True

    # ---------------------------------------------------------------- what they do

    @rule(counts=st.lists(COUNTS, min_size=1, max_size=4))
    def append(self, counts: list[int]) -> None:
        """Every batch is another, so that equal bytes are the same batch."""
        for count in counts:
            self.written += 1
            self.leader.append(timed_batch([(1_000 + self.written, b"k", b"%d" % self.written, ())] * count))

    @rule(bytes_max=CHUNKS)
    def fetch(self, bytes_max: int) -> None:
        replicate(self.follower, self.leader.log, bytes_max=bytes_max)

    @rule(by=st.integers(1, 3))
    def change_leader(self, by: int) -> None:
        self.leader.is_led = False
        self.leading = 1 - self.leading
        self.lead(by)

    @rule(part=st.floats(0, 1), by=st.integers(1, 3))
    def lose_the_tail(self, part: float, by: int) -> None:
        """As an election of one that was not in sync does it."""
        log = self.leader.log
        ends = [log.log_start, *(base for base, _ in batches_of(log) if base > log.log_start), log.end]
        offset = ends[int(part * (len(ends) - 1))]
        truncate_log(log, self.leader.mount, self.leader.owner, offset, forced=True)
        self.lead(by)

    @rule(part=st.floats(0, 1))
    def delete_before(self, part: float) -> None:
        log = self.leader.log
        log.delete_before(log.log_start + int(part * (log.high_watermark - log.log_start)))

    @rule(at=NODES)
    def checkpoint(self, at: int) -> None:
        self.nodes[at].checkpoint()

    @rule(at=NODES)
    def sync(self, at: int) -> None:
        self.nodes[at].sync()

    # ---------------------------------------------------------------- how they end and start again

    def come_back(self, at: int) -> None:
        node = self.nodes[at]
        report = node.open()
        if report.damaged:
            cut_back(node.log, node.mount, node.owner, report.damaged[0][0], forced=True)
        if at == self.leading:
            self.lead(by=1)

    @rule(at=NODES)
    def kill(self, at: int) -> None:
        end, last_epoch = self.nodes[at].log.end, self.nodes[at].log.last_epoch
        self.nodes[at].device.kill()
        self.come_back(at)
        assert self.nodes[at].report.damage == []
        assert self.nodes[at].log.end == end
        # A log that was all deleted has its old start again, if no checkpoint says more.
        assert last_epoch in (self.nodes[at].log.last_epoch, NO_EPOCH)

    @rule(at=NODES)
    def lose_power(self, at: int) -> None:
        durable_end = self.nodes[at].log.durable_end
        self.nodes[at].device.crash()
        self.come_back(at)
        assert self.nodes[at].log.end >= durable_end

    @rule(operations=st.integers(1, 30), bytes_max=CHUNKS)
    def lose_power_while_fetching(self, operations: int, bytes_max: int) -> None:
        device = self.follower.device
        device.crash_after(operations)
        try:
            for _ in range(3):
                replicate(self.follower, self.leader.log, bytes_max=bytes_max)
        except (PowerLost, StorageError):
            device.crash()
            self.come_back(1 - self.leading)
        finally:
            device.crash_after(0)

    @rule()
    def become_the_same(self) -> None:
        catch_up(self.follower, self.leader.log)
        leader, follower = self.leader.log, self.follower.log
        start = max(leader.log_start, follower.log_start)  # one that led before may have deleted more
        found, expected = (
            [one for one in batches_of(log) if read_header(one[1]).end_offset > start]
            for log in (follower, leader)
        )
        assert found == expected
        assert follower.end == leader.end
        assert follower.high_watermark >= leader.high_watermark
        assert self.follower.problems() == []

    def teardown(self) -> None:
        if hasattr(self, "nodes"):
            for node in self.nodes:
                node.device.calm()
            self.become_the_same()

    # ---------------------------------------------------------------- what is always true

    @invariant()
    def batches_are_of_the_epochs_that_the_log_knows(self) -> None:
        for node in self.nodes:
            log = node.log
            assert log.failure is None
            assert log.log_start <= log.high_watermark <= log.end
            for base, batch in batches_of(log):
                assert log.epochs.at(max(base, log.log_start)) == read_header(batch).leader_epoch


TestReplicas = ReplicaMachine.TestCase
TestReplicas.settings = settings(
    max_examples=60,
    report_multiple_bugs=False,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
