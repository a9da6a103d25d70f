"""Options that reading and writing share: where the broker is, and how to reach it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from goqueue.client.kafka.errors import KafkaError
from goqueue.client.kafka.security import Security
from goqueue.pipeline.options import Given, Option, comma_list, duration_ms, one_of, text

CLIENT_ID = "goqueue-spark"
DEFAULT_TIMEOUT_MS = 30_000
TIMEOUT_MS_MAX = 3_600_000
_PLAINTEXT = Security()
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]/]+):(\d{1,5})")


def addresses(value: str) -> str:
    for address in comma_list(value):
        match = _ADDRESS.fullmatch(address)
        if not match or not 0 < int(match[2]) < 65_536:
            raise ValueError(
                f"{address!r} is not an address; write host:port, several with commas between them"
            )
    return ",".join(comma_list(value))


def timeout_ms(value: str) -> int:
    if not 0 < duration_ms(value) <= TIMEOUT_MS_MAX:
        raise ValueError("write more than 0 and at most an hour")
    return duration_ms(value)


def name_check(value: str) -> bool:
    if value.lower() not in ("", "none", "https"):
        raise ValueError("write https, or none")
    return value.lower() == "https"


BOOTSTRAP = Option[str](
    "bootstrap.servers",
    addresses,
    "",
    "Where to begin: `host:port`, several with commas. Needed for transport=network.",
)
TIMEOUT_MS = Option[int](
    "request.timeout.ms",
    timeout_ms,
    DEFAULT_TIMEOUT_MS,
    "How long to try again while brokers restart or leaders move, before the read or write fails.",
)
PROTOCOL = Option[str](
    "security.protocol", one_of("PLAINTEXT", "SSL"), "PLAINTEXT", "`PLAINTEXT`, or `SSL` for TLS."
)
CA = Option[str | None](
    "ssl.ca.location",
    text,
    None,
    "A PEM file with the certificates to trust. Default: those of the system.",
    also=("ssl.truststore.location",),
)
CERTIFICATE = Option[str | None](
    "ssl.certificate.location",
    text,
    None,
    "A PEM file with this client's certificate.",
    also=("ssl.keystore.location",),
)
KEY = Option[str | None](
    "ssl.key.location", text, None, "A PEM file with this client's key, if it is not beside its certificate."
)
KEY_PASSWORD = Option[str | None](
    "ssl.key.password", text, None, "What the key is encrypted with.", is_secret=True
)
NAME_CHECK = Option[bool](
    "ssl.endpoint.identification.algorithm",
    name_check,
    True,
    "`https` checks that the broker's certificate has its host name; `none` does not.",
)

CONNECTION_OPTIONS: tuple[Option[Any], ...] = (  # Any: of whatever types
    BOOTSTRAP,
    TIMEOUT_MS,
    PROTOCOL,
    CA,
    CERTIFICATE,
    KEY,
    KEY_PASSWORD,
    NAME_CHECK,
)


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a cluster: plain values that cross to executors, each of which connects for itself."""

    bootstrap: str
    security: Security = _PLAINTEXT
    timeout_s: float = DEFAULT_TIMEOUT_MS / 1_000

    @staticmethod
    def of(given: Given) -> Connection:
        return Connection(given[BOOTSTRAP], _security(given), given[TIMEOUT_MS] / 1_000)

    @staticmethod
    def problems(given: Given) -> list[str]:
        """What is wrong with them, in sentences."""
        problems = (
            [] if BOOTSTRAP in given else ["bootstrap.servers is needed: the address of a broker, host:port"]
        )
        try:
            _security(given)
        except KafkaError as error:
            problems.append(error.sentence)
        return problems


def _security(given: Given) -> Security:
    return Security(
        protocol=given[PROTOCOL],
        ca_path=given[CA],
        cert_path=given[CERTIFICATE],
        key_path=given[KEY],
        key_password=given[KEY_PASSWORD],
        is_name_checked=given[NAME_CHECK],
    )
