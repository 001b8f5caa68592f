"""Step times of frameworks over netsum beside their own collectives, on the hosts of a testbed with links of 100 Mbit/s.

``python -m tests.integration.framework_times jax=PYTHON mpi=PYTHON tensorflow=PYTHON ray=PYTHON`` as root, each with the
interpreter of an environment that netsum's wheel is installed in. Both ways of a framework have the same losses.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from netsum.bench.machine import machine_and_date
from netsum.bench.testbeds import testbed
from topologies.run_folder import RunningTestbed

DEADLINE_S = 400.0
_RAY_START_S = 8.0
PROGRAM = Path(__file__).with_name("framework_steps.py")
NATIVE = {
    "jax": "Gloo",
    "mpi": "MPICH, TCP",
    "tensorflow": "MultiWorkerMirroredStrategy, ring",
    "ray": "PyTorch's Gloo",
}


class Job:
    """The processes of one job on a testbed's hosts."""

    def __init__(self, bed: RunningTestbed, folder: Path, python: str) -> None:
        self._bed, self._folder = bed, folder
        self.python = Path(python).absolute()
        self.hosts: Mapping[str, Any] = bed.state["hosts"]
        self.addresses = [each["ip"] for each in self.hosts.values()]
        self._port = 29600
        shutil.copy(PROGRAM, folder)  # Away from the checkout: what is imported is the wheel's.
        self.program = str(folder / PROGRAM.name)

    def start(self, rank: int, *command: str) -> "subprocess.Popen[str]":
        """Start a command on a rank's host."""
        name = list(self.hosts)[rank]
        environment = {
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", "/root"),
            "NETSUM_CONTROLLER": self._bed.controller_address,
            "NETSUM_TESTBED": self._bed.name,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "KERAS_BACKEND": "tensorflow",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "RANK": str(rank),
            "WORLD_SIZE": str(len(self.hosts)),
            "MASTER_ADDR": self.addresses[0],
            "MASTER_PORT": str(self._port),
            "OWN_ADDRESS": self.addresses[rank],
            "ADDRESSES": " ".join(self.addresses),
            "GLOO_SOCKET_IFNAME": self.hosts[name]["interface"],
            "FI_PROVIDER": "tcp",
            "UCX_TLS": "tcp,self",  # No shared memory between the hosts of a testbed.
            "RAY_ADDRESS": f"{self.addresses[0]}:6379",
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
        }
        return subprocess.Popen(
            ["mnexec", "-a", str(self._bed.namespace_pid(name)), *command],
            env=environment,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def output(self, started: "list[subprocess.Popen[str]]") -> list[dict[str, Any]]:
        """Return what the processes said once all have ended."""
        said = []
        try:
            for each in started:
                output = each.communicate(timeout=DEADLINE_S)[0]
                # mpiexec joins the lines of ranks.
                lines = [part.split("}")[0] + "}" for part in output.split("said: ")[1:]]
                said += [json.loads(line) for line in lines]
                if each.returncode or not lines:
                    raise RuntimeError(f"{each.args!r}: status {each.returncode}: {output[-1500:]}")
        finally:
            for each in started:
                each.kill()
        return said

    def ranks(self, framework: str, how: str, steps: int) -> list[dict[str, Any]]:
        """Run a rank on each host."""
        words = [self.program, framework, how, str(steps)]
        return self.output([self.start(rank, str(self.python), *words) for rank in range(len(self.hosts))])

    def mpiexec(self, how: str, steps: int) -> list[dict[str, Any]]:
        """Run MPI's ranks: mpiexec on the first host starts them on the others as if by ssh."""
        for name, host in self.hosts.items():
            (self._folder / host["ip"]).write_text(str(self._bed.namespace_pid(name)))
        ssh = self._folder / "ssh"
        ssh.write_text(
            '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=$1; shift\n'
            f'exec mnexec -a "$(cat {self._folder}/$host)" sh -c "$*"\n'
        )
        ssh.chmod(0o755)
        first = next(iter(self.hosts.values()))
        return self.output(
            [
                self.start(
                    0,
                    str(self.python.with_name("mpiexec")),
                    *("-localhost", first["ip"], "-iface", first["interface"]),
                    *("-launcher", "ssh", "-launcher-exec", str(ssh)),
                    *("-hosts", ",".join(self.addresses), "-ppn", "1", "-n", str(len(self.addresses))),
                    *(str(self.python), self.program, "mpi", how, str(steps)),
                )
            ]
        )

    @contextmanager
    def ray(self) -> Iterator[None]:
        """Have Ray up on all hosts."""
        shared = ["--num-cpus", "2", "--resources", '{"here": 1}', "--object-store-memory", "100000000"]
        nodes = []
        try:
            for rank, address in enumerate(self.addresses):
                own = ["--address", f"{self.addresses[0]}:6379"]
                if rank == 0:
                    own = ["--head", "--port", "6379", "--include-dashboard", "false"]
                    own += ["--temp-dir", str(self._folder / "ray")]
                program = [
                    str(self.python.with_name("ray")),
                    "start",
                    "--block",
                    "--node-ip-address",
                    address,
                ]
                nodes.append(self.start(rank, *program, *own, *shared))
                time.sleep(_RAY_START_S)
            yield
        finally:
            for each in nodes:
                each.terminate()
            for each in nodes:
                each.communicate(timeout=60)

    def run(self, framework: str, ways: Sequence[str], steps: int) -> Iterator[list[dict[str, Any]]]:
        """Yield what the ranks say, of one way after the other."""
        with self.ray() if framework == "ray" else nullcontext():
            for how in ways:
                self._port += 1
                if framework == "ray":
                    command = [str(self.python), self.program, "ray", how, str(steps)]
                    yield self.output([self.start(0, *command)])
                elif framework == "mpi":
                    yield self.mpiexec(how, steps)
                else:
                    yield self.ranks(framework, how, steps)


def measure(framework: str, python: str, topology: str, steps: int) -> None:
    """Print a framework's rows; raise RuntimeError if its ways have different losses."""
    ways = ["netsum", "exact", "native"] if framework == "mpi" else ["netsum", "native"]
    losses = []
    with (
        testbed(topology, switch="embedded", lanes=256, rate="100mbit", loss_percent="0") as bed,
        tempfile.TemporaryDirectory() as name,
    ):
        job = Job(bed, Path(name), python)
        for how, said in zip(ways, job.run(framework, ways, steps), strict=True):
            over = {"native": NATIVE[framework], "exact": "netsum, exact"}.get(how, how)
            losses.append(min((each["rank"], each["loss"]) for each in said)[1])
            took = statistics.median(each["step_ms"] for each in said)
            row = f"{framework:<12}{over:<36}{len(job.hosts):>6}{took:>12.1f}{losses[-1]:>12.4f}"
            print(row, flush=True)
    if max(losses) > 1.001 * min(losses):
        raise RuntimeError(f"the losses differ: {losses}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", nargs="+", help="NAME=PYTHON, of " + ", ".join(NATIVE))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--topology", default="star-4", help="of all but Ray, which runs on star-2")
    options = parser.parse_args()
    for given in options.framework:
        framework, _, python = given.partition("=")
        if framework not in NATIVE or shutil.which(python) is None:
            parser.error(f"{given}: expected NAME=PYTHON, a name of {', '.join(NATIVE)} and its interpreter")
    if options.steps < 1:
        parser.error(f"--steps: expected 1 or more, got {options.steps}")
    print(machine_and_date())
    print("A linear model with gradients of 3.75 MiB, every link 100mbit, 0 % loss; median ms of a step")
    print(f"{'framework':<12}{'over':<36}{'ranks':>6}{'ms a step':>12}{'loss':>12}", flush=True)
    failed = []
    for given in options.framework:
        framework, _, python = given.partition("=")
        try:
            measure(framework, python, "star-2" if framework == "ray" else options.topology, options.steps)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            failed.append(f"{framework}: {error}")
    sys.exit("\n".join(failed) or None)


if __name__ == "__main__":
    main()
