"""The Kafka load generator: librdkafka by confluent-kafka. A child process.

A plan comes in as one line of JSON and an answer goes out as one. Every server gets the same client settings. A
message that is not delivered, or not read back as it was sent, is a failure and never a number.
"""

from __future__ import annotations

import sys
from typing import assert_never

import msgspec
from confluent_kafka import KafkaException

from bench.child import Child
from bench.kafka_burst import consume, produce
from bench.kafka_pace import pace
from bench.kafka_plans import Answer, Consume, Consumed, Failed, Pace, Paced, Plan, Produce, Produced
from bench.line import BenchFailed

_ANSWER_TIMEOUT_S = 300.0  # longer than the load generator's own limits

_plans = msgspec.json.Decoder[Plan](Plan)
_answers = msgspec.json.Decoder[Answer](Answer)


class KafkaLoad(Child):
    """The parent's side."""

    def __init__(self) -> None:
        super().__init__("bench.kafka_load")

    def produce(self, plan: Produce) -> Produced:
        answer = self._ask(plan)
        assert isinstance(answer, Produced)
        return answer

    def consume(self, plan: Consume) -> Consumed:
        answer = self._ask(plan)
        assert isinstance(answer, Consumed)
        return answer

    def pace(self, plan: Pace) -> Paced:
        answer = self._ask(plan)
        assert isinstance(answer, Paced)
        return answer

    def _ask(self, plan: Plan) -> Answer:
        self.tell(msgspec.json.encode(plan))
        answer: Answer = _answers.decode(self.line(timeout_s=_ANSWER_TIMEOUT_S))
        if isinstance(answer, Failed):
            raise BenchFailed(f"{plan.target.topic}: {answer.reason}")
        return answer


def main() -> None:
    for line in sys.stdin.buffer:
        print(msgspec.json.encode(_run(_plans.decode(line))).decode(), flush=True)


def _run(plan: Plan) -> Answer:
    try:
        match plan:
            case Produce():
                return produce(plan)
            case Consume():
                return consume(plan)
            case Pace():
                return pace(plan)
            case _:
                assert_never(plan)
    except (BenchFailed, KafkaException) as error:
        return Failed(str(error))


if __name__ == "__main__":
    main()
