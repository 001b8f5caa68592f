"""A switch and its controller on this machine's loopback, for those who have no other."""

import json
import os
import subprocess
import threading
import time
from importlib.util import find_spec
from multiprocessing.connection import wait
from typing import IO, Final

from host_agent.compilation_news import news
from host_agent.joining.join_errors import JoinError
from host_agent.joining.membership import open_memberships
from netsum_common.programs import command_of

SERVICE_START_TIMEOUT_S: Final = 1600.0
"""Longer than the parts that the service starts may take, which say what went wrong. A service that ends is noticed at once."""
QUIET_S: Final = 5.0  # A start that takes longer compiles something: a message says so.
SERVICE_NEEDS: Final = {
    "prometheus_client": "prometheus-client",
    "tornado": "tornado",
    "llvmlite": "llvmlite",
}
"""Packages that the service imports and a worker does not: import name to package name."""


def service_in_use() -> str | None:
    """Return the address of a controller that this process is connected to; a local one stays up while that lasts."""
    return next((membership.controller for membership in list(open_memberships)), None)


def start_service(places: int) -> str:
    """Start a switch and its controller on this machine's loopback, for as long as a process is connected.

    `places`: how many processes can take part. Returns "host:port" of the service. Raises JoinError if it did not start.
    """
    missing = [package for module, package in SERVICE_NEEDS.items() if find_spec(module) is None]
    if missing:
        raise JoinError(
            f"no switch can be started on this machine without the Python {'package' if len(missing) == 1 else 'packages'} "
            f"{', '.join(missing)}: "
            f"pip install {' '.join(missing)}, or set NETSUM_CONTROLLER to a running controller"
        )
    command = [*command_of("service"), "--places", str(places), "--until-unused"]
    for option, variable in (
        ("--lanes", "NETSUM_LANES"),
        ("--slots", "NETSUM_SLOTS"),
        ("--drop-ppm", "NETSUM_DROP_PPM"),
        ("--switches", "NETSUM_SWITCHES"),
    ):
        value = os.environ.get(variable)
        if value:
            if not (value.isascii() and value.isdigit()):
                raise JoinError(f"{variable}: expected a whole number, not {value!r}")
            command += [option, value]
    read_end, write_end = os.pipe()
    with open(read_end, "rb", buffering=0) as ready:
        try:
            # A session of its own: what ends us, Ctrl-C or a launcher that kills our process group, must not take
            # the switch from the others in the middle of a sum.
            started = subprocess.Popen(
                [*command, "--ready-fd", str(write_end)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(write_end,),
            )
        finally:
            os.close(write_end)
        threading.Thread(target=started.wait, name="netsum-service-reaper", daemon=True).start()
        if not wait([ready.fileno()], QUIET_S):
            news.print(
                "starting a switch on this machine's loopback; a first start compiles it, for about a minute"
            )
        line = _read_line(ready, SERVICE_START_TIMEOUT_S)
    try:
        message = json.loads(line)
    except ValueError:
        message = {
            "error": f"the service ended or said nothing for {SERVICE_START_TIMEOUT_S:.0f} s; its output above says why"
        }
    if "address" not in message:
        raise JoinError(f"no switch could be started on this machine: {message.get('error')}")
    address: str = message["address"]
    return address


def _read_line(pipe: IO[bytes], seconds: float) -> bytes:
    """Read a line; what there is of it if time runs out."""
    deadline = time.monotonic() + seconds
    line = b""
    while not line.endswith(b"\n"):
        if not wait([pipe.fileno()], max(0.0, deadline - time.monotonic())):
            break
        more = os.read(pipe.fileno(), 4096)
        if not more:
            break
        line += more
    return line
