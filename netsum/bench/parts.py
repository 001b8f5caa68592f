"""Where the processor time of a packet goes, on a Mininet testbed: ``python -m netsum.bench.parts --lanes 64 --slots 128``.

Linux's `perf` takes samples of all processors while hosts reduce an array. What the kernel does for a packet it does wherever
it happens to be, a link's timer even in programs that have nothing to do with it; so samples are distinguished by what is done,
found in their call stacks, and by process only where a process does it for itself. Root; Debian's package linux-perf.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from netsum.allreduce.plan import Plan
from netsum.allreduce.report import Message
from netsum.allreduce.session import run_between, testbed_sites
from netsum.bench.machine import machine_and_date
from netsum.bench.modules import one_sentence, positive
from netsum.bench.testbeds import testbed
from topologies.children import TestbedError

SAMPLES_PER_S = 4000
PARSE_TIMEOUT_S = 300.0

HOST, SWITCH, OTHERS = "host", "switch", "others"

# The first whose functions are in the stack: the innermost work comes first.
WHOEVER_IT_HAPPENS_TO: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("into the switch's ring", ("tpacket_rcv", "packet_rcv")),
    ("into a host's socket", ("ip_rcv", "ip_local_deliver_finish", "__udp4_lib_rcv")),
    ("over the cable", ("dev_hard_start_xmit", "validate_xmit_skb_list", "sch_direct_xmit")),
    ("link's queue and timers", ("htb_dequeue", "htb_enqueue", "__qdisc_run", "dev_qdisc_enqueue")),
    ("link's queue and timers", ("qdisc_watchdog", "net_tx_action")),
    ("over the cable", ("process_backlog", "net_rx_action")),
)
FOR_ITSELF: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("sends", ("__x64_sys_sendmmsg",)),
    ("receives", ("__x64_sys_recvmmsg",)),
    ("waits, is woken", ("__x64_sys_epoll_wait", "__x64_sys_ppoll", "schedule")),
)
INTERRUPT = ("asm_sysvec_apic_timer_interrupt", "hrtimer_interrupt", "handle_softirqs")
IN_KERNEL = ("entry_SYSCALL_64_after_hwframe", "do_syscall_64", "asm_exc_page_fault", "ret_from_fork_asm")


def part_of(role: str, stack: Iterable[str]) -> str | None:
    """Name what a sample was taken in; None if it is no part of a packet's cost."""
    functions = set(stack)
    for part, names in WHOEVER_IT_HAPPENS_TO:
        if not functions.isdisjoint(names):
            return part
    if role == OTHERS:
        return None
    if not functions.isdisjoint(INTERRUPT):
        return "interrupts, other"
    for part, names in FOR_ITSELF:
        if not functions.isdisjoint(names):
            return f"{role} {part}"
    return f"{role}: kernel, other" if not functions.isdisjoint(IN_KERNEL) else f"{role}'s own code"


def _samples(recording: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield process id and functions of every sample."""
    done = subprocess.run(
        ["perf", "script", "-i", str(recording), "-F", "pid,ip,sym"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=PARSE_TIMEOUT_S,
        check=True,
    )
    for sample in done.stdout.split("\n\n"):
        first, *frames = sample.strip("\n").split("\n")
        if first.strip():
            yield int(first.split()[0]), [frame.split()[1] for frame in frames if len(frame.split()) > 1]


def _roles(switch_pid: int) -> dict[int, str]:
    """Return the processes of ranks and switch."""
    roles = {switch_pid: SWITCH}
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"netsum.allreduce.worker" in process.read_bytes().split(b"\0"):
                roles[int(process.parent.name)] = HOST
        except OSError:  # It has ended.
            continue
    return roles


class _Recorder:
    """Records while the ranks are in the round after the warm-up."""

    def __init__(self, workers: int, switch_pid: int, seconds: float, recording: Path) -> None:
        self._left = workers
        self._switch_pid = switch_pid
        self._command = ["perf", "record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", str(SAMPLES_PER_S)]
        self._command += ["-o", str(recording), "--", "sleep", str(seconds)]
        self.perf: subprocess.Popen[bytes] | None = None
        self.roles: dict[int, str] = {}

    def on_message(self, rank: int, message: Message) -> None:
        """Take a rank's message."""
        del rank
        if message["event"] == "round" and self.perf is None:
            self._left -= 1
            if self._left == 0:
                self.roles = _roles(self._switch_pid)
                self.perf = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)


CABLE = "over the cable"
LINK = "link's queue and timers"


def calibration(us: Mapping[str, float]) -> dict[str, float]:
    """Return what `netsum sim` takes for hosts and switches like these, in ns.

    `us`: processor time of each part, in microseconds per packet that hosts send or receive; half of them are sent. Returns
    `send` and `receive` of a host for a packet, `service` of a switch for a packet that comes in and one that leaves, all of
    them on processors of their own, each with its half of the cable's cost; and `shared`, the processor time of a
    contribution and its result at all of them.
    """
    cable = us.get(CABLE, 0.0) / 2
    core = us.get("host's own code", 0.0) + us.get("host: kernel, other", 0.0)
    switch = sum(
        each for part, each in us.items() if part.startswith("switch") or part == "into the switch's ring"
    )
    receive = (
        us.get("host receives", 0.0)
        + us.get("into a host's socket", 0.0)
        + us.get("host waits, is woken", 0.0)
    )
    return {
        "send": 1000 * (2 * us.get("host sends", 0.0) + core + cable),
        "receive": 1000 * (2 * receive + core + cable),
        "service": 1000 * (2 * switch + 2 * cable),
        "shared": 1000 * 2 * sum(us.values()),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what a packet costs, part by part, in microseconds of processor time."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("--topology", default="star-4", help="with one switch")
    options.add_argument("--rate", default="100mbit", help="of every link")
    options.add_argument("--loss", default="0", help="of every link, percent, each way")
    options.add_argument("--lanes", type=int, choices=(64, 256), default=64)
    options.add_argument("--slots", help="chunks in flight; default: the controller's")
    options.add_argument("--size", default="64MiB", help="of the array; it must take longer than the samples")
    options.add_argument("--seconds", type=positive, default=4.0, help="how long samples are taken")
    chosen = options.parse_args(arguments)
    if shutil.which("perf") is None:
        raise TestbedError("perf is not installed: get Debian's package linux-perf")
    plan = Plan.of(chosen.size, repeats=1, warmups=1, timeout_s=120.0)
    print(machine_and_date())
    print(f"load before: {os.getloadavg()[0]:.1f}; {' '.join(arguments or sys.argv[1:])}")
    with (
        tempfile.TemporaryDirectory(prefix="netsum-parts-") as folder,
        testbed(
            chosen.topology, switch="embedded", lanes=chosen.lanes, rate=chosen.rate, loss_percent=chosen.loss
        ) as bed,
    ):
        (switch,) = bed.state["switches"].values()
        sites = testbed_sites(bed, ())
        recording = Path(folder) / "perf.data"
        recorder = _Recorder(len(sites), switch["pid"], chosen.seconds, recording)
        (row,) = run_between(
            plan,
            sites,
            controller=bed.controller_address,
            folder=Path(folder),
            slots=chosen.slots,
            on_message=recorder.on_message,
        ).rows
        assert recorder.perf is not None
        recorder.perf.wait(timeout=chosen.seconds + PARSE_TIMEOUT_S)
        parts = Counter(part_of(recorder.roles.get(pid, OTHERS), stack) for pid, stack in _samples(recording))
    del parts[None]
    packets_per_s = (row.packets or 0) / row.seconds.median
    print(
        f"{row.elements_per_s.median / 1e6:.3f} M elements/s per worker, {packets_per_s:,.0f} packets/s at all hosts; "
        "microseconds of processor time per packet"
    )
    us = {
        str(part): count / SAMPLES_PER_S / chosen.seconds / packets_per_s * 1e6
        for part, count in parts.items()
    }
    for part, each in [*sorted(us.items(), key=lambda one: -one[1]), ("all", sum(us.values()))]:
        print(f"{each:8.2f}  {part}")
    ns = calibration(us)
    print(
        "\nFor the file of an experiment (docs/simulator.md), with processors for each host and the switch:\n"
    )
    print(f'[host]\ncost = "given"\nsend = {ns["send"]:.0f}\nreceive = {ns["receive"]:.0f}\n')
    print(f"[switch]\nservice = {ns['service']:.0f}\n")
    print(
        f"With all of them on the {os.cpu_count()} processors of this machine, instead:\n\n"
        f"[switch]\nservice = {ns['shared'] / (os.cpu_count() or 1):.0f}"
    )


if __name__ == "__main__":
    with one_sentence():
        main()
