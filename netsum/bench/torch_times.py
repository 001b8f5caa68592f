"""``netsum bench torch``: netsum and Gloo inside PyTorch, on plain loopback or on the limited links of a testbed.

The same processes have a group of each and use them in turn. On loopback no link limits either, and netsum's switch is software
that takes a core of the same machine, which its workers reach by shared memory. Where mpi4py is importable, MPI reduces the same
arrays afterwards; NETSUM_MPIRUN names its launcher. On a testbed a process runs on each host; the ranks meet over the data
network, whose switch forwards torch's rendezvous and Gloo's TCP like any other traffic.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from netsum.allreduce.launch import RankError
from netsum.allreduce.session import loopback_controller
from netsum.bench.machine import machine_and_date
from netsum.bench.options import TorchOptions
from netsum.bench.testbeds import testbed
from netsum.bench.torch_comparison import (
    TorchComparison,
    compare,
    plan_of,
    print_collectives,
    print_examples,
)
from netsum.bench.torch_plan import TorchPlan
from netsum.option_values import whole_numbers
from netsum.programs import check_lanes, usual_lanes
from netsum_common.lane_counts import LOCAL_LANES
from topologies.topology_file import load_topology

MPIRUN = os.environ.get("NETSUM_MPIRUN", "mpirun")
_OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}
"""Environment of Open MPI for more processes than processors, and as root; MPICH ignores it."""
_MPI_TIMEOUT_S = 600.0


def _on_loopback(plan: TorchPlan, workers: int, lanes: int) -> TorchComparison:
    with (
        tempfile.TemporaryDirectory() as name,
        loopback_controller(workers, lanes, 0, Path(name)) as controller,
    ):
        comparison = compare(plan, workers, controller=controller, folder=Path(name))
    if plan.device == "cpu" and find_spec("mpi4py") and shutil.which(MPIRUN):
        _measure_mpi(plan, workers, comparison)
    return comparison


def _on_testbed(plan: TorchPlan, topology: str, lanes: int, rate: str, loss: str) -> TorchComparison:
    with (
        testbed(topology, switch="embedded", lanes=lanes, rate=rate, loss_percent=loss) as bed,
        tempfile.TemporaryDirectory() as name,
    ):
        return compare(plan, bed, controller=bed.controller_address, folder=Path(name))


def _measure_mpi(plan: TorchPlan, workers: int, comparison: TorchComparison) -> None:
    """Measure the same all-reduces with MPI, in processes of its own, after those of the two backends."""
    command = [MPIRUN, "-n", str(workers), sys.executable, "-m", "netsum.bench.mpi_rank"]
    command += [str(workers), plan.to_json()]
    done = subprocess.run(
        command,
        env={**os.environ, **_OPEN_MPI},
        capture_output=True,
        text=True,
        timeout=_MPI_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RankError(f"{MPIRUN} ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
    for line in done.stdout.splitlines():
        comparison.on_message(0, json.loads(line))


def run(options: TorchOptions) -> list[dict[str, Any]]:
    """Measure, and print the times, their ratio, the machine and the date."""
    plan = plan_of(options)
    counts = whole_numbers(options.workers, "--workers")
    topology = options.topology
    if topology is None:
        lane_count: int = options.lanes or LOCAL_LANES
    else:
        network = load_topology(topology)
        lane_count = options.lanes or usual_lanes(LOCAL_LANES, network.mtu)
        check_lanes(lane_count, network.mtu, network.name)
    where = (
        "plain loopback"
        if topology is None
        else f"{topology}, every link {options.rate}, {options.loss} % loss"
    )
    if options.device == "cuda":
        where += f", tensors on one {torch.cuda.get_device_name()}"
    print(machine_and_date(PyTorch=torch.__version__))
    print(
        f"load before: {os.getloadavg()[0]:.1f}; {where}, embedded switch, {lane_count} lanes; "
        f"medians of {options.runs} runs (least … most)"
    )
    measured = (
        ((f"{count} processes", _on_loopback(plan, count, lane_count)) for count in counts)
        if topology is None
        else [("a process on each host", _on_testbed(plan, topology, lane_count, options.rate, options.loss))]
    )
    results = []
    for processes, comparison in measured:
        results.append({"processes": processes, **comparison.to_json()})
        print(f"\n{processes}, one thread each")
        if plan.sizes:
            print_collectives(comparison)
        if plan.examples:
            print_examples(comparison)
    return results
