"""Processor time of checks and masks for each element and direction: ``python -m tests.verification.cost``.

A float32 array is encoded and decoded by the codec's routines, with digests, and with masks and digests, in cache and in memory;
the least of some runs counts. Streams are timed apart, as they are generated for many packets at a time.
"""

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from host_agent.codecs.block_float import FLOAT32
from host_agent.codecs.payload import learn_exponent, own_exponent, read_block, write_block
from host_agent.protocol.passes import Pass
from host_agent.verification.checked import Checks
from host_agent.verification.keys import make_keys
from host_agent.verification.masking import Masks
from host_agent.verification.seals import judge, write_lanes
from netsum.bench.machine import machine_and_date
from netsum_common.compiled import Records, compiled

LANES: Final = 256
WORKERS: Final = 8
HEADROOM: Final = 3
RUNS: Final = 7
SIZES: Final = {"in cache (128 KiB)": 1 << 15, "in memory (64 MiB)": 1 << 24}


@compiled
def find(record: Records, blocks: int) -> None:
    """Find and keep all exponents."""
    for block in range(blocks):
        learn_exponent(record[0].payload, block, own_exponent(record[0].payload, block, LANES))


@compiled
def send(record: Records, blocks: int) -> None:
    """Encode all blocks."""
    lanes = np.empty(LANES, np.uint32)
    for block in range(blocks):
        write_block(record[0].payload, block, LANES, HEADROOM, lanes)


@compiled
def receive(record: Records, blocks: int) -> None:
    """Decode all blocks."""
    lanes = np.full(LANES, 0x01020304, np.uint32)
    for block in range(blocks):
        read_block(record[0].payload, block, LANES, HEADROOM, lanes)


def timed(call: Callable[[], Any], elements: int) -> float:
    """Return the processor time of a call in nanoseconds for each element, the least of some runs."""
    repeats = max(1, (1 << 24) // elements)
    call()
    best = float("inf")
    for _ in range(RUNS):
        began = time.process_time_ns()
        for _ in range(repeats):
            call()
        best = min(best, (time.process_time_ns() - began) / repeats / elements)
    return best


def measure(size: int) -> dict[str, dict[str, float]]:
    """Return the times of each mode and step."""
    array = np.random.default_rng(1).normal(size=size).astype(np.float32)
    keys = make_keys(b"k" * 32, 0, WORKERS, LANES)
    blocks = size // LANES
    found = {}
    for mode in ("plain", "verify", "private"):
        work, checks = Pass(FLOAT32, 1, 0, array, np.zeros_like(array)), Checks(keys, 0, 0, False)
        passes = [work]
        if mode == "verify":
            checks.watch(work)
        elif mode == "private":
            passes = [each for each in checks.masked(work, Masks(keys, 0, 0)) if isinstance(each, Pass)]
        times = dict.fromkeys(("exponents", "encode", "decode"), 0.0)
        for each in passes:
            each.lay_out(LANES, 64)
            count = blocks if each.blocks is None else each.blocks.size
            share = count / blocks
            for name, routine in (("exponents", find), ("encode", send), ("decode", receive)):
                took = timed(lambda r=routine, e=each, c=count: r(e.record, c), count * LANES)  # type: ignore[misc]
                times[name] += took * share
        if mode != "plain":
            closing = checks.closing()
            verdicts = np.zeros(len(closing.source), np.int8)
            times["seals"] = timed(lambda c=checks: write_lanes(c.plan[0]), size)  # type: ignore[misc]
            judged = checks.plan, closing.source, verdicts
            times["judge"] = timed(lambda all_of_it=judged: judge(*all_of_it), size)  # type: ignore[misc]
        if mode == "private":
            fresh = Pass(FLOAT32, 1, 0, array, array)
            masks = Masks(keys, 0, 0)
            times["streams"] = timed(lambda m=masks, f=fresh: list(m.parts(f, blocks, True)), size)  # type: ignore[misc]
        found[mode] = times
    return found


def main() -> None:
    """Print the times, and what each mode adds in each direction."""
    print(f"{machine_and_date()}; ns of processor time an element")
    for label, size in SIZES.items():
        found = measure(size)
        for mode, times in found.items():
            print(f"{label}, {mode}: " + ", ".join(f"{name} {ns:.3f}" for name, ns in times.items()))
        plain = found["plain"]
        for mode in ("verify", "private"):
            times = found[mode]
            streams = times.get("streams", 0.0)
            out = times["encode"] + times["exponents"] - plain["encode"] - plain["exponents"] + times["seals"]
            back = times["decode"] - plain["decode"] + times["judge"]
            print(f"  {mode} adds {out + 2 / 3 * streams:.2f} out and {back + streams / 3:.2f} back")


if __name__ == "__main__":
    main()
