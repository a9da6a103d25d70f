"""`python -m tests.chaos --seconds 600`: real nodes under load, broken in every way there is, and what they did checked."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from tests.chaos.faults import FAULTS, possible
from tests.chaos.load.job import DEBUG_VARIABLE
from tests.chaos.load.registry import LOADS, with_needs
from tests.chaos.load_process import LoadFailed
from tests.chaos.namespaces import why_not
from tests.chaos.node_process import NodeFailed
from tests.chaos.run import WORLDS, Outcome, Plan, again, opened, run
from tests.chaos.summary import describe
from tests.chaos.words import say
from tests.chaos.world import NotPossible

_COMPLAINTS_MAX = 20


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, _interrupt)
    if options.check:
        return _report(again(Path(options.check)))
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    plan = Plan(
        world=options.world or _best_world(),
        node_count=options.nodes,
        loads=with_needs(options.load),
        faults=options.faults,
        seconds=options.seconds,
        period_s=options.period,
        seed=seed,
        many=2 if options.many else 1,
        is_patient=not options.impatient,
        older=Path(options.older).absolute() if options.older else None,
    )
    if options.debug:
        os.environ[DEBUG_VARIABLE] = options.debug
    say(f"seed {seed}, {plan.world}, loads {' '.join(plan.loads)}")
    if options.keep:
        folder = Path(options.keep).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            print(f"{folder} is not empty; give a new folder", file=sys.stderr)
            return 2
        return _run(plan, folder)
    with tempfile.TemporaryDirectory(prefix="goqueue-chaos-", ignore_cleanup_errors=True) as name:
        return _run(plan, Path(name))


def _run(plan: Plan, folder: Path) -> int:
    try:
        with opened(plan, folder) as world:
            kinds, refused = possible(plan.faults, world)
            for kind, reason in refused.items():
                say(f"without {kind}: {reason}")
            outcome = run(plan._replace(faults=kinds), world, folder)
    except (NotPossible, NodeFailed, LoadFailed) as error:
        print(f"the run failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; everything was removed", file=sys.stderr)
        return 130
    return _report(outcome)


def _report(outcome: Outcome) -> int:
    print(describe(outcome.history, outcome.found))
    for line in outcome.complaints[:_COMPLAINTS_MAX]:
        print(line)
    for failure in outcome.failures:
        print(failure, file=sys.stderr)
    return 0 if outcome.is_right else 1


def _best_world() -> str:
    reason = why_not()
    if reason is None:
        return "namespaces"
    say(f"no networks of their own ({reason}): nodes talk through links that are broken instead")
    return "loopback"


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _names(known: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = list(known) if text == "all" else [one for one in text.split(",") if one]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of faults; the end takes a little longer"
    )
    parser.add_argument("--seed", type=int, help="of faults and loads; one of its own if left out")
    parser.add_argument(
        "--world",
        choices=list(WORLDS),
        help="namespaces where they are allowed; local is `goqueue serve --nodes`",
    )
    parser.add_argument("--nodes", type=int, choices=[3, 5], default=3)
    parser.add_argument(
        "--load", type=_names(list(LOADS)), default=list(LOADS), help=f"some of {','.join(LOADS)}"
    )
    parser.add_argument(
        "--faults", type=_names(list(FAULTS)), default=list(FAULTS), help=f"some of {','.join(FAULTS)}"
    )
    parser.add_argument("--period", type=float, default=10.0, help="seconds from one fault to the next")
    parser.add_argument("--many", action="store_true", help="two faults at once")
    parser.add_argument(
        "--impatient",
        action="store_true",
        help="the next fault comes on time, though replicas are still missing from the last one",
    )
    parser.add_argument(
        "--older",
        metavar="CHECKOUT",
        help="of another version (git worktree add): all nodes begin with it, and the fault `upgrade` replaces it in one after another",
    )
    parser.add_argument(
        "--keep", metavar="FOLDER", help="for logs, data and histories; else they are removed"
    )
    parser.add_argument(
        "--debug",
        metavar="CONTEXTS",
        help="what librdkafka tells of itself in the logs of the loads, such as msg,eos,cgrp; with --keep",
    )
    parser.add_argument("--check", metavar="FOLDER", help="only check what an earlier run has kept there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
