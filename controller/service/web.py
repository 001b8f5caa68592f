"""The controller over HTTP: the window, its stream of snapshots, and the metrics for Prometheus. All of it is read-only."""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
import threading
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

from tornado.http1connection import HTTP1Connection
from tornado.httputil import HTTPServerRequest
from tornado.iostream import StreamClosedError
from tornado.web import Application, RequestHandler

from controller.errors import ConfigError
from controller.service.connections import Connections
from controller.service.from_threads import call_in
from controller.service.metrics import Metrics
from controller.service.page import SCRIPTS, TYPES, read_part
from controller.service.registry import JobRegistry
from controller.service.requests import same_secret
from controller.service.snapshots import Snapshots
from controller.service.workers import JobMembers
from netsum_common.channel import TlsFiles

log = logging.getLogger(__name__)

RECONNECT_MS: Final = 500  # How soon a browser tries again after the stream broke.
STOP_S: Final = 5.0
COOKIE: Final = "netsum_token"
PAGES: Final = {"/": "index.html", **{f"/{name}": name for name in ("window.css", *SCRIPTS)}}
HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "Content-Type": "text/plain; charset=utf-8",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "netsum",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

Read = Callable[[HTTPServerRequest], Awaitable[tuple[bytes, str]]]
"""A function that returns the body of an answer and its type."""


class HttpServer:
    """An HTTP server that listens once it is constructed, and answers once `start` is called.

    `address`: host and port; port 0 takes any. `token`: the token that clients must send; empty: none. `tls`: the server's
    certificate; empty: plain HTTP. Raises ConfigError if the server cannot listen on the address or use the certificate.
    """

    def __init__(self, address: tuple[str, int], token: str, tls: TlsFiles) -> None:
        self.token = token
        self.tls: ssl.SSLContext | None = None
        if tls:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            try:
                self.tls.load_cert_chain(str(tls.cert), str(tls.key))
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(f"--http: cannot serve with {tls.cert}: {error}") from None
        host, port = address
        ipv6 = False
        with contextlib.suppress(ValueError):
            ipv6 = ipaddress.ip_address(host).version == 6
        family = socket.AF_INET6 if ipv6 else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, dualstack_ipv6=ipv6)
        except (OSError, OverflowError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).partition(" (while")[0]
            raise ConfigError(
                f"--http: cannot listen on {host}:{port}: {reason}; stop what uses it, or choose another port"
            ) from None
        self._socket.setblocking(False)
        host, port = self._socket.getsockname()[:2]
        self.url: Final = f"http{'s' if tls else ''}://{f'[{host}]' if ipv6 else host}:{port}/"
        self._thread: threading.Thread | None = None
        self.viewers: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    def start(self, registry: JobRegistry, workers: JobMembers) -> None:
        """Answer requests in a separate thread, so that handshakes and other HTTP work do not delay the running event loop."""
        self._loop, self._stopping = asyncio.new_event_loop(), asyncio.Event()
        served = self._serve(registry, workers, asyncio.get_running_loop())
        self._thread = threading.Thread(target=self._run, args=(served,), name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all connections, and listen no longer."""
        if self._thread is not None:
            call_in(self._loop, self._stopping.set)
            self._thread.join(STOP_S)
        self._socket.close()

    def _run(self, served: Any) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(served)

    async def _serve(
        self, registry: JobRegistry, workers: JobMembers, controller: asyncio.AbstractEventLoop
    ) -> None:
        logging.getLogger("tornado.general").setLevel(logging.ERROR)  # Any client can cause warnings.
        self.snapshots = snapshots = Snapshots(registry, controller)
        metrics = Metrics(registry, workers, controller)

        async def events(request: HTTPServerRequest) -> tuple[bytes, str]:
            job = request.query_arguments.get("job", [b""])[0].decode(errors="replace")
            return await snapshots.events_of(job), "application/json"

        reads: dict[str, Read] = {
            **{path: partial(_page, name) for path, name in PAGES.items()},
            "/events": events,
            "/metrics": lambda request: metrics.read(request.headers.get("Accept", "")),
        }
        documents: list[Any] = [
            (path, _Document, {"server": self, "read": read}) for path, read in reads.items()
        ]
        application = Application(
            [*documents, ("/stream", _Stream, {"server": self})],
            default_handler_class=_Handler,
            default_handler_args={"server": self},
            log_function=_log,
        )
        self.connections = connections = Connections(application, ssl_options=self.tls)
        connections.add_socket(self._socket)
        taking = asyncio.create_task(snapshots.run())
        await self._stopping.wait()
        connections.stop()
        taking.cancel()
        for viewer in self.viewers:
            viewer.cancel()
        await asyncio.wait([taking, *self.viewers])
        await connections.close_all_connections()


class _Handler(RequestHandler):
    """The base of all handlers: refuses requests that are not permitted; itself answers 404."""

    SUPPORTED_METHODS = ("GET", "HEAD")

    def initialize(self, server: HttpServer) -> None:
        self.server = server

    def set_default_headers(self) -> None:
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def prepare(self) -> None:
        """Check the client's host name, origin and token before the request is handled."""
        shown = self.get_query_argument("token", "", strip=False)
        if not self._known_host():
            self.refuse(HTTPStatus.FORBIDDEN, "this name is not the controller's: use its address")
        elif self._of_another_site():
            self.refuse(HTTPStatus.FORBIDDEN, "pages of other sites may link to the window, and nothing else")
        elif shown and not self._is_token(shown):
            self.refuse(HTTPStatus.FORBIDDEN, "this is not the controller's token")
        elif shown:
            self._keep_token()
        elif not self._permitted():
            self.set_header("WWW-Authenticate", "Bearer")
            self.refuse(
                HTTPStatus.UNAUTHORIZED,
                "a token is needed: open /?token=TOKEN once, or send Authorization: Bearer TOKEN",
            )

    async def get(self) -> None:
        self.refuse(HTTPStatus.NOT_FOUND, "not found: / is the window, /metrics is for Prometheus")

    async def head(self) -> None:
        await self.get()

    def refuse(self, status: int, reason: str) -> None:
        self.set_status(status)
        self.finish(f"{reason}\n")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        if status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            self.set_header("Allow", "GET, HEAD")
        self.refuse(status_code, HTTPStatus(status_code).phrase)

    def _known_host(self) -> bool:
        """Whether the request's host is an address or localhost, or a token is needed, against DNS rebinding."""
        name = self.request.host_name.strip("[]")
        with contextlib.suppress(ValueError):
            return bool(self.server.token or ipaddress.ip_address(name))
        return name == "localhost"

    def _of_another_site(self) -> bool:
        """Whether a browser says that a page of another origin sent the request, other than by a link."""
        own = f"{self.request.protocol}://{self.request.host}"
        sent = self.request.headers
        same = sent.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        return sent.get("Origin", own) != own or not (same or sent.get("Sec-Fetch-Mode") == "navigate")

    def _permitted(self) -> bool:
        shown = self.request.headers.get("Authorization", "").removeprefix("Bearer ")
        return self._is_token(shown) or self._is_token(self.get_cookie(COOKIE) or "")

    def _is_token(self, shown: str) -> bool:
        return not self.server.token or same_secret(self.server.token, shown)

    def _keep_token(self) -> None:
        """Keep the token in a cookie, so that neither the address bar nor the history keeps it."""
        if token := self.server.token:
            secure = self.server.tls is not None
            self.set_cookie(COOKIE, token, httponly=True, samesite="Strict", secure=secure)
        self.redirect("/", status=HTTPStatus.SEE_OTHER)


class _Document(_Handler):
    def initialize(self, server: HttpServer, read: Read | None = None) -> None:
        super().initialize(server)
        self._read = cast(Read, read)

    async def get(self) -> None:
        try:
            body, kind = await self._read(self.request)
        except TimeoutError as error:
            self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            return
        self.set_header("Content-Type", kind)
        self.write(body)


class _Stream(_Handler):
    _watching: asyncio.Task[Any] | None = None

    async def get(self) -> None:
        """Send snapshots until the viewer leaves or does not take one in time."""
        self.set_header("Content-Type", "text/event-stream")
        if self.request.method == "HEAD":
            return
        connections = self.server.connections
        stream = cast(HTTP1Connection, self.request.connection).stream
        if not connections.keep(stream):
            self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many viewers: close another window first")
            return
        self._watching = cast("asyncio.Task[Any]", asyncio.current_task())
        self.server.viewers.add(self._watching)
        with contextlib.suppress(StreamClosedError, asyncio.CancelledError):
            async with contextlib.aclosing(self.server.snapshots.watch()) as snapshots:
                self.write(b"retry: %d\n\n" % RECONNECT_MS)
                await connections.in_time(stream, self.flush())
                async for snapshot in snapshots:
                    self.write(b"data: %b\n\n" % snapshot)
                    await connections.in_time(stream, self.flush())

    def on_connection_close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()


async def _page(name: str, request: HTTPServerRequest) -> tuple[bytes, str]:
    return read_part(name).encode(), f"{TYPES[name.rpartition('.')[2]]}; charset=utf-8"


def _log(handler: RequestHandler) -> None:
    """Log a request for debugging, without its query, which may contain a token."""
    request = handler.request
    log.debug("HTTP %s: %s %s %d", request.remote_ip, request.method, request.path, handler.get_status())
