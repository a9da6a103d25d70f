"""Settings of queue groups: one name inside, Kafka's names outside, and bad ones refused in words."""

from __future__ import annotations

import pytest

from goqueue.model.errors import InvalidRequest, InvalidSetting
from goqueue.model.group_settings import ALIASES, GROUP_SETTINGS, changed, group_setting, lease_settings
from goqueue.model.settings import SETTINGS


def test_kafkas_names_are_stored_under_ours() -> None:
    changes = {
        "share.record.lock.duration.ms": "15000",
        "share.delivery.count.limit": "5",
        "errors.deadletterqueue.topic.name": "dead",
    }
    assert changed({}, changes) == {"dlq.topic": "dead", "max.retries": "4", "visibility.ms": "15000"}


def test_what_kafka_is_told_is_what_kafka_said() -> None:
    for name, text in (("share.record.lock.duration.ms", "15000"), ("share.delivery.count.limit", "5")):
        alias = ALIASES[name]
        assert alias.theirs(changed({}, {name: text})[alias.name]) == text


def test_changes_leave_what_they_do_not_name() -> None:
    before = {"max.retries": "9", "ordering": "key"}
    assert changed(before, {"share.delivery.count.limit": None, "dlq.topic": "dead"}) == {
        "dlq.topic": "dead",
        "ordering": "key",
    }
    assert before == {"max.retries": "9", "ordering": "key"}


def test_numbers_are_stored_in_one_form() -> None:
    assert changed({}, {"visibility.ms": "0500", "share.session.timeout.ms": " 60000 "}) == {
        "share.session.timeout.ms": "60000",
        "visibility.ms": "500",
    }


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("visibility.ms", "0", "from 1 to 43200000"),
        ("share.record.lock.duration.ms", "soon", "'share.record.lock.duration.ms' is 'soon'"),
        ("share.delivery.count.limit", "0", "from 1 to 1001"),
        ("share.auto.offset.reset", "by_duration:PT1H", "one of latest, earliest"),
        ("share.isolation.level", "read_uncommitted", "one of read_committed"),
        ("share.session.timeout.ms", "1", "from 1000 to 1800000"),
        ("dlq.topic", "__mine", "the name of a topic, or empty"),
        ("ordering", "random", "one of none, key"),
        ("retention.ms", "1", "unknown group setting 'retention.ms'"),
        ("share.partition.max.record.locks", "1", "not taken here: how much is under way"),
        ("consumer.session.timeout.ms", "1", "not taken here: it is one for all groups"),
    ],
)
def test_bad_setting_is_refused_with_what_would_be_right(name: str, text: str, words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        changed({}, {name: text})


def test_one_setting_under_two_names_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"'max.retries' and 'share.delivery.count.limit' are the same"):
        changed({}, {"max.retries": "1", "share.delivery.count.limit": "2"})


def test_topics_are_covered_only_by_settings_that_they_have() -> None:
    overrides = changed({}, {"share.auto.offset.reset": "earliest", "visibility.ms": "7", "ordering": "key"})
    assert lease_settings(overrides) == {"ordering": "key", "visibility.ms": "7"}
    assert lease_settings(overrides).keys() <= SETTINGS.keys()


def test_every_name_says_what_it_is_for() -> None:
    for name in (*GROUP_SETTINGS, *ALIASES):
        assert group_setting(name).documentation.endswith(".")
        assert group_setting(name).rule.describe()
    with pytest.raises(InvalidSetting, match="unknown group setting 'colour'"):
        group_setting("colour")
