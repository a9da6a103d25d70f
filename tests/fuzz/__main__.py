"""`python -m tests.fuzz --seconds 600`: attacks on the Kafka listener and on that of the cluster until the time is up or one succeeds."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.fuzz.rounds import PORTS, Found, described, run_round


def main() -> int:
    options = _options()
    tried: Counter[str] = Counter()
    ports = [options.port] if options.port else PORTS
    try:
        if options.replay:
            seed, _, number = options.replay.partition(":")
            only = int(number) if number else None
            for port in ports:
                tried += run_round(int(seed), attack_count=options.attacks, only=only, port=port)
        else:
            ends_at = time.monotonic() + options.seconds
            seed = options.seed
            while time.monotonic() < ends_at:
                for port in ports:
                    tried += run_round(seed, attack_count=options.attacks, port=port)
                seed += 1
    except Found as found:
        print(described(found), file=sys.stderr)
        return 1
    print(
        f"{tried.total()} attacks survived: " + ", ".join(f"{name} {n}" for name, n in sorted(tried.items()))
    )
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--attacks", type=int, default=100, help="in a round, on one broker")
    parser.add_argument("--port", choices=PORTS, help="that for clients or that for nodes; without it, both")
    parser.add_argument("--replay", metavar="SEED[:NUMBER]", help="repeat a round or one attack of it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
