"""Counters of a switch's ports: the controller's view, and more where the switch is on this machine."""

import contextlib
import json
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netsum.command_errors import CommandError

if TYPE_CHECKING:
    from host_agent.job_api.jobs_pb2 import PortView, SwitchView
    from topologies.run_folder import RunningTestbed

ASK_TIMEOUT_S = 10.0

COUNTS = ("rx_packets", "rx_bytes", "rx_dropped", "tx_packets", "tx_bytes", "tx_dropped")
"""Received from the cable and sent to it; dropped: for want of room, on purpose, or because the cable is out."""


def switch_of_testbed(testbed: "RunningTestbed", name: str) -> "SwitchView":
    """Return a switch of a testbed, as its ``testbed.json`` has it: its address and its ports.

    `name`: the switch; empty: the only one. Raises CommandError if there is no such switch, or several to choose from.
    """
    from host_agent.job_api.jobs_pb2 import PortView, SwitchView

    switches = testbed.state["switches"]
    if name not in switches and (name or len(switches) > 1):
        wrong = f"has no switch {name!r}" if name else "has several switches"
        raise CommandError(f"the testbed {testbed.name} {wrong}: name one of {', '.join(switches)}")
    name = name or next(iter(switches))
    peers = {}
    for link in testbed.state["links"]:
        for near, far in (link["ends"], link["ends"][::-1]):
            peers[near] = far.partition("-p")[0]
    ports = [
        PortView(number=number, name=interface, peer=peers.get(f"{name}-p{number}", ""))
        for interface, number in switches[name]["ports"].items()
    ]
    return SwitchView(name=name, address=switches[name]["p4runtime"], ports=ports)


def ports_of(view: "SwitchView") -> list[dict[str, Any]]:
    """Return the ports of a switch, which its controller or `switch_of_testbed` describes.

    Each has `number`, `name`, `peer`, `up` (None: not known), the known ones of `COUNTS`, and `counts`: all counters of the
    embedded engine by its own names; empty elsewhere.
    """
    own = _embedded(view.address)
    kernel = {} if own else _interfaces(view.address)
    return [_port(port, own.get(str(port.number), {}), kernel.get(port.name, {})) for port in view.ports]


def _port(port: "PortView", own: dict[str, Any], kernel: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"number": port.number, "name": port.name, "peer": port.peer, "up": None}
    found |= {count: getattr(port, count) for count in COUNTS if port.HasField(count)}
    if kernel:
        found["up"] = kernel.get("operstate") == "UP"
        for way in ("rx", "tx"):
            found |= {
                f"{way}_{what}": kernel["stats64"][way][what] for what in ("packets", "bytes", "dropped")
            }
    if own:
        found["up"] = own.get("up")
        found["mode"] = own.get("mode")
        found["mode_reason"] = own.get("mode_reason", "")
        found |= {
            "rx_packets": own["received"],
            "rx_bytes": own["received_bytes"],
            "rx_dropped": sum(
                own.get(name, 0) for name in ("dropped_in", "overrun", "oversized", "merged", "not_udp")
            ),
            "tx_packets": own["sent"],
            "tx_bytes": own["sent_bytes"],
            "tx_dropped": sum(
                own.get(name, 0) for name in ("dropped_out", "queue_full", "port_down", "refused")
            ),
        }
    return {
        **found,
        "counts": {
            name: count for name, count in own.items() if name not in ("name", "up", "mode", "mode_reason")
        },
    }


def _embedded(p4runtime: str) -> dict[str, Any]:
    """Ask an embedded switch of this machine: its status socket lies beside that of its P4Runtime."""
    from topologies.announcing import read_line

    if not p4runtime.startswith("unix:"):
        return {}
    path = Path(p4runtime.removeprefix("unix:")).with_suffix(".status")
    with (
        contextlib.suppress(OSError, ValueError, LookupError, TypeError),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked,
    ):
        asked.settimeout(ASK_TIMEOUT_S)
        asked.connect(str(path))
        answer = read_line(asked.fileno(), time.monotonic() + ASK_TIMEOUT_S)
        ports: dict[str, Any] = json.loads(answer or b"")["ports"]
        return ports
    return {}


def _interfaces(p4runtime: str) -> dict[str, Any]:
    """Ask the kernel about the interfaces of a switch of a testbed, by name."""
    from topologies.run_folder import running_testbeds

    for testbed in running_testbeds():
        for switch in testbed.state.get("switches", {}).values():
            if switch["p4runtime"] == p4runtime:
                command = ["mnexec", "-a", str(switch["namespace_pid"]), "ip", "-j", "-s", "link", "show"]
                with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
                    said = subprocess.run(
                        command, capture_output=True, timeout=ASK_TIMEOUT_S, check=False
                    ).stdout
                    return {link["ifname"]: link for link in json.loads(said)}
    return {}
