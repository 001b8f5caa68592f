"""`netsum controller serve` as a process, on the embedded switch: killed, restarted, displaced, while workers add."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from controller import entries
from controller.jobs import Job, WorkerEndpoint
from controller.service.client import OperatorClient
from controller.slots import SlotRange
from host_agent.communicator import compile_ahead
from host_agent.errors import SwitchSilentError
from host_agent.job_api import jobs_pb2
from host_agent.job_api.job_request import JobRequest
from host_agent.joining import Membership, join
from host_agent.wire.constants import UDP_PORT
from netsum_common.targets import Capabilities
from tests.controller.harness_switches import LANES, PROGRAM
from tests.controller.service_harness import DEADLINE_S, until
from tests.controller.switch_controller import SwitchController
from topologies.hosts import Host
from topologies.loopback import LoopbackTestbed
from topologies.topology import SwitchSpec

WORKERS = 2
VALUES = 10 * LANES


class Switched(Protocol):
    """A testbed, as far as its controller must know it."""

    hosts: tuple[Host, ...]
    p4runtime_address: str
    spec: SwitchSpec


class Process:
    """The controller of a testbed as a process; `program`: the options that name the program."""

    def __init__(
        self, testbed: Switched, folder: Path, program: Sequence[str] = ("--lanes", str(LANES))
    ) -> None:
        self.program = program
        self._log = folder / "controller.log"
        self.config = folder / "network.toml"
        self.address = f"unix:{folder}/api.sock"
        self.config.write_text(
            f'[[switch]]\nname = "s1"\np4runtime = "{testbed.p4runtime_address}"\nip = "{testbed.spec.ip}"\n'
            f'mac = "{testbed.spec.mac}"\n'
            + "".join(
                f'[[host]]\nname = "{host.name}"\nip = "{host.ip}"\nmac = "{host.mac}"\nswitch = "s1"\n'
                f'port = {host.port}\nsend_to = "{host.switch[0]}:{host.switch[1]}"\n'
                for host in testbed.hosts
            )
        )
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        read_end, write_end = os.pipe()
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                self.command("--ready-fd", str(write_end)),
                stdout=log,
                stderr=log,
                pass_fds=(write_end,),
            )
        os.close(write_end)
        with os.fdopen(read_end) as pipe:
            line = pipe.readline()
        assert line, self._log.read_text()
        assert json.loads(line)["addresses"] == [self.address]

    def command(self, *options: str) -> list[str]:
        run = "from netsum.cli import main; main()"
        serve = ["controller", "serve", "--config", str(self.config), "--listen", self.address]
        return [sys.executable, "-P", "-c", run, *serve, *self.program, *options]

    def end(self, number: int) -> int:
        assert self._popen is not None
        self._popen.send_signal(number)
        status = self._popen.wait(DEADLINE_S)
        self._popen = None
        return status

    def close(self) -> None:
        if self._popen is not None:
            self.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackTestbed]:
    compile_ahead()
    with LoopbackTestbed(WORKERS, UDP_PORT, tmp_path_factory.mktemp("loopback")) as testbed:
        yield testbed


@pytest.fixture(scope="module")
def controller_process(
    loopback: LoopbackTestbed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Process]:
    process = Process(loopback, tmp_path_factory.mktemp("controller"))
    try:
        process.start()
        yield process
    finally:
        process.close()


class Adders:
    """Workers that add until they are stopped, and notice every wrong sum."""

    def __init__(self, members: list[Membership]) -> None:
        self.rounds = 0
        self._stop = False
        self._threads = ThreadPoolExecutor(len(members))
        ready = threading.Barrier(len(members))
        self._done = [self._threads.submit(self._add, member, ready) for member in members]

    def _add(self, member: Membership, ready: threading.Barrier) -> None:
        rank = member.admission.worker_id
        with member.communicator(timeout_s=DEADLINE_S) as comm:
            ready.wait(DEADLINE_S)
            stop = False
            while not stop:
                stops = np.full(VALUES, int(self._stop), np.int32)
                total = comm.allreduce(np.arange(VALUES, dtype=np.int32) * (rank + 1))
                assert (total == np.arange(VALUES) * 3).all()
                stop = bool(comm.allreduce(stops, "max")[0])
                if rank == 0:
                    self.rounds += 1

    def add_more(self) -> None:
        before = self.rounds
        until(lambda: self.rounds > before + 10 or any(one.done() for one in self._done))
        self.check()

    def check(self) -> None:
        for one in self._done:
            if one.done():
                one.result()

    def stop(self) -> None:
        self._stop = True
        for one in self._done:
            one.result(DEADLINE_S)
        self._threads.shutdown()


def join_both(process: Process, testbed: Switched, job: str) -> list[Membership]:
    with ThreadPoolExecutor(WORKERS) as threads:
        members = [
            threads.submit(
                join,
                process.address,
                job=job,
                rank=rank,
                world_size=WORKERS,
                addresses=[host.ip],
                timeout_s=DEADLINE_S,
            )
            for rank, host in enumerate(testbed.hosts)
        ]
        return [member.result() for member in members]


def test_a_job_runs_on_while_its_controller_is_killed_and_started_again(
    controller_process: Process, loopback: LoopbackTestbed
) -> None:
    members = join_both(controller_process, loopback, "job")
    adders = Adders(members)
    adders.add_more()
    for how in (signal.SIGKILL, signal.SIGTERM):
        status = controller_process.end(how)
        assert status == (-how if how is signal.SIGKILL else 0)
        adders.add_more()
        controller_process.start()
        with OperatorClient(controller_process.address, timeout_s=DEADLINE_S) as operator:
            until(lambda: all(one.state == jobs_pb2.SEATED for one in operator.job("job").workers))
            adders.add_more()
            view = operator.job("job")
            assert (view.state, view.epoch) == (jobs_pb2.RUNNING, members[0].admission.epoch)
            assert operator.switch().reconciliation.findings == []
            until(lambda: operator.job("job").workers[0].report.chunks > 0)
    adders.stop()
    assert not any(member.trouble for member in members)
    for member in members:
        member.close()
    with OperatorClient(controller_process.address, timeout_s=DEADLINE_S) as operator:
        until(lambda: operator.switch().free_slots == 4096)


def test_a_switch_that_was_killed_gets_its_program_and_the_job_a_new_epoch(
    controller_process: Process, loopback: LoopbackTestbed
) -> None:
    members = join_both(controller_process, loopback, "job")
    old = members[0].admission
    with members[0].communicator(timeout_s=0.5) as of_old_epoch:
        loopback.switch.kill()
        loopback.restart_switch()
        for member in members:
            assert member.restarted(DEADLINE_S).epoch > old.epoch
        reason = r"the job was given a new epoch \(switch s1 was restarted\)"
        with pytest.raises(SwitchSilentError, match=reason):
            of_old_epoch.allreduce(np.ones(VALUES, np.int32))
    adders = Adders(members)
    adders.add_more()
    adders.stop()
    for member in members:
        member.close()


def test_what_another_controller_wrote_is_removed_when_it_is_gone(
    controller_process: Process, loopback: LoopbackTestbed
) -> None:
    members = join_both(controller_process, loopback, "job")
    adders = Adders(members)
    with (
        OperatorClient(controller_process.address, timeout_s=DEADLINE_S) as operator,
        SwitchController.connect(
            loopback.p4runtime_address, program=PROGRAM.json, p4info=PROGRAM.p4info, election_id=9
        ) as other,
    ):
        until(lambda: operator.switch().state == jobs_pb2.STANDBY)
        other.tables.set_l2({loopback.hosts[0].mac: 7})
        # The new controller knows no job, so it takes the job's id away, and adds one.
        for number, host in enumerate(loopback.hosts):
            place = WorkerEndpoint(host.port, host.ip, host.mac, 9, switch=host.switch)
            other.tables.install(
                Job(
                    JobRequest(f"foreign {number}", 1),
                    number + 1,
                    7,
                    7,
                    SlotRange(0, 64),
                    Capabilities(lanes=LANES),
                    (place,),
                )
            )
    with OperatorClient(controller_process.address, timeout_s=DEADLINE_S) as operator:
        until(lambda: operator.switch().state == jobs_pb2.READY)
        found = operator.switch().reconciliation
        assert found.removed >= 2
        assert any(entries.WORKER_ADMISSION in finding for finding in found.findings)
        assert any(entries.L2_FORWARD in finding for finding in found.findings)
    adders.add_more()
    adders.stop()
    for member in members:
        member.close()


def test_a_second_controller_on_the_same_state_says_so(controller_process: Process) -> None:
    second = subprocess.run(controller_process.command(), capture_output=True, text=True, timeout=DEADLINE_S)
    assert second.returncode == 1
    assert second.stderr.startswith("netsum: another controller (process ")
    assert second.stderr.count("\n") == 1
