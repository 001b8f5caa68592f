"""The files of examples/deploy: rules and units by their own tools, and a real Prometheus that scrapes a controller."""

import json
import re
import shutil
import socket
import subprocess
import time
import tomllib
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from controller.service.metrics import WORKER_COUNTERS
from controller.service.network_file import network_of_file
from controller.service.serve import ServiceOptions
from host_agent.job_api import jobs_pb2
from host_agent.joining import join
from tests.controller.service_harness import PROGRAM, Bench, fake_network, service_on

DEPLOY = Path(__file__).resolve().parents[2] / "examples" / "deploy"
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
        fake_network(), PROGRAM.json, PROGRAM.p4info, listen=("127.0.0.1:0",), metrics=("127.0.0.1", 0)
    )
    try:
        with service_on(options) as service:
            host, port = service.service.metrics or pytest.fail("no metrics")
            with join(
                service.address, job="job", rank=0, world_size=1, slots=256, addresses=["127.0.2.3"]
            ) as seat:
                seat._stream.send(jobs_pb2.FromWorker(report=jobs_pb2.Report(chunks=12, probes=3)))
                return then(f"{host}:{port}")
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
    for named in (names_in("\n".join(queries)), names_in((DEPLOY / "netsum.rules.yml").read_text())):
        assert len(named) >= 6
        assert named <= there


def test_rules_fire_in_the_condition_that_they_name() -> None:
    needs("promtool", "prometheus")
    run("promtool", "check", "config", "prometheus.yml")
    run("promtool", "test", "rules", "netsum_rules_test.yml")
    rules = set(re.findall(r"alert: (\w+)", (DEPLOY / "netsum.rules.yml").read_text()))
    tested = (DEPLOY / "netsum_rules_test.yml").read_text()
    assert all(re.search(rf"alertname: {rule}\n\s+exp_alerts:\n\s+- exp_labels", tested) for rule in rules)


def test_systemd_accepts_the_units() -> None:
    needs("systemd-analyze", "systemd")
    run("systemd-analyze", "verify", *(str(unit) for unit in DEPLOY.glob("*.service")))


def test_the_network_file_is_one() -> None:
    network = network_of_file(DEPLOY / "network.toml")
    assert len(network.hosts) == 4
    assert tomllib.loads((DEPLOY / "network.toml").read_text())["switch"][0]["p4runtime"] == "127.0.0.1:9559"


@pytest.mark.slow
def test_a_real_prometheus_scrapes_a_controller_and_loads_the_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("prometheus", "prometheus")

    def scrape(address: str) -> dict[str, Any]:
        folder = tmp_path / "prometheus"
        folder.mkdir()
        shutil.copy(DEPLOY / "netsum.rules.yml", folder)
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
            return {
                "chunks": ask(port, 'query?query=netsum_worker_chunks_total{job="job"}', log=folder / "log"),
                "up": ask(port, 'query?query=up{job="netsum"}', log=folder / "log"),
                "rules": ask(port, "rules", log=folder / "log"),
            }
        finally:
            process.terminate()
            process.wait(30)

    found = served(tmp_path, monkeypatch, scrape)
    assert found["chunks"]["result"][0]["value"][1] == "12"
    assert found["up"]["result"][0]["value"][1] == "1"
    assert len(found["rules"]["groups"][0]["rules"]) == 6


def ask(port: int, what: str, log: Path, deadline_s: float = 60.0) -> Any:
    path, _, query = what.partition("?query=")
    url = f"http://127.0.0.1:{port}/api/v1/{path}" + (f"?query={urllib.parse.quote(query)}" if query else "")
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        try:
            data = json.loads(urllib.request.urlopen(url, timeout=5).read())["data"]
        except OSError:
            data = {}
        if data.get("result") or data.get("groups"):
            return data
        time.sleep(0.1)
    raise AssertionError(f"nothing after {deadline_s} s: {log.read_text()}")
