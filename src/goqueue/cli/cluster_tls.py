"""TLS between the nodes of a cluster: each side shows a certificate of the same authority, or there is no connection."""

from __future__ import annotations

import ssl
from typing import NamedTuple

from goqueue.cli.config import Config


class TlsUnusable(Exception):
    """The sentence says which files do not go together."""


class ClusterTls(NamedTuple):
    listener: ssl.SSLContext
    links: ssl.SSLContext  # it also checks that the certificate is one for the host that was called


def cluster_tls(config: Config) -> ClusterTls | None:
    """None where the nodes talk without TLS."""
    if not config.cluster_tls_certificate:
        return None
    try:
        listener = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=config.cluster_tls_authority)
        links = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=config.cluster_tls_authority)
        listener.verify_mode = ssl.CERT_REQUIRED
        for context in (listener, links):
            context.minimum_version = (
                ssl.TLSVersion.TLSv1_3
            )  # both ends are ours: nothing older has to be served
            context.load_cert_chain(config.cluster_tls_certificate, config.cluster_tls_key)
    except OSError as error:  # ssl's own errors are among them
        raise TlsUnusable(
            f"TLS between nodes cannot be set up with {config.cluster_tls_certificate}, {config.cluster_tls_key} and "
            f"{config.cluster_tls_authority}: {error.strerror or error}"
        ) from error
    return ClusterTls(listener, links)
