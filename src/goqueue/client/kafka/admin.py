"""Topics: which there are, how they are set, and new ones."""

from __future__ import annotations

from collections.abc import Mapping

from goqueue.client.kafka.brokers import Brokers
from goqueue.client.kafka.codes import ErrorCode
from goqueue.client.kafka.errors import KafkaError, Unreachable, check
from goqueue.client.kafka.layouts import requests

_C = requests("create_topics")
_D = requests("describe_configs")
_TOPIC = 2  # kind of resource, by Kafka's numbers
_OF_TOPIC = 1  # where a setting comes from, as above


def list_topics(brokers: Brokers) -> dict[str, int]:
    """Names to partition counts, in the order of the names and without the broker's own."""

    def attempt() -> dict[str, int]:
        counts = {}
        for topic in brokers.metadata(None):
            if topic.is_internal or topic.name.startswith("__"):
                continue
            check(topic.error_code, f"topic {topic.name}")
            counts[topic.name] = len(topic.partitions)
        return dict(sorted(counts.items()))

    return brokers.retrying(attempt)


def describe_topic(brokers: Brokers, topic: str, *, is_own: bool = False) -> dict[str, str]:
    """All settings of the topic, or only its own: those that are not a default."""

    def attempt() -> dict[str, str]:
        resource = _D.DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic)
        answer = brokers.call_any("describe_configs", resources=[resource])
        settings: dict[str, str] = {}
        for result in answer.results:
            check(result.error_code, f"the settings of topic {topic}", result.error_message)
            settings |= {
                one.name: one.value
                for one in result.configs
                if one.value is not None and (one.config_source == _OF_TOPIC or not is_own)
            }
        return settings

    return brokers.retrying(attempt)


def create_topic(brokers: Brokers, name: str, partition_count: int, settings: Mapping[str, str]) -> None:
    topic = _C.CreatableTopic(
        name=name,
        num_partitions=partition_count,
        replication_factor=-1,
        configs=[_C.CreatableTopicConfig(name=one, value=value) for one, value in settings.items()],
    )
    is_answer_lost = False

    def attempt() -> None:
        nonlocal is_answer_lost
        try:
            answer = brokers.call_any(
                "create_topics", topics=[topic], timeout_ms=int(brokers.timeout_s * 1_000)
            )
        except Unreachable:
            is_answer_lost = True
            raise
        for one in answer.topics:
            try:
                check(one.error_code, f"creating topic {name}", one.error_message)
            except KafkaError as error:
                # It may be the one that an attempt before made whose answer was lost.
                is_ours = is_answer_lost and list_topics(brokers).get(name) == partition_count
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not is_ours:
                    raise

    brokers.retrying(attempt)
