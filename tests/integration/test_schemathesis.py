"""The OpenAPI document against a live broker: schemathesis tries to prove one of them wrong, with every check it has.

Its command line runs in a process of its own, so that its hooks and its pytest plugin stay out of ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.support.broker import Broker

EXAMPLES_MAX = 6  # per operation and phase
TIMEOUT_S = 1_100.0

# Small limits, which the document repeats: waiting ends soon, and topics stay small.
LIMITS = {
    "GOQUEUE_LIMITS__WAIT_MS_MAX": "20",
    "GOQUEUE_LIMITS__PARTITIONS_PER_TOPIC_MAX": "4",
    "GOQUEUE_LIMITS__MESSAGES_PER_REQUEST_MAX": "50",
}

# What OpenAPI has no words for: parameters that exclude each other, messages that must share a partition, partitions
# that this topic has, counts that it has outgrown, delays within a limit, cron and time zones. Requests that are meant
# to be valid are made so.
HOOKS = """
import schemathesis

@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if case.path_parameters and len(str(case.path_parameters.get("topic", ""))) > 238:
        case.path_parameters["topic"] = "orders"  # a queue's name is a little shorter than a topic's
    if case.method == "DELETE" and case.path_parameters and case.path_parameters.get("topic") == "orders":
        case.path_parameters["topic"] = "nowhere"  # others are sent there as the example that the document has
    if case.query and case.path.endswith("/poll"):
        case.query.pop("visibility", None)  # only members of mode queue have it
    if case.query and "offset" in case.query:
        case.query.pop("timestamp", None)
    if isinstance(case.body, dict) and "count" in case.body and case.path_parameters["topic"] == "orders":
        case.path_parameters["topic"] = "nowhere"
    if isinstance(case.body, dict) and isinstance(case.body.get("config"), dict):
        for name in ("share.session.timeout.ms", "share.heartbeat.interval.ms"):  # one must be the longer
            case.body["config"].pop(name, None)
        case.body["config"].pop("delay.max.ms", None)  # or delays that come later would be too long
        case.body["config"].pop("scaling", None)  # is chosen when a topic is created, and stays
    if isinstance(case.body, dict):
        case.body.pop("replica_assignments", None)  # of nodes that are there, partition by partition
    if isinstance(case.body, dict) and "messages" in case.body:
        if "producer_id" in case.body:
            del case.body["messages"][1:]
        for message in case.body["messages"]:
            if message.get("partition"):
                message["partition"] = 0
            if "deliverAt" in message:
                message["deliverAt"] = "2001-01-01T00:00:00Z"
            for headers in (message.get("headers", {}), message.get("headers_base64", {})):
                for name in ("gq-priority", "gq-deliver-at", "traceparent"):
                    headers.pop(name, None)
    if isinstance(case.body, dict) and "recurring" in case.path:
        if "name" not in case.body:  # it could not make a body, while it tries values of the path
            case.body = {"name": "s", "every": "5m", "message": {"value": "v"}}
            case.path_parameters["topic"] = "nowhere"
        for name in ("timezone", "start_at", "end_at"):
            case.body.pop(name, None)
        if "cron" in case.body:
            case.body["cron"] = "*/5 * * * *"
        message = case.body["message"]
        if message.get("partition"):
            message["partition"] = 0
        for headers in (message.get("headers", {}), message.get("headers_base64", {})):
            for name in ("gq-priority", "gq-deliver-at", "gq-schedule", "gq-scheduled-at"):
                headers.pop(name, None)
    if isinstance(case.body, dict) and "redrive" in case.path:
        case.body.pop("per_second", None)
        case.body.pop("to", None)
        if case.body.get("partition"):
            case.body["partition"] = 0
"""

# Two refusals depend on what is stored, not on the form of the request: a message above the topic's own maximum
# (413), an offset beyond the log (416).
CONFIG = """
request-timeout = 60

[checks.positive_data_acceptance]
expected-statuses = ["2xx", "401", "403", "404", "409", "413", "416", "429", "5xx"]
"""


def create_topic(broker: Broker, name: str) -> None:
    body = json.dumps({"name": name, "num_partitions": 2}).encode()
    request = urllib.request.Request(f"{broker.url}/topics", data=body, method="POST")
    with urllib.request.urlopen(request, timeout=10) as response:
        assert response.status == 201


@pytest.mark.timeout(1_200)
def test_the_document_is_true(tmp_path: Path) -> None:
    (tmp_path / "hooks_of_this_test.py").write_text(HOOKS)
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    with Broker(tmp_path / "data", env=LIMITS) as broker:
        create_topic(broker, "orders")
        tried = subprocess.run(
            [
                str(Path(sys.executable).parent / "schemathesis"),
                "--no-color",
                "run",
                f"{broker.url}/openapi.json",
                "--checks=all",
                f"--max-examples={EXAMPLES_MAX}",
                "--generation-deterministic",
            ],
            cwd=tmp_path,
            env=os.environ | {"SCHEMATHESIS_HOOKS": "hooks_of_this_test"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert tried.returncode == 0, tried.stdout + tried.stderr
        assert broker.is_running
        assert broker.stop() == 0
        assert "request failed" not in broker.stderr.text()
