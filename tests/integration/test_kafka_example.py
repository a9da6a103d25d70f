"""The example of docs/kafka.md does what it says, against a real broker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.broker import Broker, clean_environment

DOCS = Path(__file__).parents[2] / "docs" / "kafka.md"


def test_the_example_of_the_documentation_works(broker: Broker) -> None:
    [example] = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert "127.0.0.1:9092" in example
    code = (
        example.replace("127.0.0.1:9092", broker.kafka).replace("poll(10)", "poll(50)")
        + "print(message.value())\nconsumer.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean_environment(),
    )
    assert done.stdout == "b'hello'\n", done.stderr
