"""Servers out of Debian's packages, unpacked into a cache outside the checkout; nothing is installed on the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.peers.maven import cache_folder
from bench.peers.peer import PeerAbsent

_DOWNLOAD_TIMEOUT_S = 300.0
_RUN_TIMEOUT_S = 30.0


def unpack(packages: Sequence[str]) -> Path:
    """Where the packages lie as if it were `/`. What they need beyond each other must be on the machine."""
    root = cache_folder() / "debian" / packages[0]
    if root.is_dir():
        return root
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise PeerAbsent("its package is Debian's, and there is no apt-get here")
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent) as folder:
        downloads, unpacked = Path(folder, "downloads"), Path(folder, "root")
        downloads.mkdir()
        try:
            run(["apt-get", "download", *packages], cwd=downloads, timeout_s=_DOWNLOAD_TIMEOUT_S)
        except PeerAbsent as absent:
            raise PeerAbsent(f"{absent}; `apt-get update` may help") from absent
        for package in sorted(downloads.glob("*.deb")):
            run(["dpkg", "-x", str(package), str(unpacked)], cwd=downloads)
        unpacked.replace(root)
    return root


def run(
    command: Sequence[str], *, cwd: Path, env: dict[str, str] | None = None, timeout_s: float = _RUN_TIMEOUT_S
) -> str:
    """What a command says; a peer whose installation fails is absent."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            timeout=timeout_s,
            check=True,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired as error:
        raise PeerAbsent(f"`{command[0]}` took longer than {timeout_s:g} s") from error
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or error.stdout).strip().splitlines() or ["no reason given"]
        raise PeerAbsent(f"`{' '.join(command[:2])}` failed: {reason[-1]}") from error
    except OSError as error:
        raise PeerAbsent(f"`{command[0]}` cannot be run: {error}") from error
    return done.stdout


def library_path(root: Path) -> str:
    """For LD_LIBRARY_PATH: the folders of shared libraries that were unpacked."""
    return ":".join(sorted({str(path.parent) for path in root.glob("usr/lib/*-linux-*/*.so*")}))
