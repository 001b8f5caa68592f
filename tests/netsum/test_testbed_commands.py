"""`netsum testbed`'s commands on a testbed of two hosts: state, links, the prompt, commands on nodes."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.processes import kill
from topologies.mininet_testbed import missing_for_mininet

pytestmark = [pytest.mark.root, pytest.mark.timeout(1800)]

DEADLINE_S = 800.0
NAME = f"commands-{os.getpid()}"

Done = subprocess.CompletedProcess[str]
Netsum = Callable[..., Done]


def run(*words: str, script: str = "") -> Done:
    command = [sys.executable, "-c", "from netsum.cli import main; main()", *words]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NETSUM_")}
    return subprocess.run(
        command,
        input=script,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**environment, "NETSUM_TESTBED": NAME, "COLUMNS": "80"},
    )


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if (lacking := missing_for_mininet()) is not None:
        pytest.skip(lacking)
    home = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("testbed"))
    try:
        up = run("testbed", "up", "star-2", "--testbed", NAME, "--rate", "100mbit", "--web")
        assert up.returncode == 0, up.stderr
        yield NAME
        down = run("testbed", "down", "--testbed", NAME, "--json")
        assert [one["name"] for one in json.loads(down.stdout)] == [NAME]
    finally:
        os.chdir(home)


def refused(done: Done, status: int = 1) -> str:
    assert done.returncode == status, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    return line.removeprefix("netsum: ")


def test_a_pulled_cable_is_seen(testbed: str) -> None:
    assert run("testbed", "status", "--testbed", testbed).returncode == 0
    try:
        assert run("testbed", "link", "h2", "s1", "down").stdout == "link h2 to s1-p2: down\n"
        status = run("testbed", "status", "--testbed", testbed)
        assert status.returncode == 1
        assert "the link h2 to s1-p2 is down: `netsum testbed link h2 s1 up`" in status.stdout
        document = json.loads(run("testbed", "status", "--testbed", testbed, "--json").stdout)
        assert [link["up"] for link in document["links"]] == [True, False]
        ports = json.loads(run("switch", "ports", "--json").stdout)
        assert [port["up"] for port in ports] == [True, False]
    finally:
        run("testbed", "link", "h2", "s1", "up")
    assert json.loads(run("testbed", "status", "--testbed", testbed, "--json").stdout)["condition"] == "up"


def test_the_window_shows_the_load_of_links_and_keeps_its_address(testbed: str) -> None:
    def shown() -> dict[str, Any]:
        with urllib.request.urlopen(f"{window}stream", timeout=60) as stream:
            data = next(line for line in stream if line.startswith(b"data: "))
        snapshot: dict[str, Any] = json.loads(data[6:])
        return snapshot

    window = json.loads(run("testbed", "status", "--testbed", testbed, "--json").stdout)["controller"][
        "window"
    ]
    assert f"window: {window}\n" in run("testbed", "status", "--testbed", testbed).stdout
    run("testbed", "exec", "h1", "ping", "-c", "2", "-i", "0.2", "10.0.0.2")
    run("testbed", "restart", "controller")
    snapshot = shown()
    assert [host["name"] for host in snapshot["hosts"]] == ["h1", "h2"]
    (switch,) = snapshot["switches"]
    assert [port["peer"] for port in switch["ports"]] == ["h1", "h2"]
    assert all(port["rx_bytes"] > 0 for port in switch["ports"])
    assert "--web requires a controller" in refused(
        run("testbed", "up", "star-2", "--web", "--no-controller"), 2
    )


def test_a_link_changes_while_it_is_up(testbed: str) -> None:
    changed = run("testbed", "link", "h1", "s1", "--rate", "20mbit", "--loss", "100", "--queue", "60")
    assert changed.stdout == "link h1 to s1-p1: rate 20mbit, loss 100 %, queue 60 packets\n"
    link = json.loads(run("testbed", "status", "--testbed", testbed, "--json").stdout)["links"][0]
    assert (link["rate_bps"], link["loss_ppm"], link["queue_pkts"]) == (20_000_000, 1_000_000, 60)
    lost = run("testbed", "shell", script="pingall\n")
    assert (lost.returncode, lost.stdout.splitlines()[-1]) == (1, "0 of 2 pings answered, 100 % lost")
    restored = run("testbed", "link", "h1", "s1", "--rate", "unlimited", "--loss", "0")
    assert restored.stdout == "link h1 to s1-p1: rate unlimited, loss 0 %\n"
    sentence = refused(run("testbed", "link", "h1", "s1", "--queue", "60"))
    assert "has no queue, as it has no rate: set a rate too" in sentence
    assert "has no link between h1 and h2" in refused(run("testbed", "link", "h1", "h2", "down"))


def test_the_prompt_runs_a_script(testbed: str) -> None:
    done = run(
        "testbed",
        "shell",
        "--testbed",
        testbed,
        script="pingall\nnodes\nh1 ping -c 1 -W 5 h2  # an address\n",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 pings answered, 0 % lost" in done.stdout
    assert "10.0.0.254" in done.stdout
    assert "1 packets transmitted, 1 received" in done.stdout
    wrong = run("testbed", "shell", "--testbed", testbed, script="frobnicate\nlink h1 s1 colour=red\nhelp\n")
    assert wrong.returncode == 1
    assert "there is no command and no node 'frobnicate'" in wrong.stdout
    assert "not 'colour=red'" in wrong.stdout
    assert "iperf [HOST HOST [SECONDS]]" in wrong.stdout


def test_iperf_at_the_prompt(testbed: str) -> None:
    if shutil.which("iperf") is None:
        pytest.skip("needs iperf")
    done = run("testbed", "shell", "--testbed", testbed, script="iperf h1 h2 1\n")
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("h1 -> h2: ")
    assert "bits/sec (TCP, 1 s)" in done.stdout


def test_commands_on_nodes(testbed: str) -> None:
    assert (
        refused(run("testbed", "exec", "h1", "no-such-program"), 127) == "there is no program no-such-program"
    )
    assert run("testbed", "exec", "h1", "sh", "-c", "exit 7").returncode == 7
    assert "has no node 'h9'" in refused(run("testbed", "exec", "h9", "true"))


def test_an_mtu_too_small_for_the_lanes_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("topology") / "small.json"
    topology = {
        "hosts": {"h1": {"ip": "10.0.0.1/24"}},
        "switches": {"s1": {}},
        "links": [["h1", "s1-p1"]],
        "mtu": 1000,
    }
    file.write_text(json.dumps(topology))
    sentence = refused(run("testbed", "up", str(file), "--lanes", "256"), 2)
    assert "packets with 256 lanes need an MTU of at least 1,076 bytes" in sentence
    assert "use --lanes 64" in sentence


def test_the_ports_of_a_switch_without_a_controller(
    testbed: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    del testbed  # The folder has all that the command needs.
    monkeypatch.chdir(tmp_path_factory.mktemp("alone"))
    name = f"alone-{os.getpid()}"
    assert run("testbed", "up", "star-2", "--testbed", name, "--no-controller").returncode == 0
    try:
        ports = json.loads(run("switch", "ports", "--testbed", name, "--json").stdout)
        assert [(port["number"], port["peer"], port["up"]) for port in ports] == [
            (1, "h1", True),
            (2, "h2", True),
        ]
        assert "has no switch 's9'" in refused(run("switch", "ports", "s9", "--testbed", name))
    finally:
        run("testbed", "down", "--testbed", name)


def test_a_testbed_whose_hosts_or_traffic_are_dead_is_not_up(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (lacking := missing_for_mininet()) is not None:
        pytest.skip(lacking)
    monkeypatch.chdir(folder := tmp_path_factory.mktemp("dead"))
    name = f"dead-{os.getpid()}"
    traffic = [{"from": "h1", "to": "h2", "rate": "1mbit"}] if shutil.which("iperf") else []
    topology = {
        "hosts": {"h1": {"ip": "10.0.0.1/24"}, "h2": {"ip": "10.0.0.2/24"}},
        "switches": {"s1": {}},
        "links": [["h1", "s1-p1"], ["h2", "s1-p2"]],
        "traffic": traffic,
    }
    (folder / "net.json").write_text(json.dumps(topology))
    up = run("testbed", "up", "net.json", "--testbed", name, "--no-controller", "--json")
    assert up.returncode == 0, up.stderr
    try:
        state = json.loads(up.stdout)
        down_and_up = f"`netsum testbed down --testbed {name}`, and `netsum testbed up`"

        def said() -> str:
            done = run("testbed", "status", "--testbed", name, "--json")
            condition: str = json.loads(done.stdout)["condition"]
            assert done.returncode == (0 if condition == "up" else 1)
            return condition

        assert said() == "up"
        for flow in state["traffic"]:
            kill(flow["pids"][0])
            assert said() == f"the cross traffic from h1 to h2 ended: {down_and_up}"
        kill(state["hosts"]["h2"]["namespace_pid"])
        assert said() == f"the namespaces of h2 are gone: {down_and_up}"
        gone = f"h2 of the testbed {name} is gone, as the process that keeps its namespaces has ended"
        for words in (("exec", "h2", "true"), ("link", "h2", "s1", "--rate", "10mbit")):
            assert gone in refused(run("testbed", words[0], "--testbed", name, *words[1:]))
        assert gone in run("testbed", "shell", "--testbed", name, script="pingall\n").stdout
        assert run("testbed", "exec", "--testbed", name, "h1", "true").returncode == 0
        assert gone in refused(run("testbed", "restart", "--testbed", name, "s1"))
        kill(state["switches"]["s1"]["namespace_pid"])
        assert said() == f"the namespaces of h2, s1 are gone: {down_and_up}"
        assert "s1 of the testbed" in refused(run("testbed", "restart", "--testbed", name, "s1"))
        os.kill(state["switches"]["s1"]["pid"], 0)  # The switch still runs.
    finally:
        assert run("testbed", "down", "--testbed", name).returncode == 0


def test_every_command_names_a_testbed_by_the_same_option(testbed: str) -> None:
    for words in (("status",), ("exec", "h1", "true"), ("link", "h1", "s1", "up"), ("shell",)):
        done = run("testbed", words[0], "--testbed", testbed, *words[1:])
        assert done.returncode == 0, done.stderr
    assert f"'{testbed}'" in refused(run("testbed", "status", testbed), 2)
    assert "there is no option --name" in refused(run("testbed", "up", "star-2", "--name", testbed), 2)
    assert "no testbed none is up" in refused(run("controller", "serve", "--testbed", "none"))
