"""What goes wrong between this client and a broker: each failure has Kafka's name and number and a sentence that says what was
asked of whom."""

from __future__ import annotations

from goqueue.client.kafka.codes import RETRIABLE, ErrorCode, name_of


class KafkaError(Exception):
    """A broker refused, or could not be asked. `is_retriable`: the same request may succeed later."""

    def __init__(self, name: str, code: int, sentence: str, is_retriable: bool) -> None:
        super().__init__(name, code, sentence, is_retriable)
        self.name = name
        self.code = code
        self.sentence = sentence
        self.is_retriable = is_retriable

    def __str__(self) -> str:
        return self.sentence


class Unreachable(KafkaError):
    """No answer came: refused, closed, timed out. Nobody knows whether the broker carried the request out."""

    def __init__(self, sentence: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION.name, ErrorCode.NETWORK_EXCEPTION, sentence, True)
        self.args = (sentence,)


class NotUnderstood(KafkaError):
    """What came is not an answer to what was asked: not a Kafka broker, another security protocol, damaged bytes."""

    def __init__(self, sentence: str) -> None:
        super().__init__("NOT_UNDERSTOOD", -1, sentence, False)
        self.args = (sentence,)


class OffsetOutOfRange(KafkaError):
    """The offset is not in the log: before its first (aged out, deleted) or behind its last (lost)."""

    def __init__(self, topic: str, partition: int, offset: int, log_start: int, high_watermark: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE.name,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic}-{partition} has no offset {offset}; it holds [{log_start}, {high_watermark})",
            False,
        )
        self.args = (topic, partition, offset, log_start, high_watermark)
        self.place = (topic, partition)
        self.offset = offset
        self.log_start = log_start
        self.high_watermark = high_watermark


def refused(code: int, what: str, broker_message: str | None = None) -> KafkaError:
    """The error of an answer. `what` names the request: "fetching t-0 from offset 7"."""
    name = name_of(code)
    detail = f": {broker_message}" if broker_message else ""
    return KafkaError(name, code, f"{what}: {name}{detail}", code in RETRIABLE)


def unfit(code: ErrorCode, sentence: str) -> KafkaError:
    """The error of what this client will not even ask, or what no waiting can heal."""
    return KafkaError(code.name, code, sentence, False)


def check(code: int, what: str, broker_message: str | None = None) -> None:
    if code != ErrorCode.NONE:
        raise refused(code, what, broker_message)
