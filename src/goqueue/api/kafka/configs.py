"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: the settings of topics and of queue groups,
and a look at the broker's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.config_entries import ConfigEntry, broker_entries, group_entries, topic_entries
from goqueue.api.kafka.context import Context, code_of
from goqueue.api.kafka.error_text import text_of
from goqueue.model.errors import GoQueueError, InvalidRequest, InvalidSetting
from goqueue.model.setting_changes import SettingAction, SettingOp, apply_incremental
from goqueue.model.settings import SettingType
from goqueue.node.topics import Edit
from goqueue.wire.schema import responses

_D = responses("describe_configs")
_A = responses("alter_configs")
_I = responses("incremental_alter_configs")
_TYPE_NUMBERS = {
    SettingType.BOOLEAN: 1,
    SettingType.STRING: 2,
    SettingType.INT: 3,
    SettingType.LONG: 5,
    SettingType.DOUBLE: 6,
    SettingType.LIST: 7,
}


class _Resource(IntEnum):
    """By Kafka's numbers: whose settings are meant."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigsApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._node = context.node

    def apis(self) -> list[Api]:
        return [
            Api("describe_configs", 1, 4, self.describe_configs),
            Api("alter_configs", 0, 2, self.alter_configs),
            Api("incremental_alter_configs", 0, 1, self.incremental_alter_configs),
        ]

    async def describe_configs(self, call: Call, request: Any) -> Answer:
        return _D.DescribeConfigsResponse(
            results=[await self._described(resource, request) for resource in request.resources]
        )

    async def _described(self, resource: Any, request: Any) -> Any:
        who = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            entries = await self._entries(resource)
        except GoQueueError as error:
            return _D.DescribeConfigsResult(error_code=code_of(error), error_message=text_of(error), **who)
        wanted = resource.configuration_keys
        return _D.DescribeConfigsResult(
            configs=[
                _config(
                    entry,
                    with_synonyms=request.include_synonyms,
                    with_documentation=request.include_documentation,
                )
                for entry in entries
                if not wanted or entry.name in wanted
            ],
            **who,
        )

    async def _entries(self, resource: Any) -> list[ConfigEntry]:
        if _kind(resource) is _Resource.TOPIC:
            topic = self._node.topics.get(resource.resource_name)
            return topic_entries(topic, self._node.config.topic_defaults)
        if _kind(resource) is _Resource.GROUP:
            overrides = await self._node.group_configs.settings_of(resource.resource_name)
            return group_entries(overrides, self._node.config)
        if resource.resource_name == "":  # what is set for all brokers while they run: nothing can be
            return []
        broker_id = self._context.broker_id
        if resource.resource_name != str(broker_id):
            raise InvalidRequest(
                f"there is no broker {resource.resource_name!r}; this one is {broker_id}",
                broker=resource.resource_name,
            )
        return broker_entries(
            self._node.config, number=broker_id, host=self._context.host, port=self._context.port
        )

    async def alter_configs(self, call: Call, request: Any) -> Answer:
        """All settings of a resource at once: what is not named goes back to its default."""

        async def alter(resource: Any) -> None:
            texts = _named_texts(resource.configs)
            if _kind(resource) is _Resource.GROUP:
                await self._configure(resource, texts, request.validate_only, is_whole=True)
            else:
                await self._edit(resource.resource_name, lambda _: texts, request.validate_only)

        errors = await self._alter_each(request, alter)
        return _A.AlterConfigsResponse(responses=_outcomes(_A, request, errors))

    async def incremental_alter_configs(self, call: Call, request: Any) -> Answer:
        """Only what is named, step by step."""
        defaults = self._node.config.topic_defaults

        async def alter(resource: Any) -> None:
            steps = [_step(config) for config in resource.configs]
            if _kind(resource) is _Resource.GROUP:
                await self._configure(resource, _changes(steps), request.validate_only, is_whole=False)
            else:
                await self._edit(
                    resource.resource_name,
                    lambda overrides: apply_incremental(overrides, steps, defaults),
                    request.validate_only,
                )

        errors = await self._alter_each(request, alter)
        return _I.IncrementalAlterConfigsResponse(responses=_outcomes(_I, request, errors))

    async def _alter_each(
        self, request: Any, alter: Callable[[Any], Awaitable[None]]
    ) -> list[GoQueueError | None]:
        times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
        errors: list[GoQueueError | None] = []
        for resource in request.resources:
            try:
                if times[resource.resource_type, resource.resource_name] > 1:
                    raise InvalidRequest(
                        f"{resource.resource_name!r} is named twice; each resource may appear once"
                    )
                _refuse_broker(resource)
                await alter(resource)
                errors.append(None)
            except GoQueueError as error:
                errors.append(error)
        return errors

    async def _edit(self, topic: str, edit: Edit, validate_only: bool) -> None:
        if validate_only:
            self._node.topics.check_edit(topic, edit)
        else:
            await self._node.topics.edit(topic, edit)

    async def _configure(
        self, resource: Any, changes: Mapping[str, str | None], validate_only: bool, *, is_whole: bool
    ) -> None:
        await self._node.group_configs.configure(
            resource.resource_name, changes, is_whole=is_whole, validate_only=validate_only
        )


def _kind(resource: Any) -> _Resource:
    try:
        return _Resource(resource.resource_type)
    except ValueError:
        raise InvalidRequest(
            f"resource type {resource.resource_type} has no settings here; 2 (topic), 4 (broker) and "
            "32 (group) have",
            resource_type=resource.resource_type,
        ) from None


def _refuse_broker(resource: Any) -> None:
    if _kind(resource) is _Resource.BROKER:
        raise InvalidRequest(
            "the settings of a broker cannot be changed while it runs: set them in its file, its environment or "
            "its flags and restart it",
            broker=resource.resource_name,
        )


def _named_texts(configs: Sequence[Any]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for config in configs:
        if config.name in texts:
            raise InvalidRequest(f"setting {config.name!r} is given twice", setting=config.name)
        if config.value is None:
            raise InvalidRequest(
                f"setting {config.name!r} has no value; leave it out to take its default", setting=config.name
            )
        texts[config.name] = config.value
    return texts


def _step(config: Any) -> SettingOp:
    try:
        action = SettingAction(config.config_operation)
    except ValueError:
        raise InvalidRequest(
            f"operation {config.config_operation} on {config.name!r} is not one of "
            + ", ".join(f"{action.value} ({action.name})" for action in SettingAction),
            setting=config.name,
            operation=config.config_operation,
        ) from None
    return SettingOp(config.name, action, config.value)


def _changes(steps: Sequence[SettingOp]) -> dict[str, str | None]:
    """Of a group, which has no lists to add to: what is set, and None for what is taken back."""
    changes: dict[str, str | None] = {}
    for step in steps:
        if step.name in changes:
            raise InvalidRequest(f"setting {step.name!r} is changed twice in one request", setting=step.name)
        if step.action not in (SettingAction.SET, SettingAction.DELETE):
            raise InvalidSetting(
                f"setting {step.name!r} is no list; it takes SET and DELETE, not {step.action.name}",
                setting=step.name,
            )
        if step.action is SettingAction.SET and step.text is None:
            raise InvalidRequest(f"setting {step.name!r} needs a value to SET", setting=step.name)
        changes[step.name] = step.text if step.action is SettingAction.SET else None
    return changes


def _config(entry: ConfigEntry, *, with_synonyms: bool, with_documentation: bool) -> Any:
    origins = entry.origins if with_synonyms else ()
    return _D.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        synonyms=[_D.DescribeConfigsSynonym(name=name, value=text, source=at) for name, text, at in origins],
        config_type=_TYPE_NUMBERS[entry.type],
        documentation=entry.documentation if with_documentation else None,
    )


def _outcomes(messages: Any, request: Any, errors: list[GoQueueError | None]) -> list[Any]:
    return [
        messages.AlterConfigsResourceResponse(
            error_code=code_of(error),
            error_message=text_of(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, error in zip(request.resources, errors, strict=True)
    ]
