"""gRPC connections of the project: addresses, certificates, and never a proxy.

Failures raise `ChannelError` with the reason.
"""

import os
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from netsum_common.errors import MisuseError

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # Else gRPC prints every lost connection.

import grpc

_OPTIONS: Final = (
    # A controller or a switch is on the machine or on a management network, not behind the environment's proxy.
    ("grpc.enable_http_proxy", 0),
    # A server that restarts is found again within a second, not after the two minutes that gRPC backs off to.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Channels of one process to one address otherwise share a connection and its state.
    ("grpc.use_local_subchannel_pool", 1),
)


_LOOK_TIMEOUT_S: Final = 2.0
_CERTIFICATE_REFUSED: Final = "CERTIFICATE_VERIFY_FAILED: "
"""gRPC's words before the reason why it does not accept a certificate."""

KEEPALIVE: Final = (("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 10_000))
"""Channel options of gRPC for streams: a stream whose other end is cut off without a sign ends after the two times."""


class ChannelError(MisuseError):
    """An address or a certificate that cannot be used."""


@dataclass(frozen=True)
class TlsFiles:
    """PEM files for one side of a TLS connection."""

    # Certificates of the trusted authorities. A server with them requires certificates of its clients (mutual TLS).
    ca: Path | None = None
    # cert, key: the certificate of this side and its private key; both or none.
    cert: Path | None = None
    key: Path | None = None

    def __bool__(self) -> bool:
        """Whether there is any TLS at all."""
        return bool(self.ca or self.cert or self.key)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "TlsFiles":
        """Read the variables NETSUM_TLS_CA, NETSUM_TLS_CERT and NETSUM_TLS_KEY."""
        named = (environment.get(f"NETSUM_TLS_{part}") for part in ("CA", "CERT", "KEY"))
        return cls(*(Path(name) if name else None for name in named))

    def to_environment(self) -> dict[str, str]:
        """Return the variables that `from_environment` reads; those of files that are not given are empty."""
        files = zip(("CA", "CERT", "KEY"), (self.ca, self.cert, self.key), strict=True)
        return {f"NETSUM_TLS_{part}": str(file or "") for part, file in files}

    def channel_credentials(self) -> Any:
        """Return a client's credentials; `ChannelError` if a file cannot be read, or one of `cert` and `key` is missing."""
        self._require_pair()
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.cert))

    def server_credentials(self) -> Any:
        """Return a server's credentials: with `ca` it takes only clients with a certificate from there.

        Raises ChannelError if a file cannot be read, or `cert` and `key` are missing.
        """
        self._require_pair()
        if self.cert is None:
            raise ChannelError("a server that speaks TLS needs a certificate and its key")
        return grpc.ssl_server_credentials(
            [(_read(self.key), _read(self.cert))], _read(self.ca), require_client_auth=self.ca is not None
        )

    def _require_pair(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ChannelError("a certificate and its private key belong together: give both or none")
        self._require_pem()

    def _require_pem(self) -> None:
        """Read the files with Python's `ssl`, whose errors give the reason; gRPC fails later, and only logs the reason."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca is not None:
            _read(self.ca)
            try:
                context.load_verify_locations(self.ca)
            except ssl.SSLError:
                raise ChannelError(f"expected a certificate in PEM form in {self.ca}, found none") from None
        if self.cert is not None and self.key is not None:
            _read(self.cert), _read(self.key)
            try:
                context.load_cert_chain(self.cert, self.key, password="")
            except ssl.SSLError as error:
                matching = "KEY_VALUES_MISMATCH" not in str(error)
                raise ChannelError(
                    f"expected a certificate in {self.cert} and its private key in {self.key}, both in PEM form"
                    + (" and not encrypted" if matching else ": they do not belong together")
                ) from None


PLAINTEXT: Final = TlsFiles()


def open_channel(target: str, tls: TlsFiles = PLAINTEXT, options: Sequence[tuple[str, int]] = ()) -> Any:
    """Return a gRPC channel; it connects when it is first used.

    `target`: "HOST:PORT" or "unix:PATH". `tls`: certificates; none for a connection in clear, as over unix sockets always.
    `options`: more of gRPC's channel options.
    """
    check_target(target)
    arguments = [*_OPTIONS, *options]
    if not tls or target.startswith("unix:"):  # The socket's permissions say who may use it.
        return grpc.insecure_channel(target, arguments)
    return grpc.secure_channel(target, tls.channel_credentials(), arguments)


def check_target(target: str) -> None:
    """Refuse an address that is not written as "HOST:PORT" or "unix:PATH"."""
    scheme, _, path = target.partition(":")
    host, _, port = target.rpartition(":")
    if scheme == "unix":
        if not path:
            raise ChannelError(f"expected unix:PATH, not {target!r}")
    elif not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise ChannelError(f"expected an address such as 127.0.0.1:28276 or unix:PATH, not {target!r}")


def connection_fault(details: str) -> str:
    """Return the reason in gRPC's message about a connection that failed: the last phrase of the message."""
    said, refused, why = " ".join(details.split()).removesuffix(": OK").partition(_CERTIFICATE_REFUSED)
    return f"its certificate is not accepted: {why}" if refused else said.rpartition(": ")[2]


def what_to_do(advice: str, details: str, tls: TlsFiles) -> str:
    """Return advice for a failed connection, for the end of a sentence.

    `advice`: the advice if nothing is wrong with the certificates. `details`: gRPC's message.
    """
    if _CERTIFICATE_REFUSED in details:
        return "check the certificates of both sides"
    if tls:
        return f"{advice}, or check the certificates of both sides"
    # The error of gRPC without certificates at a server with certificates.
    return f"{advice}, or set NETSUM_TLS_CA if it wants TLS" if details.endswith("Socket closed") else advice


def advice_on_silence(address: str, tls: TlsFiles) -> str:
    """Return advice about a server that does not answer, which depends on who listens at its address.

    `address`: "HOST:PORT" or "unix:PATH". Returns the end of a sentence, such as "start it".
    """
    if address.startswith("unix:"):
        return "start it"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with socket.create_connection(split_host_port(address), timeout=_LOOK_TIMEOUT_S) as connection:
            try:
                context.wrap_socket(connection).close()
                speaks_tls = True
            except OSError as error:
                speaks_tls = "ALERT" in str(error)  # The server asks for a client certificate.
    except OSError:
        return "start it"
    if speaks_tls:
        return "check the certificates of both sides" if tls else "it speaks TLS: give the certificates"
    return (
        "it does not speak TLS: leave the certificates out" if tls else "what listens there is another server"
    )


def split_host_port(address: str) -> tuple[str, int]:
    """Return host and port of "HOST:PORT"."""
    if address.startswith("unix:"):
        raise ChannelError(f"expected HOST:PORT, not {address!r}")
    check_target(address)
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise ChannelError(f"cannot read {path}: {error.strerror}") from None
