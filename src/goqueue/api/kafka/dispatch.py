"""From a frame to the handler of its API, and from its answer back to a frame."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from goqueue.api.kafka.call import Api, Call, Closing, Identity, Message
from goqueue.wire.codec import Malformed, Output, is_flexible, request_reader, response_writer
from goqueue.wire.codec import read_uvarint as _read_uvarint
from goqueue.wire.frames import Frame
from goqueue.wire.schema import api_key

_HEADER = struct.Struct(">hhi")
_CLIENT_ID = struct.Struct(">h")
_LENGTH = struct.Struct(">i")
API_VERSIONS = "api_versions"
_HEADER_TAG_COUNT_MAX = 1_000  # Kafka has none yet


class Dispatch:
    def __init__(self, apis: Iterable[Api]) -> None:
        self._apis = {api_key(api.name): api for api in apis}

    def parse(
        self,
        frame: Frame,
        client_host: str,
        closing: Closing | None = None,
        identity: Identity | None = None,
    ) -> tuple[Api, Call, Any]:
        """The API, what to tell its handler, and the request. Malformed: the connection must end."""
        try:
            key, version, correlation_id = _HEADER.unpack_from(frame)
            client_id, at = _client_id(frame, _HEADER.size)
        except (struct.error, ValueError) as error:
            raise Malformed(f"a request header: {error}") from None
        api = self._apis.get(key)
        if api is None:
            raise Malformed(f"API key {key} is not served")
        identity = identity or Identity()
        call = Call(
            api.name,
            version,
            correlation_id,
            client_id,
            client_host,
            closing or Closing(),
            identity.peer,
            identity,
        )
        if not api.first <= version <= api.last:
            if api.name != API_VERSIONS:
                raise Malformed(f"{api.name} is served in versions {api.first} to {api.last}, not {version}")
            # Whoever asks with an unknown version is told which there are, in the version that everybody reads.
            return api, replace(call, version=0), None
        if is_flexible(api.name, version):
            at = _skip_tags(frame, at)
        return api, call, request_reader(api.name, version)(frame, at)


def encode_answer(call: Call, answer: Message) -> list[bytes | memoryview]:
    """A whole frame, in pieces."""
    out = Output(_LENGTH.size)  # filled in when it is known
    out += struct.pack(">i", call.correlation_id)
    # Flexible responses begin with tagged fields; ApiVersions never does, so that any client can read it.
    if call.api != API_VERSIONS and is_flexible(call.api, call.version):
        out += b"\0"
    response_writer(call.api, call.version)(out, answer)
    inserted = sum(len(chunk) for _, chunks in out.cuts for chunk in chunks)
    _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size + inserted)
    return out.pieces() if out.cuts else [bytes(out)]


def _client_id(frame: Frame, at: int) -> tuple[str, int]:
    length = _CLIENT_ID.unpack_from(frame, at)[0]
    at += _CLIENT_ID.size
    if length < 0:
        return "", at
    if length > len(frame) - at:
        raise ValueError(f"a client id of {length} bytes in {len(frame) - at}")
    return frame[at : at + length].decode(), at + length


def _skip_tags(frame: Frame, at: int) -> int:
    try:
        count, at = _read_uvarint(frame, at)
        if count > _HEADER_TAG_COUNT_MAX:
            raise ValueError(f"{count} of them; {_HEADER_TAG_COUNT_MAX} are allowed")
        for _ in range(count):
            _, at = _read_uvarint(frame, at)
            size, at = _read_uvarint(frame, at)
            at += size
    except (IndexError, ValueError) as error:
        raise Malformed(f"the tagged fields of a request header: {error}") from None
    return at
