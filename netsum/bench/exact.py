"""What exact sums cost on limited links and at the host: ``python -m netsum.bench.exact``.

The same arrays are all-reduced plainly and exactly on a star in the simulator: the shipped P4 program and worker core in virtual
time, which counts links and not hosts. What a host computes for an element is timed beside it, in processor time.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from host_agent.codecs.accumulator import Accumulator
from host_agent.collectives import Collective, plan_allreduce
from host_agent.collectives.exact import Exact, ExactSum, Marks, plan_exact_allreduce
from host_agent.protocol.passes import Pass
from host_agent.wire import Admission
from netsum.bench.machine import machine_and_date
from netsum.bench.modules import one_sentence, whole
from netsum.programs import compiled_program
from netsum.terminal import Rows
from sim.network.network import Network
from sim.network.parameters import LinkParameters
from sim.network.programming import ProgrammedSwitch

Array = npt.NDArray[Any]
LATENCY_NS: Final = 50_000
SLOTS: Final = 256
LANES: Final = 256
DISTRIBUTIONS: Final[dict[str, Callable[[np.random.Generator, int], Array]]] = {
    "normal": lambda rng, count: rng.standard_normal(count),
    "uniform": lambda rng, count: rng.uniform(-1.0, 1.0, count),
    "Student's t (3)": lambda rng, count: rng.standard_t(3, count),
    "Laplace": lambda rng, count: rng.laplace(size=count),
    "Laplace, cubed": lambda rng, count: rng.laplace(size=count) ** 3,
    "log-normal (2)": lambda rng, count: rng.lognormal(0.0, 2.0, count),
    "1 % normal, rest 0": lambda rng, count: np.where(
        rng.random(count) < 0.01, rng.standard_normal(count), 0.0
    ),
}


def rounded_to(values: Array, dtype: str) -> Array:
    """Return values as an array of a type; those of bfloat16 in float32."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    return (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def virtual_seconds(arrays: list[Array], exact: Exact, rate_bps: int) -> float:
    """Return how long the links take for the all-reduce of an array of each worker."""
    programmed = ProgrammedSwitch(compiled_program(LANES).json, LANES)
    network = Network(1, lanes=LANES)
    hub = network.add_switch("s1", programmed.ip, programmed.mac, programmed=programmed)
    hosts = [
        network.add_host(f"h{number}", f"10.0.0.{number}", f"02:00:0a:00:00:{number:02x}")
        for number in range(1, len(arrays) + 1)
    ]
    for host in hosts:
        network.connect(host, hub, LinkParameters(rate_bps=rate_bps, latency_ns=LATENCY_NS))

    def plan(worker: int) -> list[Callable[[Admission, int], Collective]]:
        def make(admission: Admission, sequence: int) -> Collective:
            if exact:
                return plan_exact_allreduce(admission, sequence, arrays[worker], "sum", None, exact)
            return plan_allreduce(admission, sequence, arrays[worker], "sum", None, "raise", "never")

        return [make]

    job = programmed.start_job("job", network.endpoints(hosts, hub), SLOTS)
    network.add_job(job, hosts, hub, plan)
    network.run(limit_ns=10**13)
    outcomes = [worker.outcomes[0] for worker in network.workers]
    assert all(each.error is None for each in outcomes)
    assert len({each.result.tobytes() for each in outcomes}) == 1  # type: ignore[union-attr]
    return max(worker.ended_ns[0] for worker in network.workers) / 1e9


def host_ns(array: Array, exact: Exact) -> float:
    """Return the processor time of one worker for an element, in ns, without the time to send it."""
    begin = time.process_time_ns()
    total = Accumulator(array.shape, array.dtype)
    total.add(array)
    summed = ExactSum(*total.take())
    for each in summed.passes(Marks(kind="bench")):
        if isinstance(each, Pass):
            each.done = True  # Of one worker, what it sends is the result.
    summed.result(array.dtype.name if exact is True else str(exact), mean=False)
    return (time.process_time_ns() - begin) / array.size


def main() -> None:
    """Print a table over types and distributions."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--elements", type=whole, default=1 << 22, help="of an array (default: %(default)s)")
    parser.add_argument("--workers", type=whole, nargs="+", default=[4, 8])
    parser.add_argument("--rate-mbit", type=whole, default=100)
    parser.add_argument(
        "--distributions",
        nargs="+",
        choices=DISTRIBUTIONS,
        default=list(DISTRIBUTIONS),
        metavar="NAME",
        help="of the elements: " + "; ".join(DISTRIBUTIONS).replace("%", "%%"),
    )
    options = parser.parse_args()
    print(f"{machine_and_date()}; load {os.getloadavg()[0]:.1f}")
    print(f"{options.elements:,} elements, links of {options.rate_mbit} Mbit/s, {LANES} lanes, virtual time")
    table = Rows(
        *("type", "distribution", ">workers", ">plain, s", ">exact, s", ">exact / plain"),
        ">host, ns an element",
        key=3,
    )
    try:
        _fill(table, options.elements, options.workers, options.distributions, options.rate_mbit * 10**6)
    finally:  # An interrupted run prints what it has.
        table.print()


def _fill(
    table: Rows, elements: int, counts: Sequence[int], distributions: Sequence[str], rate_bps: int
) -> None:
    for workers in counts:
        for dtype in ("float32", "bfloat16", "float16"):
            exact: Exact = "bfloat16" if dtype == "bfloat16" else True
            plain = None  # It takes the same time whatever the values.
            for name in distributions:
                rng = np.random.default_rng(1)
                arrays = [rounded_to(DISTRIBUTIONS[name](rng, elements), dtype) for _ in range(workers)]
                plain = plain or virtual_seconds(arrays, False, rate_bps)
                seconds = virtual_seconds(arrays, exact, rate_bps)
                cost = min(host_ns(arrays[0], exact) for _ in range(3))
                numbers = (f"{plain:.3f}", f"{seconds:.3f}", f"{seconds / plain:.2f}", f"{cost:.1f}")
                table.add(dtype, name, str(workers), *numbers)


if __name__ == "__main__":
    with one_sentence():
        main()
