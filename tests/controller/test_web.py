"""The controller over HTTP, without a browser: streams, tokens, TLS, who is refused."""

import asyncio
import contextlib
import http.client
import json
import shutil
import socket
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.errors import ConfigError
from controller.service import link
from controller.service.client import OperatorClient
from controller.service.serve import ServiceOptions
from controller.service.snapshots import Snapshots
from host_agent.job_api import jobs_pb2
from netsum_common.channel import TlsFiles
from tests.controller.harness_switches import PROGRAM, HarnessSession
from tests.controller.service_harness import DEADLINE_S, Bench, fake_network, free_port, service_on
from tests.controller.test_service_tls import Authority

TOKEN = "a-token-of-16-letters"


@pytest.fixture(name="bench")
def _bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with contextlib.closing(Bench(tmp_path, monkeypatch)) as bench:
        bench.http = ("127.0.0.1", free_port())
        yield bench


def get(address: str, **headers: str) -> tuple[int, Any, bytes]:
    """Return status, headers and body, without following a redirect."""
    parts = urllib.parse.urlsplit(address)
    connection: http.client.HTTPConnection = http.client.HTTPConnection(parts.netloc, timeout=DEADLINE_S)
    with contextlib.closing(connection):
        connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()


def options(**more: Any) -> ServiceOptions:
    return ServiceOptions(fake_network(), PROGRAM.json, PROGRAM.p4info, listen=("127.0.0.1:0",), **more)


def test_a_hundred_viewers_share_snapshots(bench: Bench) -> None:
    bench.serve()
    streams = [urllib.request.urlopen(bench.window + "stream", timeout=DEADLINE_S) for _ in range(100)]
    firsts = {_snapshot(stream)["at"] for stream in streams}
    bench.operator.create_job("late", 2)
    seen = _snapshot(streams[0])
    while not seen["jobs"]:
        seen = _snapshot(streams[0])
    assert len(firsts) < 10
    for stream in streams:
        stream.close()
    metrics = urllib.request.urlopen(bench.window + "metrics", timeout=DEADLINE_S).read()
    assert b'netsum_jobs{state="gathering"} 1.0' in metrics


def test_a_viewer_that_was_busy_gets_the_newest_snapshot_alone(bench: Bench) -> None:
    service = bench.serve()

    async def seen() -> list[float]:
        snapshots = Snapshots(bench.registry, service._loop)
        taking = asyncio.create_task(snapshots.run())
        slow, fast = snapshots.watch(), snapshots.watch()
        first = await anext(slow)
        all_others = [await anext(fast) for _ in range(4)]
        last = await anext(slow)
        taking.cancel()
        return [json.loads(each)["at"] for each in (first, all_others[-1], last)]

    at = asyncio.run(seen())
    assert at[0] < at[1] <= at[2]


def test_a_switch_that_does_not_answer_keeps_no_request_waiting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, release = threading.Event(), threading.Event()

    class SilentSession(HarnessSession):
        def __init__(self, address: str, *rest: Any) -> None:
            if not self.switches[address].reachable:
                tried.set()
                release.wait(DEADLINE_S)
            super().__init__(address, *rest)

    monkeypatch.setattr(link, "P4RuntimeSession", SilentSession)
    service = bench.serve()
    service.ready()
    with bench.join_all("job", 1)[0]:
        bench.switch.reachable = False
        assert tried.wait(DEADLINE_S)
        try:
            with OperatorClient(bench.address, timeout_s=30.0) as operator:
                assert [each.state for each in operator.switches()] == [jobs_pb2.CONNECTING]
                assert not operator.job("job").counters
            with urllib.request.urlopen(bench.window + "stream", timeout=30.0) as stream:
                assert [each["state"] for each in _snapshot(stream)["switches"]] == ["connecting"]
        finally:
            bench.switch.reachable = True
            release.set()


def test_a_job_of_the_same_name_and_another_size_follows(bench: Bench) -> None:
    bench.serve()
    with urllib.request.urlopen(bench.window + "stream", timeout=DEADLINE_S) as stream:
        for size in (4, 2):
            bench.operator.create_job("again", size)
            while [job["world_size"] for job in _snapshot(stream)["jobs"] if job["state"] != "ended"] != [
                size
            ]:
                pass
            bench.operator.delete_job("again")


def _snapshot(stream: Any) -> Any:
    for line in stream:
        if line.startswith(b"data: "):
            return json.loads(line[6:])
    raise AssertionError("the stream has ended")


def test_a_name_that_leads_to_this_machine_is_refused(bench: Bench) -> None:
    bench.serve()
    assert get(bench.window, Host="evil.example")[0] == 403
    for host in ("localhost:8080", "127.0.0.1", "[::1]:8080"):
        assert get(bench.window, Host=host)[0] == 200
    status, headers, body = get(bench.window + "no-such-page")
    assert (status, headers["X-Content-Type-Options"]) == (404, "nosniff")
    assert b"/metrics" in body
    request = urllib.request.Request(bench.window, data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(request, timeout=DEADLINE_S)


def test_a_token_is_sent_once_by_a_browser_and_as_a_header_by_prometheus(bench: Bench) -> None:
    with service_on(options(http=("127.0.0.1", 0), http_token=TOKEN)) as service:
        address = service.service.http
        for path in ("", "stream", "metrics", "window.js"):
            assert get(address + path)[0] == 401
        assert get(address + "?token=another-token-of-16")[0] == 403
        status, headers, _ = get(f"{address}?token={TOKEN}")
        assert (status, headers["Location"]) == (303, "/")
        cookie = headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert get(address, Cookie=cookie.partition(";")[0])[0] == 200
        assert get(address + "metrics", Authorization=f"Bearer {TOKEN}")[0] == 200


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_other_machines_need_tls_and_the_token(bench: Bench, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    tls = TlsFiles(None, *authority.issue("controller"))
    remote = ("0.0.0.0", 0)
    for refused in ({}, {"tls": tls}, {"http_token": TOKEN}):
        with (
            pytest.raises(ConfigError, match="would be open to other machines"),
            service_on(options(http=remote, **refused)),
        ):
            pass
    with service_on(options(http=remote, http_token=TOKEN, tls=tls)) as service:
        port = urllib.parse.urlsplit(service.service.http).port
        assert service.service.http.startswith("https://")
        request = urllib.request.Request(
            f"https://localhost:{port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        trusted = ssl.create_default_context(cafile=str(authority.ca))
        with urllib.request.urlopen(request, timeout=DEADLINE_S, context=trusted) as reply:
            assert b"netsum_jobs" in reply.read()
        with (
            socket.create_connection(("localhost", port)),
            urllib.request.urlopen(request, context=trusted) as reply,
        ):
            assert reply.status == 200  # A client without a handshake keeps no other waiting.


def test_a_port_in_use_is_said_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        state = tmp_path / "state.sqlite3"
        with (
            pytest.raises(
                ConfigError, match=f"--http: cannot listen on 127.0.0.1:{port}: Address already in use; stop"
            ),
            service_on(options(http=("127.0.0.1", port), state=state)),
        ):
            pass
    assert not state.exists()
