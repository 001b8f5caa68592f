"""Sums of compressed gradients have the same bits on every switch, with and without loss."""

import json
import struct
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

from controller.jobs import WorkerEndpoint
from host_agent.communicator import compile_ahead
from host_agent.compression import COMPRESSORS, Summability, reduce_in_process
from host_agent.wire.constants import UDP_PORT
from netsum.allreduce.launch import ONE_THREAD
from netsum.programs import compiled_program
from tests.controller.star import program_switch
from tests.controller.switch_controller import SwitchController
from tests.integration.compressed_worker import STEPS, SUMMABLE, gradient, reducer
from tests.integration.digits_runs import DEADLINE_S, ON_EVERY_TESTBED, TestbedKind, skip_if_lacking
from topologies.children import Child, stop_all
from topologies.generated import star
from topologies.loopback import LoopbackTestbed
from topologies.mininet_testbed import EmbeddedStar, MininetTestbed

pytestmark = [pytest.mark.torch, pytest.mark.slow]

WORLD, LANES, SLOTS = 3, 64, 16

Reduced = dict[str, np.ndarray[Any, Any]]
_without_loss: list[Reduced] = []


class CapturedStar(EmbeddedStar):
    """A star whose switch records the packets of its ports in both directions."""

    def __init__(self, workers: int, udp_port: int, folder: Path, drop_ppm: int = 0) -> None:
        MininetTestbed.__init__(self, star(workers), "embedded", folder, udp_port=udp_port, capture=True)


def reduce_on(
    kind: TestbedKind, folder: Path, drop_ppm: int, rows: int = 30
) -> tuple[list[Reduced], list[dict[str, Any]]]:
    """Reduce with every summable compressor; return each worker's results and packet counts."""
    compile_ahead()
    program = compiled_program(LANES)
    folder.mkdir(exist_ok=True)
    with (
        kind(WORLD, UDP_PORT, folder, drop_ppm=drop_ppm) as testbed,
        SwitchController.connect(
            testbed.p4runtime_address,
            program=program.json,
            p4info=program.p4info,
            device_id=testbed.spec.device_id,
            timeout_s=DEADLINE_S,
        ) as controller,
    ):
        program_switch(controller, testbed)
        hosts = testbed.hosts[:WORLD]
        job = controller.create_job(
            "compressed",
            [
                WorkerEndpoint(each.port, each.ip, each.mac, each.udp_port, switch=each.switch)
                for each in hosts
            ],
            SLOTS,
        )
        results = [folder / f"result-{rank}.npz" for rank in range(WORLD)]
        children: list[Child] = []
        try:
            for rank, (host, admission) in enumerate(zip(hosts, job.admissions, strict=True)):
                command = [sys.executable, "-m", "tests.integration.compressed_worker"]
                command += [str(rank), str(WORLD), str(rows), str(results[rank])]
                child = Child(
                    f"worker {rank}",
                    host.command(command),
                    folder / f"{rank}.log",
                    pipes=True,
                    environment=ONE_THREAD,
                )
                children.append(child)
                life = {"admission": admission.to_json(), "bind": [host.ip, host.udp_port]}
                child.stdin.write(json.dumps(life).encode() + b"\n")
                child.stdin.flush()
            lines = [child.stdout.readline() for child in children]
            assert all(lines), [child.last_words() for child in children]
            said = [json.loads(line) for line in lines]
            for child in children:
                child.wait_until(time.monotonic() + DEADLINE_S)
                assert child.succeeded, child.how_it_ended()
        finally:
            stop_all(children)
        return [dict(np.load(result)) for result in results], said


def without_loss(tmp_path: Path) -> Reduced:
    if not _without_loss:
        _without_loss.extend(reduce_on(LoopbackTestbed, tmp_path / "reference", 0)[0])
    return _without_loss[0]


@ON_EVERY_TESTBED
@pytest.mark.parametrize("drop_ppm", [0, 10_000], ids=["lossless", "1-percent"])
def test_every_switch_gives_the_same_bits(kind: TestbedKind, tmp_path: Path, drop_ppm: int) -> None:
    skip_if_lacking(kind)
    expected = without_loss(tmp_path)
    outcomes, said = reduce_on(kind, tmp_path / "run", drop_ppm)
    assert sum(one["retransmissions"] for one in said) > 0 or drop_ppm == 0
    for outcome in outcomes:
        assert outcome.keys() == set(SUMMABLE)
        for name in SUMMABLE:
            assert outcome[name].tobytes() == expected[name].tobytes(), name


@pytest.mark.parametrize(
    "name", [name for name in SUMMABLE if COMPRESSORS[name].summability is Summability.INTEGERS]
)
def test_integers_are_those_computed_in_memory(tmp_path: Path, name: str) -> None:
    workers = [reducer(name, rank, WORLD) for rank in range(WORLD)]
    for step in range(STEPS):
        mean = reduce_in_process(workers, "x", [gradient(step, rank) for rank in range(WORLD)])[0]
        assert mean.numpy().tobytes() == without_loss(tmp_path)[name][step].tobytes()


def captured(path: Path) -> tuple[int, int]:
    """Return how many packets of netsum a capture has, and the bytes of their UDP payloads."""
    content, at, packets, size = path.read_bytes(), 24, 0, 0
    while at < len(content):
        (held,) = struct.unpack_from("=I", content, at + 8)
        frame = content[at + 16 : at + 16 + held]
        at += 16 + held
        if frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[36:38] == UDP_PORT.to_bytes(2, "big"):
            packets += 1
            size += int.from_bytes(frame[38:40], "big") - 8
    return packets, size


@pytest.mark.root
def test_the_bytes_of_a_capture_are_those_that_the_method_promises(tmp_path: Path) -> None:
    skip_if_lacking(CapturedStar)
    said = reduce_on(CapturedStar, tmp_path / "run", 0, rows=2000)[1]
    for port, one in enumerate(said, start=1):
        assert captured(tmp_path / "run" / "pcaps" / f"s1-eth{port}_in.pcap") == (
            one["packets"],
            one["bytes"],
        )
        for name, bytes_of in one["of"].items():
            # A collective ends with a packet that is not full.
            rounds = 3 * STEPS * 4 * LANES
            assert bytes_of["lanes"] < 1.05 * bytes_of["promised"] + rounds, name
            # Workers take turns in sending indices that all agree on: the others then send headers alone.
            assert bytes_of["lanes"] >= bytes_of["promised"] or name.startswith("agreed-"), name
