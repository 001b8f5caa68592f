"""Ports of a switch, asked for at a status socket that answers senselessly, slowly, or without end."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_agent.job_api.jobs_pb2 import PortView, SwitchView
from netsum.cli import ports


@contextlib.contextmanager
def answering(folder: Path, piece: bytes, seconds: float) -> Iterator[SwitchView]:
    """Serve a status socket that sends a piece again and again for some time, and then a line's end."""

    def serve() -> None:
        client, _ = listener.accept()
        began = time.monotonic()
        with client, contextlib.suppress(OSError):
            client.sendall(piece)
            while time.monotonic() - began < seconds:
                time.sleep(0.05)
                client.sendall(piece)
            client.sendall(b"\n")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s1.status"))
        listener.listen()
        served = threading.Thread(target=serve)
        served.start()
        yield SwitchView(name="s1", address=f"unix:{folder}/s1.sock", ports=[PortView(number=1, name="e1")])
        served.join()


@pytest.mark.parametrize("line", [b"{}", b"[]", b"5", b"", b"nonsense", b"\xff"])
def test_a_status_that_is_none_leaves_what_the_controller_says(tmp_path: Path, line: bytes) -> None:
    with answering(tmp_path, line, 0) as switch:
        assert [port["name"] for port in ports.ports_of(switch)] == ["e1"]


def test_a_slow_status_has_one_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "ASK_TIMEOUT_S", 0.3)
    with answering(tmp_path, b" ", 3.0) as switch:
        began = time.monotonic()
        assert [port["up"] for port in ports.ports_of(switch)] == [None]
        assert time.monotonic() - began < 2.0
