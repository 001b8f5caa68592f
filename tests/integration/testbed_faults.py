"""Faults on a running Mininet testbed, each with what must come of it: no wrong sum, nothing hung, everything named."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from controller.service.client import OperatorClient
from netsum_common.targets import PROCESS_TARGETS
from topologies import keeper, namespaces
from topologies.children import Child, stop_all
from topologies.leftovers import processes
from topologies.mininet_testbed import missing_for_mininet
from topologies.run_folder import RUNNING, RunningTestbed, find_testbed

HERE = Path(__file__).parent
NETSUM = [sys.executable, "-P", "-c", "from netsum.cli import main; main()"]
DEADLINE_S = 800.0
"""Deadline of every wait: a machine that runs all tests at once is slow."""

TIMEOUT_S = 100.0
"""Deadline of the workers' collectives in jobs that must go on, on a busy machine too."""
CUT_S = 3.0
"""How long a link is down at most."""
SOON_S = 8.0
"""Timeout of the collectives in a job that is to fail: longer than a busy machine keeps a live worker waiting, because a
worker that is late by more is missing too and may be the only one named."""
WORKERS = ("h1", "h2", "h3")
OUTSIDER = "h4"
QUEUE_PKTS = 60
FRAME_BYTES = 1514


@dataclass(frozen=True)
class Load:
    """Load that a switch can carry on any machine: its rate, lanes, and the elements of a round."""

    rate: str
    lanes: int
    elements: int


LOADS = {
    "embedded": Load("10mbit", 256, 8192),
    "xdp": Load("10mbit", 256, 8192),
    "bmv2": Load("4mbit", 64, 1024),
}


def wait_until(condition: Callable[[], object], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


class Hosts(Protocol):
    """The place where the workers of a `SteadyJob` run."""

    load: Load
    folder: Path

    @property
    def controller_address(self) -> str:
        """The controller's address for the workers."""

    def inside(self, node: str) -> tuple[str, ...]:
        """Return what to write before a command that runs on a host."""


class Bed:
    """Four hosts on one switch, or on a tree of switches, with a controller, brought up by the command."""

    def __init__(self, switch: str, folder: Path, topology: str = "star-4", *options: str) -> None:
        self.load = LOADS[switch]
        self.folder = folder
        self.name = f"faults-{uuid.uuid4().hex[:10]}"
        self.netsum(
            *("up", topology, "--testbed", self.name, "--switch", switch, "--lanes", str(self.load.lanes)),
            *("--rate", self.load.rate, "--queue", str(QUEUE_PKTS), *options),
        )
        self.run_id = self.testbed.run_id

    @property
    def testbed(self) -> RunningTestbed:
        """As it is described now."""
        return find_testbed(self.name)

    @property
    def controller_address(self) -> str:
        return self.testbed.controller_address

    def netsum(self, *arguments: str) -> None:
        done = subprocess.run(
            [*NETSUM, "testbed", *arguments], cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def close(self) -> None:
        self.netsum("down", "--testbed", self.name)
        assert not list(processes(self.run_id))
        assert not (RUNNING / self.name).is_symlink()

    def inside(self, node: str) -> tuple[str, ...]:
        return namespaces.inside_of(self.testbed.namespace_pid(node))

    def run(self, node: str, *command: str) -> str:
        return namespaces.run(*self.inside(node), *command)

    def kill(self, what: str) -> None:
        """SIGKILL the switch or the controller."""
        state = self.testbed.state
        os.kill(
            int((state["controller"] if what == "controller" else state["switches"][what])["pid"]),
            signal.SIGKILL,
        )

    def restart(self, what: str) -> None:
        keeper.restart(self.testbed, what)

    def cable(self, ends: Sequence[str], state: str) -> None:
        self.netsum("link", "--testbed", self.name, *ends, state)

    def cables(self, hosts: Sequence[str]) -> list[tuple[str, ...]]:
        """The links of these hosts, and those between switches."""
        links = [tuple(end.partition("-")[0] for end in link["ends"]) for link in self.testbed.state["links"]]
        return [ends for ends in links if ends[0] in hosts or ends[0] in self.testbed.state["switches"]]

    def switch_of(self, host: str) -> str:
        return str(self.testbed.state["hosts"][host]["switch"])

    def set_rate(self, switch: str, interface: str, rate_bps: int) -> None:
        """Change how fast a switch's port sends."""
        burst = str(max(2 * FRAME_BYTES, rate_bps // 8_000))
        shape = ["rate", f"{rate_bps}bit", "burst", burst, "cburst", burst, "quantum", str(FRAME_BYTES)]
        self.run(
            switch,
            *("tc", "class", "change", "dev", interface, "parent", "1:", "classid", "1:1", "htb"),
            *shape,
        )

    def client(self) -> OperatorClient:
        return OperatorClient(self.controller_address, timeout_s=60.0)

    def adding(self, job: str) -> list[str]:
        """The switches that add for a job."""
        with self.client() as client:
            view = client.job(job)
        return [each.name for each in view.tree] or [view.switch]

    def not_admitted(self, job: str) -> int:
        """How many packets a job's switches have refused."""
        with self.client() as client:
            view = client.job(job)
        return sum(each.counters["not_admitted"] for each in view.tree or [view])

    def dropped(self, switch: str, interface: str) -> int:
        """How many packets the queue before a switch's port has not taken."""
        said = self.run(switch, "tc", "-s", "qdisc", "show", "dev", interface)
        return max(int(found) for found in re.findall(r"dropped (\d+)", said))


@contextlib.contextmanager
def running(kind: str, topology: str, folder: Path, *options: str) -> Iterator[Bed]:
    """Bring a testbed up, and take it down; skip the test where something is missing for it."""
    lacking = PROCESS_TARGETS[kind].lacking() or missing_for_mininet()
    if lacking is not None:
        pytest.skip(lacking)
    bed = Bed(kind, folder, topology, *options)
    yield bed
    bed.close()


@dataclass
class Worker:
    child: Child
    messages: list[dict[str, Any]] = field(default_factory=list)
    listener: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # The pipe is closed when the worker is stopped.
            for line in self.child.stdout:
                try:
                    self.messages.append(json.loads(line))
                except json.JSONDecodeError:
                    self.messages.append({"event": "unreadable", "line": line.decode(errors="replace")})

    @property
    def over(self) -> bool:
        """Whether it has ended and all that it said has been read, which may take longer on a busy machine."""
        return not self.child.running and not self.listener.is_alive()

    def last(self, event: str) -> dict[str, Any] | None:
        return next((one for one in reversed(self.messages) if one["event"] == event), None)

    def count(self, event: str) -> int:
        return sum(one["event"] == event for one in list(self.messages))

    @property
    def round(self) -> int:
        last = self.last("round")
        return -1 if last is None else int(last["round"])


class SteadyJob:
    """Workers that add, round after round; see steady_worker.py."""

    def __init__(self, bed: Hosts, hosts: Sequence[str], timeout_s: float) -> None:
        self.bed = bed
        self.name = f"steady-{uuid.uuid4().hex[:8]}"
        self.hosts = hosts
        self.workers: list[Worker] = []
        script = [sys.executable, "-P", str(HERE / "steady_worker.py"), self.name]
        for rank, host in enumerate(hosts):
            words = [str(rank), str(len(hosts)), str(bed.load.elements), str(timeout_s)]
            child = Child(
                f"worker {rank} of {self.name}",
                [*bed.inside(host), *script, *words],
                bed.folder / f"{self.name}-{rank}.log",
                pipes=True,
                environment={"NETSUM_CONTROLLER": bed.controller_address, "OMP_NUM_THREADS": "1"},
            )
            self.workers.append(Worker(child))

    def goes_on(self, rounds: int = 5) -> None:
        """Wait until every worker has done some more rounds; any that ends meanwhile is an error."""
        goal = max(worker.round for worker in self.workers) + rounds

        def done() -> bool:
            assert all(worker.child.running for worker in self.workers), self.account()
            return all(worker.round >= goal for worker in self.workers)

        wait_until(done, lambda: f"no {rounds} rounds: {self.account()}")

    @property
    def troubles(self) -> int:
        return sum(worker.count("trouble") for worker in self.workers)

    def account(self) -> str:
        return "; ".join(
            f"{worker.child.how_it_ended()}, said last {worker.messages[-2:]}, in trouble {worker.last('trouble')}"
            for worker in self.workers
        )

    def none_wrong(self) -> None:
        for event in ("wrong", "unreadable"):
            assert not any(worker.count(event) for worker in self.workers), (
                self.account(),
                [worker.last(event) for worker in self.workers],
            )

    def finish(self) -> None:
        """Have all of them stop after a round, in order."""
        self.workers[0].child.stdin.write(b"stop\n")
        self.workers[0].child.stdin.flush()
        wait_until(lambda: all(worker.over for worker in self.workers), self.account)
        self.none_wrong()
        assert all(worker.child.succeeded for worker in self.workers), self.account()

    def stop(self) -> None:
        stop_all([worker.child for worker in self.workers])


@contextlib.contextmanager
def steady_job(bed: Hosts, hosts: Sequence[str], timeout_s: float = TIMEOUT_S) -> Iterator[SteadyJob]:
    job = SteadyJob(bed, hosts, timeout_s)
    try:
        job.goes_on(1)
        yield job
    finally:
        job.stop()


def kill_the_controller(bed: Bed, job: SteadyJob, draw: random.Random) -> str:
    troubles = job.troubles
    bed.kill("controller")
    job.goes_on()
    time.sleep(draw.uniform(0, 2))
    bed.restart("controller")
    job.goes_on()

    def attached() -> bool:
        with bed.client() as client:
            view = client.job(job.name)
        return len(view.workers) == len(job.workers) and all(worker.state == 1 for worker in view.workers)

    wait_until(attached, lambda: f"not all workers came back to the controller: {job.account()}")
    job.goes_on()
    assert job.troubles == troubles, job.account()
    return "rounds go on without a controller; workers and job are with the new one"


def kill_a_switch(bed: Bed, job: SteadyJob, draw: random.Random) -> str:
    restarts = [worker.count("restarted") for worker in job.workers]
    switch = draw.choice(bed.adding(job.name))
    bed.kill(switch)
    time.sleep(draw.uniform(0, 2))
    bed.restart(switch)
    wait_until(
        lambda: all(
            worker.count("restarted") > before for worker, before in zip(job.workers, restarts, strict=True)
        ),
        lambda: f"not restarted: {job.account()}",
    )
    job.goes_on()
    for worker in job.workers:
        over = worker.last("over")
        assert over is not None
        assert f"switch {switch}" in over["reason"], over
    return "every worker is notified, gets a new admission, and goes on with the round that was not finished"


def pull_a_link(bed: Bed, job: SteadyJob, draw: random.Random) -> str:
    troubles = job.troubles
    cable = draw.choice(bed.cables(job.hosts))
    bed.cable(cable, "down")
    time.sleep(draw.uniform(0.3, CUT_S))
    bed.cable(cable, "up")
    job.goes_on()
    assert job.troubles == troubles, job.account()
    return "rounds stand still, then go on"


def fill_a_queue(bed: Bed, job: SteadyJob, draw: random.Random) -> str:
    troubles = job.troubles
    victim = draw.choice(job.hosts)
    port = bed.testbed.state["hosts"][victim]["port"]
    switch = bed.switch_of(victim)
    interface = f"{switch}-eth{port}"
    dropped = bed.dropped(switch, interface)
    address = bed.testbed.state["hosts"][victim]["ip"]
    rate = bed.testbed.state["links"][0]["rate_bps"]
    # UDP that no process receives, as much as the sender's own link carries, into a port of half that rate.
    bed.set_rate(switch, interface, rate // 2)
    cross = Child(
        "cross traffic",
        [*bed.inside(OUTSIDER), "iperf", "-u", "-c", address, "-b", str(rate), "-t", "10000"],
        bed.folder / "cross.log",
    )
    try:
        wait_until(
            lambda: bed.dropped(switch, interface) > dropped + 20,
            lambda: f"no loss at {interface}: {job.account()}",
        )
        job.goes_on(1)
    finally:
        cross.stop()
        bed.set_rate(switch, interface, rate)
    job.goes_on()
    assert job.troubles == troubles, job.account()
    return "packets are lost at the full queue, sent again, and added once"


def kill_a_second_job(bed: Bed, job: SteadyJob, draw: random.Random) -> str:
    troubles = job.troubles
    with steady_job(bed, (OUTSIDER, job.hosts[-1])) as second:
        time.sleep(draw.uniform(0, 1))
        for worker in draw.sample(second.workers, 2):
            worker.child.kill()
        second.none_wrong()
        job.goes_on()

        def gone() -> bool:
            with bed.client() as client:
                return second.name not in [view.name for view in client.jobs()]

        wait_until(gone, lambda: f"the job {second.name} of dead workers is still there")
    job.goes_on()
    assert job.troubles == troubles, job.account()
    return "the first job does not notice; the second's slots are free again"


def flood_with_wrong_tokens(bed: Bed, job: SteadyJob, draw: random.Random) -> str:
    troubles = job.troubles
    state = bed.testbed.state
    refused = bed.not_admitted(job.name)
    joined = job.workers[0].last("joined")
    assert joined is not None
    with bed.client() as client:
        job_id = client.job(job.name).job_id
    hosts, switch = state["hosts"], state["switches"][bed.switch_of(OUTSIDER)]
    words = [hosts[OUTSIDER]["interface"], "1000", switch["mac"], switch["ip"], hosts[OUTSIDER]["ip"]]
    words += [hosts[job.hosts[0]]["ip"], str(job_id), str(joined["token"]), str(bed.load.lanes)]
    flood = Child(
        "flood",
        [*bed.inside(OUTSIDER), sys.executable, "-P", str(HERE / "unknown_sender.py"), *words],
        bed.folder / "flood.log",
    )
    try:

        def turned_away() -> int:
            return bed.not_admitted(job.name) - refused

        wait_until(
            lambda: turned_away() > 500, lambda: f"only {turned_away()} refused: {flood.how_it_ended()}"
        )
        job.goes_on()
    finally:
        flood.stop()
    job.goes_on()
    assert job.troubles == troubles, job.account()
    return "every packet of it is counted as not admitted; the sums stay right"


def kill_a_worker(bed: Bed, job: SteadyJob, draw: random.Random) -> str:
    """The job is over then."""
    dead = draw.randrange(len(job.workers))
    job.workers[dead].child.kill()
    survivors = [worker for rank, worker in enumerate(job.workers) if rank != dead]
    wait_until(lambda: all(worker.over for worker in survivors), job.account)
    job.none_wrong()
    for worker in survivors:
        trouble = worker.last("trouble")
        assert trouble is not None, job.account()
        said = f"{trouble['error']} {trouble['membership']}"
        assert re.search(rf"\bworkers? ([0-9, ]+, )?{dead}\b", said), trouble
    return "every survivor's error names the missing worker"


HARMLESS = (
    kill_the_controller,
    kill_a_switch,
    pull_a_link,
    fill_a_queue,
    kill_a_second_job,
    flood_with_wrong_tokens,
)
"""The job goes on after them."""
