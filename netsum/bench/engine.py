"""``netsum bench engine``: the embedded switch and BMv2, same program, same packets.

The packets are the contributions of a two-worker job, chunk after chunk: every other one completes its chunk and leaves as two
results, so as many packets leave as come. The engine takes them in batches in its process, and so does a C program that does
the same by hand (`twin`), whose output is compared byte for byte; both are timed by what the processor worked for them. BMv2
reads them from a pcap file, with no kernel or interface between, and is timed from its first output to its last. Runs alternate.
"""

import os
import shutil
import socket
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from host_agent.errors import NetsumError
from netsum.bench.machine import machine_and_date
from netsum.bench.thrift import CLIENT, run_client
from netsum.bench.traffic import Job, contributions, install
from netsum.bench.twin import Twin, compiler
from netsum.programs import compiled_program
from sim.switch import Exact, Packets, Switch, load_program

BATCH = 256
WORKERS = 2
_CHUNKS = {64: 8000, 256: 4000}
_PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
_START_S = 3
_DEADLINE_S = 60.0


@dataclass
class Comparison:
    """Packets/s of the runs with one program; `twin` and `bmv2` are empty where no C compiler or no BMv2 is installed."""

    lanes: int
    packets: int
    engine: list[float] = field(default_factory=list)
    twin: list[float] = field(default_factory=list)
    bmv2: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        """How many times BMv2's median the engine's is."""
        return statistics.median(self.engine) / statistics.median(self.bmv2) if self.bmv2 else None


def _batches(packets: Packets) -> list[Packets]:
    starts = range(0, len(packets), BATCH)
    return [
        Packets(packets.ports[s : s + BATCH], packets.lengths[s : s + BATCH], packets.frames[s : s + BATCH])
        for s in starts
    ]


def _engine_rate(switch: Switch, batches: Sequence[Packets], loops: int) -> float:
    """Return packets/s of processor time over `loops` runs of all batches, each from the same state."""
    fresh = switch.save_state()
    spent_ns, packets = 0, 0
    for _ in range(loops):
        switch.restore_state(fresh)
        begin = time.thread_time_ns()
        left = sum(len(switch.inject(batch, 0, copy=False)) for batch in batches)
        spent_ns += time.thread_time_ns() - begin
        taken = sum(len(batch) for batch in batches)
        if left != taken:
            raise BenchError(f"{left} packets left the engine, not {taken}: the program did not aggregate")
        packets += taken
    switch.restore_state(fresh)
    return packets / spent_ns * 1e9


def _check_twin(switch: Switch, twin: Twin, batches: Sequence[Packets]) -> None:
    fresh = switch.save_state()
    for batch in batches:
        if list(switch.inject(batch, 0, copy=False)) != list(twin.inject(batch)):
            raise BenchError("the engine and the C program put out different packets")
    switch.restore_state(fresh)


def _write_pcap(path: Path, packets: Packets | None) -> None:
    with path.open("wb") as file:
        file.write(_PCAP_HEADER)
        for _, frame in packets or ():
            file.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)


def _out_times_us(path: Path) -> list[int]:
    """Return when each packet of a pcap file was written."""
    content, at, times = path.read_bytes(), len(_PCAP_HEADER), []
    while at + 16 <= len(content):
        seconds, micros, size, _ = struct.unpack_from("<IIII", content, at)
        times.append(seconds * 1_000_000 + micros)
        at += 16 + size
    return times


def _commands(switch: Switch) -> list[str]:
    """Return the commands for simple_switch_CLI that make the entries and groups that `switch` has."""
    lines = ["set_queue_depth 1000000"]
    for name, table in switch.program.tables.items():
        for entry in () if table.immutable else switch.table_entries(name):
            key = " ".join(f"{m.value:#x}" for m in entry.key if isinstance(m, Exact))
            params = " ".join(f"{p:#x}" for p in entry.params)
            lines.append(f"table_add {name} {entry.action} {key} => {params}")
    handle = 0
    for group, replicas in switch.mcast_groups().items():
        lines.append(f"mc_mgrp_create {group}")
        for port, rid in replicas:
            lines += [f"mc_node_create {rid} {port}", f"mc_node_associate {group} {handle}"]
            handle += 1
    return lines


class BenchError(NetsumError):
    """A measurement did not come about; the message says why, and what to do."""


def missing_for_bmv2() -> str | None:
    """Tell why BMv2 cannot be measured here, as a sentence; None if it can."""
    for program in ("simple_switch", CLIENT):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    said = subprocess.run(
        ["simple_switch", "--help"], capture_output=True, text=True, timeout=_DEADLINE_S, check=False
    )
    if "--thrift-port" not in said.stdout + said.stderr:
        return "simple_switch was built without Thrift, by which its tables are filled here"
    return None


def _bmv2_rate(program: Path, switch: Switch, packets: Packets) -> float:
    """Run BMv2 once over the packets and return packets/s."""
    ports = range(WORKERS + 1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        thrift = str(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for port in ports:
            _write_pcap(directory / f"p{port}_in.pcap", packets if port == 0 else None)
        interfaces = [option for p in ports for option in ("-i", f"{p}@p{p}")]
        command = ["simple_switch", *interfaces, "--use-files", str(_START_S), "--thrift-port", thrift]
        command += ["--device-id", thrift, "--notifications-addr", f"ipc://{directory}/n.ipc", str(program)]
        process = subprocess.Popen(
            command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _configure(thrift, _commands(switch))
            return _await_outputs([directory / f"p{port}_out.pcap" for port in ports], len(packets))
        finally:
            process.kill()
            process.wait(_DEADLINE_S)


def _configure(thrift: str, commands: Sequence[str]) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", int(thrift))) == 0:
                break
        time.sleep(0.02)
    done = run_client(commands, "--thrift-port", thrift, timeout_s=_DEADLINE_S)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        raise BenchError(
            f"the tables of simple_switch could not be filled over Thrift: {said or 'no reason given'}"
        )


def _await_outputs(files: Sequence[Path], expected: int) -> float:
    """Wait for `expected` packets in the files and return packets/s between the first and the last."""
    deadline = time.monotonic() + _DEADLINE_S
    sizes, since = -1, time.monotonic()
    while time.monotonic() < deadline:
        time.sleep(0.25)
        now = sum(f.stat().st_size for f in files if f.exists())
        if now != sizes:
            sizes, since = now, time.monotonic()
        elif time.monotonic() - since > _START_S + 1:
            break
    times = sorted(t for f in files for t in _out_times_us(f))
    if len(times) < expected:
        raise BenchError(
            f"BMv2 put out {len(times):,} of {expected:,} packets: the machine is too busy, so measure again when it is idle"
        )
    return (len(times) - 1) / (times[-1] - times[0]) * 1e6


def measure(lanes: int, runs: int = 3, *, with_bmv2: bool = True) -> Comparison:
    """Run one program on both switches, `runs` times each, alternating."""
    program = compiled_program(lanes).json
    job = Job(WORKERS, lanes, port=0)
    switch = Switch(load_program(program))
    install(switch, job)
    packets = contributions(job, _CHUNKS[lanes])
    batches = _batches(packets)
    loops = max(1, round(np.ceil(400_000 / len(packets))))
    comparison = Comparison(lanes, len(packets))
    twin = Twin(job, BATCH) if compiler() else None
    if twin:
        _check_twin(switch, twin, batches)
    _engine_rate(switch, batches, 1)
    for _ in range(runs):
        comparison.engine.append(_engine_rate(switch, batches, loops))
        if twin:
            comparison.twin.append(twin.rate(batches, loops))
        if with_bmv2:
            comparison.bmv2.append(_bmv2_rate(program, switch, packets))
    return comparison


def spread(rates: Sequence[float]) -> str:
    """Write the median of some rates, and the least and the most."""
    return f"{statistics.median(rates):>12,.0f}  ({min(rates):,.0f} … {max(rates):,.0f})"


def run(runs: int, lane_counts: Sequence[int]) -> None:
    """Measure the programs with these lanes and print packets/s, the ratio, the machine and the date."""
    print(machine_and_date())
    print(f"load before: {os.getloadavg()[0]:.1f}; packets/s, median of {runs} runs (least … most)")
    lacking = missing_for_bmv2()
    for lanes in lane_counts:
        comparison = measure(lanes, runs, with_bmv2=lacking is None)
        print(f"{lanes:>4} lanes  embedded switch {spread(comparison.engine)}")
        if comparison.twin:
            ratio = statistics.median(comparison.engine) / statistics.median(comparison.twin)
            print(f"            C by hand       {spread(comparison.twin)}   ratio {ratio:.2f}")
            costs = [1e9 / statistics.median(rates) for rates in (comparison.engine, comparison.twin)]
            print(f"            ns a contribution: {costs[0]:.1f}, by hand {costs[1]:.1f}")
        else:
            print("            without the C program: no C compiler is installed")
        if comparison.ratio is None:
            print(f"            without BMv2: {lacking}")
        else:
            print(f"            simple_switch   {spread(comparison.bmv2)}   ratio {comparison.ratio:,.0f}")
