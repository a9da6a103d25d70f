"""Certificates for tests, made by openssl: an authority, and whom it vouches for."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is needed to make certificates"
)
_CURVE = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"


class Authority:
    """In a folder of its own: `ca.pem`, and for each name that it has vouched for `<name>.pem` and `<name>.key`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        usage = "-addext keyUsage=critical,keyCertSign"
        self._run(f"req -x509 {_CURVE} -keyout ca.key -out ca.pem -subj /CN={folder.name} -days 2 {usage}")

    def vouch_for(self, name: str) -> None:
        """At 127.0.0.1."""
        extensions = "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\nauthorityKeyIdentifier=keyid\n"
        (self.folder / f"{name}.ext").write_text(extensions)
        self._run(f"req -new {_CURVE} -keyout {name}.key -out {name}.csr -subj /CN={name}")
        self._run(
            f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile {name}.ext -out {name}.pem"
        )

    def trusted(self) -> ssl.SSLContext:
        """Of a client that believes this authority, and shows nothing itself."""
        return ssl.create_default_context(cafile=str(self.folder / "ca.pem"))

    def show(self, name: str, context: ssl.SSLContext) -> ssl.SSLContext:
        """The same context, with which the client is `name` now."""
        context.load_cert_chain(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        return context

    def _run(self, command: str) -> None:
        subprocess.run(
            ["openssl", *command.split()], check=True, cwd=self.folder, capture_output=True, timeout=60
        )
