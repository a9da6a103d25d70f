"""A follower's side of replication, as short as it can be: what the tests of replicated logs share."""

from __future__ import annotations

from tests.support.logs import LogOnDisk

from goqueue.log.partition_log import PartitionLog
from goqueue.log.recovery import cut_back, reset_log


def batches_of(log: PartitionLog) -> list[tuple[int, bytes]]:
    """Base offset and bytes of every batch that has offsets of the log."""
    found: list[tuple[int, bytes]] = []
    offset = log.log_start
    while offset < log.end:
        piece = log.read(offset, end=log.end, bytes_max=1_000)
        found += [(batch.header.base_offset, bytes(batch.data)) for batch in piece.batches]
        offset = piece.next_offset
    return found


def replicate(follower: LogOnDisk, leader: PartitionLog, *, bytes_max: int, now_ms: int = 1_000) -> bool:
    """One fetch of everything that follows from the follower's end; whether the follower has changed."""
    if not follower.log.is_durable:
        follower.sync()
    log = follower.log
    if log.end < leader.log_start:
        reset_log(log, follower.mount, follower.owner, leader.log_start)
        return True
    diverging = leader.epochs.diverging(log.last_epoch, log.end, leader.end)
    if diverging is not None:
        end = log.epochs.common_end(*diverging, log.end)
        assert end < log.end, "a follower that is told to cut its log can do so"
        cut_back(log, follower.mount, follower.owner, end, forced=True)
        return True
    batches = leader.read(log.end, end=leader.end, bytes_max=bytes_max).batches
    for found in batches:
        header = found.header
        if header.base_offset < log.end:
            # The log of the leader begins inside this batch, or it was compacted there and this one was not. To fetch from
            # its beginning may be to fetch from before the leader's start, so it is taken now.
            cut_back(log, follower.mount, follower.owner, header.base_offset, forced=True)
            if log.end < header.base_offset:
                return True
        if header.leader_epoch != log.epochs.current or header.leader_epoch != log.durable_epoch:
            log.adopt_epoch(header.leader_epoch, header.base_offset)
            follower.checkpoint()
        log.replicate(found.data, header, now_ms=now_ms)
        aborted = follower.owner.observe(header, found.data)
        if aborted is not None:
            log.aborted.add(aborted)
    log.note_high_watermark(leader.high_watermark)
    if log.log_start < leader.log_start <= log.high_watermark:
        log.delete_before(leader.log_start)
    return bool(batches)


def catch_up(follower: LogOnDisk, leader: PartitionLog, *, bytes_max: int = 300, rounds: int = 500) -> int:
    """Fetch until nothing is new; how many rounds it took."""
    for count in range(rounds):
        if not replicate(follower, leader, bytes_max=bytes_max):
            return count
    raise AssertionError(f"a follower at {follower.log.end} does not come to {leader.end}")
