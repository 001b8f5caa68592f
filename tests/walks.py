"""Count what the walks of ARCHITECTURE.md pass: the functions of netsum, and the files that they are in.

    python -m tests.walks gradient | write | packet | experiment | bucket [--list]

A function counts once. A loop that is compiled counts as its first function alone, but for `packet`: there the compiled functions
that the simulator's loop of events calls, directly or through others, are counted too, whether or not the packet needs them.
`write` begins at the controller's `create_job` and ends at the switch's P4Runtime server. `bucket` is a bucket of
DistributedDataParallel, compressed by PowerSGD with a residual memory, over Gloo.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

ROOT = Path.cwd()
RANKS = 2
VARIABLE = "NETSUM_WALK_RANK"
PLACE = "NETSUM_WALK_PLACE"
"""Where the ranks of a walk meet: the controller's address, or a file."""


class Passed:
    """The functions that threads of this process have entered while it was on."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self._on = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._on and event == "call":
            self.add(frame.f_code)

    def add(self, code: CodeType) -> None:
        """Count a function if it is netsum's."""
        file = code.co_filename.removeprefix(f"{ROOT}/")
        if file != code.co_filename and not file.startswith(("tests/", ".venv/")) and code.co_name[0] != "<":
            self.functions.add((file, f"{code.co_firstlineno} {code.co_name}"))

    def add_compiled(self, dispatcher: Any, known: set[Any]) -> None:
        """Count a compiled function, and those that it names, directly or through others; `known`: those counted so far."""
        function = dispatcher.py_func
        if function in known:
            return
        known.add(function)
        self.add(function.__code__)
        names = function.__code__.co_names
        named = [function.__globals__[name] for name in names if name in function.__globals__]
        modules = [each for each in named if isinstance(each, ModuleType)]
        named += [vars(module)[name] for module in modules for name in names if name in vars(module)]
        for each in named:
            if hasattr(each, "py_func"):
                self.add_compiled(each, known)

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

    def report(self, name: str, *, listed: bool) -> None:
        """Print the numbers, and the functions by file if asked."""
        files = {file for file, _ in self.functions}
        print(f"{name}: {len(self.functions)} functions in {len(files)} files", flush=True)
        for file in sorted(files) if listed else ():
            names = sorted(
                (name for at, name in self.functions if at == file), key=lambda each: int(each.split()[0])
            )
            print(f"  {file}: {', '.join(each.split()[1] for each in names)}")


def gradient(passed: Passed) -> None:
    """Reduce an array that fits into one pass; the caller's thread drives it."""
    import numpy as np

    import netsum

    rank = int(os.environ[VARIABLE])
    joined = netsum.join(os.environ[PLACE], job="walk", rank=rank, world_size=RANKS)
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


def packet(passed: Passed) -> None:
    """Reduce an array of one packet on a simulated star of two hosts."""
    import numpy as np

    from host_agent.collectives import AllReduceRequest, Collective
    from host_agent.wire import Admission
    from netsum.programs import compiled_program
    from sim.network.engine import loop
    from sim.network.network import Network
    from sim.network.parameters import LinkParameters
    from sim.network.programming import ProgrammedSwitch
    from sim.network.shapes import star

    shape = star(RANKS)
    (place,) = shape.switches
    programmed = ProgrammedSwitch(compiled_program(64).json, 64, ip=place.ip, mac=place.mac)
    network = Network(1, lanes=64)
    nodes = {place.name: network.add_switch(place.name, place.ip, place.mac, programmed=programmed)}
    nodes |= {host.name: network.add_host(host.name, host.ip, host.mac) for host in shape.hosts}
    link = LinkParameters(rate_bps=10**10, latency_ns=1000)
    for edge in shape.edges:
        network.connect(
            nodes[edge.one], nodes[edge.other], link, one_port=edge.one_port, other_port=edge.other_port
        )
    hosts = [nodes[host.name] for host in shape.hosts]
    sums = np.zeros((RANKS, 64), np.float32)

    def plan(worker: int, admission: Admission, sequence: int) -> Collective[Any]:
        return AllReduceRequest(np.ones(64, np.float32), "sum", sums[worker]).plan(admission, sequence)

    job = programmed.create_job("walk", network.endpoints(hosts, nodes[place.name]), 1)
    network.add_job(job, hosts, nodes[place.name], lambda worker: [partial(plan, worker)])
    with passed.on():
        network.run(limit_ns=10**12)
    assert (sums == RANKS).all()
    passed.add_compiled(loop.advance, set())


def experiment(passed: Passed) -> None:
    """Run the experiment `quick`, of which no point is kept from before."""
    from netsum.cli.app import app

    with tempfile.TemporaryDirectory() as folder, passed.on():
        os.chdir(folder)
        with contextlib.suppress(SystemExit):
            app(["sim", "run", "quick"], prog_name="netsum")


def bucket(passed: Passed) -> None:
    """Train a layer for a step whose gradients are compressed."""
    import torch
    import torch.distributed as dist

    import netsum

    threading.setprofile(passed)
    dist.init_process_group(
        "gloo", init_method=f"file://{os.environ[PLACE]}", rank=int(os.environ[VARIABLE]), world_size=RANKS
    )
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    netsum.compress(model, "powersgd", rank=2, memory="residual")
    for _ in range(3):
        model(torch.ones(2, 64)).sum().backward()
    loss = model(torch.ones(2, 64)).sum()
    with passed.on():
        loss.backward()
    dist.destroy_process_group()


OF_ONE_PROCESS: dict[str, Callable[[Passed], None]] = {
    "write": write,
    "packet": packet,
    "experiment": experiment,
}
OF_RANKS: dict[str, Callable[[Passed], None]] = {"gradient": gradient, "bucket": bucket}


@contextmanager
def meeting_place(walk: str, folder: Path) -> Iterator[str]:
    """Where the ranks of a walk meet."""
    from netsum.allreduce.session import loopback_controller

    if walk == "gradient":
        with loopback_controller(RANKS, 64, 0, folder) as address:
            yield address
    else:
        yield str(folder / "ranks")


def main() -> int:
    """Count the functions of netsum that a walk passes."""
    parser = argparse.ArgumentParser(prog="python -m tests.walks", description=main.__doc__)
    parser.add_argument("walk", choices=[*OF_RANKS, *OF_ONE_PROCESS])
    parser.add_argument("--list", action="store_true", help="name the functions too")
    chosen = parser.parse_args()
    if chosen.walk in OF_ONE_PROCESS or VARIABLE in os.environ:
        passed = Passed()
        (OF_ONE_PROCESS | OF_RANKS)[chosen.walk](passed)
        if os.environ.get(VARIABLE, "0") == "0":
            passed.report(chosen.walk, listed=chosen.list)
        return 0
    with tempfile.TemporaryDirectory() as folder, meeting_place(chosen.walk, Path(folder)) as place:
        command = [sys.executable, *sys.orig_argv[1:]]
        ranks = [
            subprocess.Popen(command, env=os.environ | {PLACE: place, VARIABLE: str(rank)})
            for rank in range(RANKS)
        ]
        ended = [each.wait(timeout=300) for each in ranks]
        return int(any(ended))


if __name__ == "__main__":
    sys.exit(main())
