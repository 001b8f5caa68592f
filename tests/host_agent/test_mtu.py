"""An interface whose MTU is too small for the packets of a job: the worker says so before the first of them."""

import subprocess
import sys

from tests.own_network import isolated, skip_without_namespaces

OPEN = """
from host_agent.wire import Admission
from host_agent.errors import MisuseError
from host_agent.protocol.core import WorkerCore
from host_agent.transport.udp import UdpLink

def core(lanes):
    return WorkerCore(Admission(1, 7, 9, 0, 2, 8, lanes), 10**9)

link = UdpLink(core(256), ("127.0.0.1", 0))
for step in (lambda: UdpLink(core(1024), ("127.0.0.1", 0)), lambda: link.enter(core(512))):
    try:
        step()
    except MisuseError as error:
        print(error)
link.close()
"""


def test_packets_that_the_route_has_no_room_for_are_refused() -> None:
    skip_without_namespaces()
    command = isolated("ip link set lo up mtu 1500", [sys.executable, "-c", OPEN])
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    opened, entered = done.stdout.splitlines()
    assert "packets with 1024 lanes have 4,148 bytes, and the MTU there is 1,500: raise it" in opened
    assert "packets with 512 lanes have 2,100 bytes, and the MTU there is 1,500: raise it" in entered
