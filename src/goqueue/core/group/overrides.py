"""The settings that groups have of their own. They may be set before the group exists and go with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from goqueue.core.group.config import GroupConfig
from goqueue.model.errors import InvalidSetting, LimitExceeded
from goqueue.model.group_settings import SHARE_HEARTBEAT, SHARE_SESSION, changed

_NONE: Final[Mapping[str, str]] = {}


class GroupConfigured(Struct, frozen=True):
    """All the settings that the group has of its own from now on."""

    group_id: str
    overrides: dict[str, str]


class Overrides:
    """Of the groups of a shard, by the names of `model.group_settings`."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._of_group: dict[str, dict[str, str]] = {}

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._of_group

    def get(self, group_id: str) -> Mapping[str, str]:
        return self._of_group.get(group_id, _NONE)

    def session_ms(self, group_id: str) -> int:
        return int(self.get(group_id).get(SHARE_SESSION, self._config.share_session_ms))

    def heartbeat_ms(self, group_id: str) -> int:
        return int(self.get(group_id).get(SHARE_HEARTBEAT, self._config.share_heartbeat_ms))

    def change(
        self, group_id: str, changes: Mapping[str, str | None], *, is_whole: bool
    ) -> list[GroupConfigured]:
        """None takes a setting back; if these are the whole, so does leaving it out."""
        before = self.get(group_id)
        after = changed({} if is_whole else before, changes)
        self._check_session(after)
        if after == before:
            return []
        if not before and len(self._of_group) >= self._config.group_count_max:
            raise LimitExceeded(
                f"{len(self._of_group)} groups of this shard have settings already, the limit"
            )
        return [GroupConfigured(group_id, after)]

    def forget(self, group_id: str) -> list[GroupConfigured]:
        return [GroupConfigured(group_id, {})] if group_id in self._of_group else []

    def apply(self, event: GroupConfigured) -> None:
        if event.overrides:
            self._of_group[event.group_id] = event.overrides
        else:
            self._of_group.pop(event.group_id, None)

    def _check_session(self, overrides: Mapping[str, str]) -> None:
        session_ms = int(overrides.get(SHARE_SESSION, self._config.share_session_ms))
        heartbeat_ms = int(overrides.get(SHARE_HEARTBEAT, self._config.share_heartbeat_ms))
        if session_ms <= heartbeat_ms:
            raise InvalidSetting(
                f"{SHARE_SESSION!r} would be {session_ms} and {SHARE_HEARTBEAT!r} {heartbeat_ms}: a session must be longer "
                f"than the time between two heartbeats",
                setting=SHARE_SESSION,
                session_ms=session_ms,
                heartbeat_ms=heartbeat_ms,
            )
