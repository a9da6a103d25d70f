"""The REST API against the bare ASGI echo: the same HTTP server, the same load generator, the same bytes sent.

The load generator, the echo and the broker are processes of their own. Besides the rate, each side's processor
time per request is kept: it holds still even where the machine is so busy that rates do not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from bench.child import Broker, Server
from bench.line import Bound, Goal, Line, Rounds, alternate, spread
from bench.load import LoadProcess, Plan, Report
from bench.messages import PAGE_LIMIT, Ledger, get_request, marked_values, publish_request
from bench.scale import Run, Scale
from bench.workspace import fresh_folder
from goqueue.client.rest import RestClient

_SINGLE_CONNECTIONS = 16
_BATCH_CONNECTIONS = 4
_READ_CONNECTIONS = 2
_BATCH_COUNT = 1_000
_VALUE_BYTES = 100


@dataclass(slots=True)
class _Costs:
    """Of one side: processor time of the server and share of a core that the load generator used."""

    server_us: list[float] = field(default_factory=list)
    client_share: list[float] = field(default_factory=list)
    p99_us: list[float] = field(default_factory=list)

    def add(self, report: Report, server_cpu_s: float) -> None:
        self.server_us.append(server_cpu_s / report.request_count * 1e6)
        self.client_share.append(report.cpu_s / report.elapsed_s)
        self.p99_us.append(report.p99_us)


class _Bench:
    """The processes of this group, and one measurement on either server."""

    def __init__(self, run: Run, broker: Broker, echo: Server, load: LoadProcess) -> None:
        self._run = run
        self._broker = broker
        self._echo = echo
        self._load = load

    @property
    def scale(self) -> Scale:
        return self._run.scale

    def ledger(self, topic: str) -> Ledger:
        with RestClient(f"http://127.0.0.1:{self._broker.port}") as client:
            client.create_topic(topic, partition_count=1)
        return Ledger(self._run.folder, self._load, self._broker.port, topic)

    def publish(
        self, ledger: Ledger, topic: str, values: list[bytes], acks: str, connections: int, costs: _Costs
    ) -> Report:
        request = publish_request(self._broker.port, topic, values, acks)
        before = self._broker.cpu_s()
        report = ledger.publish(values, self._plan(self._broker.port, request, connections))
        costs.add(report, self._broker.cpu_s() - before)
        return report

    def read(self, ledger: Ledger, first_page: int, page_count: int, costs: _Costs) -> Report:
        before = self._broker.cpu_s()
        report = ledger.read(first_page, page_count, connection_count=_READ_CONNECTIONS)
        costs.add(report, self._broker.cpu_s() - before)
        return report

    def echo(self, topic: str, values: list[bytes], acks: str, connections: int, costs: _Costs) -> Report:
        request = publish_request(self._echo.port, topic, values, acks)
        return self._echoed(self._plan(self._echo.port, request, connections), costs)

    def echo_pages(self, page_bytes: int, page_count: int, costs: _Costs) -> Report:
        request = get_request(self._echo.port, f"/bytes/{page_bytes}")
        plan = Plan(self._echo.port, request, _READ_CONNECTIONS, request_count_max=page_count)
        return self._echoed(plan, costs)

    def _echoed(self, plan: Plan, costs: _Costs) -> Report:
        before = self._echo.cpu_s()
        report = self._load.run(plan)
        costs.add(report, self._echo.cpu_s() - before)
        return report

    def _plan(self, port: int, request: bytes, connections: int) -> Plan:
        request_count_max = self.scale.batch_requests_max if connections == _BATCH_CONNECTIONS else 1 << 62
        return Plan(
            port, request, connections, duration_s=self.scale.round_s, request_count_max=request_count_max
        )


def run(run: Run) -> list[Line]:
    with (
        fresh_folder(run.folder) as folder,
        Broker(folder) as broker,
        Server("bench.echo_asgi") as echo,
        LoadProcess() as load,
    ):
        bench = _Bench(run, broker, echo, load)
        lines = [*_single(bench), *_batches_and_reads(bench), _batches_durable(bench)]
        broker.stop()
        return lines


def _single(bench: _Bench) -> list[Line]:
    ledger = bench.ledger("single")
    values = marked_values(1, _VALUE_BYTES)
    ours, probe = _Costs(), _Costs()

    def publish() -> float:
        return bench.publish(ledger, "single", values, "leader", _SINGLE_CONNECTIONS, ours).rate

    def echo() -> float:
        return bench.echo("single", values, "leader", _SINGLE_CONNECTIONS, probe).rate

    echo()
    publish()
    rounds = alternate(bench.scale.round_count, publish, echo)
    _read_back(ledger)
    return [
        Line(
            "probe.asgi_echo",
            f"bare ASGI echo on our HTTP server, {_SINGLE_CONNECTIONS} connections",
            "req/s",
            spread(rounds.references),
            details=_details(probe),
        ),
        rounds.line(
            "rest.single",
            f"REST publish of one {_VALUE_BYTES} B message, acks=leader",
            "req/s",
            reference="bare ASGI echo",
            goal=Goal(Bound.RATIO_AT_LEAST, 0.7),
            details=_compared(ours, probe),
        ),
    ]


def _batches_and_reads(bench: _Bench) -> list[Line]:
    ledger = bench.ledger("batches")
    rounds, ours, probe = _batch_rounds(bench, ledger, "batches", "leader")
    batches = rounds.line(
        "rest.batch",
        f"REST publish of {_BATCH_COUNT:,} x {_VALUE_BYTES} B, acks=leader",
        "msg/s",
        reference="bare ASGI echo of the same body",
        goal=Goal(Bound.VALUE_AT_LEAST, 200_000),
        details=_compared(ours, probe),
    )
    return [batches, _reads(bench, ledger)]


def _batches_durable(bench: _Bench) -> Line:
    ledger = bench.ledger("durable")
    rounds, ours, probe = _batch_rounds(bench, ledger, "durable", "all")
    _read_back(ledger)
    return rounds.line(
        "rest.batch.all",
        "the same with acks=all",
        "msg/s",
        reference="bare ASGI echo of the same body",
        details=_compared(ours, probe),
    )


def _batch_rounds(bench: _Bench, ledger: Ledger, topic: str, acks: str) -> tuple[Rounds, _Costs, _Costs]:
    values = marked_values(_BATCH_COUNT, _VALUE_BYTES)
    ours, probe = _Costs(), _Costs()

    def publish() -> float:
        return bench.publish(ledger, topic, values, acks, _BATCH_CONNECTIONS, ours).rate * _BATCH_COUNT

    def echo() -> float:
        return bench.echo(topic, values, acks, _BATCH_CONNECTIONS, probe).rate * _BATCH_COUNT

    publish()
    return alternate(bench.scale.round_count, publish, echo), ours, probe


def _reads(bench: _Bench, ledger: Ledger) -> Line:
    """Every round reads another part of what was written, so that all of it is read once."""
    ours, probe = _Costs(), _Costs()
    rounds = Rounds()
    count = bench.scale.round_count
    bounds = [ledger.page_count * turn // count for turn in range(count + 1)]
    for first, end in pairwise(bounds):
        report = bench.read(ledger, first, end - first, ours)
        rounds.add(
            report.rate * PAGE_LIMIT,
            bench.echo_pages(ledger.page_bytes, end - first, probe).rate * PAGE_LIMIT,
        )
    ledger.verify()
    return rounds.line(
        "rest.read",
        f"REST read, pages of {PAGE_LIMIT:,} x {_VALUE_BYTES} B",
        "msg/s",
        reference="bare ASGI answer of the same size",
        details=_compared(ours, probe),
    )


def _read_back(ledger: Ledger) -> None:
    ledger.read(0, ledger.page_count, connection_count=_READ_CONNECTIONS)
    ledger.verify()


def _details(costs: _Costs) -> dict[str, float | str]:
    return {
        "server_cpu_us_per_request": spread(costs.server_us).median,
        "client_cpu_share": spread(costs.client_share).median,
        "p99_us": spread(costs.p99_us).median,
    }


def _compared(ours: _Costs, probe: _Costs) -> dict[str, float | str]:
    cpu_ratio = spread(probe.server_us).median / spread(ours.server_us).median
    return _details(ours) | {"cpu_ratio": cpu_ratio}
