"""The nodes of a cluster as the catalogue knows them."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Endpoints(Struct, frozen=True, forbid_unknown_fields=True):
    """Where others connect to, each as `host:port`."""

    http: str
    kafka: str
    cluster: str


class NodeState(StrEnum):
    FENCED = "fenced"  # leads nothing: it has just registered, or nobody has heard of it for too long
    ALIVE = "alive"
    DRAINING = "draining"  # alive and in sync, but leads only what nobody else can


class NodeEntry(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    number: int  # Kafka's broker id; given once, for ever
    incarnation: str  # one start of its process
    endpoints: Endpoints
    rack: str
    version: str
    state: NodeState
