"""RabbitMQ: one node out of Debian's packages, with the flags of its start script.

The script would leave a shell before the server and a port mapper behind it, so the virtual machine is started here
and the mapper is a child like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.child import Child
from bench.peers.debian import unpack
from bench.peers.peer import PeerAbsent
from bench.queue_peer import QueueServer, await_port, free_ports, guarded
from bench.queue_plans import Dialect

_ERLANG = (
    "base asn1 crypto eldap ftp inets mnesia os-mon parsetools public-key runtime-tools snmp ssl syntax-tools tftp tools "
    "xmerl"
)
_PACKAGES = ("rabbitmq-server", *(f"erlang-{name}" for name in _ERLANG.split()))
_CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{port}
log.console = false
log.file.level = warning
"""
_ARGUMENTS = (
    "-noinput -s rabbit boot -boot start_sasl +W w +MBas ageffcbf +MHas ageffcbf +MBlmbcs 512 +MHlmbcs 512 +MMmcs 30 "
    "+P 1048576 +t 5000000 +stbt db +zdbbl 128000 +sbwt none +sbwtdcpu none +sbwtdio none -syslog logger [] "
    "-syslog syslog_error_logger false -kernel prevent_overlapping_partitions false "
    "-kernel inet_dist_use_interface {127,0,0,1}"
)
_DURABILITY = "persistent messages, publisher confirms"


@dataclass(frozen=True, slots=True)
class RabbitMq:
    name: str
    dialect: Dialect

    @contextmanager
    def start(self, folder: Path) -> Iterator[QueueServer]:
        root = unpack(_PACKAGES)
        server = _only(root, "usr/lib/rabbitmq/lib/rabbitmq_server-*")
        programs = _only(root, "usr/lib/erlang/erts-*/bin")
        port, mapper_port, node_port = free_ports(3)
        environment = _environment(root, server, programs, folder)
        environment |= {"ERL_EPMD_PORT": str(mapper_port), "RABBITMQ_DIST_PORT": str(node_port)}
        (folder / "rabbitmq.conf").write_text(_CONFIG.format(port=port), encoding="utf-8")
        (folder / "enabled_plugins").write_text("[].\n", encoding="utf-8")
        prefix = guarded("env", *(f"{name}={value}" for name, value in environment.items()))
        kind = "quorum" if self.dialect is Dialect.AMQP_QUORUM else "classic"
        with Child(str(programs / "epmd"), "-address", "127.0.0.1", program=prefix) as mapper:
            await_port(mapper, mapper_port, "RabbitMQ's port mapper")
            with Child(str(programs / "erlexec"), *_ARGUMENTS.split(), program=prefix) as child:
                await_port(child, port, "RabbitMQ")
                title = f"RabbitMQ {server.name.rpartition('-')[2]} {kind} queue"
                yield QueueServer(title, _DURABILITY, self.dialect, port, child)


def _environment(root: Path, server: Path, programs: Path, folder: Path) -> dict[str, str]:
    return {
        "ROOTDIR": str(root / "usr" / "lib" / "erlang"),
        "BINDIR": str(programs),
        "EMU": "beam",
        "PROGNAME": "erl",
        "HOME": str(folder),  # for its cookie
        "SYS_PREFIX": "",
        "ERL_LIBS": str(server / "plugins"),
        "ERL_MAX_ETS_TABLES": "50000",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_HOME": str(server),
        "RABBITMQ_NODENAME": "rabbit@localhost",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }


def _only(root: Path, pattern: str) -> Path:
    found = list(root.glob(pattern))
    if len(found) != 1:
        raise PeerAbsent(f"Debian's packages have {len(found)} of {pattern}, not one")
    return found[0]
