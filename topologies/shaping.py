"""Shell commands (tc, netem) for one link end: rate, queue, delay and loss.

Each end shapes its outgoing packets, so the two directions of a link have equal, independent shapes.
"""

import subprocess

from topologies.children import TestbedError
from topologies.topology import LinkSpec
from topologies.units import rate_text

DEFAULT_QUEUE_PKTS = 1000  # As long as the queue that Linux gives an Ethernet interface.

ETHERNET_HEADER_BYTES = 14
BURST_US = 1000
"""Burst at line rate after a pause, in µs of the link's rate; with less, the kernel's timers would limit the rate."""

OFFLOADS = ("tso", "gso", "gro", "tx", "rx")
"""Offloads to switch off: with them, an interface carries packets larger than its MTU, and unfinished checksums."""

_PROBE_TIMEOUT_S = 60.0

# linux/filter.h, linux/pkt_cls.h
_SKF_AD_OFF = 0xFFFF_F000
_SKF_AD_RANDOM = 56
_TC_ACT_OK = 0
_TC_ACT_STOLEN = 4


def shaping_commands(link: LinkSpec, interface: str, mtu: int) -> list[str]:
    """Return the shell commands that shape an interface as the end of a link; they run in its namespace.

    `link`: the properties of each direction. `interface`: the end's name. `mtu`: bytes of an IP packet.
    """
    off = " ".join(f"{feature} off" for feature in OFFLOADS)
    commands = [f"ethtool -K {interface} {off}", f"ip link set {interface} mtu {mtu}"]
    parent = "root"
    if link.rate_bps is not None:
        frame = mtu + ETHERNET_HEADER_BYTES
        burst = max(2 * frame, link.rate_bps * BURST_US // 8_000_000)
        rate = rate_text(link.rate_bps)
        commands += [
            f"tc qdisc add dev {interface} root handle 1: htb default 1",
            # One class has none to lend to; the quantum only has to be in HTB's range, or the kernel warns.
            f"tc class add dev {interface} parent 1: classid 1:1 htb rate {rate} "
            f"burst {burst} cburst {burst} quantum {frame}",
        ]
        parent = "parent 1:1"
    queue_pkts = link.queue_pkts or DEFAULT_QUEUE_PKTS
    if link.latency_ns:
        under_way = 0 if link.rate_bps is None else link.rate_bps * link.latency_ns // (8 * 64 * 10**9)
        commands.append(
            f"tc qdisc add dev {interface} {parent} netem delay {link.latency_ns}ns limit {queue_pkts + under_way}"
        )
    elif link.rate_bps is not None:
        commands.append(f"tc qdisc add dev {interface} {parent} pfifo limit {queue_pkts}")
    if link.loss_ppm or link.queue_pkts:
        # With GSO, the kernel would segment a message of several datagrams after queue and filter, which count it as one packet.
        commands.append(f"ip link set {interface} gso_max_segs 1")
    if link.loss_ppm:
        commands += loss_commands(interface, link.loss_ppm)
    return commands


def reshaping_commands(link: LinkSpec, interface: str, mtu: int) -> list[str]:
    """Return the commands that reshape an interface in use; the packets in its queue are lost."""
    return [
        f"tc qdisc del dev {interface} root 2>/dev/null || true",
        f"tc qdisc del dev {interface} clsact 2>/dev/null || true",
        f"ip link set {interface} gso_max_segs 65535",
        *shaping_commands(link, interface, mtu),
    ]


def loss_commands(interface: str, loss_ppm: int) -> list[str]:
    """Return the commands that drop outgoing packets of an interface at random.

    A classic BPF filter drops them, as some kernels lack netem. Its verdict is STOLEN: if its own host refused a
    packet (SHOT), TCP would slow down at once, as it does not for a loss on a wire.
    A lost packet takes no time on the link.
    """
    random, threshold = _SKF_AD_OFF + _SKF_AD_RANDOM, loss_ppm * 2**32 // 1_000_000
    load, jump_unless_below, leave = 0x20, 0x35, 0x06
    program = [
        (load, 0, 0, random),
        (jump_unless_below, 0, 1, min(threshold, 2**32 - 1)),
        (leave, 0, 0, _TC_ACT_OK),
        (leave, 0, 0, _TC_ACT_STOLEN),
    ]
    bytecode = ",".join([str(len(program)), *(" ".join(map(str, instruction)) for instruction in program)])
    return [
        f"tc qdisc add dev {interface} clsact",
        f"tc filter add dev {interface} egress bpf direct-action bytecode '{bytecode}'",
    ]


def require_kernel_support(links: tuple[LinkSpec, ...]) -> None:
    """Raise `TestbedError`, naming the link, if a link has a latency and this kernel cannot delay packets."""
    late = next((link for link in links if link.latency_ns), None)
    if late is not None and not _kernel_has("netem delay 1ms"):
        raise TestbedError(
            f"the link {late} has a latency of {late.latency_ns / 1e6:g} ms, for which this kernel lacks the "
            "queueing discipline netem: load the module sch_netem, or leave the latency out"
        )


def _kernel_has(qdisc: str) -> bool:
    """Whether the kernel has a queueing discipline: it is tried on the loopback interface of a temporary namespace."""
    command = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", *qdisc.split()]
    return subprocess.run(command, capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False).returncode == 0
