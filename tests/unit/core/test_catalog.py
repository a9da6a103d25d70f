"""Topics and producer ids: decided from a state, applied to it, and rebuilt from the events alone."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from goqueue.core.catalog import (
    AlterTopic,
    Catalog,
    Command,
    CreateTopic,
    DeleteTopic,
    Event,
    GrowTopic,
    ProducerIdReserved,
    ReserveProducerId,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicGrown,
    decode_event,
    encode_event,
)
from goqueue.model.errors import (
    GoQueueError,
    InvalidName,
    InvalidPartitions,
    InvalidSetting,
    LimitExceeded,
    TopicExists,
    TopicNotFound,
)
from goqueue.model.limits import Limits

LIMITS = Limits(topic_count_max=3, partition_count_max=10, partitions_per_topic_max=6)
NAMES = ["a", "b", "c.d", "E_f-9", "a.."]


def seen(catalog: Catalog) -> tuple[object, ...]:
    """Everything that can be asked of a catalogue, the ids that come next among it."""
    return (
        catalog.topics(),
        [catalog.was_deleted(name) for name in NAMES],
        catalog.decide(ReserveProducerId(), 0),
        catalog.snapshot(),
    )


def run(catalog: Catalog, command: Command, now_ms: int = 5) -> list[Event]:
    """As the node does it, through the bytes of the log."""
    events = [decode_event(encode_event(event)) for event in catalog.decide(command, now_ms)]
    for event in events:
        catalog.apply(event)
    return events


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(LIMITS)


def test_the_brokers_own_topics_are_not_limited(catalog: Catalog) -> None:
    run(catalog, CreateTopic("__consumer_offsets", 50, {}, is_internal=True))
    assert catalog.topics()[0].partition_count == 50


def test_created_topic_is_found_with_what_it_was_created_with(catalog: Catalog) -> None:
    (event,) = run(catalog, CreateTopic("a", 2, {"retention.ms": "0060"}), now_ms=77)
    assert event == TopicCreated("a", 1, 2, {"retention.ms": "60"}, 77)
    assert catalog.topic("a") == event
    assert catalog.topics() == [event]


def test_deciding_changes_nothing_until_it_is_applied(catalog: Catalog) -> None:
    before = seen(catalog)
    catalog.decide(CreateTopic("a", 2, {}), 5)
    catalog.decide(ReserveProducerId(), 5)
    assert seen(catalog) == before


def test_topics_come_sorted_by_name(catalog: Catalog) -> None:
    for name in ("b", "a", "E_f-9"):
        run(catalog, CreateTopic(name, 1, {}))
    assert [topic.name for topic in catalog.topics()] == ["E_f-9", "a", "b"]


def test_topic_and_producer_ids_are_never_given_twice(catalog: Catalog) -> None:
    run(catalog, CreateTopic("a", 1, {}))
    run(catalog, DeleteTopic("a"))
    (again,) = run(catalog, CreateTopic("a", 1, {}))
    assert isinstance(again, TopicCreated)
    assert again.id == 2
    assert [run(catalog, ReserveProducerId()) for _ in range(3)] == [
        [ProducerIdReserved(1)],
        [ProducerIdReserved(2)],
        [ProducerIdReserved(3)],
    ]


def test_deleted_topic_is_gone_and_comes_back_with_nothing_of_the_old_one(catalog: Catalog) -> None:
    run(catalog, CreateTopic("a", 2, {"retention.ms": "60"}))
    assert run(catalog, DeleteTopic("a")) == [TopicDeleted("a")]
    assert catalog.was_deleted("a")
    assert catalog.gone_before("a") == 2
    with pytest.raises(TopicNotFound, match="create it"):
        catalog.topic("a")
    run(catalog, CreateTopic("a", 1, {}), now_ms=9)
    assert not catalog.was_deleted("a")
    assert catalog.topic("a") == TopicCreated("a", 2, 1, {}, 9)
    run(catalog, CreateTopic("b", 1, {}))
    assert catalog.gone_before("a") == 2


def test_altering_sets_keeps_and_takes_back(catalog: Catalog) -> None:
    run(catalog, CreateTopic("a", 1, {"retention.ms": "60", "segment.ms": "70"}))
    (event,) = run(
        catalog, AlterTopic("a", {"retention.ms": None, "segment.bytes": "2048", "retention.bytes": None})
    )
    assert event == TopicAltered("a", {"segment.ms": "70", "segment.bytes": "2048"})
    assert catalog.topic("a") == TopicCreated("a", 1, 1, {"segment.ms": "70", "segment.bytes": "2048"}, 5)


def test_altering_does_not_change_an_event_that_was_applied_before(catalog: Catalog) -> None:
    (created,) = run(catalog, CreateTopic("a", 1, {"retention.ms": "60"}))
    run(catalog, AlterTopic("a", {"retention.ms": "70"}))
    assert created == TopicCreated("a", 1, 1, {"retention.ms": "60"}, 5)


@pytest.mark.parametrize(
    ("command", "error", "sentence"),
    [
        (CreateTopic("a", 1, {}), TopicExists, "topic 'a' exists already"),
        (CreateTopic("x/y", 1, {}), InvalidName, "may hold only letters, digits"),
        (CreateTopic("", 1, {}), InvalidName, "must not be empty"),
        (CreateTopic("..", 1, {}), InvalidName, "is not a topic name"),
        (CreateTopic("x" * 250, 1, {}), InvalidName, "at most 249 characters"),
        (CreateTopic("__x", 1, {}), InvalidName, "internal; choose another"),
        (CreateTopic("x", 0, {}), InvalidPartitions, "a topic has 1 to 6 partitions, not 0"),
        (CreateTopic("x", -1, {}), InvalidPartitions, "a topic has 1 to 6 partitions, not -1"),
        (CreateTopic("x", 7, {}), InvalidPartitions, "a topic has 1 to 6 partitions, not 7"),
        (CreateTopic("x", 6, {}), LimitExceeded, "11 partitions in all would be more than the limit of 10"),
        (CreateTopic("x", 1, {"nope": "1"}), InvalidSetting, "unknown topic setting 'nope'"),
        (CreateTopic("x", 1, {"segment.ms": "0"}), InvalidSetting, "it must be a whole number from 1"),
        (AlterTopic("x", {}), TopicNotFound, "topic 'x' does not exist"),
        (AlterTopic("__cluster_metadata", {}), TopicNotFound, "does not exist"),
        (AlterTopic("a", {"segment.ms": "9", "nope": "1"}), InvalidSetting, "unknown topic setting 'nope'"),
        (AlterTopic("a", {"segment.ms": "9", "nope": None}), InvalidSetting, "unknown topic setting 'nope'"),
        (AlterTopic("a", {"segment.ms": "9", "retention.ms": "x"}), InvalidSetting, "'retention.ms' is 'x'"),
        (GrowTopic("a", 5), InvalidPartitions, "has 5 partitions; it can only get more, not 5"),
        (GrowTopic("a", 4), InvalidPartitions, "has 5 partitions; it can only get more, not 4"),
        (GrowTopic("a", -1), InvalidPartitions, "it can only get more, not -1"),
        (GrowTopic("a", 7), InvalidPartitions, "a topic has 1 to 6 partitions, not 7"),
        (GrowTopic("x", 6), TopicNotFound, "topic 'x' does not exist"),
        (GrowTopic("__cluster_metadata", 6), TopicNotFound, "does not exist"),
        (DeleteTopic("x"), TopicNotFound, "topic 'x' does not exist"),
        (DeleteTopic("__cluster_metadata"), TopicNotFound, "does not exist"),
        (DeleteTopic("../a"), InvalidName, "may hold only letters, digits"),
    ],
)
def test_refusal_says_why_and_changes_nothing(
    catalog: Catalog, command: Command, error: type[GoQueueError], sentence: str
) -> None:
    run(catalog, CreateTopic("a", 5, {"retention.ms": "60"}))
    before = seen(catalog)
    with pytest.raises(error, match=sentence):
        catalog.decide(command, 6)
    assert seen(catalog) == before


def test_topics_and_partitions_are_limited_and_a_deletion_makes_room(catalog: Catalog) -> None:
    run(catalog, CreateTopic("a", 4, {}))
    run(catalog, CreateTopic("b", 6, {}))
    with pytest.raises(LimitExceeded, match="11 partitions in all"):
        run(catalog, CreateTopic("c.d", 1, {}))
    run(catalog, DeleteTopic("b"))
    run(catalog, CreateTopic("b", 1, {}))
    run(catalog, CreateTopic("c.d", 5, {}))
    run(catalog, DeleteTopic("a"))
    run(catalog, CreateTopic("a", 1, {}))
    with pytest.raises(LimitExceeded, match="there are 3 topics already"):
        run(catalog, CreateTopic("E_f-9", 1, {}))


def test_a_grown_topic_keeps_everything_but_its_partition_count(catalog: Catalog) -> None:
    (created,) = run(catalog, CreateTopic("a", 2, {"retention.ms": "60"}))
    assert run(catalog, GrowTopic("a", 5), now_ms=9) == [TopicGrown("a", 5)]
    assert catalog.topic("a") == TopicCreated("a", 1, 5, {"retention.ms": "60"}, 5)
    assert created == TopicCreated("a", 1, 2, {"retention.ms": "60"}, 5)
    run(catalog, AlterTopic("a", {"retention.ms": None}))
    assert catalog.topic("a") == TopicCreated("a", 1, 5, {}, 5)


def test_only_added_partitions_count_against_the_limit_of_all(catalog: Catalog) -> None:
    run(catalog, CreateTopic("a", 5, {}))
    run(catalog, CreateTopic("b", 4, {}))
    with pytest.raises(LimitExceeded, match="11 partitions in all"):
        run(catalog, GrowTopic("b", 6))
    run(catalog, GrowTopic("b", 5))
    with pytest.raises(LimitExceeded, match="11 partitions in all"):
        run(catalog, GrowTopic("a", 6))


@pytest.mark.parametrize(
    "event",
    [
        TopicCreated("a", 3, 2, {"retention.ms": "60"}, 5),
        TopicAltered("a", {}),
        TopicGrown("a", 7),
        TopicDeleted("a"),
        ProducerIdReserved(2**40),
    ],
)
def test_event_is_stored_as_the_document_says_and_comes_back(event: Event) -> None:
    data = encode_event(event)
    assert data.startswith(b'{"event":"%s"' % type(event).__name__.encode())
    assert decode_event(data) == event


OVERRIDES = st.dictionaries(
    st.sampled_from(["retention.ms", "segment.bytes", "cleanup.policy", "nope"]),
    st.sampled_from(["1", "4096", "compact", "-1", "x"]),
    max_size=2,
)


class CatalogMachine(RuleBasedStateMachine):
    """Against a plain dict; replayed from the bytes of every event after each command."""

    def __init__(self) -> None:
        super().__init__()
        self.catalog = Catalog(LIMITS)
        self.log: list[bytes] = []
        self.model: dict[str, tuple[int, dict[str, str]]] = {}  # partition count, overrides
        self.producer_ids: list[int] = []
        self.topic_ids: list[int] = []
        self.now_ms = 0

    def attempt(self, command: Command) -> list[Event] | None:
        """The events, or None where it was refused; a refusal changes nothing."""
        self.now_ms += 1
        before = seen(self.catalog)
        try:
            events = self.catalog.decide(command, self.now_ms)
        except GoQueueError:
            events = None
        assert seen(self.catalog) == before
        for event in events or []:
            self.log.append(encode_event(event))
            self.catalog.apply(event)
        return events

    @rule(name=st.sampled_from([*NAMES, "__x", "a/b"]), count=st.integers(0, 7), overrides=OVERRIDES)
    def create(self, name: str, count: int, overrides: dict[str, str]) -> None:
        partitions = sum(each for each, _ in self.model.values())
        is_free = name in NAMES and name not in self.model and len(self.model) < 3
        events = self.attempt(CreateTopic(name, count, overrides))
        if events is None:
            return
        assert is_free
        assert 1 <= count <= 6
        assert partitions + count <= 10
        self.model[name] = (count, overrides)
        self.topic_ids.append(self.catalog.topic(name).id)
        assert self.catalog.topic(name).created_ms == self.now_ms

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 6))
    def create_without_overrides(self, name: str, count: int) -> None:
        fits = name not in self.model and len(self.model) < 3
        fits = fits and count + sum(each for each, _ in self.model.values()) <= 10
        events = self.attempt(CreateTopic(name, count, {}))
        assert (events is not None) == fits
        if events:
            self.model[name] = (count, {})
            self.topic_ids.append(self.catalog.topic(name).id)

    @rule(
        name=st.sampled_from(NAMES),
        set_=OVERRIDES,
        unset=st.sampled_from(["retention.ms", "segment.bytes", "no"]),
    )
    def alter(self, name: str, set_: dict[str, str], unset: str) -> None:
        events = self.attempt(AlterTopic(name, {**set_, unset: None}))
        if events is None:
            return
        count, overrides = self.model[name]
        changed = {**overrides, **{key: text for key, text in set_.items() if key != unset}}
        changed.pop(unset, None)
        self.model[name] = (count, changed)

    @rule(name=st.sampled_from(NAMES), count=st.integers(0, 7))
    def grow(self, name: str, count: int) -> None:
        present, overrides = self.model.get(name, (None, {}))
        total = sum(each for each, _ in self.model.values())
        fits = present is not None and present < count <= 6 and total - present + count <= 10
        events = self.attempt(GrowTopic(name, count))
        assert (events is not None) == fits
        if events:
            self.model[name] = (count, overrides)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        events = self.attempt(DeleteTopic(name))
        assert (events is not None) == (name in self.model)
        if events:
            del self.model[name]
            assert self.catalog.was_deleted(name)

    @rule()
    def reserve(self) -> None:
        events = self.attempt(ReserveProducerId())
        assert events is not None
        assert isinstance(events[0], ProducerIdReserved)
        self.producer_ids.append(events[0].id)

    @invariant()
    def live_state_is_that_of_the_model(self) -> None:
        found = {topic.name: (topic.partition_count, topic.overrides) for topic in self.catalog.topics()}
        assert found == self.model
        assert self.producer_ids == list(range(1, len(self.producer_ids) + 1))
        assert self.topic_ids == list(range(1, len(self.topic_ids) + 1))

    @invariant()
    def replayed_state_equals_live_state(self) -> None:
        again = Catalog(LIMITS)
        for data in self.log:
            again.apply(decode_event(data))
        assert seen(again) == seen(self.catalog)


CatalogMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
TestCatalog = CatalogMachine.TestCase
