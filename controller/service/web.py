"""The controller over HTTP: the window, its stream of snapshots, and the metrics for Prometheus. All of it is read-only."""

import asyncio
import contextlib
import http.cookies
import ipaddress
import logging
import socket
import ssl
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from controller.errors import ConfigError
from controller.service.metrics import ServiceCollector
from controller.service.page import SCRIPTS, TYPES, read_part
from controller.service.registry import JobRegistry
from controller.service.requests import same_secret
from controller.service.snapshots import Snapshots
from controller.service.workers import WorkerSeats
from netsum_common.channel import TlsFiles

log = logging.getLogger(__name__)

CLIENT_TIMEOUT_S: Final = 10.0  # A client that sends or takes nothing for this long is disconnected.
MOST_CONNECTIONS: Final = 256
RECONNECT_MS: Final = 500  # How soon a browser tries again after the stream broke.
COOKIE: Final = "netsum_token"
PAGES: Final = {"/": "index.html", **{f"/{name}": name for name in ("window.css", *SCRIPTS)}}
HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class HttpServer(ThreadingHTTPServer):
    """Listens from its construction, and answers from `start` on.

    `address`: host and port; port 0 takes any. `token`: what clients must send; empty: nothing. `tls`: the certificate to
    serve with; without one, plain HTTP. Raises ConfigError if the address cannot be listened on, or the certificate cannot
    be used.
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], token: str, tls: TlsFiles) -> None:
        self.token = token
        self._open = threading.BoundedSemaphore(MOST_CONNECTIONS)
        host, port = address
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(host).version == 6:
                self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"--http: cannot listen on {host}:{port}: {reason}; stop what uses it, or choose another port"
            ) from None
        self.tls: ssl.SSLContext | None = None
        if tls:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            try:
                self.tls.load_cert_chain(str(tls.cert), str(tls.key))
            except (OSError, ssl.SSLError) as error:
                self.server_close()
                raise ConfigError(f"--http: cannot serve with {tls.cert}: {error}") from None

    @property
    def listening(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self.server_address[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """Where a browser finds the window."""
        host, port = self.listening
        return f"http{'s' if self.tls else ''}://{f'[{host}]' if ':' in host else host}:{port}/"

    def start(self, registry: JobRegistry, workers: WorkerSeats) -> None:
        """Answer in threads, for the event loop that runs."""
        loop = asyncio.get_running_loop()
        self.snapshots = Snapshots(registry, loop)
        self.metrics = CollectorRegistry()
        self.metrics.register(ServiceCollector(registry, workers, loop))
        threading.Thread(target=self.serve_forever, args=(0.1,), name="http", daemon=True).start()

    def stop(self) -> None:
        """End the viewers' streams, and listen no longer."""
        self.snapshots.close()
        self.shutdown()

    def server_bind(self) -> None:
        """Bind without the look-up of the machine's name that the base class makes."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; a TLS handshake takes place in its own thread, at the first read."""
        connection, address = super().get_request()
        connection.settimeout(CLIENT_TIMEOUT_S)
        if self.tls is not None:
            connection = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Refuse connections beyond `MOST_CONNECTIONS`."""
        return self._open.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error of one connection: clients break connections and handshakes at any time."""
        log.debug("HTTP connection of %s", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: HttpServer
    server_version = "netsum"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request."""
        asked = urlsplit(self.path)
        query = parse_qs(asked.query)
        if not self._known_host():
            return self._answer(HTTPStatus.FORBIDDEN, b"this name is not the controller's: use its address\n")
        if shown := query.get("token"):
            return self._take_token(shown[0])
        if not self._permitted():
            return self._answer(
                HTTPStatus.UNAUTHORIZED,
                b"a token is needed: open /?token=TOKEN once, or send Authorization: Bearer TOKEN\n",
            )
        if asked.path in PAGES:
            name = PAGES[asked.path]
            kind = f"{TYPES[name.rpartition('.')[2]]}; charset=utf-8"
            return self._answer(HTTPStatus.OK, read_part(name).encode(), {"Content-Type": kind})
        match asked.path:
            case "/stream":
                return self._stream()
            case "/events":
                found = self.server.snapshots.events_of(query.get("job", [""])[0])
                return self._answer(HTTPStatus.OK, found, {"Content-Type": "application/json"})
            case "/metrics":
                encode, kind = choose_encoder(self.headers.get("Accept", ""))
                return self._answer(HTTPStatus.OK, encode(self.server.metrics), {"Content-Type": kind})
        return self._answer(HTTPStatus.NOT_FOUND, b"not found: / is the window, /metrics is for Prometheus\n")

    do_HEAD = do_GET

    def _stream(self) -> None:
        """Send snapshots until the viewer leaves or does not take them in time."""
        self._begin(HTTPStatus.OK, {"Content-Type": "text/event-stream", "Connection": "close"})
        if self.command == "HEAD":
            return
        self.wfile.write(b"retry: %d\n\n" % RECONNECT_MS)
        with contextlib.closing(self.server.snapshots.watch()) as snapshots:
            for snapshot in snapshots:
                self.wfile.write(b"data: %b\n\n" % snapshot)

    def _answer(self, status: HTTPStatus, body: bytes, headers: dict[str, str] | None = None) -> None:
        kind = {"Content-Type": "text/plain; charset=utf-8"}
        self._begin(status, {**kind, **(headers or {}), "Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _begin(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _known_host(self) -> bool:
        """Whether the page was asked for by address, or a token protects it: names can be made to lead here by any web page."""
        if self.server.token:
            return True
        name = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        with contextlib.suppress(ValueError):
            return bool(ipaddress.ip_address(name))
        return name in ("", "localhost")

    def _permitted(self) -> bool:
        cookies = http.cookies.SimpleCookie()
        with contextlib.suppress(http.cookies.CookieError):
            cookies.load(self.headers.get("Cookie", ""))
        cookie = cookies[COOKIE].value if COOKIE in cookies else ""
        shown = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return self._is_token(shown) or self._is_token(cookie)

    def _is_token(self, shown: str) -> bool:
        return not self.server.token or same_secret(self.server.token, shown)

    def _take_token(self, shown: str) -> None:
        """Keep the token in a cookie, so that neither the address bar nor the history keeps it."""
        if not self._is_token(shown):
            return self._answer(HTTPStatus.FORBIDDEN, b"this is not the controller's token\n")
        secure = "; Secure" if self.server.tls else ""
        cookie = f"{COOKIE}={shown}; HttpOnly; SameSite=Strict; Path=/{secure}"
        return self._answer(HTTPStatus.SEE_OTHER, b"", {"Location": "/", "Set-Cookie": cookie})

    def log_message(self, format: str, *args: Any) -> None:
        """Log requests for debugging only."""
        log.debug("HTTP %s: %s", self.client_address[0], format % args)
