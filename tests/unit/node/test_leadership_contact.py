"""A leader that is cut off answers that nothing is known; it is so no longer as soon as the controller has decided something."""

from __future__ import annotations

from msgspec import structs

from goqueue.core.cluster.partitions import PartitionState
from goqueue.node.replication.leadership import Leadership

STATE = PartitionState((1, 2, 3), (1, 2, 3), leader=1, leader_epoch=4, epoch=7)


def test_a_decision_of_the_controller_ends_being_cut_off() -> None:
    leadership = Leadership(
        1,
        STATE,
        min_in_sync=2,
        now_ms=0,
        when_changed=lambda partition, followers, has_more: None,
        when_failed=lambda: None,
    )
    leadership.note_contact(is_silent=True, heard_ms={2: 5_000}, oldest_ms=4_000)
    assert leadership.is_cut_off  # nobody has heard of the third
    leadership.update(STATE, min_in_sync=2)
    assert leadership.is_cut_off  # the same again, which it knew
    leadership.update(structs.replace(STATE, in_sync=(1, 2), epoch=8), min_in_sync=2)
    assert not leadership.is_cut_off
