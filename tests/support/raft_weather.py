"""A while of faults, then a while of peace: nothing may go wrong in the first, and everything must go on in the second."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.core.raft.raft import InvalidVoters, NotLeading, Overloaded
from goqueue.sim.quorum.quorum import STORM, MakeRaft, RaftQuorum, make_raft

ACTIONS = (
    "propose",
    "propose",
    "propose",
    "crash",
    "start",
    "start",
    "part",
    "unite",
    "compact",
    "transfer",
    "campaign",
)


ROUGH = ("rivals",) * 4 + ("bounce",) * 6


class Storm:
    def __init__(
        self,
        seed: int,
        voter_count: int,
        observer_count: int = 0,
        *,
        extra: tuple[str, ...] = (),
        make: MakeRaft = make_raft,
    ) -> None:
        self.quorum = RaftQuorum(seed, voter_count, observer_count, make)
        self._actions = ACTIONS + extra

    def run(self, action_count: int = 80) -> None:
        self.quorum.weather = STORM
        for _ in range(action_count):
            self.quorum.run(self.quorum.random.choice((10, 50, 100, 1_000, 3_000)))
            self._act(self.quorum.random.choice(self._actions))

    def check_it_goes_on(self) -> None:
        """After healing: one leader, and all have the same."""
        quorum = self.quorum
        quorum.heal()
        quorum.run(10_000)  # what was delayed arrives
        assert quorum.run(60_000, until=self._is_led), "no leader"
        for raft in quorum.running:
            raft.set_observers(quorum.names)
        payload = quorum.propose()
        assert payload is not None
        assert quorum.run(60_000, until=lambda: self._all_have(payload)), "not all got it"
        assert len({tuple(member.applied) for member in quorum.members.values()}) == 1
        assert not any(raft.is_recovering for raft in quorum.running)

    def _is_led(self) -> bool:
        leader = self.quorum.leader
        return (
            leader is not None
            and leader.is_active
            and leader._leadership is not None
            and not leader._leadership.transferee
        )

    def _all_have(self, payload: bytes) -> bool:
        if self.quorum.leader is None:
            return False
        is_recovering = any(raft.is_recovering for raft in self.quorum.running)
        ends = {member.applied_index for member in self.quorum.members.values()}
        return not is_recovering and len(ends) == 1 and payload in self.quorum.members["n1"].applied

    def _act(self, action: str) -> None:
        quorum, random = self.quorum, self.quorum.random
        name = random.choice(quorum.names)
        raft, leader = quorum.members[name].raft, quorum.leader
        match action:
            case "propose":
                self._try(quorum.propose)
            case "crash" if raft is not None:
                quorum.crash(name)
            case "start" if raft is None:
                quorum.start(name)
            case "part":
                quorum.part(random.sample(quorum.names, random.randrange(1, max(2, len(quorum.names)))))
            case "unite":
                quorum.unite()
            case "compact":
                quorum.compact(name)
            case "transfer" if leader is not None:
                self._try(lambda: leader.transfer(name, quorum.now_ms))
                quorum.touch(leader.name)
            case "campaign" if raft is not None:
                raft.campaign(quorum.now_ms)
                quorum.touch(name)
            case "rivals":
                for one in random.sample(quorum.running, min(2, len(quorum.running))):
                    one.campaign(quorum.now_ms)
                    quorum.touch(one.name)
            case "bounce" if raft is not None:
                quorum.crash(name)
                quorum.start(name)
            case "change" if leader is not None and not self._is_anybody_recovering():
                voters = [one for one in leader.voters if one != name]
                after = voters if name in leader.voters else [*voters, name]
                self._try(lambda: leader.change_voters(after, quorum.now_ms))
                leader.set_observers(quorum.names)
                quorum.touch(leader.name)
            case "lose" | "wipe":
                # With fewer than three voters, or two that have lost their logs, there is nobody left who knows.
                is_small = any(len(raft.voters) < 3 for raft in quorum.running) or len(quorum.running) < len(
                    quorum.names
                )
                if not self._is_anybody_recovering() and not is_small:
                    quorum.lose_log(name, random.choice((0, 0, 1, 3)), is_unknown=action == "wipe")

    def _is_anybody_recovering(self) -> bool:
        return any(
            member.disk.state.is_recovering or not (member.disk.entries or member.disk.snapshot)
            for member in self.quorum.members.values()
        )

    def _try(self, use: Callable[[], object]) -> None:
        try:
            use()
        except (NotLeading, Overloaded, InvalidVoters):
            pass
