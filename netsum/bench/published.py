"""Rates that papers publish beside simulated ones: ``python -m netsum.bench.published``, the tables of docs/simulator.md.

Published rates are read off figures, to about 2 %; nothing here is fitted to them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from netsum.bench.machine import machine_and_date
from netsum.simulation import programs
from netsum.terminal import Rows, echo
from sim.experiments.experiment import load_experiment, parse_experiment
from sim.experiments.running import run_point

WORKERS: Final = (4, 8, 16)
_STAR: Final = """
[topology]
latency = "1us"
[switch]
latency = "500ns"
[[job]]
size = "16MiB"
slots = 128
"""
SWITCHML: Final[Sequence[tuple[str, Mapping[str, Any], Sequence[int] | None, str]]] = (
    (
        "256 elements, 10 Gbit/s (netsum)",
        {},
        (285, 285, 285),
        "the link is full",
    ),
    (
        "64 elements, 10 Gbit/s (netsum)",
        {"job.lanes": 64},
        (242, 242, 242),
        "with netsum's headers and what is around a frame, 234 fill the link",
    ),
    (
        "256 elements, 100 Gbit/s (netsum)",
        {"topology.rate": "100gbit"},
        (2835, 2835, 2835),
        "the link is full; theirs is over RDMA",
    ),
    ("ring (NCCL)", {"job.contender": "ring"}, (187, 160, 150), "the same bytes"),
    (
        "dedicated parameter servers, as many as workers",
        {"job.contender": "ps"},
        (203, 203, 203),
        "theirs is the authors' program, whose packets and costs are not modelled; here full segments cost no processor time",
    ),
    (
        "the same, 256 bytes of data in a packet",
        {"job.contender": "ps", "transport.segment": 256},
        (203, 203, 203),
        "if their packets are as large as SwitchML's of 64 elements",
    ),
    ("colocated parameter servers", {"job.contender": "ps-colocated"}, None, "close to a ring"),
)
"""Rows of SwitchML's figure 3: name, settings, published million elements/s at 4, 8 and 16 workers, why they are apart."""


def _million_elements_per_s(settings: Mapping[str, Any], workers: int) -> float:
    chosen = {**settings, "job.workers": workers}
    if settings.get("job.contender") == "ps":
        chosen["job.servers"] = workers
    (point,) = parse_experiment(_STAR, "published", chosen).points
    return float(run_point(point, programs()).rows[0]["goodput_bps"]) / 32e6


def _apart(published: Sequence[int], simulated: Sequence[float]) -> str:
    shares = sorted({f"{one / other - 1:+.0%}" for other, one in zip(published, simulated, strict=True)})
    return shares[0] if len(shares) == 1 else f"{shares[0]} to {shares[-1]}"


def switchml() -> None:
    """Print SwitchML's figure 3 beside simulated rates."""
    table = Rows("SwitchML, figure 3", "published", "simulated", "apart", "~reason")
    for name, settings, published, reason in SWITCHML:
        simulated = [_million_elements_per_s(settings, workers) for workers in WORKERS]
        table.add(
            name,
            ", ".join(f"{each:,}" for each in published) if published else "no figures",
            ", ".join(f"{each:,.0f}" for each in simulated),
            _apart(published, simulated) if published else "",
            reason,
        )
    table.print()


def omnireduce() -> None:
    """Print how many times faster than a ring OmniReduce and netsum are, by the share of zeros."""
    times: dict[tuple[str, float], float] = {}
    for point in load_experiment("zeros").points:
        job = point.settings.job[0]
        times[job.contender, job.density] = run_point(point, programs()).rows[0]["duration_ns"]
    table = Rows(">blocks of zeros", ">OmniReduce, simulated", ">netsum, simulated")
    for density in sorted({density for _, density in times}, reverse=True):
        ring_ns = times["ring", density]
        found = [f"{ring_ns / times[name, density]:.1f}" for name in ("omnireduce", "netsum")]
        table.add(f"{1 - density:.0%}", *found)
    table.print()


def main() -> None:
    """Simulate everything and print the tables."""
    echo(f"Million elements/s at each of {', '.join(map(str, WORKERS))} workers. {machine_and_date()}")
    switchml()
    echo("Times faster than a ring, 8 workers, 10 Gbit/s, 32 MiB (netsum sim run zeros)")
    omnireduce()


if __name__ == "__main__":
    main()
