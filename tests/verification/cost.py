"""Processor time of checks and masks for each element and direction: ``python -m tests.verification.cost``.

A float32 array is encoded and decoded by the codec's routines, with digests, and with masks and digests, in cache and in memory:
medians of some repeats, which take the modes in turns of both orders, with the least and the most. Streams are timed apart, as
they are generated for many packets at a time.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from host_agent.codecs.block_float import FLOAT32
from host_agent.codecs.payload import learn_exponent, own_exponent, read_block, write_block
from host_agent.errors import MisuseError
from host_agent.protocol.passes import Pass
from host_agent.verification.checked import Checks
from host_agent.verification.keys import make_keys
from host_agent.verification.masking import Masks, check_cipher
from host_agent.verification.seals import judge, write_lanes
from netsum.bench.machine import machine_and_date
from netsum_common.compiled import Records, compiled

LANES: Final = 256
WORKERS: Final = 8
HEADROOM: Final = 3
REPEATS: Final = 3
MODES: Final = ("plain", "verify", "private")
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
    """Return the processor time of a call in nanoseconds for each element."""
    calls = max(1, (1 << 24) // elements)
    call()
    began = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - began) / calls / elements


def measure(size: int, modes: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the times of each mode and step, once."""
    array = np.random.default_rng(1).normal(size=size).astype(np.float32)
    keys = make_keys(b"k" * 32, 0, WORKERS, LANES)
    blocks = size // LANES
    found = {}
    for mode in modes:
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


def added(found: dict[str, dict[str, float]], mode: str) -> tuple[float, float]:
    """Return the time that a mode adds to sending and to receiving; of three streams per contribution, receiving needs one."""
    plain, times = found["plain"], found[mode]
    streams = times.get("streams", 0.0)
    out = times["encode"] + times["exponents"] - plain["encode"] - plain["exponents"] + times["seals"]
    back = times["decode"] - plain["decode"] + times["judge"]
    return out + 2 / 3 * streams, back + streams / 3


def main() -> None:
    """Print the time that each mode adds in each direction: median, minimum and maximum."""
    try:
        check_cipher()
    except MisuseError as missing:
        sys.exit(str(missing))
    print(f"{machine_and_date()}; ns of processor time an element, load {os.getloadavg()[0]:.1f}")
    for label, size in SIZES.items():
        runs = [measure(size, MODES[:: 1 - 2 * (repeat % 2)]) for repeat in range(REPEATS)]
        for mode in MODES[1:]:
            for way, values in zip(
                ("out", "back"), zip(*(added(run, mode) for run in runs), strict=True), strict=True
            ):
                least, median, most = min(values), statistics.median(values), max(values)
                print(f"{label}, {mode}, {way}: {median:.2f} ({least:.2f} … {most:.2f})", flush=True)


if __name__ == "__main__":
    main()
