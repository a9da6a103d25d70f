"""The quorum workload: elections that meet, voters that restart right after they have voted, and leaders that fall while what they
write has reached only some.

What goes wrong there needs several rare things in one order (figure 8 of the Raft paper takes four leaders), and a whole cluster
comes to it once in many thousands of seeds. Raft alone, without listeners and logs, has a hundred elections in the time of one.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from goqueue.core.raft.config import RaftConfig
from goqueue.core.raft.raft import NotLeading, Overloaded, Raft, Restored, Role
from goqueue.model.errors import InvariantViolation
from goqueue.sim.outcome import Outcome
from goqueue.sim.quorum.checkers import RaftCheckers
from goqueue.sim.quorum.quorum import RaftQuorum, Weather

_EPISODE_COUNT = 60
_ROUGH = Weather(loss=0.02, doubling=0.05, delay_ms_max=60, long_delay=0.02, slow_disk=0.2)
_SILENCE_MS = 900  # after so long without a leader voters vote again
_ELECTION_MS_MAX = 6_000
_LATE_MS_MAX = 10_000  # for what is under way when the storm is over
_HEAL_MS_MAX = 60_000


def run_quorum_seed(seed: int) -> Outcome:
    storm = _Storm(seed)
    violations: list[str] = []
    try:
        storm.run()
        violations += storm.unsettled()
    except InvariantViolation as violation:
        violations.append(f"{violation} at {storm.quorum.now_ms / 1_000:.3f} s")
    quorum = storm.quorum
    members = quorum.members.values()
    return Outcome(
        seed,
        violations,
        len(quorum.checkers.history.entries),
        sum(member.applied_index for member in members),
        [f"{len(quorum.names)} voters", *(f"{member.name} lived {member.life} times" for member in members)],
        quorum.now_ms / 1_000,
        "quorum",
    )


def _one_by_one(config: RaftConfig, restored: Restored, now_ms: int, chance: Callable[[int], int]) -> Raft:
    """Each message takes one entry, so that a follower may have an older one of its leader's and not the next."""
    return Raft(replace(config, entries_per_append_max=1), restored, now_ms=now_ms, chance=chance)


class _Storm:
    """Three voters or five."""

    def __init__(self, seed: int) -> None:
        checkers = RaftCheckers(harm_only=True)
        self.quorum = RaftQuorum(seed, 3 + 2 * (seed % 2), make=_one_by_one, checkers=checkers)
        self._random = self.quorum.random

    def run(self) -> None:
        self.quorum.weather = _ROUGH
        for _ in range(_EPISODE_COUNT):
            self.quorum.unite()
            if self._random.random() < 0.5:
                self._contest()
            else:
                self._reign()

    def unsettled(self) -> list[str]:
        """With nothing in the way there is a leader, and what it is given reaches everybody."""
        quorum = self.quorum
        quorum.heal()
        quorum.run(_LATE_MS_MAX)
        if not quorum.run(_HEAL_MS_MAX, until=self._is_led):
            return ["there is no leader"]
        payload = quorum.propose() or b""
        members = quorum.members.values()
        if not quorum.run(_HEAL_MS_MAX, until=lambda: all(payload in member.applied for member in members)):
            return [f"{payload.decode()} has not reached everybody"]
        return []

    def _contest(self) -> None:
        """Nobody leads, two stand at once, and those who vote restart: whoever forgets a vote gives another."""
        quorum, random = self.quorum, self._random
        self._start_some(len(quorum.names))
        if quorum.leader is not None:
            quorum.crash(quorum.leader.name)
        quorum.run(_SILENCE_MS)
        for rival in random.sample(quorum.running, min(2, len(quorum.running))):
            self._campaign(rival)
        for _ in range(random.randrange(2, 8)):
            quorum.run(random.randrange(5, 60))
            voter = quorum.members[random.choice(quorum.names)].raft
            if voter is not None and voter.role not in (Role.CANDIDATE, Role.PRE_CANDIDATE):
                quorum.crash(voter.name)
                quorum.start(voter.name)
        quorum.run(random.randrange(1, 300))

    def _reign(self) -> None:
        """A leader that reaches some of the others for a moment, and mostly falls."""
        quorum, random = self.quorum, self._random
        missing = len(quorum.names) // 2 + 1 - len(quorum.running)
        self._start_some(max(missing, random.randrange(3)))
        if quorum.leader is None:
            self._campaign(random.choice(quorum.running))
        quorum.run(_ELECTION_MS_MAX, until=lambda: quorum.leader is not None)
        leader = quorum.leader
        if leader is None:
            return
        others = [name for name in quorum.names if name != leader.name]
        quorum.part([leader.name, *random.sample(others, random.randrange(len(others)))])
        if random.random() < 0.5:
            self._propose()
        quorum.run(random.choice((5, 20, 50, 100, 200)))
        if random.random() < 0.8 and quorum.members[leader.name].raft is not None:
            quorum.crash(leader.name)

    def _start_some(self, count: int) -> None:
        down = [name for name, member in self.quorum.members.items() if member.raft is None]
        for name in self._random.sample(down, min(count, len(down))):
            self.quorum.start(name)

    def _campaign(self, raft: Raft) -> None:
        raft.campaign(self.quorum.now_ms)
        self.quorum.touch(raft.name)

    def _propose(self) -> None:
        try:
            self.quorum.propose()
        except (NotLeading, Overloaded):
            pass

    def _is_led(self) -> bool:
        leader = self.quorum.leader
        return leader is not None and leader.is_active
