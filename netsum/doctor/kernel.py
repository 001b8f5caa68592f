"""Checks of the kernel's features and permissions."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

from netsum.doctor.finding import Finding

SOCKET_BUFFER_BYTES = 4 << 20
"""Holds full windows (64 packets of 1,090 bytes) of dozens of workers while the receiver is not scheduled."""

TRY_TIMEOUT_S = 20.0

# linux/udp.h, linux/capability.h
_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_SYS_ADMIN": 21}

_QUEUEING_OPTIONS = {
    "htb": "default 1",
    "tbf": "rate 1mbit burst 3000 limit 30000",
    "netem": "delay 1ms",
}


def loopback() -> Finding:
    """Look whether the addresses of workers on loopback can be bound."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.1.1", 0))
        except OSError as error:
            return Finding(
                "Loopback",
                f"127.0.1.1: {error.strerror}",
                "runs without root",
                "bring lo up with 127.0.0.0/8: `sudo ip link set lo up`",
                required=True,
            )
    return Finding("Loopback", "127.0.0.0/8 can be bound")


def socket_buffer(limit: str) -> Finding:
    """Look how large the kernel lets socket buffers be, `rmem_max` or `wmem_max`."""
    subject = f"net.core.{limit}"
    try:
        found = int(Path(f"/proc/sys/net/core/{limit}").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return Finding(subject, "cannot be read (not Linux, or a restricted container)")
    if found < SOCKET_BUFFER_BYTES:
        return Finding(
            subject,
            f"{found:,} bytes",
            "speed: bursts overflow the sockets and are sent again (as root, netsum takes what it needs)",
            f"sudo sysctl -w {subject}={SOCKET_BUFFER_BYTES}",
        )
    return Finding(subject, f"{found:,} bytes")


def segmentation() -> Finding:
    """Look whether UDP datagrams can go through the kernel many at a time."""
    lacking = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for name, option in (("GSO", _UDP_SEGMENT), ("GRO", _UDP_GRO)):
            try:
                probe.setsockopt(_SOL_UDP, option, 0)
            except OSError:
                lacking.append(name)
    if lacking:
        return Finding(
            "UDP segmentation",
            f"without {' and '.join(lacking)}",
            "speed on loopback: every packet costs a way through the kernel of its own",
            "a Linux kernel of 5.0 or newer; everything works without",
        )
    return Finding("UDP segmentation", "GSO and GRO")


def cores() -> Finding:
    """Look how many processors there are; a switch, a controller and workers share them."""
    count = len(os.sched_getaffinity(0))
    if count < 2:
        return Finding(
            "Processors",
            "1",
            "speed: switch and workers take turns",
            "give the machine two processors or more",
        )
    return Finding("Processors", str(count))


def privileges() -> Finding:
    """Look whether we may make namespaces, interfaces and raw sockets."""
    needed_for = "testbeds (`netsum testbed`, `--switch bmv2`); nothing on loopback needs it"
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        held = int(next(line for line in status.splitlines() if line.startswith("CapEff")).split()[1], 16)
    except (OSError, ValueError, StopIteration):
        held = -1 if os.geteuid() == 0 else 0
    lacking = [name for name, bit in _CAPABILITIES.items() if not held >> bit & 1]
    if os.geteuid() != 0:
        return Finding("Root", "no", needed_for, "sudo, for these runs only")
    if lacking:
        remedy = f"give the container {', '.join(lacking)} (docker run --privileged)"
        return Finding("Root", f"yes, without {', '.join(lacking)}", needed_for, remedy)
    return Finding("Root", "yes")


def xdp() -> Finding:
    """Check whether programs for XDP can be loaded, and unload them at once."""
    from sim.switch.bpf import syscall
    from sim.switch.bpf.btf import lock_btf
    from sim.switch.bpf.ports import NATIVE_MTU
    from sim.switch.bpf.stubs import instruction

    needed_for = "switches in the kernel (`--engine xdp`, `--switch xdp`)"
    try:
        os.close(syscall.load_btf(lock_btf()))
        # A byte order that only instructions of version 4 give: bswap64 r0.
        code = instruction(0xB7, 0) + instruction(0xD7, 0, immediate=64) + instruction(0x95)
        os.close(syscall.load_program("doctor", code))
    except syscall.VerifierError:
        return Finding("XDP", "BPF without version 4", needed_for, "a kernel of 6.6 or newer")
    except syscall.BpfError as error:
        return Finding("XDP", str(error), needed_for, "root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")
    found, long = [], []
    for folder in sorted(Path("/sys/class/net").iterdir()):
        driver = folder / "device" / "driver"
        queues = len(list((folder / "queues").glob("rx-*")))
        name = driver.resolve().name if driver.exists() else "virtual"
        found.append(f"{folder.name} ({name}, {queues} receive queue{'s' * (queues != 1)})")
        mtu = int((folder / "mtu").read_text(encoding="ascii"))
        if folder.name != "lo" and mtu > NATIVE_MTU:
            long.append(f"{folder.name} ({mtu:,})")
    said = f"programs can be loaded; interfaces: {', '.join(found)}"
    if long:
        said += (
            f"; with the MTU of {', '.join(long)}, above {NATIVE_MTU:,}, a driver may refuse programs, which then run "
            "behind it (generic, slower)"
        )
    return Finding("XDP", said)


def namespaces() -> Finding:
    """Look whether a network namespace with a virtual link can be made; it is gone at once."""
    return _tried(
        "Network namespaces",
        "ip link add name netsum0 type veth peer name netsum1",
        "can be made, with virtual links",
        "testbeds",
        "a kernel with CONFIG_NET_NS and CONFIG_VETH (`sudo modprobe veth`)",
    )


def queueing(kind: str, needed_for: str) -> Finding:
    """Look whether interfaces can have a queueing discipline of some kind; tried in a namespace that is gone at once."""
    return _tried(
        f"Queueing discipline {kind}",
        f"tc qdisc add dev lo root {kind} {_QUEUEING_OPTIONS[kind]}",
        "can be used",
        needed_for,
        f"a kernel with CONFIG_NET_SCH_{kind.upper()} (`sudo modprobe sch_{kind}`)",
    )


def packet_sockets() -> Finding:
    """Look whether packets of an interface can be read and written as they are."""
    if os.geteuid() != 0:
        return _untried("Packet sockets", "the embedded switch on interfaces")
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except OSError as error:
        return Finding(
            "Packet sockets",
            f"AF_PACKET: {error.strerror}",
            "the embedded switch on interfaces",
            "a kernel with CONFIG_PACKET, and CAP_NET_RAW",
        )
    return Finding("Packet sockets", "AF_PACKET can be opened")


def _tried(subject: str, commands: str, well: str, needed_for: str, remedy: str) -> Finding:
    """Run commands of a shell in a network namespace of their own."""
    if os.geteuid() != 0:
        return _untried(subject, needed_for)
    lacking = [program for program in ("unshare", "ip", "tc") if shutil.which(program) is None]
    if lacking:
        found = f"not tried, without {', '.join(lacking)}"
        return Finding(subject, found, needed_for, "apt install iproute2 util-linux", tried=False)
    try:
        done = subprocess.run(
            ["unshare", "--net", "sh", "-c", commands],
            capture_output=True,
            text=True,
            timeout=TRY_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(subject, f"unavailable ({error})", needed_for, remedy)
    if done.returncode != 0:
        return Finding(subject, f"unavailable ({' '.join(done.stderr.split())})", needed_for, remedy)
    return Finding(subject, well)


def _untried(subject: str, needed_for: str) -> Finding:
    return Finding(
        subject, "not tried, as this is not root", needed_for, "run `netsum doctor` as root", tried=False
    )
