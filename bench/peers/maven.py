"""Jars by pinned coordinates: downloaded once into a cache outside the checkout, and checked on every use.

No repository is named here. Its address comes from `MAVEN_REPOSITORY`, else from a mirror in the Maven settings of
this machine, else from the super POM of the Maven that is installed: where `mvn` itself would look.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

from bench.peers.peer import PeerAbsent

_DOWNLOAD_TIMEOUT_S = 60.0
_SUPER_POM = "org/apache/maven/model/pom-4.0.0.xml"
_MIRRORED = {"*", "central", "external:*"}


def read_pins(path: Path) -> dict[str, str]:
    """Lines of `sha256sum`: path in the repository to digest."""
    pins: dict[str, str] = {}
    for line in path.read_text(encoding="ascii").splitlines():
        digest, _, name = line.partition("  ")
        pins[name] = digest
    return pins


def fetch_jars(pins: Mapping[str, str], cache: Path) -> list[Path]:
    """All of them, each with the content that its pin says."""
    repository: str | None = None
    jars = [cache / name for name in pins]
    for (name, digest), jar in zip(pins.items(), jars, strict=True):
        if jar.is_file() and _digest(jar.read_bytes()) == digest:
            continue
        repository = repository or find_repository()
        _download(f"{repository.rstrip('/')}/{name}", digest, jar)
    return jars


def cache_folder() -> Path:
    return Path(os.environ.get("GOQUEUE_BENCH_CACHE") or Path.home() / ".cache" / "goqueue-bench")


def find_repository() -> str:
    """The base address of a Maven repository."""
    if named := os.environ.get("MAVEN_REPOSITORY"):
        return named
    for path in _settings_files():
        if mirror := mirror_in(path.read_text(encoding="utf-8")):
            return mirror
    for path in _maven_folders("lib"):
        for jar in sorted(path.glob("maven-model-builder*.jar")):
            if address := _super_pom_address(jar):
                return address
    raise PeerAbsent("no Maven repository is known: set MAVEN_REPOSITORY or install Maven")


def mirror_in(settings: str) -> str | None:
    """The mirror that Maven settings name for the central repository."""
    for mirror in ElementTree.fromstring(settings).iterfind(".//{*}mirror"):
        scopes = mirror.findtext("{*}mirrorOf", "").replace(" ", "").split(",")
        if _MIRRORED.intersection(scopes):
            return mirror.findtext("{*}url")
    return None


def _settings_files() -> Iterator[Path]:
    for path in (Path.home() / ".m2" / "settings.xml", *_maven_folders("conf/settings.xml")):
        if path.is_file():
            yield path


def _maven_folders(below: str) -> list[Path]:
    program = shutil.which("mvn")
    return [Path(program).resolve().parent.parent / below] if program else []


def _super_pom_address(jar: Path) -> str | None:
    with zipfile.ZipFile(jar) as archive:
        if _SUPER_POM not in archive.namelist():
            return None
        pom = ElementTree.fromstring(archive.read(_SUPER_POM))
    return pom.findtext("{*}repositories/{*}repository/{*}url")


def _download(address: str, digest: str, jar: Path) -> None:
    try:
        with urllib.request.urlopen(address, timeout=_DOWNLOAD_TIMEOUT_S) as answer:
            content: bytes = answer.read()
    except (urllib.error.URLError, TimeoutError, ValueError) as error:
        raise PeerAbsent(f"{jar.name} cannot be downloaded: {error}") from error
    if _digest(content) != digest:
        raise PeerAbsent(f"{jar.name} has another SHA-256 than the pinned one")
    jar.parent.mkdir(parents=True, exist_ok=True)
    partial = jar.with_suffix(f".{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(jar)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
