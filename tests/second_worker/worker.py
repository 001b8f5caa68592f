"""A worker of the slot protocol made from docs/draft-netsum-slot-protocol.md alone, in plain Python.

It reads lines of JSON, an admission, then collectives, and writes the sum of each. The layout of packets is read from
p4/spec/protocol.toml, which has the draft's tables; comments name the draft's sections.
"""

import contextlib
import json
import math
import select
import socket
import struct
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from ctypes import c_float
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

TABLES = Path(__file__).parents[2] / "p4" / "spec" / "protocol.toml"
SPEC = tomllib.loads(TABLES.read_text(encoding="utf-8"))
HEADER = [(each["name"], each["bits"]) for each in SPEC["header"]["fields"]]
STATUS_FIELDS = [(each["name"], each["bits"]) for each in SPEC["status"]["fields"]]
KIND, OP, FLAG = (
    {name: item["value"] for name, item in SPEC[group].items()} for group in ("kind", "op", "flag")
)
BIAS, ALL_ZERO, NON_FINITE = (int(SPEC["exponent"][name]) for name in ("bias", "all_zero", "non_finite"))
VERSIONS, NUMBERS = int(SPEC["pool"]["versions"]), 1 << dict(HEADER)["chunk"]
UNKNOWN = int(SPEC["completer"]["unknown"])  # No packet names it.
PROBE_NUMBERS, TIMED_PROBES = 8191, 256
FIRST_RTO_S, GRANULARITY_S = 0.01, 0.001
LATER_RESULTS = 3
MISMATCH_COPIES = 8
ALLREDUCE = {"bits": "full", "kind": "allreduce", "on_overflow": "raise", "op": "sum"}
ALLREDUCE_DENSE = ALLREDUCE | {"root": -1, "stochastic": False}
DTYPES, HIGH_HALVES = {"float32": "'<f4'", "int32": "'<i4'"}, 255

Fields = list[tuple[str, int]]


def size_of(fields: Fields) -> int:
    """Return the bytes of a header."""
    return sum(bits for _, bits in fields) // 8


def pack(fields: Fields, values: dict[str, int]) -> bytes:
    """Write a header; fields that are not given are 0."""
    number = 0
    for name, bits in fields:
        number = number << bits | values.get(name, 0)
    return number.to_bytes(size_of(fields), "big")


def unpack(fields: Fields, data: bytes) -> dict[str, int]:
    """Read a header."""
    number = int.from_bytes(data[: size_of(fields)], "big")
    values: dict[str, int] = {}
    for name, bits in reversed(fields):
        values[name] = number & (1 << bits) - 1
        number >>= bits
    return values


@dataclass
class Chunk:
    """A chunk in flight: its packet, and what its recovery needs."""

    exponent: int
    lanes: list[int] | None
    due: float
    order: int
    probes: int = 0
    overtaken: int = 0
    probed: set[int] = field(default_factory=set)


class Worker:
    """A worker of one epoch (sections "Admission" and "Worker")."""

    def __init__(self, admission: dict[str, Any], timeout_s: float = 60.0) -> None:
        self.me, self.timeout_s = admission, timeout_s
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(tuple(admission["bind"]))
        self.socket.setblocking(False)
        self.slots, self.lanes = int(admission["slots"]), int(admission["lanes"])
        self.full = (1 << admission["num_workers"]) - 1
        self.headroom = (int(admission["num_workers"]) - 1).bit_length()  # ceil(log2 n)
        self.first = self.collectives = self.sent = self.probe_number = 0
        self.collective: dict[str, int] = {}
        self.rto = FIRST_RTO_S
        self.smoothed: tuple[float, float] | None = None  # SRTT and RTTVAR.
        self.probes: dict[int, float] = {}
        self.missing: list[int] | None = None
        self.counts = {"contributions": 0, "retransmissions": 0, "probes": 0}

    # Section "Packet".

    def send(self, kind: str, index: int, exponent: int, lanes: list[int] | None = None) -> None:
        chunk = (self.first + index) % NUMBERS
        header = self.collective | {"kind": KIND[kind], "flags": 0 if lanes is None else FLAG["lanes"]}
        header |= {"chunk": chunk, "pool_index": self.pool_index(chunk), "exponent": exponent}
        header["completer"] = UNKNOWN
        data = pack(HEADER, header) + (b"" if lanes is None else struct.pack(f"!{self.lanes}i", *lanes))
        with contextlib.suppress(BlockingIOError):  # As if the network had lost it.
            self.socket.sendto(data, tuple(self.me["switch"]))

    def pool_index(self, chunk: int) -> int:
        return chunk % self.slots * VERSIONS + chunk // self.slots % VERSIONS

    def contribute(self, index: int, chunk: Chunk, *, again: bool = False) -> None:
        """Send a contribution."""
        self.send("contribute", index, chunk.exponent, chunk.lanes)
        self.sent += 1
        chunk.order = self.sent
        self.counts["retransmissions" if again else "contributions"] += 1

    def probe(self, index: int, chunk: Chunk, now: float) -> None:
        """Send a PROBE; its number is in the exponent (section "Losses")."""
        self.probe_number = self.probe_number % PROBE_NUMBERS + 1
        self.probes[self.probe_number] = now
        if len(self.probes) > TIMED_PROBES:
            del self.probes[next(iter(self.probes))]
        self.send("probe", index, self.probe_number)
        chunk.probed.add(self.probe_number)
        chunk.probes += 1
        chunk.due = now + self.rto * 1.25 ** max(0, chunk.probes - 8)
        self.counts["probes"] += 1

    # Section "Worker": the states of chunks.

    def run(self, count: int, lag: int, contribution: Callable[..., Any], take: Callable[..., None]) -> None:
        """Send chunks, each after the RESULTs of those `lag` and S before, and take their RESULTs."""
        begun, done, flying = 0, set[int](), dict[int, Chunk]()
        deadline = time.monotonic() + self.timeout_s
        while len(done) < count:
            now = time.monotonic()
            while begun < count and all(begun < back or begun - back in done for back in (lag, self.slots)):
                exponent, lanes = contribution(begun)
                flying[begun] = Chunk(exponent, lanes, now + self.rto, 0)
                self.contribute(begun, flying[begun])
                begun += 1
            for index, chunk in flying.items():
                if chunk.due <= now:
                    self.probe(index, chunk, now)
            if now >= deadline:
                raise TimeoutError(f"no RESULT within {self.timeout_s:g} s; missing workers: {self.missing}")
            wait = max(0.0, min([deadline, *(chunk.due for chunk in flying.values())]) - now)
            if select.select([self.socket], [], [], wait)[0]:
                self.receive(flying, done, take)
        self.first = (self.first + count) % NUMBERS

    def receive(self, flying: dict[int, Chunk], done: set[int], take: Callable[..., None]) -> None:
        """Read one packet; all that is not for a chunk in flight is ignored."""
        data = self.socket.recv(65536).ljust(size_of(HEADER), b"\0")
        header, rest = unpack(HEADER, data), data[size_of(HEADER) :]
        index = (header["chunk"] - self.first) % NUMBERS
        mine = self.collective | {"pool_index": self.pool_index(header["chunk"])}
        if index not in flying or any(header[name] != value for name, value in mine.items()):
            return
        chunk, now = flying[index], time.monotonic()
        lanes_bytes = 4 * self.lanes if chunk.lanes else 0
        if header["kind"] == KIND["status"] and len(rest) == size_of(STATUS_FIELDS):
            self.take_status(index, chunk, header | unpack(STATUS_FIELDS, rest), now)
        elif header["kind"] == KIND["result"] and len(rest) == lanes_bytes:
            take(index, header["exponent"], struct.unpack(f"!{len(rest) // 4}i", rest))
            del flying[index]
            done.add(index)
            for other, late in flying.items():  # The packet threshold: RESULTs of chunks sent later.
                if late.order < chunk.order:
                    late.overtaken += 1
                    if late.overtaken == LATER_RESULTS:
                        self.contribute(other, late, again=True)
                        self.probe(other, late, now)

    def take_status(self, index: int, chunk: Chunk, status: dict[str, int], now: float) -> None:
        """Decide by what the slot holds (the table in section "Losses")."""
        if status["flags"] & FLAG["mismatch"]:
            for _ in range(MISMATCH_COPIES):
                self.send("contribute", index, chunk.exponent)
            raise ValueError("the workers disagree about the collective")
        number, holds = status["exponent"], status["slot_chunk"] == status["chunk"]
        if number in chunk.probed and number in self.probes:
            self.time_round_trip(now - self.probes.pop(number))
        if holds and status["seen"] == self.full:
            self.contribute(index, chunk, again=True)
        elif not holds or not status["seen"] >> self.me["worker_id"] & 1:
            self.contribute(index, chunk, again=True)
            self.probe(index, chunk, now)
        else:
            self.missing = [each for each in range(self.me["num_workers"]) if not status["seen"] >> each & 1]

    def time_round_trip(self, sample: float) -> None:
        """Update the retransmission timeout (RFC 6298)."""
        srtt, rttvar = self.smoothed or (sample, sample * 2 / 3)  # Half of it after the next line.
        rttvar += (abs(srtt - sample) - rttvar) / 4
        srtt += (sample - srtt) / 8
        self.smoothed = srtt, rttvar
        self.rto = srtt + max(GRANULARITY_S, 4 * rttvar)

    # Sections "Collectives on Chunks" and "Number Formats".

    def begin(self, dtype: str, count: int, part: int) -> None:
        """Set the fields that all packets of a pass have (section "Fingerprint")."""
        agreed = ALLREDUCE_DENSE | {
            "dtype": DTYPES[dtype],
            "count": count,
            "sequence": self.collectives,
            "phase": part,
        }
        text = json.dumps(agreed, sort_keys=True, separators=(",", ":")).encode()
        bits = dict(HEADER)["fingerprint"]
        size = -(-bits // 8)
        digest = int.from_bytes(blake2b(text, digest_size=size).digest(), "big")
        self.collective = {name: self.me[name] for name in ("job_id", "token", "worker_id")} | {
            "version": SPEC["protocol"]["version"],
            "quorum": 0,
            "op": OP["sum"],
            "fingerprint": digest >> 8 * size - bits,
        }

    def allreduce(self, values: list[Any], dtype: str) -> list[Any]:
        """Return the sum over the workers of float32 or int32 values."""
        blocks = [values[at : at + self.lanes] for at in range(0, len(values), self.lanes)]
        blocks = [block + [0] * (self.lanes - len(block)) for block in blocks]
        count, lag = len(blocks), min(self.slots, len(blocks))
        agreed: list[int] = [ALL_ZERO] * count
        sums: list[list[Any]] = [[0] * self.lanes for _ in blocks]

        def contribution(i: int) -> tuple[int, list[int] | None]:
            exponent = exponent_of(blocks[i]) if i < count else ALL_ZERO
            j = i - lag
            return exponent, (self.quantized(blocks[j], agreed[j], dtype) if j >= 0 else None)

        def take(i: int, exponent: int, lanes: Sequence[int]) -> None:
            if i < count:
                agreed[i] = exponent
            if i >= lag and agreed[i - lag] not in (ALL_ZERO, NON_FINITE):
                sums[i - lag] = list(lanes)

        self.begin(dtype, len(values), 0)
        self.run(lag + count, lag, contribution, take)
        wide = [j for j in range(count) if dtype == "int32" and self.is_wide(agreed[j])]
        if wide:  # The high halves of blocks whose sum may leave int32.
            self.begin(dtype, len(values), HIGH_HALVES)
            halves = [[value >> 16 for value in blocks[j]] for j in wide]

            def add(i: int, _: int, lanes: Sequence[int]) -> None:
                low = sums[wide[i]]
                sums[wide[i]] = [(upper << 16) + lower for upper, lower in zip(lanes, low, strict=True)]

            self.run(len(wide), self.slots, lambda i: (ALL_ZERO, halves[i]), add)
        self.collectives += 1
        if dtype == "float32":
            sums = [self.restored(block, exponent) for block, exponent in zip(sums, agreed, strict=True)]
        elif any(not -(2**31) <= value < 2**31 for block in sums for value in block):
            raise OverflowError("a sum does not fit int32")
        return [value for block in sums for value in block][: len(values)]

    def is_wide(self, exponent: int) -> bool:
        return exponent != ALL_ZERO and exponent - BIAS + self.headroom > 31

    def quantized(self, block: list[Any], exponent: int, dtype: str) -> list[int] | None:
        """Return the lanes of a block with the agreed exponent; None where it travels without."""
        if exponent in (ALL_ZERO, NON_FINITE):
            return None
        if dtype == "int32":
            return [value & 0xFFFF for value in block] if self.is_wide(exponent) else block
        return [round(math.ldexp(value, 30 - self.headroom - (exponent - BIAS))) for value in block]

    def restored(self, block: list[int], exponent: int) -> list[float]:
        """Return float32 values of the lanes of a sum."""
        if exponent == NON_FINITE:
            return [math.nan] * self.lanes
        return [c_float(math.ldexp(value, exponent - BIAS + self.headroom - 30)).value for value in block]


def exponent_of(block: list[Any]) -> int:
    """Return the least e with all magnitudes below 2^e, as it is sent; of an integer it is the bit length."""
    if not all(map(math.isfinite, block)):
        return NON_FINITE
    largest = max(map(abs, block))
    return math.frexp(largest)[1] + BIAS if largest else ALL_ZERO


def main() -> None:
    admission, *collectives = map(json.loads, sys.stdin)
    worker = Worker(admission, admission.get("timeout_s", 60.0))
    for each in collectives:
        print(json.dumps(worker.allreduce(each["values"], each["dtype"])), flush=True)
    print(json.dumps(worker.counts))


if __name__ == "__main__":
    main()
