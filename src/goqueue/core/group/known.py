"""What is known of a group by its name, whatever kind it is of, and the refusals that follow from that alone."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from goqueue.core.group.classic import ClassicGroup
from goqueue.core.group.consumer import ConsumerGroup
from goqueue.model.errors import GoQueueError, GroupNotEmpty, GroupNotFound, InvalidGroupId

_GROUP_ID_LENGTH_MAX: Final = 1_000


class Known(Struct, frozen=True):
    group_id: str
    classic: ClassicGroup | None
    consumer: ConsumerGroup | None
    is_share: bool
    has_offsets: bool  # also of somebody who takes no part in a group

    @property
    def is_known(self) -> bool:
        return self.classic is not None or self.consumer is not None or self.is_share or self.has_offsets


def checked_id(group_id: str, *, may_be_empty: bool = False) -> str:
    """Kafka lets simple consumers commit under an empty name."""
    if not group_id and not may_be_empty:
        raise InvalidGroupId("a group needs a name")
    if len(group_id) > _GROUP_ID_LENGTH_MAX:
        raise InvalidGroupId(
            f"a group's name has at most {_GROUP_ID_LENGTH_MAX} characters, not {len(group_id)}"
        )
    return group_id


def refuse_if_unknown(group: Known) -> None:
    if not group.is_known:
        raise GroupNotFound(f"there is no group {group.group_id!r}", group=group.group_id)


def refuse_share_group(group: Known) -> None:
    """Its members are its own, and how far it has come is in the ledgers of the partitions that it reads."""
    if group.is_share:
        raise GroupNotFound(
            f"{group.group_id!r} is a share group; it has neither partitions of its own nor offsets that are committed",
            group=group.group_id,
        )


def not_empty(group_id: str) -> GoQueueError:
    return GroupNotEmpty(f"group {group_id!r} has members; stop them first", group=group_id)
