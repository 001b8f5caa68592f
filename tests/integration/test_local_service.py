"""The service that a job starts for itself: it starts from any folder, and ends with the job."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.service.client import OperatorClient
from host_agent.joining import JoinError, join, start_service

WAIT_S = 30.0
"""Less than a service waits for its first worker."""


TRAINER = """
import common, controller, sim, topologies
assert {common.MINE, controller.MINE, sim.MINE, topologies.MINE} == {"the trainer's own"}
import numpy, netsum
from host_agent.joining import start_service
with netsum.join(start_service(1), job="shadowed", rank=0, world_size=1) as membership, membership.communicator() as group:
    print(group.allreduce(numpy.ones(3, numpy.float32)))
"""


def test_a_trainer_has_packages_of_its_own_that_are_named_like_those_of_the_switch_and_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NETSUM_CONTROLLER", raising=False)
    for name in ("common", "controller", "sim", "topologies"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('MINE = "the trainer\'s own"\n')
    (tmp_path / "train.py").write_text(TRAINER)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert (done.stdout, done.returncode) == ("[1. 1. 1.]\n", 0), done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("NETSUM_SWITCHES", "two", "NETSUM_SWITCHES: expected a whole number, not 'two'"),
        ("NETSUM_SWITCHES", "3", "expected 1 or 2 switches, not 3"),
        ("NETSUM_SLOTS", "-1", "NETSUM_SLOTS: expected a whole number, not '-1'"),
        ("NETSUM_LANES", "65", "the program is built for 64, 256, 512 or 1024 lanes, not 65"),
    ],
)
def test_a_variable_with_a_wrong_value_gets_a_sentence(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(JoinError, match=sentence):
        start_service(1)


def test_it_ends_with_a_job_that_lasts_less_than_a_look() -> None:
    address = start_service(1)
    with socket.socket(socket.AF_UNIX) as until_it_ends:
        until_it_ends.connect(address.removeprefix("unix:"))
        join(address, job="short", rank=0, world_size=1).close()
        until_it_ends.settimeout(WAIT_S)
        while until_it_ends.recv(1024):
            pass


def test_two_switches_with_a_cable_between_them_add_in_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NETSUM_CONTROLLER", raising=False)
    monkeypatch.setenv("NETSUM_SWITCHES", "2")
    address = start_service(3)

    def reduce(rank: int) -> Any:
        with (
            join(address, job="tree", rank=rank, world_size=3) as membership,
            membership.communicator() as group,
        ):
            total = group.allreduce(np.full(700, 2.0**rank, np.float32))
            sent = [group.broadcast(np.array([rank]), root).tolist() for root in range(3)]
            with OperatorClient(address) as operator:
                tree = [(one.name, one.parent, len(one.ranks)) for one in operator.job("tree").tree]
            group.barrier()
            return total.tolist(), sent, tree

    with ThreadPoolExecutor(3) as pool:
        for total, sent, tree in pool.map(reduce, range(3)):
            assert total == [7.0] * 700
            assert sent == [[0], [1], [2]]
            assert tree == [("s1", "", 2), ("s2", "s1", 1)]


def test_it_is_joined_whatever_certificates_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NETSUM_TLS_CA", str(tmp_path / "of-another-controller.pem"))
    with join(start_service(1), job="in-clear", rank=0, world_size=1) as membership:
        assert membership.admission.num_workers == 1


def test_a_controller_that_is_gone_is_not_blamed_on_a_variable_that_is_not_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address = f"unix:{tmp_path}/gone"
    monkeypatch.delenv("NETSUM_CONTROLLER", raising=False)
    with pytest.raises(JoinError, match="start the service$"):
        join(address, job="late", rank=0, world_size=1)
    monkeypatch.setenv("NETSUM_CONTROLLER", address)
    with pytest.raises(JoinError, match="or unset NETSUM_CONTROLLER"):
        join(job="late", rank=0, world_size=1)


def test_a_worker_that_connects_before_a_busy_controller_answers_connects_again(tmp_path: Path) -> None:
    """The controller is behind a relay that leaves the first connection unanswered until the worker gives it up."""
    service = start_service(1).removeprefix("unix:")
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor() as pool:
        listener.bind(str(tmp_path / "busy"))
        listener.listen()

        def pump(source: socket.socket, sink: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while some := source.recv(1 << 16):
                    sink.sendall(some)
                sink.shutdown(socket.SHUT_WR)

        def relay(worker: socket.socket) -> None:
            with worker, socket.socket(socket.AF_UNIX) as controller:
                controller.connect(service)
                back = pool.submit(pump, controller, worker)
                pump(worker, controller)
                back.result()

        def accept() -> None:
            with listener.accept()[0] as unanswered:
                while unanswered.recv(1 << 16):
                    pass
            with contextlib.suppress(OSError):  # The listener's end.
                while True:
                    pool.submit(relay, listener.accept()[0])

        pool.submit(accept)
        try:
            with join(f"unix:{tmp_path}/busy", job="patient", rank=0, world_size=1) as membership:
                assert membership.admission.num_workers == 1
        finally:
            listener.shutdown(socket.SHUT_RDWR)


ENDED_WHILE_FREEING = """
import os, signal, sys
from controller.service.scheduler import Scheduler
from netsum import local_service
free = Scheduler._free

async def ended_while_freeing(scheduler, job):
    await free(scheduler, job)
    os.kill(os.getpid(), signal.SIGTERM)

Scheduler._free = ended_while_freeing
sys.exit(local_service.main(["--places", "1"]))
"""


def test_it_ends_without_a_traceback_when_it_is_ended_while_it_frees_a_job() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDED_WHILE_FREEING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as service:
        assert service.stdout is not None
        address = json.loads(service.stdout.readline())["address"]
        join(address, job="short", rank=0, world_size=1).close()
        _, errors = service.communicate(timeout=WAIT_S)
        assert service.returncode == 128 + signal.SIGTERM
        assert "Traceback" not in errors


STARTER = """
from host_agent.joining import start_service
print(start_service(1), flush=True)
input()
"""


def test_it_does_not_hold_the_standard_error_of_who_started_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as starter:
        assert starter.stdout is not None
        address = starter.stdout.readline().strip()
        with join(address, job="outlives", rank=0, world_size=1):
            # Returns when no process holds the pipe any more.
            out, errors = starter.communicate("\n", timeout=WAIT_S)
            assert out == ""
            assert "starting a switch" in errors or not errors
