"""Any commands in any order: one leader per epoch, chosen among those who have everything that was committed."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.catalogs import CatalogRun

from goqueue.core.catalog import (
    AlterPartitions,
    AlterTopic,
    BumpLeaderEpoch,
    Catalog,
    Command,
    CreateTopic,
    DeleteTopic,
    DrainNode,
    ElectLeaders,
    Event,
    FenceNode,
    GrowTopic,
    InSyncProposal,
    PartitionsChanged,
    ReassignPartitions,
    RemoveNode,
    UndrainNode,
    UnfenceNode,
)
from goqueue.core.cluster.commands import AdvancePlan, CancelPlan, MakePlan, PausePlan, ResumePlan
from goqueue.core.cluster.elections import States, can_serve
from goqueue.core.cluster.nodes import NodeState
from goqueue.core.cluster.partitions import NO_LEADER, PartitionState, in_sync_min
from goqueue.core.cluster.reassignment import complete
from goqueue.model.errors import GoQueueError
from goqueue.model.limits import Limits

NODES = st.integers(1, 4)
MIN_IN_SYNC = st.sampled_from([2, 2, 1, 3])
REPLICAS = st.lists(NODES, min_size=1, max_size=3, unique=True)
PICKS = st.integers(0, 5)  # one of those there are

Key = tuple[int, int]  # topic id, partition


def seen(catalog: Catalog) -> tuple[object, ...]:
    """Everything that can be asked, the indexes among it."""
    table = catalog.partitions
    return (
        catalog.snapshot(),
        catalog.nodes(),
        [catalog.partitions_of(topic.name) for topic in catalog.topics()],
        [
            (
                catalog.led_by(number),
                catalog.held_by(number),
                table.leader_count(number),
                table.replica_count(number),
                table.preferred_count(number),
            )
            for number in range(-1, 5)
        ],
        list(catalog.astray()),
        (table.short_count, table.moving_count),
        [(key, table.before(*key)) for key in table.moving()],
        catalog.plans.all(),
        (catalog.plans.active(), catalog.plans.moving(), catalog.plans.waiting(), catalog.plans.next_id),
    )


class ClusterMachine(RuleBasedStateMachine):
    """`complete` has, for each partition, the nodes that have all its committed records: what the catalogue cannot see, and must
    get right all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = CatalogRun()
        self.complete: dict[Key, set[int]] = {}
        self.epochs: dict[Key, PartitionState] = {}

    @property
    def catalog(self) -> Catalog:
        return self.cluster.catalog

    def partitions(self) -> dict[Key, tuple[str, PartitionState]]:
        return {
            (topic.id, index): (topic.name, state)
            for topic in self.catalog.topics()
            for index, state in enumerate(self.catalog.partitions_of(topic.name))
        }

    def states(self) -> States:
        return {node.number: node.state for node in self.catalog.nodes()}

    def attempt(
        self, command: Command, *, caught_up: dict[Key, set[int]] | None = None, accepts_loss: bool = False
    ) -> None:
        before = self.partitions()
        unchanged = self.catalog.snapshot()
        try:
            events = self.cluster.run(command)
        except GoQueueError:
            assert self.catalog.snapshot() == unchanged
            return
        self.check_changes(events)
        for key, (_, state) in self.partitions().items():
            old = before[key][1] if key in before else None
            self.follow(key, old, state, (caught_up or {}).get(key, set()), accepts_loss=accepts_loss)
        self.commit()

    def check_changes(self, events: list[Event]) -> None:
        changed = [
            (change.topic, change.partition)
            for event in events
            if isinstance(event, PartitionsChanged)
            for change in event.changes
        ]
        assert len(set(changed)) == len(changed)

    def follow(
        self,
        key: Key,
        old: PartitionState | None,
        new: PartitionState,
        caught_up: set[int],
        *,
        accepts_loss: bool,
    ) -> None:
        """What a command did to one partition."""
        complete = self.complete.setdefault(key, set(new.replicas))
        complete |= caught_up & set(new.in_sync) if complete else set()
        complete &= set(new.replicas)
        if old is None or new == old:
            return
        assert new.epoch == old.epoch + 1
        assert new.leader_epoch >= old.leader_epoch
        if new.leader == old.leader:
            return
        assert new.leader_epoch > old.leader_epoch
        if new.leader == NO_LEADER:
            return
        if accepts_loss and new.leader not in {*old.in_sync, *old.eligible}:
            self.complete[key] = {new.leader}
            return
        assert new.leader in {*old.in_sync, *old.eligible, *caught_up}
        assert new.leader in complete or not complete

    def commit(self) -> None:
        """Every leader that may commits a record: only those in sync have everything now. It happens after each command, which
        is the worst that can."""
        for key, (topic, state) in self.partitions().items():
            least = in_sync_min(state, self.catalog.rules_of(topic).min_insync_replicas)
            if state.leader != NO_LEADER and len(state.in_sync) >= least:
                self.complete[key] = set(state.in_sync)

    def pick(self, index: int) -> tuple[str, int, PartitionState] | None:
        found = [(topic, key[1], state) for key, (topic, state) in sorted(self.partitions().items())]
        return found[index % len(found)] if found else None

    # ---------------------------------------------------------------- nodes

    @initialize(min_in_sync=MIN_IN_SYNC, replicas=st.permutations([1, 2, 3, 4]), factor=st.integers(2, 3))
    def begin(self, min_in_sync: int, replicas: list[int], factor: int) -> None:
        for number in range(1, 5):
            self.cluster.start(number)
        overrides = {"min.insync.replicas": str(min_in_sync)}
        self.attempt(CreateTopic("a", 1, overrides, assignments=[replicas[:factor]]))

    @rule(number=NODES, loses=st.booleans(), is_ready=st.booleans())
    def start(self, number: int, loses: bool, is_ready: bool) -> None:
        before = self.partitions()
        lost = [(topic, key[1]) for key, (topic, _) in before.items() if loses and key[1] == 0]
        self.cluster.register(number, lost=lost)
        for key, (topic, state) in self.partitions().items():
            self.follow(key, before[key][1], state, set(), accepts_loss=False)
            if (topic, key[1]) not in lost:
                continue  # also after a crash: what counts as committed was fsynced
            self.complete[key].discard(number)
            if state.in_sync == (
                number,
            ):  # nobody else is known to have it: what this one has is what there is
                self.complete[key] = {number}
        if is_ready:
            self.unfence(number)

    @rule(number=NODES)
    def unfence(self, number: int) -> None:
        entry = self.catalog.node_by_number(number)
        self.attempt(UnfenceNode(f"n{number}", entry.incarnation if entry else ""))

    @rule(number=NODES)
    def fence(self, number: int) -> None:
        entry = self.catalog.node_by_number(number)
        self.attempt(FenceNode(f"n{number}", entry.incarnation if entry else ""))

    @rule(number=NODES, kind=st.sampled_from([DrainNode, DrainNode, UndrainNode, RemoveNode]))
    def drain_or_remove(self, number: int, kind: type[DrainNode | UndrainNode | RemoveNode]) -> None:
        self.attempt(kind(f"n{number}"))

    # ---------------------------------------------------------------- topics

    @rule(count=st.integers(1, 2), factor=st.integers(1, 3), min_in_sync=MIN_IN_SYNC, deletes=st.booleans())
    def create_or_delete(self, count: int, factor: int, min_in_sync: int, deletes: bool) -> None:
        overrides = {"min.insync.replicas": str(min_in_sync)}
        if deletes:
            self.attempt(DeleteTopic("b"))
        else:
            self.attempt(CreateTopic("b", count, overrides, replication_factor=factor))

    @rule(replicas=REPLICAS, min_in_sync=MIN_IN_SYNC, grows=st.booleans())
    def grow_or_alter(self, replicas: list[int], min_in_sync: int, grows: bool) -> None:
        if grows:
            self.attempt(GrowTopic("a", 2, [replicas]))
        else:
            self.attempt(AlterTopic("a", {"min.insync.replicas": str(min_in_sync)}))

    # ---------------------------------------------------------------- partitions

    @rule(pick=PICKS, members=REPLICAS, is_stale=st.booleans())
    def propose_some(self, pick: int, members: list[int], is_stale: bool) -> None:
        self.propose(pick, members, is_stale=is_stale)

    @rule(pick=PICKS)
    def propose_everybody_or_nobody_else(self, pick: int) -> None:
        found = self.pick(pick)
        if found is not None:
            states = self.states()
            able = [each for each in found[2].replicas if can_serve(states, each)]
            self.propose(pick, able if len(able) != len(found[2].in_sync) else [], is_stale=False)

    def propose(self, pick: int, members: list[int], *, is_stale: bool) -> None:
        found = self.pick(pick)
        if found is None or found[2].leader == NO_LEADER:
            return
        topic, index, state = found
        members = [state.leader, *(each for each in members if each != state.leader)]
        proposal = InSyncProposal(topic, index, state.leader_epoch, state.epoch - is_stale, members)
        before = self.catalog.snapshot()
        command = AlterPartitions(state.leader, self.cluster.incarnation(state.leader), [proposal] * 2)
        self.attempt(command, caught_up={(self.catalog.topic(topic).id, index): set(members)})
        assert not is_stale or self.catalog.snapshot() == before

    @rule(pick=PICKS, kind=st.sampled_from(["preferred", "preferred", "unclean", "all", "epoch"]))
    def elect(self, pick: int, kind: str) -> None:
        found = self.pick(pick)
        if kind == "all":
            self.attempt(ElectLeaders())
        elif found is not None and kind == "epoch":
            self.attempt(BumpLeaderEpoch(*found[:2], pick))
            assert self.catalog.partition(*found[:2]).leader_epoch > pick
        elif found is not None:
            is_unclean = kind == "unclean"
            command = ElectLeaders([found[:2]], "unclean" if is_unclean else "preferred")
            self.attempt(command, accepts_loss=is_unclean)

    @rule(pick=PICKS, replicas=st.none() | REPLICAS)
    def reassign(self, pick: int, replicas: list[int] | None) -> None:
        found = self.pick(pick)
        if found is not None:
            self.attempt(ReassignPartitions([(*found[:2], replicas)]))

    @rule(
        kind=st.sampled_from(["move", "move", "drain", "balance"]),
        number=NODES,
        replicas=REPLICAS,
        parallel=st.integers(1, 2),
        waits=st.booleans(),
    )
    def plan(self, kind: str, number: int, replicas: list[int], parallel: int, waits: bool) -> None:
        if kind == "move":
            places = [(topic, key[1]) for key, (topic, _) in sorted(self.partitions().items())]
            self.attempt(MakePlan([(*place, replicas) for place in places], parallel=parallel))
        elif kind == "drain":
            self.attempt(MakePlan(drain=f"n{number}", parallel=parallel))
        else:
            self.attempt(MakePlan(is_balance=True, parallel=parallel))
        if not waits:
            self.advance("advance")

    @rule(kind=st.sampled_from(["advance", "advance", "advance", "pause", "resume", "cancel"]))
    def advance(self, kind: str) -> None:
        id = self.catalog.plans.next_id - 1
        moving = len(self.catalog.plans.moving())
        match kind:
            case "advance":
                self.attempt(AdvancePlan(id))
                plan = self.catalog.plans.active()
                if plan is not None:
                    assert len(self.catalog.plans.moving()) <= max(moving, plan.parallel) + self.stuck()
                unchanged = self.catalog.snapshot()
                self.attempt(AdvancePlan(id))  # what can be done is done at once
                assert self.catalog.snapshot() == unchanged or plan is not None
            case "pause":
                self.attempt(PausePlan(id))
            case "resume":
                self.attempt(ResumePlan(id))
            case _:
                self.attempt(CancelPlan(id))

    def stuck(self) -> int:
        """Moves whose nodes are down: they take nobody's turn."""
        states = self.states()
        moves = [move for _, move in self.catalog.plans.moving()]
        return sum(not all(can_serve(states, each) for each in move.after) for move in moves)

    # ---------------------------------------------------------------- invariants

    @invariant()
    def only_what_the_plan_moves_is_moving_by_it(self) -> None:
        plans = self.catalog.plans
        if plans.active() is None:
            assert not plans.moving()
            assert not plans.waiting()
        for _, move in [*plans.moving(), *plans.waiting()]:
            assert self.catalog.partitions.find(*move.key) is not None

    @invariant()
    def members_are_where_they_may_be(self) -> None:
        states = self.states()
        for topic, state in self.partitions().values():
            replicas = set(state.replicas)
            assert len(replicas) == len(state.replicas)
            assert state.in_sync
            assert tuple(each for each in state.replicas if each in state.in_sync) == state.in_sync
            assert set(state.eligible) <= replicas - set(state.in_sync)
            assert set(state.adding) <= replicas
            assert set(state.removing) <= replicas - set(state.adding)
            assert len(state.in_sync) == 1 or all(can_serve(states, each) for each in state.in_sync)
            least = in_sync_min(state, self.catalog.rules_of(topic).min_insync_replicas)
            assert not state.eligible or len(state.in_sync) < least

    @invariant()
    def a_move_that_can_be_complete_is(self) -> None:
        states = self.states()
        for topic, state in self.partitions().values():
            assert complete(state, states, self.catalog.rules_of(topic)) == state

    @invariant()
    def whoever_is_not_in_sync_is_missed(self) -> None:
        states = [state for _, state in self.partitions().values()]
        table = self.catalog.partitions
        assert table.short_count == sum(set(state.in_sync) < set(state.replicas) for state in states)
        assert table.moving_count == sum(state.is_moving for state in states) == len(table.moving())

    @invariant()
    def whoever_may_be_elected_has_all_that_was_committed(self) -> None:
        for key, (_, state) in self.partitions().items():
            complete = self.complete[key]
            assert not complete or {*state.in_sync, *state.eligible} <= complete

    @invariant()
    def whoever_can_lead_does(self) -> None:
        states = self.states()
        for _, state in self.partitions().values():
            able = [each for each in state.in_sync if can_serve(states, each)]
            if state.leader == NO_LEADER:
                assert not able
                assert not any(can_serve(states, each) for each in state.eligible)
            else:
                assert state.leader in able
                assert states[state.leader] is NodeState.ALIVE or not any(
                    states[each] is NodeState.ALIVE for each in able
                )

    def teardown(self) -> None:
        """Replayed and restored state equal live state."""
        assert seen(self.cluster.replayed()) == seen(self.catalog)
        restored = Catalog(Limits())
        restored.restore(self.catalog.snapshot())
        assert seen(restored) == seen(self.catalog)


ClusterMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestCluster = ClusterMachine.TestCase
