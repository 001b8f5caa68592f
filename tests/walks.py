"""Count what the walks of ARCHITECTURE.md pass: the functions of netsum, and the files that they are in.

    python -m tests.walks gradient | write | experiment

A function counts once. Compiled loops are not looked into: what they call is in ARCHITECTURE.md. `write` begins at the
controller's `create_job` and ends at the switch's P4Runtime server.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path.cwd()
RANKS = 2
VARIABLE = "NETSUM_WALK_RANK"


class Passed:
    """The functions that threads of this process have entered while it was on."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self._on = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if self._on and event == "call" and code.co_filename.startswith(f"{ROOT}/"):
            file = code.co_filename[len(str(ROOT)) + 1 :]
            if not file.startswith(("tests/", ".venv/")) and not code.co_name.startswith("<"):
                self.functions.add((file, f"{code.co_firstlineno} {code.co_name}"))

    @contextmanager
    def on(self) -> Iterator[None]:
        """Count what this thread, and threads that are known to `threading.setprofile`, enter in the block."""
        self._on = True
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._on = False

    def report(self, name: str) -> None:
        """Print the numbers."""
        files = {file for file, _ in self.functions}
        print(f"{name}: {len(self.functions)} functions in {len(files)} files", flush=True)


def gradient(rank: int, passed: Passed) -> None:
    """Reduce an array that fits into one pass; the caller's thread drives it."""
    import numpy as np

    import netsum

    joined = netsum.join(os.environ["NETSUM_CONTROLLER"], job="walk", rank=rank, world_size=RANKS)
    with joined as seat, seat.communicator(timeout_s=60.0) as comm:
        array = np.ones(1024, np.float32)
        for _ in range(3):
            comm.allreduce(array)
        with passed.on():
            comm.allreduce(array)


def write(passed: Passed) -> None:
    """Admit a job of two workers on an embedded switch."""
    from controller.jobs import WorkerEndpoint
    from controller.switch_controller import SwitchController
    from netsum.programs import compiled_program
    from topologies.loopback import LoopbackTestbed

    program = compiled_program(64)
    threading.setprofile(passed)
    with (
        tempfile.TemporaryDirectory() as folder,
        LoopbackTestbed(2, 28275, Path(folder)) as bed,
        SwitchController.connect(
            bed.p4runtime_address, program=program.json, p4info=program.p4info
        ) as controller,
    ):
        controller.set_pipeline()
        controller.set_switch_address(bed.switch_ip, bed.switch_mac)
        places = [
            WorkerEndpoint(host.port, host.ip, host.mac, 40000, switch=host.switch) for host in bed.hosts
        ]
        with passed.on():
            controller.create_job("walk", places, 16)


def experiment(passed: Passed) -> None:
    """Run the experiment `quick`, of which no point is kept from before."""
    from netsum.cli.app import app

    with tempfile.TemporaryDirectory() as folder, passed.on():
        os.chdir(folder)
        with contextlib.suppress(SystemExit):
            app(["sim", "run", "quick"], prog_name="netsum")


OF_ONE_PROCESS = {"write": write, "experiment": experiment}


def main() -> int:
    """Count the functions of netsum that a walk passes."""
    parser = argparse.ArgumentParser(prog="python -m tests.walks", description=main.__doc__)
    parser.add_argument("walk", choices=["gradient", *OF_ONE_PROCESS])
    name = parser.parse_args().walk
    passed = Passed()
    if name in OF_ONE_PROCESS:
        OF_ONE_PROCESS[name](passed)
        passed.report(name)
        return 0
    if VARIABLE in os.environ:
        rank = int(os.environ[VARIABLE])
        gradient(rank, passed)
        if rank == 0:
            passed.report(name)
        return 0
    from netsum.allreduce.session import loopback_controller

    with tempfile.TemporaryDirectory() as folder:
        controlled = loopback_controller(RANKS, 64, 0, Path(folder))
        with controlled as address:
            shared = os.environ | {"NETSUM_CONTROLLER": address}
            command = [sys.executable, *sys.orig_argv[1:]]
            ranks = [subprocess.Popen(command, env=shared | {VARIABLE: str(rank)}) for rank in range(RANKS)]
            ended = [each.wait(timeout=300) for each in ranks]
            return int(any(ended))


if __name__ == "__main__":
    sys.exit(main())
