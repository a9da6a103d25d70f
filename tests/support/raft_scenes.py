"""Elections and failovers that are kept as transcripts in `tests/golden/raft`. `python -m tests.support.raft_scenes` writes
them anew; read the difference before it goes in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from goqueue.core.raft.config import RaftConfig
from goqueue.core.raft.raft import Raft, Restored
from goqueue.sim.quorum.quorum import RaftQuorum, Weather
from goqueue.sim.quorum.transcript import Transcript

FOLDER = Path(__file__).parents[1] / "golden" / "raft"
EVEN = Weather(delay_ms_max=2)  # every message takes a millisecond


def _make(config: RaftConfig, restored: Restored, now_ms: int, chance: Callable[[int], int]) -> Raft:
    """The lower its number, the sooner it stands."""
    number = int(config.name[1:])
    return Raft(config, restored, now_ms=now_ms, chance=lambda count: (number - 1) * count // 6)


def _quorum(voter_count: int, observer_count: int = 0) -> RaftQuorum:
    quorum = RaftQuorum(0, voter_count, observer_count, _make)
    quorum.weather = EVEN
    quorum.transcript = Transcript()
    quorum.transcript.note(0, f"voters {' '.join(quorum.voters)}")
    return quorum


def _led(quorum: RaftQuorum) -> RaftQuorum:
    """By n1, quietly."""
    transcript, quorum.transcript = quorum.transcript, None
    quorum.run(908)
    quorum.transcript = transcript
    quorum._note("n1 leads in term 1, all have its first entry")
    return quorum


def election() -> RaftQuorum:
    """Three voters find a leader; a proposal is committed."""
    quorum = _quorum(3)
    quorum.run(910)
    quorum.propose()
    quorum.run(10)
    return quorum


def failover() -> RaftQuorum:
    """The leader crashes; another takes over; the first comes back as a follower."""
    quorum = _led(_quorum(3))
    quorum.crash("n1")
    quorum.run(1_100)
    quorum.propose()
    quorum.run(5)
    quorum.start("n1")
    quorum.run(310)
    return quorum


def lone_leader() -> RaftQuorum:
    """A leader without a majority keeps what it cannot commit until it gives up; the others go on without it, and what
    it had is replaced."""
    quorum = _led(_quorum(3))
    quorum.part(["n1"])
    leader = quorum.members["n1"].raft
    assert leader is not None
    leader.propose(b"lost", quorum.now_ms)
    quorum.touch("n1")
    quorum.run(1_700)
    quorum.propose()
    quorum.run(5)
    quorum.unite()
    quorum.run(310)
    return quorum


def transfer() -> RaftQuorum:
    """The leader hands over to n3, once that one has everything."""
    quorum = _led(_quorum(3))
    quorum.propose()
    leader = quorum.leader
    assert leader is not None
    leader.transfer("n3", quorum.now_ms)
    quorum.touch(leader.name)
    quorum.run(10)
    return quorum


def removed_leader() -> RaftQuorum:
    """The leader is taken out of the voters: it leads until that is committed, then the others elect one of them."""
    quorum = _led(_quorum(3))
    leader = quorum.leader
    assert leader is not None
    leader.change_voters(["n2", "n3"], quorum.now_ms)
    quorum.touch(leader.name)
    quorum.run(1_100)
    return quorum


def lost_log() -> RaftQuorum:
    """A voter comes back with nothing. It gets everything, and counts again after an election timeout."""
    quorum = _led(_quorum(3))
    quorum.propose()
    quorum.run(5)
    quorum.lose_log("n2")
    quorum.run(2_200)
    return quorum


def snapshot() -> RaftQuorum:
    """A voter was away for so long that the leader has forgotten what it lacks."""
    quorum = _led(_quorum(3))
    quorum.crash("n3")
    for _ in range(3):
        quorum.propose()
        quorum.run(5)
    quorum.compact("n1")
    quorum.start("n3")
    quorum.run(610)
    return quorum


def observer() -> RaftQuorum:
    """An observer gets everything, is trusted when it may not have forgotten a vote any more, and becomes a voter."""
    quorum = _led(_quorum(1, 1))
    leader = quorum.leader
    assert leader is not None
    leader.set_observers(["n2"])
    quorum.propose()
    quorum.run(1_500)
    leader.change_voters(["n1", "n2"], quorum.now_ms)
    quorum.touch("n1")
    quorum.run(10)
    return quorum


SCENES: tuple[Callable[[], RaftQuorum], ...] = (
    election,
    failover,
    lone_leader,
    transfer,
    removed_leader,
    lost_log,
    snapshot,
    observer,
)


def play(scene: Callable[[], RaftQuorum]) -> str:
    transcript = scene().transcript
    assert transcript is not None
    title = " ".join((scene.__doc__ or "").split())
    return "\n".join([f"# {title}", *transcript.lines, ""])


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for one in SCENES:
        (FOLDER / f"{one.__name__}.txt").write_text(play(one))
