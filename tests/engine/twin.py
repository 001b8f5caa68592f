"""The slot program by hand, compiled where a C compiler is: the cost of the engine's packets for a program written for them."""

import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from host_agent.wire import constants as c
from sim.switch import Packets
from tests.engine.traffic import SWITCH_IP, SWITCH_MAC, BenchJob

SOURCE = Path(__file__).with_name("slot_program.c")


def compiler() -> str | None:
    """Return the C compiler's path, None where there is none."""
    return shutil.which("gcc") or shutil.which("cc")


def compile_slot_program(
    command: Sequence[str], source: Path, made: Path, job: BenchJob, **more: int
) -> None:
    """Compile a slot program in C for the lanes of a job, with the protocol's constants and more of its own."""
    numbers = {"LANES": job.lanes, "VERSION": c.VERSION, "UDP_PORT": c.UDP_PORT, "OP_SUM": c.OP_SUM}
    numbers |= {"FLAG_LANES": c.FLAG_LANES, **more}
    defined = [f"-D{name}={value}" for name, value in numbers.items()]
    subprocess.run([*command, *defined, str(source), "-o", str(made)], check=True, timeout=120)


class Twin:
    """The C program with the entries of one job whose workers may all be at one port."""

    def __init__(self, job: BenchJob, rows: int) -> None:
        found = compiler()
        assert found is not None
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "twin.so"
            options = (found, "-O3", "-march=native", "-shared", "-fPIC")
            compile_slot_program(options, SOURCE, library, job)
            self._library = ctypes.CDLL(str(library))
        self._library.twin_run.restype = ctypes.c_int64
        self._job = job
        self._frames = np.zeros((rows * job.workers, 64 * (4 * job.lanes // 64 + 3)), np.uint8)
        self._lengths = np.zeros(len(self._frames), np.int32)
        self._ports = np.zeros(len(self._frames), np.uint16)
        self.restart()

    def restart(self) -> None:
        """Empty all slots, and enter the job and its workers."""
        job = self._job
        self._library.twin_start(job.job_id, job.epoch, 2 * job.slots, SWITCH_IP, SWITCH_MAC.to_bytes(6))
        for worker in range(job.workers):
            mac = job.mac(worker).to_bytes(6)
            self._library.twin_worker(job.port_of(worker), job.ip(worker), job.token, c.UDP_PORT, mac)

    def _arguments(self, packets: Packets) -> tuple[Any, ...]:
        arrays = (packets.frames, packets.lengths, packets.ports, self._frames, self._lengths, self._ports)
        frames, lengths, ports, out, out_lengths, out_ports = (ctypes.c_void_p(a.ctypes.data) for a in arrays)
        stride, out_stride = ctypes.c_int64(packets.frames.shape[1]), ctypes.c_int64(self._frames.shape[1])
        count = ctypes.c_int64(len(packets))
        return frames, stride, lengths, ports, count, out, out_stride, out_lengths, out_ports

    def inject(self, packets: Packets) -> Packets:
        """Run a batch; the result is a view of memory that the next call writes."""
        left = self._library.twin_run(*self._arguments(packets))
        return Packets.trusted(self._ports[:left], self._lengths[:left], self._frames[:left])

    def rate(self, batches: Sequence[Packets], loops: int) -> float:
        """Return packets/s of processor time over `loops` runs of all batches, each from empty slots."""
        spent_ns, calls = 0, [self._arguments(batch) for batch in batches]
        for _ in range(loops):
            self.restart()
            begin = time.thread_time_ns()
            for call in calls:
                self._library.twin_run(*call)
            spent_ns += time.thread_time_ns() - begin
        return loops * sum(map(len, batches)) / spent_ns * 1e9
