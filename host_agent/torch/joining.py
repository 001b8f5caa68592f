"""How a process joins a job: over a connection to the service that has the switch, kept for as long as it takes part.

Lines of JSON. We say ``{"job", "worker", "workers", "place"}``, are told ``{"ip"}``, say ``{"udp_port"}``, and get
``{"admission"}`` when all workers have come; meanwhile ``{"missing"}`` says who has not. Later ``{"left"}`` names a
worker whose connection has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import IO, Any, Final

from host_agent.errors import PeerError
from host_agent.wire import Admission

CONTROLLER_VARIABLE: Final = "NETSUM_CONTROLLER"
SERVICE_MODULE: Final = "netsum.local_service"
"""What is started where nobody named a service. A name only: the worker's side imports nothing of the switch's."""
SERVICE_START_TIMEOUT_S: Final = 120.0


class JoinError(PeerError):
    """A job could not be joined."""


class Seat:
    """The place of this process in one job, for as long as the connection lasts.

    Parameters
    ----------
    service : str
        "host:port" of the service.
    job : str
        Name of the job; the same for all its workers, and for no other job.
    worker_id, num_workers : int
        Which worker this is, of how many.
    place : int
        The port of the switch this process is on.
    timeout_s : float
        How long to wait for the service and for the other workers.

    Raises
    ------
    JoinError
        With the reason.
    """

    def __init__(
        self, service: str, *, job: str, worker_id: int, num_workers: int, place: int, timeout_s: float
    ) -> None:
        self.service = service
        self._deadline = time.monotonic() + timeout_s
        self._missing: list[int] = []
        self._socket = _connect(service, timeout_s)
        _open_seats.add(self)
        self._stream: IO[bytes] = self._socket.makefile("rb")
        try:
            self._say(job=job, worker=worker_id, workers=num_workers, place=place)
            self._ip: str = self._hear("ip")
            # Held until the admission is there, so that nobody else gets the port; then it passes to the communicator.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
                held.bind((self._ip, 0))
                self.bind: tuple[str, int] = held.getsockname()
                self._say(udp_port=self.bind[1])
                self.admission = Admission.from_json(self._hear("admission"))
        except (OSError, ValueError) as error:
            self.close()
            raise JoinError(f"joining the job at {service} failed: {self._account(error)}") from error
        except BaseException:
            self.close()
            raise

    def watch(self, on_left: Callable[[int], None], on_end: Callable[[str], None]) -> None:
        """Call, from a thread, `on_left` with the id of each worker that leaves, and `on_end` with why the service ended."""
        self._socket.settimeout(None)
        threading.Thread(target=self._watch, args=(on_left, on_end), name="netsum-seat", daemon=True).start()

    def close(self) -> None:
        """Leave the job."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        _open_seats.discard(self)

    def forget(self) -> None:
        """Drop the connection in a forked child: it is the parent's, and must end with it."""
        with contextlib.suppress(OSError):
            os.close(self._socket.detach())

    def _watch(self, on_left: Callable[[int], None], on_end: Callable[[str], None]) -> None:
        reason = "its connection was lost"
        with contextlib.suppress(OSError, ValueError):
            for line in self._stream:
                message = json.loads(line)
                if "left" in message:
                    on_left(int(message["left"]))
                reason = message.get("ended", reason)
        if self in _open_seats:
            on_end(reason)

    def _say(self, **message: object) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _hear(self, wanted: str) -> Any:
        while True:
            self._socket.settimeout(max(0.001, self._deadline - time.monotonic()))
            line = self._stream.readline()
            if not line:
                raise JoinError(
                    f"the service at {self.service} ended the connection; its own output says why"
                )
            message = json.loads(line)
            if "error" in message:
                raise JoinError(message["error"])
            if "left" in message:
                raise JoinError(f"worker {message['left']} left before all workers had come")
            if wanted in message:
                return message[wanted]
            self._missing = message.get("missing", self._missing)

    def _account(self, error: Exception) -> str:
        if isinstance(error, TimeoutError) and self._missing:
            return f"workers {self._missing} have not come"
        return str(error) or repr(error)


_open_seats: weakref.WeakSet[Seat] = weakref.WeakSet()


def service_in_use() -> str | None:
    """Return the address of a service that this process is connected to; it stays up while that lasts."""
    return next((seat.service for seat in list(_open_seats)), None)


def start_service(places: int) -> str:
    """Start a switch and its controller on this machine's loopback, for as long as somebody is connected.

    Parameters
    ----------
    places : int
        How many processes can take part.

    Returns
    -------
    str
        "host:port" of the service.

    Raises
    ------
    JoinError
        It did not start.
    """
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", SERVICE_MODULE, "--places", str(places), "--until-unused"]
    for option, variable in (
        ("--lanes", "NETSUM_LANES"),
        ("--slots", "NETSUM_SLOTS"),
        ("--drop-ppm", "NETSUM_DROP_PPM"),
    ):
        if os.environ.get(variable):
            command += [option, os.environ[variable]]
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
        line = _read_line(ready, SERVICE_START_TIMEOUT_S)
    try:
        message = json.loads(line)
    except ValueError:
        message = {
            "error": f"{SERVICE_MODULE} ended or said nothing for {SERVICE_START_TIMEOUT_S:.0f} s; its output above says why"
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
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            break
        more = os.read(pipe.fileno(), 4096)
        if not more:
            break
        line += more
    return line


def _connect(service: str, timeout_s: float) -> socket.socket:
    host, _, port = service.rpartition(":")
    if not host or not port.isdigit():
        raise JoinError(f"{CONTROLLER_VARIABLE} must be HOST:PORT, got {service!r}")
    try:
        return socket.create_connection((host, int(port)), min(timeout_s, 30.0))
    except OSError as error:
        raise JoinError(
            f"nothing answers at {service} ({error}): start the service, or unset {CONTROLLER_VARIABLE} for a switch on loopback"
        ) from error


def _forget_in_child() -> None:
    for seat in list(_open_seats):
        seat.forget()
    _open_seats.clear()


os.register_at_fork(after_in_child=_forget_in_child)
