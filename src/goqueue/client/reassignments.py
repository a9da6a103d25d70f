"""Plans to move partitions, over REST."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TypeVar

import msgspec
from msgspec import Struct

from goqueue.client.connection import ApiError, Connection, error_of

_PATH = "/admin/reassignment"
T = TypeVar("T")


class NewPlan(Struct, frozen=True, omit_defaults=True):
    """One of `plan`, `drain` and `balance`."""

    plan: list[dict[str, object]] | None = None
    drain: str | None = None
    balance: bool = False
    topics: list[str] | None = None
    throttle_bytes_per_second: int | None = None
    parallel: int = 5
    dry_run: bool = False


class PlanMove(Struct, frozen=True):
    topic: str
    partition: int
    state: str
    before: list[str]
    after: list[str]
    adding: list[str]
    in_sync: list[str]
    records_left: int | None = None
    bytes_left: int | None = None
    percent: float | None = None
    reason: str = ""


class Plan(Struct, frozen=True):
    id: int
    state: str
    parallel: int
    throttle_bytes_per_second: int | None
    created_ms: int
    ended_ms: int | None
    counts: dict[str, int]
    moves: list[PlanMove]

    @property
    def is_over(self) -> bool:
        return self.state not in ("running", "paused")


class PlanShare(Struct, frozen=True):
    node: str
    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int
    copied_bytes: int | None = None


class PlanPreview(Struct, frozen=True):
    moves: list[PlanMove]
    nodes: list[PlanShare]
    warnings: list[str]


class _Plans(Struct, frozen=True):
    reassignments: list[Plan]


class ReassignmentClient:
    """One connection to one node. Not for use by two threads at once."""

    def __init__(self, url: str, *, timeout_s: float = 60.0) -> None:
        self._connection = Connection(url, timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def foresee(self, plan: NewPlan) -> PlanPreview:
        return self._ask("POST", _PATH, PlanPreview, msgspec.structs.replace(plan, dry_run=True))

    def make(self, plan: NewPlan) -> Plan:
        return self._ask("POST", _PATH, Plan, plan)

    def all(self) -> list[Plan]:
        """The latest first."""
        return self._ask("GET", _PATH, _Plans).reassignments

    def get(self, id: int) -> Plan:
        return self._ask("GET", f"{_PATH}/{id}", Plan)

    def pause(self, id: int) -> Plan:
        return self._ask("POST", f"{_PATH}/{id}/pause", Plan)

    def resume(self, id: int) -> Plan:
        return self._ask("POST", f"{_PATH}/{id}/resume", Plan)

    def cancel(self, id: int) -> Plan:
        return self._ask("DELETE", f"{_PATH}/{id}", Plan)

    def _ask(self, method: str, path: str, kind: type[T], body: object = None) -> T:
        reply = self._connection.request(method, path, body=body)
        if reply.status >= 400:
            raise error_of(reply)
        try:
            return msgspec.json.decode(reply.body, type=kind)
        except msgspec.DecodeError as error:
            sentence = f"the answer is not what a GoQueue broker sends: {error}"
            raise ApiError("INTERNAL", reply.status, sentence) from error
