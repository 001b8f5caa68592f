"""A host's end of a cable: a worker's packets are made, and its results counted, in the kernel.

Sockets cost a packet more than a switch in the kernel does, so there are none: `host_xdp.ll` sends contributions from test runs
with live frames, and is at the interface, where it counts RESULTs and drops them. A worker is at most as many chunks ahead of its
results as the job has slots, so nothing is lost while a queue holds that many packets.
"""

import argparse
import json
import os
import socket
import struct
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from host_agent.wire import constants as c
from sim.switch.bpf import syscall
from sim.switch.bpf.loading import linked
from sim.switch.bpf.machine import compile_module
from sim.switch.bpf.syscall import Map
from tests.engine.traffic import BenchJob, contribution

SOURCE = Path(__file__).with_name("host_xdp.ll")

_QUIET_S = 3.0
"""Seconds without a RESULT after which a host gives up."""
_TEMPLATES, _SAMPLES = 16, 64
_LANES_AT, _CHUNK_AT, _POOL_AT = (
    42 + at for at in (c.HEADER_BYTES, c.HEADER_OFFSET_CHUNK, c.HEADER_OFFSET_POOL_INDEX)
)
_RESULT = c.VERSION << 4 | c.KIND_RESULT


def lanes_of(job: BenchJob, worker: int) -> NDArray[np.int32]:
    """Return a worker's contributions, int32[16, lanes]: chunk n has row n modulo 16."""
    random = np.random.default_rng(worker)
    return random.integers(-(2**20), 2**20, (_TEMPLATES, job.lanes), dtype=np.int32)


class VethHost:
    """One worker at one interface; the programs go with this process."""

    def __init__(self, job: BenchJob, worker: int, interface: str) -> None:
        self.job = job
        packets = [contribution(job, worker, 0, row.astype(">i4").tobytes()) for row in lanes_of(job, worker)]
        self.frame = packets[0]
        self._stride = -(-len(self.frame) // 64) * 64
        samples = 64 + _TEMPLATES * self._stride
        size = samples + _SAMPLES * self._stride
        numbers = {"STRIDE": self._stride, "FRAME": len(self.frame), "SAMPLES": samples, "RESULT": _RESULT}
        numbers |= {"SLOTMASK": job.slots - 1, "SHIFT": job.slots.bit_length() - 1}
        numbers |= {"POOLAT": _POOL_AT, "CHUNKAT": _CHUNK_AT}
        text = SOURCE.read_text(encoding="utf-8")
        for name, number in numbers.items():
            text = text.replace(name, str(number))
        code = compile_module(text, str(SOURCE))
        maps = {
            "memory": Map("host", syscall.ARRAY, 4, size, 1, shared=True),
            "cable": Map("cable", syscall.DEVMAP, 4, 4, 1),
        }
        index = socket.if_nametoindex(interface)
        maps["cable"].update(bytes(4), struct.pack("=I", index))
        memory = np.frombuffer(maps["memory"].view(size), np.uint8)
        self._words = memory[:64].view(np.uint64)
        templates = memory[64:samples].reshape(_TEMPLATES, self._stride)
        for place, packet in zip(templates, packets, strict=True):
            place[: len(packet)] = np.frombuffer(packet, np.uint8)
        self._samples = memory[samples:].reshape(_SAMPLES, self._stride)
        self._program = syscall.load_program("host", linked(code, "host", maps))
        self._link = syscall.attach_xdp(self._program, index, syscall.NATIVE_MODE)

    def run(self, chunks: int) -> int:
        """Send all chunks; return how many results came."""
        slots, sent, got, words = self.job.slots, 0, 0, self._words
        words[4] = chunks
        last = time.monotonic()
        while got < chunks:
            # The slot of chunk n is free when its result has come; a test run is worth its setup from half of the slots on.
            count = min(got + slots, chunks) - sent
            if count >= min(slots // 2, chunks - sent) > 0:
                syscall.run_once(self._program, self.frame, count, live=True, batch=64)
                sent += count
            else:
                os.sched_yield()
            before, got = got, int(words[1])
            if got > before:
                last = time.monotonic()
            elif time.monotonic() - last > _QUIET_S:
                break
        return got

    @property
    def end_ns(self) -> int:
        """Arrival of the last result, in ns of the monotonic clock."""
        return int(self._words[3])

    def right(self, chunks: int) -> bool:
        """Whether each chunk had one result, and the sampled ones hold the sums."""
        if int(self._words[2]) != chunks * (chunks - 1) // 2:
            return False
        sums = np.sum([lanes_of(self.job, worker) for worker in range(self.job.workers)], axis=0)
        for row in self._samples[: -(-chunks // 61)]:
            chunk = int.from_bytes(row[_CHUNK_AT : _CHUNK_AT + 4].tobytes())
            lanes = row[_LANES_AT : len(self.frame)].view(">i4")
            if not (lanes == sums[chunk % _TEMPLATES]).all():
                return False
        return True


def main() -> None:
    """Send a job's contributions and print how long all results took, as JSON."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("--interface", required=True, help="of the worker")
    options.add_argument("--worker", type=int, required=True)
    options.add_argument("--job", required=True, help="a `BenchJob`'s fields, as JSON")
    options.add_argument("--packets", type=int, required=True)
    chosen = options.parse_args()
    job = BenchJob(**json.loads(chosen.job))
    chunks = chosen.packets // job.workers
    host = VethHost(job, chosen.worker, chosen.interface)
    print("ready", flush=True)
    sys.stdin.readline()
    results = host.run(chunks)
    print(json.dumps({"results": results, "end_ns": host.end_ns, "right": host.right(chunks)}))


if __name__ == "__main__":
    main()
