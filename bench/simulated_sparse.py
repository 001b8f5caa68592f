"""Block-sparse and packed all-reduces in virtual time: ``python -m bench.simulated_sparse``.

The exchanges of `netsum bench sparse` on a simulated star: the shipped worker core, collectives and P4 program, on links of the
same rate and frames of the same bytes, with hosts and a switch that take no time. What remains beside the bound is the
protocol's own: bitmaps, exponents, round trips. All results are checked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.allreduce import gloo_bound
from bench.machine import machine_and_date
from bench.sparse import plan_of, seconds_bound
from controller.jobs import WorkerEndpoint
from host_agent import Admission
from host_agent.codecs.packed import packed_codec
from host_agent.collectives import Collective, plan_allreduce
from netsum.allreduce.inputs import Inputs, make_inputs, same_bits, tolerance
from netsum.allreduce.plan import Exchange, size_text
from netsum.programs import LANES, compiled_program
from netsum.terminal import Rows
from sim.network.frames import FIRST_UDP_PORT
from sim.network.network import Network
from sim.network.parameters import Faults, LinkParameters, SwitchCost
from sim.network.programming import DEFAULT_IP, DEFAULT_MAC, ProgrammedSwitch
from sim.network.worker import Plan
from topologies.units import parse_rate_bps

__all__ = ["main"]


class _Bench:
    def __init__(self, workers: int, lanes: int, slots: int, link: LinkParameters) -> None:
        self._workers, self._lanes, self._slots, self._link = workers, lanes, slots, link
        self._switch = ProgrammedSwitch(compiled_program(lanes).json, lanes)

    def run(self, exchange: Exchange, seed: int) -> tuple[float, float | None, bool]:
        """Return the seconds, the share of blocks that travelled if it was sparse, and whether the result was right."""
        parts = [make_inputs(exchange, rank, self._workers, 1, seed) for rank in range(self._workers)]
        network = Network(1, lanes=self._lanes)
        hub = network.add_switch("s1", DEFAULT_IP, DEFAULT_MAC, programmed=self._switch, cost=SwitchCost())
        places, hosts = [], []
        for port in range(1, self._workers + 1):
            ip, mac = f"10.0.0.{port}", f"02:00:0a:00:00:{port:02x}"
            hosts.append(network.add_host(f"h{port}", ip, mac))
            for number in network.connect(hosts[-1], hub, LinkParameters(), other_port=port):
                network.set_link(number, self._link)
            places.append(WorkerEndpoint(port, ip, mac, FIRST_UDP_PORT))
        job = self._switch.start_job("bench", places, self._slots)
        found = network.add_job(job.admissions, hosts, hub, lambda rank: [_plan(exchange, parts[rank])])
        network.run()
        right = True
        for worker, part in zip(found, parts, strict=True):
            outcome = worker.outcomes[0]
            if outcome.error is not None or outcome.result is None:
                raise SystemExit(f"{exchange}: {outcome.error}")
            expected = part.result(0)
            if exchange.bits == "full":
                right &= same_bits(outcome.result, expected)
            else:
                off = np.abs(outcome.result.astype(np.float64) - expected).max(initial=0.0)
                right &= bool(off <= tolerance(exchange, self._workers))
        stats = found[0].outcomes[0].statistics
        share = stats.union_blocks / stats.sparse_blocks if stats.sparse_blocks else None
        return max(worker.ended_ns[0] for worker in found) / 1e9, share, right


def _plan(exchange: Exchange, part: Inputs) -> Plan:
    def plan(admission: Admission, sequence: int) -> Collective:
        mine = part.contribution(0)
        how: Any = {"sparse": exchange.sparse, "bits": exchange.bits}  # checked by Exchange
        op: Any = exchange.op
        return plan_allreduce(admission, sequence, mine, op, None, "raise", **how)

    return plan


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the time of every exchange beside the bound of the links."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rate", default="100mbit", help="of every link")
    parser.add_argument("--latency-us", type=int, default=100, help="of every link")
    parser.add_argument("--loss", type=float, default=0.0, help="percent, of every link, each way")
    parser.add_argument("--sizes", default="16MiB,64MiB")
    parser.add_argument("--densities", default="100,50,20,10,5,2,1,0.1")
    parser.add_argument("--overlaps", default="full,random,none")
    parser.add_argument("--bits", default="16,8,4,2", help="of packed elements; empty: none")
    parser.add_argument("--lanes", type=int, choices=LANES, default=256)
    parser.add_argument("--slots", type=int, default=64)
    options = parser.parse_args(arguments)
    rate_bps = parse_rate_bps(options.rate)
    link = LinkParameters(
        rate_bps=rate_bps,
        latency_ns=options.latency_us * 1000,
        framing_bytes=0,
        faults=Faults(loss=options.loss / 100),
    )
    exchanges = plan_of(
        options.sizes.split(","),
        [float(each) / 100 for each in options.densities.split(",")],
        options.overlaps.split(","),
        [int(each) for each in options.bits.split(",") if each],
        options.workers,
    )
    print(machine_and_date())
    print(
        f"virtual time: {options.workers} workers, {options.lanes} lanes, {options.slots} slots, links of {options.rate} and "
        f"{options.latency_us} us, {options.loss:g} % loss each way"
    )
    bench = _Bench(options.workers, options.lanes, options.slots, link)
    made = Rows(
        *(
            ">size",
            "array",
            ">union",
            ">ms",
            ">bound\nms",
            ">of\nbound",
            ">times\ndense",
            ">times a\nring's bound",
        ),
        "right",
        key=2,
    )
    dense = 0.0
    for number, exchange in enumerate(exchanges):
        seconds, union, right = bench.run(exchange, number)
        per_lane = 1
        if isinstance(exchange.bits, int):
            per_lane, what = packed_codec(exchange.bits, options.workers).per_lane, f"{exchange.bits} bits"
        elif exchange.sparse == "never":
            dense, what = seconds, "dense, never"
        else:
            what = (
                "dense, auto"
                if exchange.density == 1
                else f"{exchange.density * 100:.4g} %, {exchange.overlap}"
            )
        bound = seconds_bound(
            rate_bps, options.lanes, exchange.elements, per_lane, 1.0 if union is None else union
        )
        ring = exchange.elements / gloo_bound(rate_bps, options.workers)
        made.add(
            size_text(exchange.array_bytes),
            what,
            "" if union is None else f"{union:.2%}",
            *(f"{seconds * 1e3:.2f}", f"{bound * 1e3:.2f}", f"{bound / seconds:.1%}"),
            *(f"{dense / seconds:.2f}", f"{ring / seconds:.1f}", "yes" if right else "NO"),
        )
        print(f"{what} {seconds * 1e3:.2f} ms", file=sys.stderr, flush=True)
    made.print()


if __name__ == "__main__":
    main()
