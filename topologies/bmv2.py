"""BMv2 (`simple_switch_grpc`) and each worker in a network namespace, with virtual cables between them."""

import shutil
import socket
import time
from pathlib import Path
from types import TracebackType

from topologies import namespaces
from topologies.children import Child, TestbedError, uninterrupted
from topologies.hosts import Host
from topologies.runs import delete_leftover_folders, new_run_id, socket_folder

SWITCH_PROGRAM = "simple_switch_grpc"
BMV2_PACKAGE = "p4lang's package p4lang-bmv2, https://github.com/p4lang/behavioral-model#installing-packaged-versions-of-bmv2"
CPU_PORT = 510
DROP_PORT = 511
READY_TIMEOUT_S = 20.0


def missing_for_bmv2() -> str | None:
    """Tell what keeps this machine from running BMv2 in namespaces, as a sentence; None if nothing does."""
    if shutil.which(SWITCH_PROGRAM) is None:
        return f"BMv2 ({SWITCH_PROGRAM}) is not installed: get {BMV2_PACKAGE}"
    return namespaces.missing_for_namespaces()


class Bmv2Testbed:
    """One BMv2 and hosts on its ports; see `topologies.hosts.SwitchTestbed`.

    Parameters
    ----------
    workers
        Number of hosts.
    udp_port
        The UDP port at which the program takes contributions.
    folder
        Where logs go.
    drop_ppm
        How many of a million packets are lost on the cable of each host, each way.

    Raises
    ------
    TestbedError
        Something is missing, or BMv2 does not come up; nothing is left then.
    """

    switch: Child
    _socket: Path

    def __init__(self, workers: int, udp_port: int, folder: Path, drop_ppm: int = 0) -> None:
        lacking = missing_for_bmv2()
        if lacking is not None:
            raise TestbedError(lacking)
        self.folder = folder
        self._drop_ppm = drop_ppm
        self.device_id = 1
        self.switch_ip, self.switch_mac = "10.77.0.254", "02:00:0a:4d:00:fe"
        self._run_id = run_id = new_run_id()
        self._switch_namespace = namespaces.namespace_name(run_id, "switch")
        self.hosts = tuple(
            Host(
                name=f"worker{number}",
                port=number,
                ip=f"10.77.0.{number + 1}",
                mac=f"02:00:0a:4d:00:{number + 1:02x}",
                udp_port=udp_port,
                switch=(self.switch_ip, udp_port),
                prefix=namespaces.inside(namespaces.namespace_name(run_id, f"worker{number}")),
            )
            for number in range(workers)
        )

    @property
    def p4runtime_address(self) -> str:
        """The gRPC address of BMv2's P4Runtime server: a socket file, seen from every namespace."""
        return f"unix:{self._socket}"

    def __enter__(self) -> "Bmv2Testbed":
        delete_leftover_folders()
        namespaces.delete_leftovers()
        self._socket = socket_folder(self._run_id) / "p4runtime"
        try:
            namespaces.add_namespace(self._switch_namespace)
            for host in self.hosts:
                self._add_host(host)
            self._start_switch()
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._take_down()

    def restart_switch(self) -> None:
        """End BMv2 if it runs and start it anew, empty."""
        self.switch.stop()
        self._start_switch()

    def _add_host(self, host: Host) -> None:
        namespace = host.prefix[-1]
        namespaces.add_namespace(namespace)
        namespaces.add_cable(namespace, "eth0", self._switch_namespace, f"port{host.port}")
        namespaces.run("ip", "-n", namespace, "link", "set", "eth0", "address", host.mac)
        namespaces.run("ip", "-n", namespace, "address", "add", f"{host.ip}/24", "dev", "eth0")
        if self._drop_ppm:
            namespaces.add_loss(namespace, "eth0", self._drop_ppm)

    def _start_switch(self) -> None:
        self._socket.unlink(missing_ok=True)
        ports = [word for host in self.hosts for word in ("-i", f"{host.port}@port{host.port}")]
        self.switch = Child(
            "BMv2",
            [
                *(*namespaces.inside(self._switch_namespace), SWITCH_PROGRAM),
                *("--no-p4", "--device-id", str(self.device_id), *ports, "--"),
                *("--grpc-server-addr", self.p4runtime_address),
                *("--cpu-port", str(CPU_PORT), "--drop-port", str(DROP_PORT)),
            ],
            self.folder / "switch.log",
        )
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not _answers(self._socket):
            if not self.switch.running:
                raise TestbedError(self.switch.how_it_ended())
            if time.monotonic() > deadline:
                raise TestbedError(f"BMv2 was not ready within {READY_TIMEOUT_S:g} s, see {self.switch.log}")
            time.sleep(0.05)

    def _take_down(self) -> None:
        with uninterrupted():
            if hasattr(self, "switch"):
                self.switch.stop()
            namespaces.delete_namespaces([self._switch_namespace, *(host.prefix[-1] for host in self.hosts)])
            shutil.rmtree(self._socket.parent, ignore_errors=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        return client.connect_ex(str(path)) == 0
