"""Hostile and broken clients of the controller's HTTP server, at its real socket."""

import contextlib
import re
import shutil
import socket
import ssl
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.service import connections, from_threads
from controller.service.serve import ServiceOptions
from netsum_common.channel import TlsFiles
from tests.controller.harness_switches import PROGRAM
from tests.controller.service_harness import (
    DEADLINE_S,
    Bench,
    ServiceThread,
    fake_network,
    free_port,
    service_on,
)
from tests.controller.test_service_tls import Authority
from tests.controller.test_web import TOKEN, get

FORGED = "%0d%0aSet-Cookie:%20session=attacker%0d%0aX-Injected:%20yes%0d%0a%0d%0a<script>1</script>"
LIMIT_S = 0.7
"""Time that a request may take, in these tests."""


@pytest.fixture(name="bench")
def _bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with contextlib.closing(Bench(tmp_path, monkeypatch)) as bench:
        bench.http = ("127.0.0.1", free_port())
        yield bench


@pytest.fixture(name="hurried")
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CLIENT_TIMEOUT_S", LIMIT_S)


@contextlib.contextmanager
def served(**more: Any) -> Iterator[tuple[ServiceThread, str, int]]:
    """Run a service; yield it with host and port of its HTTP server."""
    options = {"listen": ("127.0.0.1:0",), "http": ("127.0.0.1", 0), **more}
    with service_on(ServiceOptions(fake_network(), PROGRAM.json, PROGRAM.p4info, **options)) as service:
        at = urllib.parse.urlsplit(service.service.http)
        yield service, str(at.hostname), int(at.port or 0)


def connect(bench: Bench) -> socket.socket:
    assert bench.http is not None
    return socket.create_connection(bench.http, timeout=DEADLINE_S)


def answer(bench: Bench, request: bytes) -> bytes:
    """Return all that the server sends for some bytes until it closes the connection."""
    with connect(bench) as client, contextlib.suppress(ConnectionError):
        received = b""
        client.sendall(request)
        while more := client.recv(65536):
            received += more
    return received


def statuses(received: bytes) -> list[int]:
    """Return the status of every answer in a stream of bytes."""
    return list(map(int, re.findall(rb"(?:^|\n)HTTP/1\.1 (\d{3})", received)))


def request(target: str, *headers: str, body: bytes = b"") -> bytes:
    lines = (f"GET {target} HTTP/1.1", "Host: 127.0.0.1", *headers, "", "")
    return "\r\n".join(lines).encode() + body


def closed_after(client: socket.socket, piece: bytes) -> float:
    """Send a piece ten times a second until the server closes the connection; return the seconds that took."""
    began = time.monotonic()
    client.settimeout(0.1)
    while time.monotonic() - began < DEADLINE_S:
        try:
            client.sendall(piece)
            if not client.recv(65536):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - began


@pytest.mark.parametrize(
    "target", [f"/?token=x{FORGED}", f"/{FORGED}", f"/events?job={FORGED}", f"//{FORGED}"]
)
def test_no_line_of_a_url_becomes_a_header(bench: Bench, target: str) -> None:
    bench.serve()
    head, _, body = answer(bench, request(target, "Connection: close")).partition(b"\r\n\r\n")
    assert statuses(head) in ([200], [303], [404], [400])
    for forged in (b"attacker", b"X-Injected", b"<script>"):
        assert forged not in head
    assert b"<script>" not in body


def test_without_a_token_no_link_sets_a_cookie(bench: Bench) -> None:
    bench.serve()
    status, headers, _ = get(bench.window + "?token=anything")
    assert (status, headers["Location"], headers["Set-Cookie"]) == (303, "/", None)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"", b"G"),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", b"x"),
        (request("/", "Content-Length: 1000"), b"x"),
        (request("/", "Transfer-Encoding: chunked"), b"1\r\nx\r\n"),
    ],
    ids=["start line", "header", "body", "chunks"],
)
def test_a_request_has_a_deadline_of_its_own_however_often_bytes_arrive(
    bench: Bench, begin: bytes, piece: bytes
) -> None:
    bench.serve()
    with connect(bench) as client:
        client.sendall(begin)
        assert closed_after(client, piece) < 5 * LIMIT_S


@pytest.mark.parametrize("secure", [False, True])
def test_more_slow_clients_than_connections_keep_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    more: dict[str, Any] = {}
    context = None
    if secure:
        if shutil.which("openssl") is None:
            pytest.skip("openssl makes the certificates")
        authority = Authority(tmp_path, "ours")
        more = {
            "tls": TlsFiles(None, *authority.issue("controller")),
            "http_token": TOKEN,
            "http": ("0.0.0.0", 0),
        }
        context = ssl.create_default_context(cafile=str(authority.ca))
    with served(**more) as (_, _, port), contextlib.ExitStack() as slow:
        threads = threading.active_count()
        for _ in range(connections.MOST_CONNECTIONS + 20):
            client = slow.enter_context(socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S))
            client.sendall(b"\x16\x03\x01" if secure else b"GET / HTTP/1.1\r\nX: ")
        page = urllib.request.Request(
            f"http{'s' if secure else ''}://localhost:{port}/metrics",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        began = time.monotonic()
        with urllib.request.urlopen(page, timeout=DEADLINE_S, context=context) as reply:
            assert b"netsum_jobs" in reply.read()
        assert time.monotonic() - began < connections.CLIENT_TIMEOUT_S / 2
        assert threading.active_count() < threads + 20


def test_more_viewers_than_there_is_room_for_keep_page_and_metrics_open(bench: Bench) -> None:
    bench.serve()
    with contextlib.ExitStack() as viewers:
        refused = 0
        for _ in range(connections.MOST_CONNECTIONS + 20):
            client = viewers.enter_context(connect(bench))
            client.sendall(request("/stream"))
            refused += client.recv(12) == b"HTTP/1.1 503"
        assert refused > 20
        for path in ("", "metrics", "window.js"):
            assert get(bench.window + path)[0] == 200


@pytest.mark.parametrize("viewing", [False, True])
def test_the_address_with_most_connections_pays_for_its_own(bench: Bench, viewing: bool) -> None:
    bench.serve()
    with contextlib.ExitStack() as clients:
        first = clients.enter_context(connect(bench))
        first.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(connections.MOST_CONNECTIONS + 20):
            other = socket.create_connection(bench.http or ("", 0), DEADLINE_S, ("127.0.0.2", 0))
            clients.enter_context(other)
            other.sendall(request("/stream") if viewing else b"GET")
            if viewing:
                other.recv(12)
        first.sendall(b"Host: 127.0.0.1\r\n\r\n")
        assert first.recv(12) == b"HTTP/1.1 200"
        second = clients.enter_context(connect(bench))
        second.sendall(request("/stream"))
        assert second.recv(12) == b"HTTP/1.1 200"


def test_a_header_without_end_is_cut_off(bench: Bench) -> None:
    bench.serve()
    with connect(bench) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        sent, began = 0, time.monotonic()
        with contextlib.suppress(OSError):
            while sent < 1 << 24:
                sent += client.send(b"X: " + b"x" * 4000 + b"\r\n")
            client.recv(1)
        assert sent < 1 << 24
        assert time.monotonic() - began < connections.CLIENT_TIMEOUT_S / 2
    received = answer(bench, request("/", *(f"X-{n}: {'x' * 90}" for n in range(1000))))
    assert 200 not in statuses(received)
    assert get(bench.window)[0] == 200


@pytest.mark.parametrize(
    "sent",
    [
        request("/metrics") * 3,
        request("/metrics", f"Content-Length: {len(request('/events'))}", body=request("/events")),
        request(
            "/metrics", "Transfer-Encoding: chunked", body=b"5\r\nGET /\r\n0\r\n\r\n" + request("/events")
        ),
        request("/metrics", body=request("/events")),
    ],
    ids=["pipelined", "body", "chunked", "no length"],
)
def test_a_connection_gets_one_answer_and_nothing_after_it_is_a_request(bench: Bench, sent: bytes) -> None:
    bench.serve()
    received = answer(bench, sent)
    assert statuses(received) == [200]
    assert b"\nconnection: close" in received.partition(b"\r\n\r\n")[0].lower()


@pytest.mark.parametrize(
    "sent",
    [
        request("/", "Content-Length: -1"),
        request("/", "Content-Length: +5", body=b"12345"),
        request("/", "Content-Length: 5, 6", body=b"12345"),
        request("/", "Content-Length: 5", "Content-Length: 6", body=b"12345"),
        request("/", "Content-Length: 99999999999999999999"),
        request("/", "Content-Length: five"),
        request("/", "Content-Length: 5", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
        request("/", "Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
        request("/", "Transfer-Encoding: chunked", body=b"-1\r\n\r\n"),
        request("/", "Transfer-Encoding: chunked", body=b"fffffffff\r\n"),
        request("/", "Host: evil.example"),
        request("/", "Name With Space: x"),
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET  /  HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"\x00" * 40_000,
    ],
    ids=lambda sent: repr(sent[:60]),
)
def test_what_is_no_request_is_refused(bench: Bench, sent: bytes) -> None:
    bench.serve()
    received = answer(bench, sent)
    assert len(statuses(received)) <= 1
    assert not set(statuses(received)) & {200, 303, 500}
    assert get(bench.window)[0] == 200


@pytest.mark.parametrize("version", ["1.0x", "1.\xff", "", "9.9.9", "1.0.0;escaping=none", ";;=,;q=q"])
def test_metrics_are_given_in_whatever_form_they_are_asked_for(bench: Bench, version: str) -> None:
    bench.serve()
    status, _, body = get(bench.window + "metrics", Accept=f"application/openmetrics-text;version={version}")
    assert status == 200
    assert b"netsum_jobs" in body


def test_other_methods_and_large_bodies_are_refused(bench: Bench) -> None:
    bench.serve()
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "BREW"):
        sent = request("/metrics", "Content-Length: 1", body=b"x").replace(b"GET", method.encode(), 1)
        assert statuses(answer(bench, sent)) == [405], method
    assert 200 not in statuses(
        answer(bench, request("/metrics", f"Content-Length: {1 << 20}") + bytes(1 << 20))
    )
    head = answer(bench, request("/metrics").replace(b"GET", b"HEAD", 1))
    assert statuses(head) == [200]
    assert head.endswith(b"\r\n\r\n")


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("path", ["/stream", "/metrics"])
def test_a_client_that_never_reads_is_disconnected(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    listen = socket.socket.listen

    def listen_with_small_buffers(self: socket.socket, *backlog: int) -> None:
        self.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        listen(self, *backlog)

    monkeypatch.setattr(socket.socket, "listen", listen_with_small_buffers)
    bench.serve()
    for number in range(80):
        bench.operator.create_job(f"job-{number}", 4, slots=1, if_full="queue")
    assert bench.http is not None
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(bench.http)
        client.sendall(request(path))
        time.sleep(4 * LIMIT_S)  # The client is the clock of this test.
        received = b""
        client.settimeout(DEADLINE_S)
        with contextlib.suppress(ConnectionError):
            while more := client.recv(65536):
                received += more
    head, _, body = received.partition(b"\r\n\r\n")
    assert statuses(head) == [200]
    if path == "/metrics":  # A stream's answer is shown by its end.
        length = re.search(rb"Content-Length: (\d+)", head)
        assert length is not None
        assert len(body) < int(length[1])


def test_pages_of_other_sites_get_nothing_but_a_link(bench: Bench) -> None:
    bench.serve()
    own = bench.window.rstrip("/")
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    ):
        for path in ("", "stream", "metrics", "events"):
            assert get(bench.window + path, **headers)[0] == 403, (path, headers)
    for headers in (
        {"Origin": own},
        {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ):
        assert get(bench.window, **headers)[0] == 200, headers


def test_every_answer_keeps_out_frames_sniffing_and_referrers(bench: Bench) -> None:
    bench.serve()
    for path in ("", "window.js", "events", "metrics", "no-such-page", "?token=x"):
        _, headers, _ = get(bench.window + path)
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"], path
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_cookies_of_other_servers_on_this_machine_do_not_hide_the_token() -> None:
    with served(http_token=TOKEN) as (_, host, port):
        for others in ("bad[name]=1; {}", "a=b=c; {}; x", '"; {}', "jupyter={{}}; {}", "{};;; =; ü=1"):
            cookie = others.format(f"netsum_token={TOKEN}").encode().decode("latin-1")
            assert get(f"http://{host}:{port}/", Cookie=cookie)[0] == 200, others
        for shown in ("", TOKEN[:-1], TOKEN + "x", "ü", "Bearer"):
            assert get(f"http://{host}:{port}/", Authorization=f"Bearer {shown}")[0] == 401


def test_the_token_is_looked_at_before_the_controller_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_threads, "RESULT_TIMEOUT_S", 0.5)
    release = threading.Event()
    with served(http_token=TOKEN) as (service, host, port):
        service._loop.call_soon_threadsafe(release.wait, DEADLINE_S)
        try:
            for path in ("metrics", "events", "stream", ""):
                assert get(f"http://{host}:{port}/{path}")[0] == 401
            for path in ("metrics", "events?job=x"):
                status, _, body = get(f"http://{host}:{port}/{path}", Authorization=f"Bearer {TOKEN}")
                assert (status, body) == (503, b"the controller did not answer within 0.5 s: try again\n")
        finally:
            release.set()
