"""How a connection is protected. A broker speaks PLAINTEXT; SSL is for one behind a proxy that ends TLS."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field

from goqueue.client.kafka.codes import ErrorCode
from goqueue.client.kafka.errors import NotUnderstood, unfit

PROTOCOLS = ("PLAINTEXT", "SSL")


@dataclass(frozen=True, slots=True)
class Security:
    """PLAINTEXT, or SSL: `ca_path` holds those who are believed (None: those of the system), `cert_path` and `key_path` are
    this client's own, `server_name` is whom the certificate must name (None: the host that is dialled)."""

    protocol: str = "PLAINTEXT"
    ca_path: str | None = None
    cert_path: str | None = None
    key_path: str | None = None
    key_password: str | None = field(default=None, repr=False)
    is_verified: bool = True
    is_name_checked: bool = True
    server_name: str | None = None

    def __post_init__(self) -> None:
        if self.protocol.startswith("SASL"):
            sentence = (
                f"{self.protocol}: the broker has no SASL; use PLAINTEXT, or SSL with a client certificate"
            )
            raise unfit(ErrorCode.UNSUPPORTED_SASL_MECHANISM, sentence)
        if self.protocol not in PROTOCOLS:
            raise unfit(
                ErrorCode.INVALID_CONFIG, f"{self.protocol!r} is no security protocol; use PLAINTEXT or SSL"
            )
        if self.key_path is not None and self.cert_path is None:
            raise unfit(ErrorCode.INVALID_CONFIG, f"the key {self.key_path!r} needs its certificate as well")
        if self.protocol != "SSL" and (self.ca_path or self.cert_path):
            raise unfit(ErrorCode.INVALID_CONFIG, "certificates are given, and the protocol is not SSL")

    def context(self) -> ssl.SSLContext | None:
        """Read once for all connections; None for PLAINTEXT."""
        if self.protocol != "SSL":
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_path)
            if self.cert_path is not None:
                context.load_cert_chain(self.cert_path, self.key_path, self.key_password or "")
        except OSError as error:  # ssl's own errors are
            paths = ", ".join(path for path in (self.ca_path, self.cert_path, self.key_path) if path)
            raise unfit(
                ErrorCode.INVALID_CONFIG, f"certificates cannot be read ({paths}): {error}"
            ) from error
        context.check_hostname = self.is_verified and self.is_name_checked
        context.verify_mode = ssl.CERT_REQUIRED if self.is_verified else ssl.CERT_NONE
        return context


def protected(plain: socket.socket, context: ssl.SSLContext, name: str, address: str) -> ssl.SSLSocket:
    """The socket after the handshake. A certificate that is not believed will not be later."""
    try:
        return context.wrap_socket(plain, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        raise NotUnderstood(
            f"the certificate of {address} is not accepted: {error.verify_message or error}"
        ) from error
    except ssl.SSLEOFError:  # it hung up: it may be a moment's trouble
        raise
    except ValueError as error:
        raise NotUnderstood(f"{name!r} cannot be the name of a server: {error}") from error
    except ssl.SSLError as error:
        raise NotUnderstood(
            f"{address} does not speak TLS as this client does: {error.reason or error}"
        ) from error
