"""How many requests come in at some ports of this machine, as the kernel counts: segments with data, of which a small request is one.

Servers count differently, or not at all; `ss` (iproute2) asks the kernel, and so is the same for every side.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable

_COUNT = re.compile(r"data_segs_in:(\d+)")
_TIMEOUT_S = 10.0


def received_segments(ports: Iterable[int]) -> int | None:
    """Of the connections that are open now; None where there is no `ss`."""
    program = shutil.which("ss")
    if program is None:
        return None
    wanted = " or ".join(f"sport = :{port}" for port in ports)
    done = subprocess.run(
        [program, "-tinH", "state", "established", f"( {wanted} )"],
        timeout=_TIMEOUT_S,
        check=True,
        capture_output=True,
        text=True,
    )
    return sum(int(count) for count in _COUNT.findall(done.stdout))
