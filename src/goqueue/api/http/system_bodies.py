"""The bodies of the routes about the broker itself."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.errors import Details
from goqueue.api.http.topic_bodies import Count, Instant
from goqueue.model.codes import Code

Uptime = Annotated[float, Meta(description="Seconds since the broker started.")]


class ReadinessQuery(Struct, frozen=True):
    verbose: Annotated[
        Literal["", "true", "false"], Meta(description="With `checks` and `broker`; `?verbose` is enough.")
    ] = "false"


class Liveness(Struct, frozen=True, forbid_unknown_fields=True):
    status: Annotated[str, Meta(description="starting, ready, draining or stopped.")]
    timestamp: Instant
    uptime: Uptime


class BrokerSummary(Struct, frozen=True, forbid_unknown_fields=True):
    node_id: str
    version: str
    topics: Count
    partitions: Count


class Readiness(Struct, frozen=True, forbid_unknown_fields=True):
    status: str
    timestamp: Instant
    uptime: Uptime
    checks: Annotated[dict[str, str], Meta(description='"ok", or what is wrong.')] | UnsetType = UNSET
    broker: BrokerSummary | UnsetType = UNSET


class NotReadyError(Struct, frozen=True, forbid_unknown_fields=True):
    """An error with the same `checks` and `broker` as the answer of a broker that is ready."""

    error: str
    code: Code
    status: int
    details: Details
    checks: dict[str, str] | UnsetType = UNSET
    broker: BrokerSummary | UnsetType = UNSET


class Version(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    version: str
    api_versions: list[str]
