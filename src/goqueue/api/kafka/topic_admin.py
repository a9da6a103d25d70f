"""CreateTopics, DeleteTopics and CreatePartitions. Each topic of a request succeeds or fails by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.config_entries import topic_entries
from goqueue.api.kafka.context import Context, code_of
from goqueue.api.kafka.error_text import text_of
from goqueue.model.errors import (
    GoQueueError,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidSetting,
    TimedOut,
)
from goqueue.model.topic_ids import topic_uuid
from goqueue.node.requests import TopicFacts
from goqueue.node.topics import Placement
from goqueue.wire.schema import NO_UUID, responses

_C = responses("create_topics")
_D = responses("delete_topics")
_P = responses("create_partitions")
_UNSET = -1  # the broker's default, of partitions and of replicas
_BY_TOPIC_STATES_FROM = 6  # DeleteTopics: names or ids, before that names
T = TypeVar("T")


class TopicAdminApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._topics = context.node.topics

    def apis(self) -> list[Api]:
        return [
            Api("create_topics", 2, 7, self.create_topics),
            Api("delete_topics", 1, 6, self.delete_topics),
            Api("create_partitions", 0, 3, self.create_partitions),
        ]

    async def create_topics(self, call: Call, request: Any) -> Answer:
        deadline = _deadline(request.timeout_ms)
        times = Counter(topic.name for topic in request.topics)
        first_of_each = {topic.name: topic for topic in request.topics}
        results = []
        for name, topic in first_of_each.items():
            try:
                _refuse_repeated(name, times[name])
                facts = await self._create(topic, deadline, validate_only=request.validate_only)
                results.append(self._created(facts))
            except GoQueueError as error:
                results.append(
                    _C.CreatableTopicResult(
                        name=name, error_code=code_of(error), error_message=text_of(error), configs=()
                    )
                )
        return _C.CreateTopicsResponse(topics=results)

    async def _create(self, topic: Any, deadline: float, *, validate_only: bool) -> TopicFacts:
        placement = _placement(topic)
        count = None if topic.num_partitions == _UNSET else topic.num_partitions
        overrides = _overrides(topic.configs)
        if validate_only:
            return self._topics.check_create(
                topic.name, partition_count=count, overrides=overrides, placement=placement
            )
        work = self._topics.create(
            topic.name, partition_count=count, overrides=overrides, placement=placement
        )
        return await _within(deadline, work, f"creating topic {topic.name!r}")

    def _created(self, facts: TopicFacts) -> Any:
        return _C.CreatableTopicResult(
            name=facts.name,
            topic_id=topic_uuid(facts.id).bytes
            if facts.id
            else NO_UUID,  # a topic that was only checked has none
            num_partitions=facts.partition_count,
            replication_factor=facts.replication_factor,
            configs=[
                _C.CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.is_read_only,
                    config_source=entry.source,
                )
                for entry in topic_entries(facts, self._context.node.config.topic_defaults)
            ],
        )

    async def delete_topics(self, call: Call, request: Any) -> Answer:
        deadline = _deadline(request.timeout_ms)
        wanted = (
            [(topic.name, topic.topic_id) for topic in request.topics]
            if call.version >= _BY_TOPIC_STATES_FROM
            else [(name, NO_UUID) for name in request.topic_names]
        )
        found = [self._named(name, id) for name, id in wanted]
        times = Counter(name for name in found if isinstance(name, str))
        results = []
        for (asked_name, asked_id), name in zip(wanted, found, strict=True):
            if isinstance(name, GoQueueError):
                results.append(_deleted(asked_name, asked_id, name))
                continue
            results.append(await self._delete(name, asked_id, times[name], deadline))
        return _D.DeleteTopicsResponse(responses=results)

    def _named(self, name: str | None, id: bytes) -> str | GoQueueError:
        """The name of a topic that is asked for by its name or its id."""
        try:
            if name is None and id == NO_UUID:
                raise InvalidRequest("a topic is given neither by its name nor by its id")
            if name is None:
                return self._context.topic_name(id)
            if id != NO_UUID:
                raise InvalidRequest(f"topic {name!r} is given by its name and by its id; give one of them")
        except GoQueueError as error:
            return error
        return name

    async def _delete(self, name: str, asked_id: bytes, times: int, deadline: float) -> Any:
        try:
            _refuse_repeated(name, times)
            id = self._context.topic_id(name)
            await _within(deadline, self._topics.delete(name), f"deleting topic {name!r}")
        except GoQueueError as error:
            return _deleted(name, asked_id, error)
        return _deleted(name, id, None)

    async def create_partitions(self, call: Call, request: Any) -> Answer:
        deadline = _deadline(request.timeout_ms)
        times = Counter(topic.name for topic in request.topics)
        first_of_each = {topic.name: topic for topic in request.topics}
        results = []
        for name, topic in first_of_each.items():
            error: GoQueueError | None = None
            try:
                _refuse_repeated(name, times[name])
                await self._grow(topic, deadline, validate_only=request.validate_only)
            except GoQueueError as refusal:
                error = refusal
            results.append(
                _P.CreatePartitionsTopicResult(
                    name=name, error_code=code_of(error), error_message=text_of(error)
                )
            )
        return _P.CreatePartitionsResponse(results=results)

    async def _grow(self, topic: Any, deadline: float, *, validate_only: bool) -> None:
        self._topics.check_grow(topic.name, topic.count)
        if topic.assignments is not None:
            added = topic.count - self._topics.get(topic.name).partition_count
            if len(topic.assignments) != added:
                raise InvalidReplicaAssignment(
                    f"{added} partitions are added to topic {topic.name!r}, but {len(topic.assignments)} are assigned"
                )
        assignments = None
        if topic.assignments is not None:
            assignments = [list(assignment.broker_ids) for assignment in topic.assignments]
        self._topics.check_grow(topic.name, topic.count, assignments)
        if not validate_only:
            work = self._topics.grow(topic.name, topic.count, assignments)
            await _within(deadline, work, f"adding partitions to topic {topic.name!r}")


def _deadline(timeout_ms: int) -> float:
    return asyncio.get_running_loop().time() + max(timeout_ms, 0) / 1_000


async def _within(deadline: float, work: Awaitable[T], what: str) -> T:
    """The node carries the change to its end all the same."""
    try:
        async with asyncio.timeout_at(deadline):
            return await work
    except TimeoutError:
        raise TimedOut(
            f"{what} takes longer than the request allows; it goes on, and whether it succeeds is not known"
        ) from None


def _refuse_repeated(name: str, times: int) -> None:
    if times > 1:
        raise InvalidRequest(f"topic {name!r} is named {times} times in one request", topic=name)


def _placement(topic: Any) -> Placement:
    """Placed by hand, or as many replicas as are wanted, wherever the controller puts them."""
    if not topic.assignments:
        factor = topic.replication_factor
        return Placement(replication_factor=None if factor == _UNSET else factor)
    if (topic.num_partitions, topic.replication_factor) != (_UNSET, _UNSET):
        raise InvalidRequest(
            f"topic {topic.name!r} has its replicas assigned: the number of partitions and the replication factor "
            "must be -1",
            topic=topic.name,
        )
    assigned = {one.partition_index: list(one.broker_ids) for one in topic.assignments}
    if sorted(assigned) != list(range(len(topic.assignments))):
        raise InvalidReplicaAssignment(
            f"the assigned partitions of topic {topic.name!r} must be 0 to {len(topic.assignments) - 1}, each of them once"
        )
    return Placement(assignments=[assigned[index] for index in range(len(assigned))])


def _overrides(configs: Sequence[Any]) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for config in configs:
        if config.value is None:
            raise InvalidSetting(
                f"setting {config.name!r} has no value; leave it out to take its default", setting=config.name
            )
        if config.name in overrides:
            raise InvalidRequest(f"setting {config.name!r} is given twice", setting=config.name)
        overrides[config.name] = config.value
    return overrides


def _deleted(name: str | None, id: bytes, error: GoQueueError | None) -> Any:
    return _D.DeletableTopicResult(
        name=name,
        topic_id=id,
        error_code=code_of(error),
        error_message=text_of(error),
    )
