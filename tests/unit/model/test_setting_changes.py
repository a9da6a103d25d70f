"""Settings changed step by step: what each action does, and that all of a request happens or nothing."""

from __future__ import annotations

import pytest

from goqueue.model.errors import GoQueueError, InvalidRequest, InvalidSetting
from goqueue.model.setting_changes import SettingAction, SettingOp, apply_incremental
from goqueue.model.settings import CleanupPolicy, TopicSettings

SET, DELETE, APPEND, SUBTRACT = SettingAction
DEFAULTS = TopicSettings()


def test_actions_have_the_numbers_of_kafka() -> None:
    assert [int(action) for action in (SET, DELETE, APPEND, SUBTRACT)] == [0, 1, 2, 3]


def test_setting_and_deleting_leave_the_other_overrides_alone() -> None:
    before = {"retention.ms": "5", "segment.ms": "6"}
    after = apply_incremental(
        before,
        [
            SettingOp("segment.bytes", SET, " 2048"),
            SettingOp("retention.ms", DELETE),
            SettingOp("index.interval.bytes", DELETE),
        ],
        DEFAULTS,
    )
    assert after == {"segment.ms": "6", "segment.bytes": "2048"}
    assert before == {"retention.ms": "5", "segment.ms": "6"}


@pytest.mark.parametrize(
    ("present", "action", "text", "expected"),
    [
        (None, APPEND, "compact", "compact,delete"),
        ("delete", APPEND, "compact", "compact,delete"),
        ("compact", APPEND, "compact", "compact"),
        ("compact", APPEND, " delete , compact", "compact,delete"),
        ("compact,delete", SUBTRACT, "delete", "compact"),
        ("compact,delete", SUBTRACT, "compact", "delete"),
        ("delete", SUBTRACT, "compact", "delete"),
        ("delete", SUBTRACT, "no.such", "delete"),
    ],
)
def test_a_list_grows_and_shrinks_by_its_members(
    present: str | None, action: SettingAction, text: str, expected: str
) -> None:
    overrides = {} if present is None else {"cleanup.policy": present}
    assert apply_incremental(overrides, [SettingOp("cleanup.policy", action, text)], DEFAULTS) == {
        "cleanup.policy": expected
    }


def test_a_list_that_was_not_set_begins_with_the_default_in_force() -> None:
    compacted = TopicSettings(cleanup_policy=CleanupPolicy.COMPACT)
    op = SettingOp("cleanup.policy", APPEND, "delete")
    assert apply_incremental({}, [op], compacted) == {"cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    ("op", "error", "sentence"),
    [
        (SettingOp("cleanup.policy", SUBTRACT, "delete"), InvalidSetting, "'cleanup.policy' is ''"),
        (SettingOp("cleanup.policy", APPEND, "keep"), InvalidSetting, "it must be one of"),
        (SettingOp("retention.ms", APPEND, "5"), InvalidSetting, "is no list; it takes SET and DELETE"),
        (SettingOp("compression.type", SUBTRACT, "gzip"), InvalidSetting, "is no list"),
        (SettingOp("retention.ms", SET, "soon"), InvalidSetting, "'retention.ms' is 'soon'"),
        (SettingOp("retention.ms", SET), InvalidRequest, "needs a value to SET"),
        (SettingOp("cleanup.policy", APPEND), InvalidRequest, "needs a value to APPEND"),
        (SettingOp("no.such", SET, "1"), InvalidSetting, "unknown topic setting"),
        (SettingOp("no.such", DELETE), InvalidSetting, "unknown topic setting"),
        (SettingOp("flush.ms", SET, "1"), InvalidSetting, "is not taken here: acks decides"),
    ],
)
def test_a_wrong_step_refuses_the_whole_request(
    op: SettingOp, error: type[GoQueueError], sentence: str
) -> None:
    before = {"segment.ms": "6"}
    with pytest.raises(error, match=sentence):
        apply_incremental(before, [SettingOp("segment.ms", DELETE), op], DEFAULTS)
    assert before == {"segment.ms": "6"}


def test_a_setting_cannot_be_changed_twice_at_once() -> None:
    ops = [SettingOp("segment.ms", SET, "6"), SettingOp("segment.ms", DELETE)]
    with pytest.raises(InvalidRequest, match="changed twice"):
        apply_incremental({}, ops, DEFAULTS)
