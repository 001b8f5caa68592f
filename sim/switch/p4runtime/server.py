"""Serving P4Runtime: a gRPC server on a local address, for one chassis."""

import errno
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import grpc

from netsum_common.errors import NetsumError
from netsum_common.p4rt import p4runtime_pb2_grpc
from netsum_common.switch_options import ServeOptions
from sim.switch.p4runtime.device import Device
from sim.switch.p4runtime.service import P4RuntimeService
from sim.switch.ports.chassis import Chassis

MAX_MESSAGE_BYTES = 256 << 20  # As BMv2 takes; a compiled program or a batch can exceed gRPC's 4 MiB.

# Every open stream holds a worker.
_WORKERS = 64
_STOP_GRACE_S = 0.5


class AddressUnavailableError(NetsumError, OSError):
    """The server's address cannot be listened on."""


class P4RuntimeServer:
    """A running P4Runtime server; a context manager.

    `address`: where to listen: "host:port", where port 0 lets the system choose, or "unix:path". `cache_dir`: where compiled
    programs are kept; None for the default place. `credentials`: gRPC's, for TLS; None to speak in clear, as over unix
    sockets always. Raises AddressUnavailableError if the address is in use or not this machine's.
    """

    def __init__(
        self,
        chassis: Chassis,
        address: str = ServeOptions.p4runtime,
        device_id: int = ServeOptions.device_id,
        cache_dir: Path | None = None,
        credentials: Any | None = None,
    ) -> None:
        self.device = Device(chassis, cache_dir)
        self.device_id = device_id
        self._server = grpc.server(
            ThreadPoolExecutor(_WORKERS, thread_name_prefix="p4runtime"),
            options=[
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
                # Without this a second server on the same port would get every other call.
                ("grpc.so_reuseport", 0),
            ],
        )
        p4runtime_pb2_grpc.add_P4RuntimeServicer_to_server(
            P4RuntimeService(self.device, device_id), self._server
        )
        host = "" if address.startswith("unix:") else check_free(address)
        try:
            if credentials is None or not host:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise AddressUnavailableError(f"P4Runtime cannot listen on {address}: {error}") from None
        self.address = f"{host}:{port}" if host else address
        self.device.start()
        self._server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all calls and streams, and stop listening."""
        self._server.stop(_STOP_GRACE_S).wait()
        self.device.stop()


def check_free(address: str) -> str:
    """Check that HOST:PORT can be listened on, which gRPC says only on standard error; return its host.

    Raises AddressUnavailableError: with the reason.
    """
    host, _, number = address.rpartition(":")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            host.strip("[]"), int(number), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (ValueError, OSError):
        raise AddressUnavailableError(
            f"expected an address such as {ServeOptions.p4runtime}, not {address}"
        ) from None
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
        except OSError as fault:
            reason = fault.strerror
            if fault.errno == errno.EADDRINUSE:
                reason = "it is in use, perhaps by another switch; stop that one or choose another port"
            raise AddressUnavailableError(f"P4Runtime cannot listen on {address}: {reason}") from None
    return host
