"""Switches as processes."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

DEADLINE_S = 400


class SwitchProcess:
    """`python -m sim.switch.serve`, ready; `before`: a command that runs it."""

    def __init__(self, *arguments: object, before: Sequence[str] = ()) -> None:
        reader, writer = os.pipe()
        command = [sys.executable, "-m", "sim.switch.serve", "--p4runtime", "127.0.0.1:0", "--udp-base", "0"]
        self.process = subprocess.Popen(
            [*before, *command, "--ready-fd", str(writer), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=(writer,),
        )
        os.close(writer)
        with os.fdopen(reader) as ready:
            self.ready = json.loads(ready.readline())
        self.ports = {int(port): tuple(address) for port, address in self.ready["ports"].items()}

    @staticmethod
    def status(path: Path) -> Any:
        """Report of a switch that was started with ``--status`` at that socket."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(DEADLINE_S)
            client.connect(str(path))
            with client.makefile() as answer:
                return json.loads(answer.read())

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Signal the process; returns (exit status, standard output, standard error)."""
        self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, output, errors


Start = Callable[..., SwitchProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start switches that are gone at the end, whatever happens."""
    started: list[SwitchProcess] = []

    def starter(*arguments: object, before: Sequence[str] = ()) -> SwitchProcess:
        started.append(SwitchProcess(*arguments, before=before))
        return started[-1]

    yield starter
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate(timeout=DEADLINE_S)
