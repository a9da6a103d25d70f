"""`python -m demo`: runs the demo and writes its report. docs/demo.md says what there is to see."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from demo.failure import DemoFailed
from demo.orders import ORDERS_MAX, ORDERS_MIN
from demo.page import write_report
from demo.steps import Steps
from demo.story import LOGS, Options, tell
from goqueue.client.connection import ApiError, Unreachable
from goqueue.pipeline.errors import PipelineError

ORDERS: Final = 20_000
SECONDS: Final = 20.0
SEED: Final = 7
SECONDS_MAX: Final = 3_600.0
_INTERRUPTED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_EXPECTED: Final = (DemoFailed, PipelineError, ApiError, Unreachable)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every number is right, 1 if one is not or something failed, 130 if it was interrupted."""
    given = _parse(arguments)
    options = Options(given.orders, given.seconds, given.seed, given.report)
    steps = Steps()
    _interrupt_on_signals()
    try:
        outcome = tell(options, steps, on_spark=_interrupt_on_signals)
        page = write_report(outcome, steps)
    except KeyboardInterrupt:
        print("interrupted; everything that was started has been stopped", file=sys.stderr)
        return _INTERRUPTED
    except _EXPECTED as error:
        print(f"the demo failed: {error}", file=sys.stderr)
        logs = [name for name in LOGS if (options.report / name).exists()]
        if logs:
            print(f"see {' and '.join(logs)} in {options.report}", file=sys.stderr)
        return 1
    wrong = [check for check in outcome.checks if not check.is_right]
    for check in wrong:
        print(f"WRONG: {check.what}: {check.found:,} instead of {check.expected:,} ({check.origin})")
    right = len(outcome.checks) - len(wrong)
    steps.say("check", f"{right} of {len(outcome.checks)} numbers are what the generator says")
    print(f"report: {page.resolve().as_uri()}")
    if given.open or (sys.stdout.isatty() and _has_display()):
        webbrowser.open(page.resolve().as_uri())
    return 1 if wrong else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo", description="A shop's day through GoQueue and Spark."
    )
    parser.add_argument("--orders", type=_orders, default=ORDERS, help=f"how many ({ORDERS:,})")
    parser.add_argument("--seconds", type=_seconds, default=SECONDS, help=f"to publish them in ({SECONDS:g})")
    parser.add_argument(
        "--seed", type=int, default=SEED, help=f"the same seed makes the same orders ({SEED})"
    )
    parser.add_argument("--report", type=Path, default=Path("demo-report"), help="folder (demo-report)")
    parser.add_argument("--open", action="store_true", help="open the report in a browser in any case")
    return parser.parse_args(arguments)


def _orders(text: str) -> int:
    count = int(text)
    if not ORDERS_MIN <= count <= ORDERS_MAX:
        raise argparse.ArgumentTypeError(f"{count} is not {ORDERS_MIN} to {ORDERS_MAX}")
    return count


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0 and at most {SECONDS_MAX:g}")
    return seconds


def _has_display() -> bool:
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )


def _interrupt_on_signals() -> None:
    """The first one ends the demo; while it cleans up, others are not heard."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        logging.disable()  # py4j logs each call that was cut off
        raise KeyboardInterrupt

    for number in _SIGNALS:
        signal.signal(number, interrupt)


if __name__ == "__main__":
    sys.exit(main())
