"""All checks, in groups."""

from collections.abc import Callable, Sequence

from netsum.doctor import kernel, software
from netsum.doctor.finding import Finding

Check = Callable[[], Finding]

CHECKS: dict[str, Sequence[Check]] = {
    "Runs on loopback, without root": (
        software.extras,
        software.bytecode,
        software.programs,
        kernel.loopback,
        lambda: kernel.socket_buffer("rmem_max"),
        lambda: kernel.socket_buffer("wmem_max"),
        kernel.segmentation,
        kernel.cores,
    ),
    "Testbeds with links and hosts of their own": (
        kernel.privileges,
        kernel.namespaces,
        kernel.packet_sockets,
        kernel.xdp,
        lambda: kernel.queueing("htb", "links with a rate"),
        lambda: kernel.queueing("tbf", "links with a rate that let no burst pass"),
        lambda: kernel.queueing("netem", "links with a latency (rates and losses do without)"),
        software.namespace_tools,
        software.mininet,
        software.bmv2,
    ),
    "To look closer": (software.torch, software.p4c, software.tshark, software.scapy),
}


def examine() -> dict[str, list[Finding]]:
    """Run every check, by group; takes about a second and changes nothing."""
    return {group: [check() for check in checks] for group, checks in CHECKS.items()}
