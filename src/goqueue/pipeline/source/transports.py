"""Opening the transport that the options ask for. Each process opens its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from goqueue.pipeline.source.options import Access
from goqueue.pipeline.span import Transport

Opener: TypeAlias = Callable[[Access], Transport]


def open_transport(access: Access) -> Transport:
    if access.connection is not None:
        from goqueue.pipeline.source.network import (
            NetworkTransport,
        )  # executors that read files need no client

        return NetworkTransport(access.connection, fetch_bytes=access.fetch_bytes)
    from goqueue.pipeline.files.transport import FilesTransport  # and those that fetch need no filesystems

    return FilesTransport(access.path or "", on_damage="skip" if access.skips_damage else "fail")
