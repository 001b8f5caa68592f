"""An aggregator in a host's kernel: agent, controller and workers as processes, on hosts that a bridge joins."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from controller.service.client import OperatorClient
from controller.service.network import ControlledNetwork
from controller.service.registry import RegistryOptions
from controller.service.serve import ServiceOptions
from host_agent.job_api import jobs_pb2
from netsum.programs import compiled_program
from tests.controller.service_harness import DEADLINE_S, ServiceThread, service_on, until
from tests.dataplane.dataplane import xdp
from tests.integration.testbed_faults import LOADS, steady_job
from tests.named_namespaces import (
    add_cable,
    add_namespace,
    delete_leftovers,
    delete_namespaces,
    inside,
    namespace_name,
)
from topologies.namespaces import missing_for_namespaces, run
from topologies.runs import new_run_id
from topologies.shaping import loss_commands

lacking = missing_for_namespaces() or xdp.why_not()
pytestmark = [pytest.mark.root, pytest.mark.skipif(lacking is not None, reason=str(lacking))]

WORKERS, STEPS = 4, 20
HOSTS = [f"w{n}" for n in range(WORKERS)]
WORKER = """
import sys
import numpy as np
from host_agent.joining import join
address, rank, size, steps = sys.argv[1], *map(int, sys.argv[2:5])
with join(address, job="train", rank=rank, world_size=size, timeout_s=400) as membership:
    with membership.communicator(timeout_s=400) as communicator:
        for step in range(steps):
            mine = np.arange(5_000, dtype=np.int32) * (rank + 1) + step
            expected = np.arange(5_000) * (size * (size + 1) // 2) + size * step
            np.testing.assert_array_equal(communicator.allreduce(mine), expected)
            print(step, flush=True)
            if steps > 100 and not sys.stdin.readline():
                break
        print(communicator.total_stats.chunks, communicator.total_stats.retransmissions, flush=True)
        print(membership.admission.switch, len(membership.admission.path), flush=True)
"""


class Site:
    """Hosts w0 to w3, `agg` and `rack`, each a namespace with an interface eth0, on a bridge; no switch is there."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        delete_leftovers()
        self.folder, self._stack, run_id = folder, stack, new_run_id()
        self.load = LOADS["xdp"]
        names = ["bridge", "agg", *(f"w{n}" for n in range(WORKERS)), "rack"]
        self.spaces = {name: namespace_name(run_id, name) for name in names}
        stack.callback(delete_namespaces, list(self.spaces.values()))
        for space in self.spaces.values():
            add_namespace(space)
        bridge = self.spaces["bridge"]
        run("ip", "-n", bridge, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", bridge, "link", "set", "br0", "up")
        for number, name in enumerate(names[1:], 1):
            add_cable(self.spaces[name], "eth0", bridge, name)
            run("ip", "-n", self.spaces[name], "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
            run("ip", "-n", bridge, "link", "set", name, "master", "br0")
        for name in ("agg", "rack"):
            run(
                *inside(bridge), "ethtool", "-K", name, "gro", "on"
            )  # The interface takes packets that XDP sends.
        self.controller_address = f"unix:{folder}/api.sock"

    def inside(self, node: str) -> tuple[str, ...]:
        """Return what to write before a command that runs on a host, in the mount namespace of all others."""
        return ("nsenter", f"--net=/run/netns/{self.spaces[node]}")

    def process(self, host: str, *words: str) -> "subprocess.Popen[str]":
        """Start a process on a host."""
        started = subprocess.Popen(
            [*self.inside(host), sys.executable, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(started.wait, DEADLINE_S)
        self._stack.callback(started.kill)
        return started

    def agent(self, host: str = "agg", *options: str) -> "subprocess.Popen[str]":
        """Start an aggregator's agent, and wait until it has registered."""
        words = ("-c", "from netsum.cli import main; main()", "aggregator", "serve", "--name", host)
        at = ("--controller", self.controller_address, "--engine", "xdp", "--interface", "eth0")
        agent = self.process(host, *words, *at, *options)
        assert agent.stdout is not None
        assert "workers reach this host at 10.77.0." in agent.stdout.readline()
        return agent

    def rack(self) -> "subprocess.Popen[str]":
        """Start the agent of the aggregator that adds for w0 and w1."""
        return self.agent("rack", "--workers", "10.77.0.2/31")

    def workers(self, hosts: int, steps: int = STEPS) -> "list[subprocess.Popen[str]]":
        """Start the workers of a job, the same number on each of the first hosts."""
        on = [f"w{rank * hosts // WORKERS}" for rank in range(WORKERS)]
        words = [(self.controller_address, str(rank), str(WORKERS), str(steps)) for rank in range(WORKERS)]
        return [self.process(host, "-c", WORKER, *each) for host, each in zip(on, words, strict=True)]

    def options(self) -> ServiceOptions:
        program = compiled_program(64)
        return ServiceOptions(
            network=ControlledNetwork({}, {}),
            program=program.json,
            p4info=program.p4info,
            state=self.folder / "state.sqlite3",
            listen=(self.controller_address,),
            registry=RegistryOptions(recovery_s=DEADLINE_S, start_s=DEADLINE_S, leaf_s=DEADLINE_S),
        )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


@pytest.fixture
def service(site: Site) -> Iterator[ServiceThread]:
    with service_on(site.options()) as running:
        yield running


def last_lines(workers: "list[subprocess.Popen[str]]", count: int = 1) -> list[list[str]]:
    """Wait for workers, all of whose sums were right, and return the last lines of each."""
    said = [worker.communicate(timeout=DEADLINE_S)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * WORKERS
    return [each.splitlines()[-count:] for each in said]


@pytest.mark.parametrize(("hosts", "levels"), [(4, 1), (2, 2)], ids=["star", "tree"])
def test_sums_come_from_the_kernel(site: Site, service: ServiceThread, hosts: int, levels: int) -> None:
    """On hosts that no switch joins: four of one worker; two of two workers with a leaf, whose root is in the kernel."""
    site.agent()
    workers = site.workers(hosts)
    counts, lines = zip(*last_lines(workers, 2), strict=True)
    # Workers behind one interface get their own copies: the kernel runs one program on those that wait together.
    for chunks, again in (map(int, line.split()) for line in counts):
        assert again < chunks / 4
    assert [int(line.split()[-1]) for line in lines] == [levels] * WORKERS
    if levels == 1:
        assert {line.rpartition(" ")[0] for line in lines} == {"('10.77.0.1', 28275)"}
    programs = json.loads(run("ip", "-n", site.spaces["agg"], "-j", "-d", "link", "show", "eth0"))
    assert programs[0]["xdp"]["mode"] == 1  # In the driver.
    with OperatorClient(service.address, timeout_s=DEADLINE_S) as operator:
        assert operator.switch("agg").ip == "10.77.0.1"


def test_an_aggregator_in_the_kernel_is_a_leaf_below_another(site: Site, service: ServiceThread) -> None:
    site.agent()
    site.rack()
    lines = [line for (line,) in last_lines(site.workers(4))]
    assert lines == ["('10.77.0.6', 28275) 2"] * 2 + ["('10.77.0.1', 28275) 1"] * 2


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rack", [False, True], ids=["star", "tree"])
def test_sums_under_loss(site: Site, service: ServiceThread, rack: bool) -> None:
    """1 % of the packets are lost each way; every switch is killed, and its agent starts it again."""
    agents = [site.agent(), *([site.rack()] if rack else [])]
    attach, lose = loss_commands("eth0", 10_000)
    for host in HOSTS:
        for command in (attach, lose, lose.replace(" egress ", " ingress ")):
            run(*site.inside(host), *shlex.split(command))
    with steady_job(site, HOSTS) as job, OperatorClient(service.address, timeout_s=DEADLINE_S) as operator:
        job.goes_on(20)
        for agent in agents:
            restarts = [worker.count("restarted") for worker in job.workers]
            (switch,) = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
            os.kill(int(switch), signal.SIGKILL)
            for worker, before in zip(job.workers, restarts, strict=True):
                until(partial(lambda one, n: one.count("restarted") > n, worker, before))
            job.goes_on(20)
        view = operator.job(job.name)
        counters = [each.counters for each in view.tree] or [view.counters]
        assert len(counters) == len(agents)
        assert sum(each["duplicates_dropped"] + each["duplicates_answered"] for each in counters) > 0
        job.finish()


def test_the_host_still_speaks_with_others(site: Site, service: ServiceThread) -> None:
    """TCP to the aggregator's host, which the program has no use for, reaches its stack."""
    site.agent()
    last_lines(site.workers(4, 1))
    serve = (
        "import socket; s = socket.create_server(('', 7)); print(flush=True); s.accept()[0].sendall(b'hello')"
    )
    listener = site.process("agg", "-c", serve)
    assert listener.stdout is not None
    listener.stdout.readline()
    read = "import socket; print(socket.create_connection(('10.77.0.1', 7), 400).makefile().read())"
    assert site.process("w0", "-c", read).communicate(timeout=DEADLINE_S)[0] == "hello\n"


def test_a_job_outlives_a_restart_of_the_controller(site: Site) -> None:
    """The workers go on while there is no agent; the agent registers again, and the switch is as it was."""
    with service_on(site.options()):
        site.agent()
        workers = site.workers(4, 1000)
        step(workers)
    for _ in range(10):
        step(workers)
    with service_on(site.options()) as service, OperatorClient(service.address) as operator:
        until(lambda: operator.switch("agg").state == jobs_pb2.READY)
        step(workers)
        view = operator.job("train")
        assert (view.on_host, view.switch, view.restarts, view.moves) == (True, "agg", 0, 0)
        assert {line.split()[-1] for (line,) in last_lines(workers)} == {"1"}


def step(workers: "list[subprocess.Popen[str]]") -> None:
    """Let all workers go one step on."""
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline().strip().isdigit()
