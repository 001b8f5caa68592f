"""The embedded switch, the kernel (XDP) and BMv2 on the same virtual cables, same packets.

The switch has one port for each worker of a job, on virtual Ethernet with all offloads off. A worker's packets are made, and its
results counted, in the kernel at the other end (`tests.veth.hosts`), at most as many chunks ahead of the results as there
are slots, so that no queue overruns and most processor time is the switch's. Every chunk takes one packet in and one packet out
for each worker, so as many packets leave as come. BMv2 has neither a log nor pcaps, and the longest queues it can have. Every run
starts a switch anew; runs alternate.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from netsum.bench.machine import machine_and_date
from netsum.option_values import OptionValueError
from netsum.options import lanes_option, runs_option
from netsum.programs import compiled_program
from netsum_common.lane_counts import LINK_LANES
from netsum_common.options import option
from netsum_common.programs import command_of
from tests import named_namespaces
from tests.controller.switch_controller import SwitchController
from tests.engine.comparison import spread
from tests.engine.traffic import SWITCH_IP, SWITCH_MAC, BenchJob
from tests.sim.switch.thrift import CLIENT, run_client
from tests.veth.by_hand import adding_ns, compiler
from topologies import namespaces
from topologies.announcing import await_socket
from topologies.children import Child, TestbedError, ending_in_order
from topologies.runs import new_run_id


@dataclass(frozen=True)
class VethOptions:
    """Packets/s of the embedded switch, the kernel (XDP) and BMv2 on the same virtual cables; needs root."""

    runs: int = runs_option(3)
    lanes: int | None = lanes_option()
    workers: int = option("Ports of the switch.", 2)
    slots: int = option("Chunks in flight; a power of two, at most 256.", 256)
    packets: int = option("Packets of a run.", 400_000)
    no_bmv2: bool = option("Leave BMv2 out; else it is measured if it is installed.", False)


DEADLINE_S = 600.0
"""Deadline of every wait; the first run after a change of sources compiles the loops of switch and hosts."""
EMBEDDED, XDP, BY_HAND, BMV2 = "embedded switch", "kernel (XDP)", "C by hand (XDP)", "simple_switch_grpc"
_QUEUE_PACKETS = 1_000_000
_BMV2_SLOTS = 32  # libpcap's buffer of 2 MB holds this many packets of BMv2's snap length, 64 KiB.


@dataclass
class VethComparison:
    """Packets/s of the runs with one program."""

    lanes: int
    workers: int
    packets: int
    rates: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, one: str, other: str) -> float:
        """Return how many times another switch's median one's is."""
        return median(self.rates[one]) / median(self.rates[other])


class _Cables:
    """Two namespaces, the switch's and the hosts', and a cable for each worker."""

    def __init__(self, workers: int) -> None:
        run_id = new_run_id()
        self.switch = named_namespaces.namespace_name(run_id, "switch")
        self.hosts = named_namespaces.namespace_name(run_id, "hosts")
        self.ports = {number: f"s{number}" for number in range(1, workers + 1)}
        self.ends = [f"h{number}" for number in range(1, workers + 1)]

    def __enter__(self) -> "_Cables":
        named_namespaces.delete_leftovers()
        try:
            for name in (self.switch, self.hosts):
                named_namespaces.add_namespace(name)
            for end, port in zip(self.ends, self.ports.values(), strict=True):
                named_namespaces.add_cable(self.hosts, end, self.switch, port)
                # With it, an interface without an XDP program takes the frames that hosts send from theirs.
                namespaces.run(*named_namespaces.inside(self.switch), "ethtool", "-K", port, "gro", "on")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        named_namespaces.delete_namespaces([self.switch, self.hosts])


@contextmanager
def _by_hand(cables: _Cables, folder: Path, job: BenchJob) -> Iterator[None]:
    """Run the program that was written by hand, with a job."""
    stem = folder / "by-hand"
    command = [sys.executable, "-P", "-m", "tests.veth.by_hand", "--ready", f"{stem}.sock"]
    command += ["--interfaces", ",".join(cables.ports.values()), "--job", json.dumps(asdict(job))]
    with _running(BY_HAND, cables.switch, command, stem):
        yield


@contextmanager
def _embedded(cables: _Cables, folder: Path, engine: str = "embedded") -> Iterator[str]:
    """Run the embedded switch, or with the engine "xdp" that in the kernel; yields where its P4Runtime listens."""
    interfaces = [word for port, name in cables.ports.items() for word in ("--interface", f"{port}@{name}")]
    address = f"unix:{folder}/embedded.sock"
    command = [*command_of("switch"), "--p4runtime", address, *interfaces]
    command += ["--engine", engine]
    with _running(EMBEDDED, cables.switch, command, folder / "embedded"):
        yield address


@contextmanager
def _bmv2(cables: _Cables, folder: Path) -> Iterator[str]:
    """Run BMv2; yields where its P4Runtime listens."""
    interfaces = [word for port, name in cables.ports.items() for word in ("-i", f"{port}@{name}")]
    address = f"unix:{folder}/bmv2.sock"
    command = [BMV2, "--no-p4", "--device-id", "1", *interfaces]
    command += ["--notifications-addr", f"ipc://{folder}/notifications", "--", "--grpc-server-addr", address]
    command += ["--cpu-port", "510", "--drop-port", "511"]
    with _running(BMV2, cables.switch, command, folder / "bmv2"):
        _lengthen_queues(cables)
        yield address


def _lengthen_queues(cables: _Cables) -> None:
    """Let BMv2's egress queues hold more than 64 packets, if its Thrift client is there to ask for it."""
    if shutil.which(CLIENT) is None:
        print(f"{BMV2} keeps its queues of 64 packets: {CLIENT} is not installed", file=sys.stderr)
        return
    asked = run_client(
        [f"set_queue_depth {_QUEUE_PACKETS}"],
        inside=named_namespaces.inside(cables.switch),
        timeout_s=DEADLINE_S,
    )
    if asked.returncode != 0:
        said = (asked.stderr or asked.stdout).strip().rpartition("\n")[2]
        print(f"{BMV2} keeps its queues of 64 packets: {said or f'{CLIENT} failed'}", file=sys.stderr)


@contextmanager
def _running(name: str, namespace: str, command: Sequence[str], stem: Path) -> Iterator[None]:
    """Run a switch, once its socket answers."""
    path = stem.with_suffix(".sock")
    path.unlink(missing_ok=True)
    child = Child(name, [*named_namespaces.inside(namespace), *command], stem.with_suffix(".log"))
    try:
        await_socket(child, path, DEADLINE_S)
        yield
    finally:
        child.stop()


_SWITCHES: dict[str, Callable[..., AbstractContextManager[str]]] = {
    EMBEDDED: _embedded, XDP: partial(_embedded, engine="xdp"), BMV2: _bmv2,
}  # fmt: skip


def _rate(cables: _Cables, address: str, lanes: int, slots: int, packets: int) -> float:
    """Program a fresh switch, run a job through it and return packets/s."""
    workers = len(cables.ends)
    program = compiled_program(lanes)
    plan = BenchJob(workers, lanes, slots=slots)
    with SwitchController.connect(
        address, program=program.json, p4info=program.p4info, timeout_s=DEADLINE_S
    ) as controller:
        controller.set_pipeline()
        controller.set_switch_address(socket.inet_ntoa(SWITCH_IP.to_bytes(4)), _mac(SWITCH_MAC))
        admitted = controller.create_job("bench", plan.endpoints(), slots)
        job = BenchJob(workers, lanes, admitted.job_id, admitted.epoch, admitted.token, slots)
        return _run_hosts(cables, job, packets)


def _run_hosts(cables: _Cables, job: BenchJob, packets: int) -> float:
    command = [*named_namespaces.inside(cables.hosts), sys.executable, "-m", "tests.veth.hosts"]
    command += ["--packets", str(packets), "--job", json.dumps(asdict(job))]
    hosts = [
        subprocess.Popen(
            [*command, "--interface", end, "--worker", str(worker)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for worker, end in enumerate(cables.ends)
    ]  # fmt: skip
    try:
        for host in hosts:
            assert host.stdout is not None
            host.stdout.readline()
        begin = time.perf_counter_ns()
        for host in hosts:
            assert host.stdin is not None
            host.stdin.write("go\n")
            host.stdin.flush()
        said = [host.communicate(timeout=DEADLINE_S) for host in hosts]
    finally:
        for host in hosts:
            host.kill()
            host.wait()
    if any(host.returncode != 0 for host in hosts):
        errors = "".join(error for _, error in said).strip()
        raise TestbedError(f"the hosts failed: {errors.rpartition(chr(10))[2] or 'no reason given'}")
    reports = [json.loads(output.splitlines()[-1]) for output, _ in said]
    results = sum(report["results"] for report in reports)
    if results != packets:
        raise TestbedError(
            f"{results} of {packets} results came: packets were lost, as on a busy machine; measure again when it is idle"
        )
    if not all(report["right"] for report in reports):
        raise TestbedError("a result was not the sum of its contributions")
    return packets / float(max(report["end_ns"] for report in reports) - begin) * 1e9


def _mac(number: int) -> str:
    return number.to_bytes(6).hex(":")


def measure(
    lanes: int,
    workers: int = 2,
    slots: int = 256,
    packets: int = 400_000,
    runs: int = 3,
    *,
    bmv2: bool = True,
) -> VethComparison:
    """Run one program on all switches, `runs` times each, alternating.

    Raises TestbedError if a switch did not come up, or lost packets.
    """
    packets -= packets % (workers * slots)
    comparison = VethComparison(lanes, workers, packets)
    chosen = (
        [EMBEDDED, XDP] + ([BY_HAND] if compiler() else []) + ([BMV2] if bmv2 and shutil.which(BMV2) else [])
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="netsum-veth-")))
        cables = stack.enter_context(_Cables(workers))
        for _ in range(runs):
            for name in chosen:
                if name == BY_HAND:
                    job = BenchJob(workers, lanes, slots=slots)
                    with _by_hand(cables, folder, job):
                        rate = _run_hosts(cables, job, packets)
                    comparison.rates.setdefault(name, []).append(rate)
                    continue
                with _SWITCHES[name](cables, folder) as address:
                    in_flight = min(slots, _BMV2_SLOTS) if name == BMV2 else slots
                    rate = _rate(cables, address, lanes, in_flight, packets)
                comparison.rates.setdefault(name, []).append(rate)
    return comparison


def run(options: VethOptions) -> list[dict[str, Any]]:
    """Measure the programs with these lanes on all switches and print packets/s, the ratios, the machine and the date."""
    workers, slots = options.workers, options.slots
    if slots & (slots - 1):
        raise OptionValueError(f"--slots: expected a power of two, not {slots}")
    if options.packets < workers * slots:
        raise OptionValueError(
            f"--packets: expected at least {workers * slots}, one for each of {slots} slots and {workers} workers, "
            f"not {options.packets}"
        )
    lacking = namespaces.missing_for_namespaces()
    if lacking is not None:
        raise TestbedError(lacking)
    results = []
    print(machine_and_date())
    print(
        f"load before: {os.getloadavg()[0]:.1f}; {workers} workers, {slots} slots, veth without offloads; "
        f"packets/s, median of {options.runs} runs (least … most)"
    )
    with ending_in_order():
        for count in LINK_LANES if options.lanes is None else (options.lanes,):
            found = measure(count, workers, slots, options.packets, options.runs, bmv2=not options.no_bmv2)
            for name, rates in found.rates.items():
                print(f"{count:>4} lanes  {name:<20} {spread(rates)}")
            print(f"            kernel: {found.ratio(XDP, EMBEDDED):,.2f} times the embedded switch")
            if BY_HAND in found.rates:
                print(f"            kernel: {found.ratio(XDP, BY_HAND):,.2f} times the program by hand")
            costs = adding_ns(count)
            results.append({**asdict(found), "adding_ns": costs})
            said = ", ".join(f"{ns} ns {name}" for name, ns in costs.items())
            print(f"            a packet that adds, by the kernel's test runs: {said}")
            if BMV2 in found.rates:
                in_flight = min(slots, _BMV2_SLOTS)
                print(
                    f"            ratio {found.ratio(EMBEDDED, BMV2):,.1f} with {in_flight} slots for {BMV2}"
                )
            else:
                print(f"            {BMV2} is not measured, so there is nothing to compare with")
    return results
