"""Network namespaces with names, and the virtual cables between them, by iproute2. Linux, root.

Every namespace is named ``netsum-RUN_ID-ROLE``. Interfaces are created inside the namespaces, so the machine's
own namespace never has one, and a deleted namespace takes its interfaces with it.

Failures raise `TestbedError` with the reason.
"""

import contextlib
import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from topologies.children import TestbedError
from topologies.namespaces import COMMAND_TIMEOUT_S, await_interface, run
from topologies.runs import owner_is_gone

_NAME = re.compile(r"netsum-(\d+-\d+-\d+)-\w+")
_FOLDER = Path("/run/netns")


def namespace_name(run_id: str, role: str) -> str:
    """Return the name of a run's namespace."""
    return f"netsum-{run_id}-{role}"


def inside(namespace: str) -> tuple[str, ...]:
    """Return the prefix of a command line that runs in a namespace."""
    return ("ip", "netns", "exec", namespace)


def add_namespace(namespace: str) -> None:
    """Make a namespace with a loopback interface, and without IPv6, which would send packets of its own."""
    run("ip", "netns", "add", namespace)
    run("ip", "-n", namespace, "link", "set", "lo", "up")
    no_ipv6 = "test ! -d /proc/sys/net/ipv6 || echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6"
    run(*inside(namespace), "sh", "-c", no_ipv6)


def add_cable(namespace: str, interface: str, peer_namespace: str, peer_interface: str) -> None:
    """Connect two namespaces by a veth pair, with both ends up and all offloads off.

    With offloads on, libpcap sizes the frames of its receive ring at 64 KiB and holds 32 packets.
    """
    run(
        *("ip", "-n", namespace, "link", "add", "name", interface, "type", "veth"),
        *("peer", "name", peer_interface, "netns", peer_namespace),
    )
    for where, name in ((namespace, interface), (peer_namespace, peer_interface)):
        off = [word for feature in ("tso", "gso", "gro", "tx", "rx") for word in (feature, "off")]
        run(*inside(where), "ethtool", "-K", name, *off)
        run("ip", "-n", where, "link", "set", name, "up")
    await_cable(namespace, interface, peer_namespace, peer_interface)


def await_cable(namespace: str, interface: str, peer_namespace: str, peer_interface: str) -> None:
    """Wait until both ends of a cable are up: the kernel notices only after a while that the other end is."""
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    for where, name in ((namespace, interface), (peer_namespace, peer_interface)):
        await_interface(inside(where), name, deadline)


def delete_namespaces(namespaces: Sequence[str]) -> None:
    """End every process in namespaces and delete them; those that do not exist are skipped."""
    present = set(list_namespaces())
    for namespace in namespaces:
        if namespace in present:
            _end_processes(namespace)
            run("ip", "netns", "delete", namespace)


def list_namespaces() -> list[str]:
    """Return every named namespace of the machine."""
    return sorted(path.name for path in _FOLDER.iterdir()) if _FOLDER.is_dir() else []


def delete_leftovers() -> list[str]:
    """Delete the namespaces of runs whose owner is gone, and return their names."""
    left = [
        name for name in list_namespaces() if (match := _NAME.fullmatch(name)) and owner_is_gone(match[1])
    ]
    for namespace in left:
        with contextlib.suppress(TestbedError):  # Another testbed that is coming up may be deleting it too.
            delete_namespaces([namespace])
    return left


def _end_processes(namespace: str) -> None:
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    while pids := run("ip", "netns", "pids", namespace).split():
        if time.monotonic() > deadline:
            raise TestbedError(f"processes {', '.join(pids)} in namespace {namespace} do not end")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.02)
