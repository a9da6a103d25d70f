"""Broken variants of the queue: for each of its traps the mistakes that its tests must catch. See `broken_variants.py`."""

from __future__ import annotations

from typing import Final, NamedTuple

REST: Final = "tests/integration/test_rest_queue.py"
CONSUMER: Final = "tests/integration/test_share_consumer_traps.py"
REST_TRAPS: Final = "tests/unit/api/http/test_rest_queue_traps.py"
REST_QUEUE: Final = "tests/unit/api/http/test_rest_groups_queue.py"
REST_STREAM: Final = "tests/unit/api/http/test_rest_groups.py"
SHARE: Final = "tests/unit/api/kafka/test_share_member_traps.py"


class Variant(NamedTuple):
    trap: int
    mistake: str
    file: str  # below src/goqueue
    old: str  # occurs once
    new: str
    tests: tuple[str, ...]  # every one of them must fail


VARIANTS: Final = (
    Variant(
        1,
        "a lane's cursor goes to the end of what was read ahead, not behind what was given",
        "core/lease/decisions.py",
        "fresh.offsets[taken] if taken < len(fresh.offsets) else fresh.end",
        "fresh.end",
        (
            f"{REST}::test_trap_1_interleaved_priorities_are_all_delivered",
            f"{SHARE}::test_trap_1_interleaved_priorities_are_all_delivered_to_a_share_member",
            f"{CONSUMER}::test_trap_1_interleaved_priorities_all_reach_a_share_consumer",
        ),
    ),
    Variant(
        1,
        "one cursor for all lanes",
        "core/lease/window.py",
        "        self.cursors = event.cursors\n",
        "        self.cursors = (max(event.cursors),) * LANE_COUNT\n",
        (
            f"{REST}::test_trap_1_interleaved_priorities_are_all_delivered",
            f"{SHARE}::test_trap_1_interleaved_priorities_are_all_delivered_to_a_share_member",
        ),
    ),
    Variant(
        2,
        "what lies behind an open transaction counts as looked at",
        "node/queue/feed.py",
        "            lane.end = end\n",
        "            lane.end = partition.log.high_watermark\n",
        (
            f"{REST_TRAPS}::test_trap_2_an_uncommitted_message_comes_once_it_is_committed",
            f"{SHARE}::test_trap_2_an_uncommitted_record_comes_to_a_share_member_once_it_is_committed",
            f"{CONSUMER}::test_trap_2_an_uncommitted_record_comes_to_a_share_consumer_once_it_is_committed",
        ),
    ),
    Variant(
        2,
        "what is due falls off the wheel and nobody fires it",
        "node/schedule/firing.py",
        "            if not schedule.state.ripe:\n                return\n",
        "            return\n",
        (
            f"{REST}::test_trap_2_a_delayed_message_reaches_a_consumer_that_has_read_past_it",
            f"{SHARE}::test_trap_2_a_delayed_record_reaches_a_share_member_that_has_read_past_it",
        ),
    ),
    Variant(
        5,
        "the whole backlog is read into memory before the first record is given",
        "node/queue/feed.py",
        "        while len(lane.records) < count and lane.size_bytes < _AHEAD_BYTES_MAX:\n"
        "            start, age = lane.end, lane.age\n"
        "            if start >= bound or size_bytes >= _LOOK_BYTES_MAX:\n",
        "        while True:\n            start, age = lane.end, lane.age\n            if start >= bound:\n",
        (f"{REST}::test_trap_5_a_backlog_of_mixed_priorities_costs_no_memory",),
    ),
    Variant(
        5,
        "where the records of a lane are is kept in memory for ever",
        "node/queue/postings.py",
        "            self._unsaved_bytes >= _SAVE_BYTES\n"
        "            or lists.unsaved_count >= self._spill_count\n"
        "            or self._is_shrinking(lists)\n",
        "            self._is_shrinking(lists)\n",
        ("tests/unit/node/test_node_lanes.py::test_memory_does_not_grow_with_the_backlog",),
    ),
    Variant(
        10,
        "every lane has the same share",
        "core/lanes.py",
        "                credits[:] = WEIGHTS\n",
        "                credits[:] = [sum(WEIGHTS) // LANE_COUNT] * LANE_COUNT\n",
        (
            f"{REST_TRAPS}::test_trap_10_with_all_lanes_full_the_shares_are_the_weights",
            f"{SHARE}::test_trap_10_what_share_members_get_is_in_the_weights",
            "tests/unit/node/test_node_lanes.py::test_with_all_lanes_full_the_shares_are_the_weights",
        ),
    ),
    Variant(
        10,
        "a higher lane goes before every lower one, however much it has had",
        "core/lanes.py",
        "                    credits[lane] -= take\n",
        "",
        (
            f"{REST_TRAPS}::test_trap_10_with_all_lanes_full_the_shares_are_the_weights",
            f"{SHARE}::test_trap_10_what_share_members_get_is_in_the_weights",
        ),
    ),
    Variant(
        11,
        "an ack changes the state and is not written to the ledger",
        "node/queue/ledger.py",
        "        self.write(events)\n",
        "        self.write([one for one in events if not isinstance(one, Settled)])\n"
        "        for event in events:\n"
        "            if isinstance(event, Settled):\n"
        "                self.state.apply(event)\n",
        (
            f"{REST}::test_trap_11_an_ack_survives_kill_9",
            f"{REST_QUEUE}::test_acks_and_members_survive_a_crash",
            "tests/unit/api/kafka/test_kafka_share_fetch.py::test_an_accept_that_was_answered_survives_a_power_cut",
            "tests/integration/test_kafka_share.py::test_kill_9_loses_no_acknowledgement",
        ),
    ),
    Variant(
        11,
        "an ack is answered before it is on the disk",
        "node/owned_state.py",
        "                await self._log.settled(gives_up=gives_up)\n",
        "                pass\n",
        (
            "tests/unit/api/kafka/test_kafka_share_fetch.py::test_an_accept_that_was_answered_survives_a_power_cut",
            "tests/unit/node/test_node_queue.py::test_acks_and_leases_outlive_every_kind_of_end",
        ),
    ),
    Variant(
        12,
        "all groups of a partition share one ledger entry",
        "core/lease/ledger.py",
        "        number = self.numbers.get(group_id)\n",
        "        number = next(iter(self.numbers.values()), None)\n",
        (
            f"{REST}::test_trap_12_two_groups_both_get_every_message",
            f"{REST_QUEUE}::test_trap_12_two_queue_groups_and_a_stream_all_get_every_message",
            f"{SHARE}::test_trap_12_two_share_groups_both_get_every_record",
        ),
    ),
    Variant(
        13,
        "the first failure is the last",
        "core/lease/policy.py",
        "deliveries > self.retry_count_max",
        "deliveries > 0",
        (
            f"{REST}::test_trap_13_a_retry_is_a_redelivery_and_only_then_comes_the_dead_letter",
            f"{SHARE}::test_trap_13_a_retry_is_a_redelivery_and_only_then_comes_the_dead_letter",
        ),
    ),
    Variant(
        13,
        "the count of deliveries does not grow",
        "core/lease/decisions.py",
        "Given(offset, entry.deliveries + 1, lane)",
        "Given(offset, 1, lane)",
        (
            f"{REST}::test_trap_13_a_retry_is_a_redelivery_and_only_then_comes_the_dead_letter",
            f"{SHARE}::test_trap_13_a_retry_is_a_redelivery_and_only_then_comes_the_dead_letter",
        ),
    ),
    Variant(
        14,
        "nothing new is given while something is unfinished",
        "core/lease/decisions.py",
        "is_full = len(window.entries) + limit > ENTRY_COUNT_MAX",
        "is_full = bool(window.entries)",
        (
            f"{REST}::test_trap_14_one_message_that_takes_minutes_does_not_stop_its_partition",
            f"{REST_TRAPS}::test_trap_14_one_message_that_takes_minutes_does_not_stop_its_partition",
            f"{SHARE}::test_trap_14_a_record_that_takes_minutes_does_not_stop_its_partition",
        ),
    ),
    Variant(
        15,
        "a rejected record keeps its place in the window of its group",
        "core/lease/ledger.py",
        "            self._window(event.group).apply_moving(offsets)\n",
        "            pass\n",
        (
            f"{REST}::test_trap_15_a_rejected_message_does_not_hold_the_committed_offset_back",
            f"{SHARE}::test_trap_15_a_rejected_record_does_not_hold_the_committed_offset_back",
            f"{CONSUMER}::test_trap_15_a_rejected_record_does_not_hold_the_committed_offset_back",
        ),
    ),
    Variant(
        16,
        "a poll that found nothing drops the connection",
        "api/http/group_members.py",
        "    membership = polled.membership\n",
        "    membership = polled.membership\n    if not polled.messages:\n        raise ClientGone\n",
        (
            f"{REST_STREAM}::test_trap_16_an_idle_long_poll_ends_with_an_empty_200",
            f"{REST_QUEUE}::test_trap_16_an_idle_poll_of_a_queue_ends_with_an_empty_200_and_keeps_the_member",
            "tests/integration/test_groups_over_rest.py"
            "::test_trap_16_an_idle_long_poll_ends_with_an_empty_200_on_a_real_connection",
        ),
    ),
    Variant(
        16,
        "a share fetch that found nothing is an error",
        "node/queue/share.py",
        "                if not await self._queue.polling.until_news(poll, list(ledgers.values()), deadline):\n"
        "                    return shared\n",
        "                if not await self._queue.polling.until_news(poll, list(ledgers.values()), deadline):\n"
        '                    raise ReceiptNotFound("nothing came")\n',
        (f"{SHARE}::test_trap_16_an_idle_share_fetch_ends_in_time_without_an_error",),
    ),
    Variant(
        17,
        "a queue member is given the first of its topics",
        "node/groups/queue_members.py",
        "for topic, count in member.assigned for",
        "for topic, count in member.assigned[:1] for",
        (f"{REST_QUEUE}::test_trap_17_a_queue_on_three_topics_gets_all_three",),
    ),
    Variant(
        17,
        "a stream member reads the first of its topics",
        "node/groups/stream_polling.py",
        "        places = membership.assigned\n",
        "        places = [one for one in membership.assigned if one[0] == membership.assigned[0][0]]\n",
        (f"{REST_STREAM}::test_trap_17_a_group_on_three_topics_gets_all_three",),
    ),
    Variant(
        17,
        "a member of a share group is assigned the first of its topics",
        "core/group/share.py",
        "for topic in topics)\n        return tuple((topic, count)",
        "for topic in topics[:1])\n        return tuple((topic, count)",
        (
            f"{REST_QUEUE}::test_trap_17_a_queue_on_three_topics_gets_all_three",
            f"{CONSUMER}::test_trap_17_a_share_consumer_of_three_topics_gets_all_three",
        ),
    ),
    Variant(
        17,
        "a share session keeps the topic that was named last",
        "api/kafka/share_sessions.py",
        "        after = session.spots | dict.fromkeys(spots)\n",
        "        after = dict.fromkeys(spots) or session.spots\n",
        (f"{SHARE}::test_trap_17_a_share_group_on_three_topics_gets_all_three",),
    ),
    Variant(
        18,
        "the generation of a REST member that commits is not looked at",
        "node/groups/offsets.py",
        "        if generation not in (None, facts.epoch):\n",
        "        if False:\n",
        (f"{REST_STREAM}::test_trap_18_a_zombies_commit_is_refused",),
    ),
    Variant(
        18,
        "any Kafka consumer of the new protocol may commit, whether it is a member or not",
        "core/group/commits.py",
        "            group.consumer.check_commit(command.member_id, command.generation, command.instance_id)\n",
        "            pass\n",
        ("tests/integration/test_kafka_zombies.py::test_a_zombies_commit_is_refused[kip848]",),
    ),
    Variant(
        18,
        "any Kafka consumer of the classic protocol may commit, whether it is a member or not",
        "core/group/commits.py",
        "            self._membership.check_commit(group.classic, command, turn.now_ms)\n",
        "            pass\n",
        (
            "tests/integration/test_kafka_zombies.py::test_a_zombies_commit_is_refused[eager]",
            "tests/integration/test_kafka_zombies.py::test_a_zombies_commit_is_refused_to_aiokafka",
        ),
    ),
    Variant(
        18,
        "an old receipt is as good as the newest",
        "core/lease/decisions.py",
        "claim.deliveries is not None and claim.deliveries != entry.deliveries",
        "claim.deliveries is not None and claim.deliveries > entry.deliveries",
        (f"{REST_TRAPS}::test_trap_18_a_zombie_finishes_nothing_of_what_another_has_now",),
    ),
    Variant(
        18,
        "who once held a record may speak of it though another has it now",
        "core/lease/decisions.py",
        "claim.member is not None and claim.member != entry.member",
        "claim.member is not None and not entry.member",
        (f"{SHARE}::test_trap_18_a_zombie_finishes_nothing_of_what_another_has_now",),
    ),
    Variant(
        19,
        "a cancel knows the offset and not the partition",
        "node/schedule/scheduler.py",
        "        self._guard.admit_relief()\n        schedule = await self._found(topic, index)\n",
        "        self._guard.admit_relief()\n        schedule = await self._found(topic, 0)\n",
        (
            f"{REST}::test_trap_19_delays_of_two_partitions_do_not_collide_survive_kill_9_and_stay_cancelled",
            "tests/unit/node/test_node_schedule.py::test_delays_of_two_partitions_with_the_same_offset_do_not_collide",
        ),
    ),
    Variant(
        19,
        "a cancel is not written to the log of the schedule",
        "node/schedule/scheduler.py",
        "        schedule.carry_out([schedule.state.cancel(id)])\n",
        "        schedule._apply([schedule.state.cancel(id)])\n",
        (
            f"{REST}::test_trap_19_delays_of_two_partitions_do_not_collide_survive_kill_9_and_stay_cancelled",
            f"{SHARE}"
            "::test_trap_19_delays_come_to_share_members_of_their_own_partition_once_and_cancelled_ones_never",
        ),
    ),
    Variant(
        19,
        "a start does not read the schedule's log",
        "node/schedule/shard.py",
        "        self._unsaved_count = await self.log.replay(start, lambda event: self.state.apply(event, now_ms))\n",
        "        self._unsaved_count = await self.log.replay(start, lambda event: None)\n",
        (
            f"{REST}::test_trap_19_delays_of_two_partitions_do_not_collide_survive_kill_9_and_stay_cancelled",
            f"{SHARE}"
            "::test_trap_19_delays_come_to_share_members_of_their_own_partition_once_and_cancelled_ones_never",
        ),
    ),
)
