"""What the client asks of joints, before it asks anybody."""

from __future__ import annotations

import pytest

from goqueue.client.kafka import KafkaCluster, KafkaError

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize("batch", [-1, 2**63])
def test_a_batch_id_that_no_request_can_hold_is_named(batch: int) -> None:
    with KafkaCluster(NOBODY) as cluster:
        for ask in (
            lambda: cluster.enrol("query", batch, "task", 1_000),
            lambda: cluster.commit_joint("query", batch, []),
            lambda: cluster.abort_joint("query", batch),
        ):
            with pytest.raises(KafkaError, match=rf"between 0 and {2**63 - 1}, {batch} is not") as caught:
                ask()
            assert caught.value.name == "INVALID_REQUEST"


@pytest.mark.parametrize("timeout_ms", [0, 2**31])
def test_a_timeout_that_no_request_can_hold_is_named(timeout_ms: int) -> None:
    with KafkaCluster(NOBODY) as cluster:
        for ask in (
            lambda: cluster.enrol("query", 0, "task", timeout_ms),
            lambda: cluster.init_producer("app", timeout_ms=timeout_ms),
        ):
            with pytest.raises(KafkaError, match=rf"1 to {2**31 - 1} ms, not {timeout_ms}") as caught:
                ask()
            assert caught.value.name == "INVALID_TRANSACTION_TIMEOUT"
