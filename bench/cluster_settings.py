"""A topic's settings, changed and read by any Kafka client: what a controller decides without anything being moved."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

_ANSWER_S: Final = 0.5  # who has died does not answer, and the client asks no other before that


def is_set(admin: AdminClient, topic: str, name: str, value: int) -> bool:
    """Whether the change was accepted; one that was not may be tried again."""
    entry = ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    try:
        admin.incremental_alter_configs([resource], request_timeout=_ANSWER_S)[resource].result()
    except KafkaException:
        return False
    return True


def value_of_setting(admin: AdminClient, topic: str, name: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result()
    return str(found[name].value)
