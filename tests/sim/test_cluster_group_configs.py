"""The settings of a group over Kafka: any node takes and tells them, whichever coordinates the group."""

from __future__ import annotations

from typing import Any

from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.sim.kafka.client import requests

GROUP, SET = 32, 0
SETTING = "share.record.lock.duration.ms"


async def alter(played: PlayedCluster, host: str, value: str, *, validate_only: bool = False) -> int:
    kinds = requests("incremental_alter_configs")
    resource = kinds.AlterConfigsResource(
        resource_type=GROUP,
        resource_name="workers",
        configs=[kinds.AlterableConfig(name=SETTING, config_operation=SET, value=value)],
    )
    answer = await played.client.ask(
        host, "incremental_alter_configs", 1, resources=[resource], validate_only=validate_only
    )
    return int(answer.responses[0].error_code)


async def described(played: PlayedCluster, host: str) -> Any:
    kinds = requests("describe_configs")
    resource = kinds.DescribeConfigsResource(resource_type=GROUP, resource_name="workers")
    answer = await played.client.ask(host, "describe_configs", 4, resources=[resource])
    assert answer.results[0].error_code == 0, answer
    return next(one.value for one in answer.results[0].configs if one.name == SETTING)


def test_every_node_changes_and_tells_the_settings_of_every_group() -> None:
    async def play(played: PlayedCluster) -> None:
        for at, host in enumerate(played.cluster.names):
            value = str(20_000 + at)
            assert await alter(played, host, "30000", validate_only=True) == 0
            assert await alter(played, host, value) == 0
            for other in played.cluster.names:
                assert await described(played, other) == value
        coordinators = [played.node(name).groups.coordinates("workers") for name in played.cluster.names]
        assert coordinators.count(True) == 1

    in_cluster(play)


def test_what_the_coordinator_refuses_is_refused_by_all() -> None:
    async def play(played: PlayedCluster) -> None:
        codes = [await alter(played, host, "none") for host in played.cluster.names]
        checked = [await alter(played, host, "none", validate_only=True) for host in played.cluster.names]
        assert codes == checked
        assert len(set(codes)) == 1
        assert codes[0] == 40  # INVALID_CONFIG

    in_cluster(play)
