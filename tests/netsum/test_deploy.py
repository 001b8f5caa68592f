"""The files of examples/deploy: rules and units by their own tools, and a real Prometheus that scrapes a controller."""

import contextlib
import json
import queue
import re
import shutil
import socket
import subprocess
import time
import tomllib
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from controller.service.metrics import WORKER_COUNTERS
from controller.service.network_file import network_of_file
from controller.service.registry import RegistryOptions
from controller.service.serve import ServiceOptions
from host_agent.job_api import jobs_pb2, jobs_pb2_grpc
from host_agent.joining import join
from host_agent.wire.constants import VERSION
from netsum_common.targets import TARGETS
from tests.controller.harness_switches import PROGRAM
from tests.controller.service_harness import DEADLINE_S, Bench, fake_network, service_on

DEPLOY = Path(__file__).resolve().parents[2] / "examples" / "deploy"
RULES = DEPLOY / "netsum.rules.yml"
METRICS = re.compile(r"\bnetsum_[a-z_]+\b")


def needs(program: str, package: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed: apt-get install {package}")


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=DEPLOY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: Any) -> Any:
    """Call `then` with the address of the metrics of a controller that has a job."""
    bench = Bench(tmp_path, monkeypatch)
    options = ServiceOptions(
        fake_network(), PROGRAM.json, PROGRAM.p4info, listen=("127.0.0.1:0",), http=("127.0.0.1", 0)
    )
    try:
        with (
            service_on(options) as service,
            join(
                service.address, job="job", rank=0, world_size=1, slots=256, addresses=["127.0.2.3"]
            ) as membership,
        ):
            membership._stream.send(jobs_pb2.FromWorker(report=jobs_pb2.Report(chunks=12, probes=3)))
            return then(urllib.parse.urlsplit(service.service.http).netloc)
    finally:
        bench.close()


def names_in(text: str) -> set[str]:
    return set(METRICS.findall(text))


def test_rules_and_dashboard_name_metrics_that_the_controller_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(address: str) -> str:
        while "netsum_worker_probes_total" not in (
            text := urllib.request.urlopen(f"http://{address}/metrics", timeout=30).read().decode()
        ):
            pass
        return str(text)

    there = names_in(served(tmp_path, monkeypatch, read))
    assert {f"netsum_worker_{name}_total" for name in WORKER_COUNTERS} <= there
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(queries) >= 12
    for named in (names_in("\n".join(queries)), names_in(RULES.read_text())):
        assert len(named) >= 6
        assert named <= there


def test_rules_fire_in_the_condition_that_they_name() -> None:
    needs("promtool", "prometheus")
    run("promtool", "check", "config", "prometheus.yml")
    run("promtool", "test", "rules", "netsum_rules_test.yml")
    rules = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    tested = (DEPLOY / "netsum_rules_test.yml").read_text()
    assert all(re.search(rf"alertname: {rule}\n\s+exp_alerts:\n\s+- exp_labels", tested) for rule in rules)


def test_systemd_accepts_the_units() -> None:
    needs("systemd-analyze", "systemd")
    units = {unit.stem: str(unit) for unit in DEPLOY.glob("*.service")}
    assert units.keys() == {"netsum-controller", "netsum-switch@", "netsum-aggregator"}
    run("systemd-analyze", "verify", *units.values())


def test_the_network_file_is_one() -> None:
    network = network_of_file(DEPLOY / "network.toml")
    assert len(network.hosts) == 4
    assert tomllib.loads((DEPLOY / "network.toml").read_text())["switch"][0]["p4runtime"] == "127.0.0.1:9559"


def test_the_ports_of_the_tofino_switch_are_of_one_pipe() -> None:
    network = network_of_file(DEPLOY / "tofino.toml")
    ports = network.switches["s1"].ports
    assert {number: site.name for number, site in ports.items()} == {
        132: "1/0",
        140: "2/0",
        148: "3/0",
        156: "4/0",
    }
    assert TARGETS["tofino"].why_apart(ports) is None


@contextlib.contextmanager
def prometheus_of(address: str, folder: Path, rules: str) -> Iterator[tuple[int, Path]]:
    """A Prometheus that scrapes `address` once a second; yields its port and its log."""
    folder.mkdir()
    (folder / "netsum.rules.yml").write_text(rules)
    text = (DEPLOY / "prometheus.yml").read_text()
    assert "127.0.0.1:9464" in text
    (folder / "prometheus.yml").write_text(text.replace("127.0.0.1:9464", address).replace("5s", "1s"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}"],
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    try:
        yield port, folder / "log"
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.slow
def test_a_real_prometheus_scrapes_a_controller_and_loads_the_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("prometheus", "prometheus")

    def scrape(address: str) -> dict[str, Any]:
        with prometheus_of(address, tmp_path / "prometheus", RULES.read_text()) as (port, log):
            return {
                "chunks": ask(port, 'query?query=netsum_worker_chunks_total{job="job"}', log),
                # A busy machine may miss single scrapes: wait for one in time.
                "up": ask(port, 'query?query=up{job="netsum"} == 1', log),
                "rules": ask(port, "rules", log),
            }

    found = served(tmp_path, monkeypatch, scrape)
    assert found["chunks"]["result"][0]["value"][1] == "12"
    assert found["up"]["result"][0]["value"][1] == "1"
    assert len(found["rules"]["groups"][0]["rules"]) == 6


@pytest.mark.slow
def test_every_rule_fires_at_a_controller_in_its_condition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("prometheus", "prometheus")
    # The committed rules with short times: promtool's test has the long ones.
    rules = re.sub(r"for: \d+m", "for: 1s", re.sub(r"\[\d+m\]", "[8s]", RULES.read_text()))
    bench = Bench(tmp_path, monkeypatch)
    options = ServiceOptions(
        fake_network(),
        PROGRAM.json,
        PROGRAM.p4info,
        listen=(bench.address,),
        http=("127.0.0.1", 0),
        registry=RegistryOptions(grace_s=DEADLINE_S, recovery_s=DEADLINE_S),
    )
    counts = {"lossy": jobs_pb2.Report(), "stuck": jobs_pb2.Report(chunks=100)}
    joining = ScriptedStreams(bench.address)
    fired: set[str] = set()

    def firing(port: int, log: Path, *names: str) -> None:
        """Report as both jobs' workers do, until rules fire."""
        deadline = time.monotonic() + DEADLINE_S
        while not fired.issuperset(names):
            assert time.monotonic() < deadline, (names, fired, log.read_text())
            counts["lossy"].chunks += 100
            counts["lossy"].retransmissions += 20
            counts["stuck"].probes += 10
            for name, report in counts.items():
                joining.send(name, jobs_pb2.FromWorker(report=report))
            alerts = ask(port, "alerts", log)["alerts"]
            fired.update(each["labels"]["alertname"] for each in alerts if each["state"] == "firing")
            time.sleep(0.2)

    try:
        with contextlib.ExitStack() as running:
            service = running.enter_context(service_on(options))
            address = urllib.parse.urlsplit(service.service.http).netloc
            for rank, (name, until) in enumerate(
                [("lossy", "admitted"), ("stuck", "admitted"), ("queued", "gathering")], 1
            ):
                joining.join(name, f"127.0.2.{rank}", until)
            with prometheus_of(address, tmp_path / "prometheus", rules) as (port, log):
                ask(port, 'query?query=up{job="netsum"}==1', log)
                firing(port, log, "NetsumRetransmissions", "NetsumJobStuck", "NetsumSlotsUsedUp")
                assert not fired & {"NetsumWorkerDetached", "NetsumSwitchNotReady"}
                joining.disconnect("queued")
                firing(port, log, "NetsumWorkerDetached")
                bench.switch.reachable = False
                firing(port, log, "NetsumSwitchNotReady")
                fired.discard(
                    "NetsumControllerDown"
                )  # The alert has fired if a busy machine was late with a scrape.
                running.close()
                firing(port, log, "NetsumControllerDown")
        assert fired == set(re.findall(r"alert: (\w+)", rules))
    finally:
        joining.close()
        bench.close()


class ScriptedStreams:
    """Streams of workers with scripted messages."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._streams: dict[str, tuple[queue.SimpleQueue[Any], Any]] = {}

    def join(self, job: str, ip: str, until: str) -> None:
        """Join a job of one worker that takes half of the slots, or waits for them; return at a message of this kind."""
        outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        call = jobs_pb2_grpc.WorkersStub(self._channel).Join(iter(outgoing.get, None))  # type: ignore[no-untyped-call]
        self._streams[job] = outgoing, call
        request = jobs_pb2.JoinRequest(
            job=job,
            rank=0,
            world_size=1,
            addresses=[ip],
            slots=jobs_pb2.Slots(count=2048),
            if_full=jobs_pb2.QUEUE,
            packets=VERSION,
        )
        outgoing.put(jobs_pb2.FromWorker(join=request))
        assert next(call).WhichOneof("message") == "place"
        outgoing.put(jobs_pb2.FromWorker(receive=jobs_pb2.Receiver(udp_port=40000)))
        while next(call).WhichOneof("message") != until:
            pass

    def send(self, job: str, message: jobs_pb2.FromWorker) -> None:
        self._streams[job][0].put(message)

    def disconnect(self, job: str) -> None:
        self._streams[job][1].cancel()

    def close(self) -> None:
        for outgoing, call in self._streams.values():
            outgoing.put(None)
            call.cancel()
        self._channel.close()


def ask(port: int, what: str, log: Path, deadline_s: float = 60.0) -> Any:
    path, _, query = what.partition("?query=")
    url = f"http://127.0.0.1:{port}/api/v1/{path}" + (f"?query={urllib.parse.quote(query)}" if query else "")
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        try:
            data = json.loads(urllib.request.urlopen(url, timeout=5).read())["data"]
        except OSError:
            data = {}
        if data.get("result") or data.get("groups") or "alerts" in data:
            return data
        time.sleep(0.1)
    raise AssertionError(f"nothing after {deadline_s} s: {log.read_text()}")
