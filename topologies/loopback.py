"""The embedded switch as a process on loopback: no root, the switch and each worker at addresses of their own in 127.0.0.0/8."""

import itertools
import json
import os
import socket
from ipaddress import IPv4Network
from pathlib import Path
from types import TracebackType
from typing import Any

from netsum_common.programs import command_of
from topologies.addresses import host_ip, mac_of, switch_ip
from topologies.announcing import START_TIMEOUT_S, start_announced
from topologies.children import Child, uninterrupted
from topologies.hosts import Host
from topologies.topology import SwitchSpec

_count = itertools.count()


class LoopbackTestbed:
    """One embedded switch and hosts on its ports; see `topologies.hosts.SwitchTestbed`.

    `udp_port`: the UDP port at which the program takes contributions; the sockets of the hosts' ports use free ports, so that
    testbeds do not collide. `drop_ppm`: packets per million that the switch's ports lose, each way. `cabled`: whether one more
    port leads to another switch; its socket uses `udp_port`, as switches send there. Raises TestbedError if the switch does
    not come up; no process is left then.
    """

    switch: Child

    def __init__(
        self, workers: int, udp_port: int, folder: Path, drop_ppm: int = 0, cabled: bool = False
    ) -> None:
        self.folder = folder
        self._network = _own_network()
        ip = switch_ip(self._network, 1)
        self.spec = SwitchSpec("s1", ip, mac_of(ip), 1)
        self.hosts: tuple[Host, ...] = ()
        self.p4runtime_address = f"{ip}:0"
        self._workers = workers
        self._drop_ppm = drop_ppm
        self._cable = [udp_port] if cabled else []

    def __enter__(self) -> "LoopbackTestbed":
        try:
            listening = self._start_switch([0] * self._workers)
        except BaseException:
            self._take_down()
            raise
        self.p4runtime_address = listening["p4runtime"]
        self.hosts = tuple(
            self._host(number, tuple(listening["ports"][str(number)])) for number in range(self._workers)
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._take_down()

    def restart_switch(self) -> None:
        """End the switch if it runs and start it anew, empty, at the same addresses."""
        self.switch.stop()
        self._start_switch([host.switch[1] for host in self.hosts])

    def _host(self, number: int, switch: tuple[str, int]) -> Host:
        ip = host_ip(self._network, number + 1)
        return Host(
            name=f"worker{number}",
            port=number,
            ip=ip,
            mac=mac_of(ip),
            udp_port=_free_udp_port(ip),
            switch=switch,
        )

    def _start_switch(self, udp_ports: list[int]) -> dict[str, Any]:
        """Start the switch and return the addresses at which it listens."""

        def start(ready_fd: int) -> Child:
            return Child(
                "the embedded switch",
                [
                    *command_of("switch"),
                    *("--p4runtime", self.p4runtime_address, "--device-id", str(self.spec.device_id)),
                    *(
                        "--udp-host",
                        self.spec.ip,
                        "--udp-ports",
                        ",".join(map(str, udp_ports + self._cable)),
                    ),
                    *("--drop-ppm", str(self._drop_ppm), "--memory", "--ready-fd", str(ready_fd)),
                ],
                self.folder / "switch.log",
                pass_fds=(ready_fd,),
            )

        self.switch, line = start_announced(start, START_TIMEOUT_S)
        listening: dict[str, Any] = json.loads(line)
        return listening

    def _take_down(self) -> None:
        with uninterrupted():
            if hasattr(self, "switch"):
                self.switch.stop()


def _own_network() -> IPv4Network:
    """Return a network in 127.0.0.0/8 that depends on the process id, so that its free ports stay free.

    A worker binds its port long after the port was chosen, and a restarted switch binds its earlier ports again.
    """
    number = 4 * os.getpid() + next(_count) % 4
    return IPv4Network(f"127.{1 + number // 256 % 254}.{number % 256}.0/24")


def _free_udp_port(ip: str) -> int:
    """Return a UDP port that is free at an address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((ip, 0))
        port: int = probe.getsockname()[1]
    return port
