"""All families of APIs over one node, and the listener in front of them."""

from __future__ import annotations

from goqueue.api.kafka.call import Api
from goqueue.api.kafka.cluster_admin import ClusterAdminApi
from goqueue.api.kafka.configs import ConfigsApi
from goqueue.api.kafka.consumer_groups import ConsumerGroupsApi
from goqueue.api.kafka.context import Context
from goqueue.api.kafka.dispatch import Dispatch
from goqueue.api.kafka.fetch import FetchApi
from goqueue.api.kafka.group_admin import GroupAdminApi
from goqueue.api.kafka.group_offsets import GroupOffsetsApi
from goqueue.api.kafka.groups import GroupsApi
from goqueue.api.kafka.joint import JointApi
from goqueue.api.kafka.metadata import MetadataApi
from goqueue.api.kafka.offsets import OffsetsApi
from goqueue.api.kafka.produce import ProduceApi
from goqueue.api.kafka.reassignments import ReassignmentsApi
from goqueue.api.kafka.server import KafkaServer
from goqueue.api.kafka.share_fetch import ShareFetchApi
from goqueue.api.kafka.share_groups import ShareGroupsApi
from goqueue.api.kafka.share_offsets import ShareOffsetsApi
from goqueue.api.kafka.topic_admin import TopicAdminApi
from goqueue.api.kafka.transaction_admin import TransactionAdminApi
from goqueue.api.kafka.transactions import TransactionsApi
from goqueue.api.kafka.versions import VersionsApi
from goqueue.node.node import Node


class KafkaListener:
    """`advertised` is what clients are told to connect to; without it, the address that is listened on."""

    def __init__(
        self, node: Node, *, host: str, port: int, advertised: tuple[str, int] | None = None
    ) -> None:
        self._context = Context(node)
        self._advertised = advertised
        limits = node.config.limits
        self._server = KafkaServer(
            Dispatch(served_apis(self._context)),
            host=host,
            port=port,
            connection_count_max=limits.connection_count_max,
            frame_bytes_max=limits.request_bytes_max,
            on_broken=node.fail,
        )

    async def start(self, *, is_open: bool = True) -> tuple[str, int]:
        """Without `is_open` the address is known and nobody can connect before `open`: a client that asks a node which does
        not know the cluster yet would believe that there is nothing."""
        address = await self._server.start(is_open=is_open)
        self._context.host, self._context.port = self._advertised or address
        return address

    async def open(self) -> None:
        await self._server.open()

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)


def served_apis(context: Context) -> list[Api]:
    """Every API there is, in every version that works: docs/kafka.md is printed from this list."""
    versions = VersionsApi()
    families = (
        versions,
        MetadataApi(context),
        ProduceApi(context),
        FetchApi(context),
        OffsetsApi(context),
        GroupsApi(context),
        GroupOffsetsApi(context),
        GroupAdminApi(context),
        ConsumerGroupsApi(context),
        ShareGroupsApi(context),
        ShareFetchApi(context),
        ShareOffsetsApi(context),
        TransactionsApi(context),
        TransactionAdminApi(context),
        JointApi(context),
        TopicAdminApi(context),
        ConfigsApi(context),
        ClusterAdminApi(context),
        ReassignmentsApi(context),
    )
    served = [api for family in families for api in family.apis()]
    versions.announce(served)
    return served
