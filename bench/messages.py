"""Requests with messages whose content says which request they came in, and the check that a topic holds them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.line import require
from bench.load import MARK, Answer, LoadProcess, Plan, Report, read_answers, stamp

PAGE_LIMIT = 1_000
_STAMP = re.compile(rb"(\d{4})-(\d{10}-\d{4})")


class _Result(Struct, gc=False):
    partition: int
    offset: int


class _Published(Struct):
    results: list[_Result]


class _Message(Struct, gc=False):
    offset: int
    value: str


class _Page(Struct):
    messages: list[_Message]
    next_offset: int


_published = msgspec.json.Decoder(_Published)
_page = msgspec.json.Decoder(_Page)


def marked_values(message_count: int, value_bytes: int) -> list[bytes]:
    """The values of one request, each with the mark and its place, filled up to a length."""
    return [(MARK + b"-%04d-" % at).ljust(value_bytes, b"x") for at in range(message_count)]


def publish_request(port: int, topic: str, values: list[bytes], acks: str) -> bytes:
    messages = b",".join(b'{"value":"%s"}' % value for value in values)
    body = b'{"messages":[%s],"acks":"%s"}' % (messages, acks.encode())
    head = (
        f"POST /topics/{topic}/messages HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def get_request(port: int, path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode()


class Ledger:
    """What was acknowledged for a topic of one partition: which value must be at which offset."""

    def __init__(self, folder: Path, load: LoadProcess, port: int, topic: str) -> None:
        self._load = load
        self._port = port
        self._topic = topic
        self._path = folder / "answers"
        self._values: dict[int, bytes] = {}
        self._connection_count = 0
        self._read_count = 0
        self.page_bytes = 0  # of the page read last

    @property
    def page_count(self) -> int:
        return -(-len(self._values) // PAGE_LIMIT)

    def publish(self, values: list[bytes], plan: Plan) -> Report:
        """Run a plan whose template is made of these values, and enter what it was told."""
        plan.bodies_path = str(self._path)
        plan.first_connection = self._connection_count
        self._connection_count += plan.connection_count
        report = self._load.run(plan)
        answers = read_answers(self._path)
        require(len(answers) == report.request_count, "answers were lost")
        for answer in answers:
            self._enter(values, answer)
        return report

    def _enter(self, values: list[bytes], answer: Answer) -> None:
        results = _published.decode(answer.body).results
        require(len(results) == len(values), f"{len(values)} messages were sent, {len(results)} answered")
        text = stamp(answer.connection, answer.turn)
        for value, result in zip(values, results, strict=True):
            require(result.partition == 0, f"partition {result.partition} is not one of the topic's")
            require(result.offset not in self._values, f"offset {result.offset} was given out twice")
            self._values[result.offset] = value.replace(MARK, text)

    def read(self, first_page: int, page_count: int, *, connection_count: int) -> Report:
        """Read pages and compare each message with the one that was acknowledged at its offset."""
        mark = MARK.decode()
        path = f"/topics/{self._topic}/partitions/0/messages?offset={mark}&limit={PAGE_LIMIT}"
        report = self._load.run(
            Plan(
                self._port,
                get_request(self._port, path),
                connection_count,
                str(self._path),
                request_count_max=page_count,
                first_serial=first_page,
                step=PAGE_LIMIT,
            )
        )
        pages = [_page.decode(answer.body) for answer in self._answers(page_count)]
        pages.sort(key=lambda page: page.next_offset)
        offset = first_page * PAGE_LIMIT
        for page in pages:
            for message in page.messages:
                require(message.offset == offset, f"offset {offset} is missing")
                is_same = message.value.encode() == self._values.get(offset)
                require(is_same, f"offset {offset} holds another message than was acknowledged there")
                offset += 1
            require(page.next_offset == offset, f"a page ends at {page.next_offset}, not at {offset}")
        wanted = min((first_page + page_count) * PAGE_LIMIT, len(self._values))
        require(offset == wanted, f"reading ended at offset {offset}, not at {wanted}")
        self._read_count += offset - first_page * PAGE_LIMIT
        return report

    def _answers(self, page_count: int) -> list[Answer]:
        answers = read_answers(self._path)
        require(len(answers) == page_count, f"{page_count} pages were asked for and {len(answers)} came")
        self.page_bytes = len(answers[0].body)
        return answers

    def verify(self) -> None:
        """All that was written was read, and what one connection sent is stored in the order it sent it."""
        require(
            self._read_count >= len(self._values),
            f"{len(self._values)} messages were stored, {self._read_count} were read",
        )
        latest: dict[bytes, bytes] = {}
        for offset in range(len(self._values)):
            match = _STAMP.match(self._values[offset])
            if match is None:
                raise AssertionError(f"the value at offset {offset} has no stamp")
            require(latest.get(match[1], b"") < match[2], f"offset {offset} is out of its sender's order")
            latest[match[1]] = match[2]
