"""The README's commands, run as they are printed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.broker import Broker, clean_environment, command_line

README = (Path(__file__).parents[2] / "README.md").read_text()


def _block(language: str, containing: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return next(str(block) for block in blocks if containing in block)


def _without_times(line: str) -> object:
    return json.loads(re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", line))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_lines_print_what_the_readme_says(broker: Broker) -> None:
    commands = _block("sh", "curl").replace("localhost:8080", broker.address)
    expected = _block("json", "results").splitlines()
    printed = [
        subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout
        for line in commands.splitlines()
    ]
    assert [_without_times(line) for line in printed] == [_without_times(line) for line in expected]


def _without_chance(line: str) -> object:
    """Without what differs from run to run: times, the proofs of receipts, the name of the machine."""
    line = re.sub(r'(receipt_handle":"[^"]*\.)[0-9a-f]+"', r'\1PROOF"', line)
    return _without_times(re.sub(r'"leader":"[^"]*"', '"leader":"NAME"', line))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_queues_curl_lines_print_what_the_readme_says(broker: Broker, tmp_path: Path) -> None:
    section = README[README.index("## As a queue") : README.index("## On Spark")]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    (expected,) = re.findall(r"```json\n(.*?)```", section, re.DOTALL)
    script = "\n".join(f"{line}\necho" for line in lines).replace("localhost:8080", broker.address)
    script = script.replace('"delay": "5s"', '"delay": "12s"')  # or it may be due before its turn
    done = subprocess.run(
        ["bash", "-ec", script], capture_output=True, text=True, cwd=tmp_path, timeout=120, check=True
    )
    printed = [line for line in done.stdout.splitlines() if line]
    assert [_without_chance(line) for line in printed] == [
        _without_chance(line) for line in expected.splitlines()
    ]


def test_command_lines_work(broker: Broker, tmp_path: Path) -> None:
    lines = [line for line in _block("sh", "goqueue produce").splitlines() if "activate" not in line]
    environment = clean_environment({"GOQUEUE_URL": broker.url})
    goqueue = " ".join(command_line())
    outputs = {}
    for line in lines:
        if "--follow" in line or "check data" in line:  # one never ends, the other wants the broker stopped
            continue
        command = re.sub(r"\bgoqueue\b", goqueue, line, count=1)
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        outputs[line.split()[1]] = done.stdout
    assert len(outputs["consume"].splitlines()) == 3
    assert broker.stop() == 0
    checked = subprocess.run(command_line("check", str(broker.data_dir)), capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert re.search(
        r"records +1002\n", checked.stdout
    )  # ours, and two of the quorum: it began, and created the topic
