"""The controller service of a testbed that has one switch, in a thread; and what such a service knows of its network."""

import asyncio
import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from controller.service.network import ControlledNetwork, HostSite, PortSite, SwitchSite
from controller.service.serve import ServiceOptions, running_service
from netsum.programs import CompiledProgram
from topologies.hosts import SwitchTestbed
from topologies.run_folder import CONTROLLER_SOCKET

MOST_SOCKET_BYTES = 107  # Limit on the path of a unix socket.


def star_network(testbed: SwitchTestbed) -> ControlledNetwork:
    """Return a testbed's switch and hosts as a controller service knows them.

    On loopback the processes of a machine have no addresses of their own, so any worker may have any place.
    """
    loopback = not any(host.prefix for host in testbed.hosts)
    name = "loopback" if loopback else "s1"
    hosts = {host.name: HostSite(host.name, host.ip, host.mac, name, host.switch) for host in testbed.hosts}
    switch = SwitchSite(
        name=name,
        p4runtime=testbed.p4runtime_address,
        device_id=testbed.spec.device_id,
        ip=testbed.spec.ip,
        mac=testbed.spec.mac,
        stations={host.mac: host.port for host in testbed.hosts},
        ports={host.port: PortSite(peer=host.name) for host in testbed.hosts},
    )
    return ControlledNetwork({name: switch}, hosts, any_place=loopback)


def cabled_network(testbeds: Sequence[SwitchTestbed]) -> ControlledNetwork:
    """Return two loopback testbeds with a cable between their switches, and their hosts in turns, which workers take in order."""
    switches, hosts = {}, []
    for number, testbed in enumerate(testbeds, 1):
        alone, name, cable = star_network(testbed), f"s{number}", len(testbed.hosts)
        (switch,) = alone.switches.values()
        switches[name] = replace(
            switch,
            name=name,
            stations={**switch.stations, testbeds[2 - number].spec.mac: cable},
            ports={**switch.ports, cable: PortSite(peer=f"s{3 - number}")},
            neighbours={f"s{3 - number}": cable},
        )
        for at, host in enumerate(alone.hosts.values()):
            hosts.append((at, replace(host, name=f"{name}-{host.name}", switch=name)))
    in_turns = [host for _, host in sorted(hosts, key=lambda each: each[0])]
    return ControlledNetwork(switches, {host.name: host for host in in_turns}, any_place=True)


@contextlib.contextmanager
def star_service(testbed: SwitchTestbed, program: CompiledProgram, folder: Path) -> Iterator[str]:
    """Run the controller service of a testbed's switch, and give its address, a socket.

    It is in `folder`, or in a temporary one where its path would be too long.

    Raises ControllerError if the service cannot be started.
    """
    with contextlib.ExitStack() as stack:
        path = folder / CONTROLLER_SOCKET
        if len(os.fsencode(path)) > MOST_SOCKET_BYTES:
            path = (
                Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="netsum-", dir="/tmp")))
                / path.name
            )
        yield stack.enter_context(_serving(testbed, program, f"unix:{path}"))


@contextlib.contextmanager
def _serving(testbed: SwitchTestbed, program: CompiledProgram, address: str) -> Iterator[str]:
    options = ServiceOptions(
        network=star_network(testbed),
        program=program.json,
        p4info=program.p4info,
        listen=(address,),
    )
    begun = threading.Event()
    faults: list[BaseException] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with running_service(options):
            begun.set()
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as fault:
            faults.append(fault)
        finally:
            begun.set()
            loop.close()

    thread = threading.Thread(target=run, name="controller", daemon=True)
    thread.start()
    begun.wait()
    if faults:
        raise faults[0]
    try:
        yield address
    finally:
        with contextlib.suppress(RuntimeError):  # The loop has ended, with a fault.
            loop.call_soon_threadsafe(stop.set)
        thread.join()
