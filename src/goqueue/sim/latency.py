"""How long simulated things take."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Latency:
    """Mostly short, sometimes far longer: the tail is what reorders the answers of two requests."""

    usual_s_min: float = 0.000_1
    usual_s_max: float = 0.002
    tail_s_max: float = 0.2
    tail_rate: float = 0.01

    def draw(self, rng: Random) -> float:
        if rng.random() < self.tail_rate:
            return rng.uniform(self.usual_s_max, self.tail_s_max)
        return rng.uniform(self.usual_s_min, self.usual_s_max)


INSTANT = Latency(0.0, 0.0, 0.0, 0.0)
