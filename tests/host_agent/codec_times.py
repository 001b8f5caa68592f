"""The cost of converting gradients to lanes and lanes to gradients: ``python -m tests.host_agent.codec_times``.

Blocks go straight into and out of datagrams, a batch of them that stays in the cache, as when they are sent. Beside it
stands NumPy's time to copy the same array, to change its type, and to do the same with whole-array operations.
"""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from host_agent.codecs.bitmap import WORD_BLOCKS, clear_blocks, find_blocks
from host_agent.codecs.block_float import FLOAT32, FLOAT64
from host_agent.codecs.codec import Codec
from host_agent.codecs.packed import packed_codec
from host_agent.codecs.payload import (
    has_exponents,
    learn_exponent,
    own_exponent,
    read_block,
    write_block,
)
from host_agent.codecs.raw import WORDS_MAX
from host_agent.protocol.passes import Pass
from host_agent.wire.constants import OP_MAX, OP_SUM
from host_agent.wire.header import HEADER_WORDS
from netsum.bench.machine import machine_and_date
from netsum.cli.exits import reported_errors
from netsum.options import lanes_option, runs_option
from netsum_common.options import parse

BATCH = 64
HEADROOM = 2  # four workers
LEAST_S = 0.2  # How long a timed run takes at least.


@dataclass(frozen=True)
class HostOptions:
    """Time to quantize an element in the worker library, beside a plain copy."""

    runs: int = runs_option(5)
    lanes: int = lanes_option(256, "int32 values a packet carries.")


@dataclass
class HostRow:
    """Nanoseconds per element of the runs of one operation."""

    name: str
    bytes_moved: int  # Read and written per element.
    ns: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Nanoseconds per element."""
        return statistics.median(self.ns)


@numba.njit(nogil=True)
def _contribute(records: Any, lane_count: int, tx: Any) -> None:
    """Exponents and lanes of all blocks, as the core writes them."""
    payload = records[0].payload
    for block in range(payload.data_blocks):
        if has_exponents(payload):
            learn_exponent(payload, block, own_exponent(payload, block, lane_count))
        lanes = tx[block % BATCH, HEADER_WORDS : HEADER_WORDS + lane_count]
        write_block(payload, block, lane_count, HEADROOM, lanes)


@numba.njit(nogil=True)
def _take(records: Any, lane_count: int, rx: Any) -> None:
    """Results of all blocks."""
    payload = records[0].payload
    for block in range(payload.data_blocks):
        lanes = rx[block % BATCH, HEADER_WORDS : HEADER_WORDS + lane_count]
        read_block(payload, block, lane_count, HEADROOM, lanes)


def _numpy_quantize(values: npt.NDArray[np.float32], lanes: int) -> npt.NDArray[np.int32]:
    blocks = values.reshape(-1, lanes)
    exponents = np.frexp(np.abs(blocks).max(axis=1))[1]
    scales = np.ldexp(np.float32(1), 30 - HEADROOM - exponents).astype(np.float32)
    quantized: npt.NDArray[np.int32] = np.rint(blocks * scales[:, None]).astype(np.int32)
    return quantized.byteswap()


def _numpy_dequantize(lanes: npt.NDArray[np.int32], scale: np.float32) -> npt.NDArray[np.float32]:
    return lanes.byteswap().astype(np.float32) * scale


def measure(elements: int = 1 << 24, lanes: int = 256, runs: int = 5) -> list[HostRow]:
    """Time all operations, `runs` times each, alternating.

    `elements`: of the arrays; a multiple of `lanes`. The default does not fit into any cache.
    """
    rng = np.random.default_rng(0)
    singles = rng.standard_normal(elements, np.float32)
    copy = np.empty_like(singles)
    doubles, integers = singles.astype(np.float64), singles.view(np.int32)
    wide = np.empty_like(doubles)
    datagrams = np.zeros((BATCH, HEADER_WORDS + lanes), np.uint32)
    quantized = _numpy_quantize(singles, lanes)

    def core(
        codec: Codec, op: int, source: Any, target: Any
    ) -> tuple[Callable[[], None], Callable[[], None]]:
        work = Pass(codec, op, 0, source, target)
        records = work.lay_out(lanes, 64)
        kept.append(work)
        return lambda: _contribute(records, lanes, datagrams), lambda: _take(records, lanes, datagrams)

    kept: list[Pass] = []
    packed = {bits: core(packed_codec(bits, 1 << HEADROOM), OP_SUM, singles, copy) for bits in (16, 8)}
    of_blocks = Pass(FLOAT32, OP_SUM, 0, singles, copy).lay_out(lanes, 64)["payload"].copy()
    thin = np.zeros_like(singles)
    thin.reshape(-1, lanes)[::100] = 1
    of_thin = Pass(FLOAT32, OP_SUM, 0, thin, copy).lay_out(lanes, 64)["payload"].copy()
    own, bitmap = (
        np.zeros(elements // lanes, np.uint16),
        np.zeros(elements // lanes // WORD_BLOCKS, np.uint32),
    )
    finder = FLOAT32.nonzero
    assert finder is not None
    routine = finder.address

    def find(payloads: Any) -> None:
        find_blocks(payloads, routine, lanes, 0, own.size, own, bitmap)

    few = np.zeros_like(bitmap)
    zeros = np.zeros(elements, np.uint32)
    float32 = core(FLOAT32, OP_SUM, singles, copy)
    float64 = core(FLOAT64, OP_SUM, doubles, wide)
    words = core(WORDS_MAX, OP_MAX, integers, copy.view(np.int32))
    operations: list[tuple[str, int, Callable[[], Any]]] = [
        ("NumPy: copy float32", 8, lambda: np.copyto(copy, singles)),
        ("NumPy: cast float32 to float64", 12, lambda: np.copyto(wide, singles)),
        ("NumPy: quantize float32, whole arrays", 8, lambda: _numpy_quantize(singles, lanes)),
        (
            "NumPy: dequantize float32, whole arrays",
            8,
            lambda: _numpy_dequantize(quantized, np.float32(2**-28)),
        ),
        ("float32 to lanes (exponent, quantize)", 4, float32[0]),
        ("lanes to float32", 4, float32[1]),
        ("blocks found, none of zeros", 4, lambda: find(of_blocks)),
        ("blocks found, 99 % of zeros", 4, lambda: find(of_thin)),
        ("blocks of zeros read in the result", 4, lambda: clear_blocks(few, own.size, lanes, zeros)),
        ("float32 to lanes of 16 bits", 4, packed[16][0]),
        ("lanes of 16 bits to float32", 4, packed[16][1]),
        ("float32 to lanes of 8 bits", 4, packed[8][0]),
        ("lanes of 8 bits to float32", 4, packed[8][1]),
        ("float64 to lanes (exponent, quantize)", 8, float64[0]),
        ("lanes to float64", 8, float64[1]),
        ("int32 to lanes", 4, words[0]),
        ("lanes to int32", 4, words[1]),
    ]
    rows = [HostRow(name, size) for name, size, _ in operations]
    for _, _, operation in operations:
        operation()  # compile, and touch the memory
    for _ in range(runs):
        for row, (_, _, operation) in zip(rows, operations, strict=True):
            row.ns.append(_ns_each(operation, elements))
    return rows


def _ns_each(operation: Callable[[], Any], elements: int) -> float:
    rounds, begin = 0, time.perf_counter_ns()
    while time.perf_counter_ns() - begin < LEAST_S * 1e9:
        operation()
        rounds += 1
    return (time.perf_counter_ns() - begin) / rounds / elements


def run(options: HostOptions) -> None:
    """Measure, and print nanoseconds per element, the ratio to a copy, the machine and the date."""
    print(machine_and_date(NumPy=np.__version__, Numba=numba.__version__))
    print(
        f"load before: {os.getloadavg()[0]:.1f}; {options.lanes} lanes; one thread; median of {options.runs} runs"
    )
    rows = measure(lanes=options.lanes, runs=options.runs)
    copy = rows[0].median
    print(f"{'':40} {'ns/element':>10}  {'(least … most)':18} {'GB/s':>6} {'against a copy':>15}")
    for row in rows:
        spread = f"({min(row.ns):.3f} … {max(row.ns):.3f})"
        rate = row.bytes_moved / row.median
        print(f"{row.name:40} {row.median:10.3f}  {spread:18} {rate:6.1f} {row.median / copy:15.2f}")


if __name__ == "__main__":
    with reported_errors():
        run(parse(HostOptions, None, "python -m tests.host_agent.codec_times", HostOptions.__doc__ or ""))
