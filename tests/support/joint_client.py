"""A task and its driver over a real socket: joints, and batches of transactional producers."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

from goqueue.log.batch import ATTRIBUTE_TRANSACTIONAL, encode_batch
from goqueue.model.record import NewRecord, Producer
from goqueue.wire.codec import Output, is_flexible, request_writer, response_reader
from goqueue.wire.schema import api_key, request_schema

_TIMEOUT_S = 60.0
_ACKS_ALL = -1
_VERSION = {"produce": 12}  # of all others that are asked it is 0


def requests(api: str) -> Any:  # the classes are made at run time
    return SimpleNamespace(**request_schema(api).classes)


@dataclass(frozen=True)
class Member:
    transactional_id: str
    producer_id: int
    epoch: int


class JointClient:
    """One request at a time. Answers are given as they are; nothing is tried again."""

    def __init__(self, kafka: str) -> None:
        host, _, port = kafka.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), _TIMEOUT_S)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, api: str, **fields: Any) -> None:
        version = _VERSION.get(api, 0)
        self._correlation_id += 1
        out = Output(4)
        out += struct.pack(">hhih", api_key(api), version, self._correlation_id, -1)
        if is_flexible(api, version):
            out += b"\0"
        schema = request_schema(api)
        request_writer(api, version)(out, schema.classes[schema.root](**fields))
        struct.pack_into(">i", out, 0, len(out) - 4)
        self._socket.sendall(out)

    def receive(self, api: str) -> Any:
        version = _VERSION.get(api, 0)
        (size,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(size)
        assert struct.unpack_from(">i", frame)[0] == self._correlation_id
        return response_reader(api, version)(frame, 5 if is_flexible(api, version) else 4)

    def call(self, api: str, **fields: Any) -> Any:
        self.send(api, **fields)
        return self.receive(api)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the broker hung up")
            data += more
        return data


@dataclass
class Task:
    """A member that writes. `member` is None where the batch is committed already."""

    client: JointClient
    member: Member | None
    _sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    @classmethod
    def enrol(cls, client: JointClient, joint: str, batch: int, name: str, timeout_ms: int = 60_000) -> Task:
        while True:
            answer = client.call(
                "enrol_in_joint", joint_id=joint, batch_id=batch, member=name, timeout_ms=timeout_ms
            )
            if answer.error_code != 51:
                break
            time.sleep(0.02)  # what the same name left open is being aborted
        assert answer.error_code == 0, answer.error_message
        if answer.is_committed:
            return cls(client, None)
        return cls(client, Member(answer.transactional_id, answer.producer_id, answer.producer_epoch))

    def write(self, topic: str, partition: int, *values: bytes) -> int:
        """The error code."""
        assert self.member is not None
        sequence = self._sequences.get((topic, partition), 0)
        _, batch = encode_batch(
            [NewRecord(None, value) for value in values],
            int(time.time() * 1_000),
            producer=Producer(self.member.producer_id, self.member.epoch, sequence),
            attributes=ATTRIBUTE_TRANSACTIONAL,
        )
        kinds = requests("produce")
        part = kinds.PartitionProduceData(index=partition, records=batch)
        answer = self.client.call(
            "produce",
            transactional_id=self.member.transactional_id,
            acks=_ACKS_ALL,
            timeout_ms=10_000,
            topic_data=[kinds.TopicProduceData(name=topic, partition_data=[part])],
        )
        code: int = answer.responses[0].partition_responses[0].error_code
        if code == 0:
            self._sequences[topic, partition] = sequence + len(values)
        return code


def ending(joint: str, batch: int, *tasks: Task, is_commit: bool = True) -> dict[str, Any]:
    """The fields of an EndJoint request."""
    winner = requests("end_joint").Winner
    named = [
        winner(
            transactional_id=task.member.transactional_id,
            producer_id=task.member.producer_id,
            producer_epoch=task.member.epoch,
        )
        for task in tasks
        if task.member is not None
    ]
    return {"joint_id": joint, "batch_id": batch, "is_commit": is_commit, "winners": named}


def commit(client: JointClient, joint: str, batch: int, *tasks: Task) -> bool:
    """Whether it was committed before."""
    answer = client.call("end_joint", **ending(joint, batch, *tasks))
    assert answer.error_code == 0, answer.error_message
    was_committed: bool = answer.was_committed
    return was_committed
