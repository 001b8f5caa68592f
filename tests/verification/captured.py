"""Packets that tcpdump sees at the switch of a testbed, plain and masked: ``python -m tests.verification.captured``.

Four hosts add the same arrays twice without and twice with masks, over links that lose packets. Masked lanes must look uniform
and independent, plain ones must not; a second sum must have other packets, and a retransmission the same bits.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np

from host_agent.communicator import compile_ahead
from host_agent.errors import MisuseError
from host_agent.joining import join
from host_agent.verification.masking import check_cipher, lane_bits
from host_agent.verification.trust import Trust
from host_agent.wire.constants import KIND_CONTRIBUTE
from host_agent.wire.header import HEADER_WORDS
from host_agent.wire.lengths import FRAME_HEADERS_BYTES
from netsum.allreduce.launch import Ranks
from netsum.allreduce.report import Message
from netsum.allreduce.session import testbed_sites
from netsum.bench.testbeds import NETSUM, testbed
from netsum.terminal import print_json_line
from tests.verification.hostile import Datagrams
from tests.verification.limited_links import LANES, SLOTS, WORKERS
from tests.verification.randomness import SECRET, WORST, chi_square, correlation, monobit

BLOCKS: Final = 1000
DATA: Final = slice(1, BLOCKS)  # Without the exchange of keys, and without the check.
LOSS_PERCENT: Final = "0.5"
DEADLINE_S: Final = 120.0
TRUST: Final = {"plain": Trust(), "private": Trust(secret=SECRET, private=True)}
_FILE_HEADER, _RECORD_HEADER = 24, 16


def array_of(rank: int) -> Any:
    """Return a rank's array."""
    return np.random.default_rng(rank).normal(size=BLOCKS * LANES).astype(np.float32)


def take_part(rank: int) -> None:
    """Be one rank of both jobs."""
    compile_ahead()
    with ExitStack() as stack:
        for job, trust in TRUST.items():
            member = stack.enter_context(
                join(job=job, rank=rank, world_size=WORKERS, slots=SLOTS, timeout_s=DEADLINE_S)
            )
            communicator = stack.enter_context(member.communicator(DEADLINE_S, trust=trust))
            print_json_line({"event": "joined", "job": job, "number": member.admission.job_id})
            for _ in range(2):
                communicator.allreduce(array_of(rank), sparse="never")
            communicator.barrier()
    print_json_line({"event": "done"})
    sys.stdin.read()


def datagrams_of(capture: Path) -> Datagrams:
    """Return the datagrams of a capture."""
    data, at, found = capture.read_bytes(), _FILE_HEADER, []
    while at + _RECORD_HEADER <= len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "little")
        at += _RECORD_HEADER
        found.append(data[at + FRAME_HEADERS_BYTES : at + size])
        at += size
    words = np.zeros((len(found), HEADER_WORDS + LANES + 1), ">u4")
    for row, each in zip(words.view(np.uint8), found, strict=True):
        row[: len(each)] = np.frombuffer(each, np.uint8)
    return Datagrams(words, np.array([len(each) for each in found], np.int32), np.zeros(len(found), np.int64))


def capture(folder: Path) -> dict[str, int]:
    """Run both jobs, and write what passes at the first two ports; returns the jobs' numbers."""
    jobs: dict[str, int] = {}

    def on_message(rank: int, message: Message) -> None:
        if message["event"] == "joined":
            jobs[message["job"]] = message["number"]

    def command(rank: int) -> Sequence[str]:
        return [sys.executable, "-m", "tests.verification.captured", "--rank", str(rank)]

    bed = testbed("star-4", switch="embedded", lanes=LANES, rate="100mbit", loss_percent=LOSS_PERCENT)
    with bed as running:
        os.environ["NETSUM_CONTROLLER"] = running.state["controller"]["address"]
        sniffers = []
        for port in (1, 2):
            words = (
                "tcpdump",
                "-i",
                f"s1-eth{port}",
                "-B",
                "65536",
                "-w",
                str(folder / f"{port}.pcap"),
                "udp",
            )
            inside = [*NETSUM, "testbed", "exec", "--testbed", running.name, "s1", *words]
            sniffers.append(subprocess.Popen(inside, stderr=subprocess.PIPE, text=True))
            assert sniffers[-1].stderr is not None
            while "listening on" not in (line := sniffers[-1].stderr.readline()):
                assert line, f"tcpdump ended with {sniffers[-1].wait()}"
                print(line, end="", file=sys.stderr)
        with Ranks(command, testbed_sites(running, list(running.state["hosts"])), folder) as ranks:
            ranks.follow(DEADLINE_S, on_message)
            ranks.dismiss()
        for each in sniffers:
            each.terminate()
            _, said = each.communicate(timeout=DEADLINE_S)
            print("tcpdump:", ", ".join(said.strip().splitlines()))
    return jobs


def by_chunk(seen: Datagrams, job: int, up: bool) -> dict[int, list[bytes]]:
    """Return the lanes of each chunk in the order of chunks, once for each time that they were sent."""
    chunks, kinds, numbers = seen.field("chunk"), seen.kinds, seen.field("job_id")
    found: dict[int, list[bytes]] = {}
    for row in seen.with_lanes:
        if numbers[row] == job and (kinds[row] == KIND_CONTRIBUTE) == up:
            found.setdefault(int(chunks[row]), []).append(seen.lanes[row].tobytes())
    return dict(sorted(found.items()))


def examine(first: Datagrams, second: Datagrams, job: int, private: bool) -> bool:
    """Print the findings in a job's packets, and return whether all are as expected."""
    bits = lane_bits(WORKERS)
    up, other, down = by_chunk(first, job, True), by_chunk(second, job, True), by_chunk(first, job, False)

    def lanes(of: dict[int, list[bytes]]) -> Any:
        sent = [each[0] for each in list(of.values())[DATA]]
        return np.frombuffer(b"".join(sent), ">i4").astype(np.int64)

    own, theirs, sums = lanes(up), lanes(other), lanes(down) & (1 << bits) - 1
    plain = np.rint(np.ldexp(array_of(0).astype(np.float64), 20))[: own.size]
    least = min(own.size, theirs.size, sums.size)
    scores = {
        "upper byte": max(chi_square(each & (1 << bits) - 1, bits) for each in (own, theirs, sums)),
        "bits": max(monobit(each & (1 << bits) - 1, bits) for each in (own, theirs, sums)),
        "with neighbours": correlation(own[:-1], own[1:]),
        "with the array": max(correlation(own[: own.size - shift], plain[shift:]) for shift in (0, LANES)),
        "with another worker": correlation(own[:least], theirs[:least]),
        "with the sum": correlation(own[:least], sums[:least]),
    }
    packets = [each[0] for each in up.values()]
    repeated = [each for each in up.values() if len(each) > 1]
    same, again = sum(len(set(each)) == 1 for each in repeated), len(packets) - len(set(packets))
    print(
        f"{'private' if private else 'plain'}: {own.size:,} lanes; standard deviations from uniform and independent: "
        + ", ".join(f"{name} {score:.1f}" for name, score in scores.items())
        + f"; {again} of {len(packets)} packets have the lanes of another one; {len(repeated)} were sent again, {same} of them "
        "with the same bits"
    )
    uniform = max(scores.values()) < WORST and again == 0
    odd = max(scores["upper byte"], scores["bits"], scores["with the array"]) > WORST and again >= BLOCKS - 1
    return bool(repeated) and same == len(repeated) and (uniform if private else odd)


def main() -> int:
    """Capture and examine packets; return 1 if a job's packets are not as expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.rank is not None:
        take_part(chosen.rank)
        return 0
    try:
        check_cipher()
    except MisuseError as error:
        sys.exit(f"captured: {error}")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)  # tcpdump writes as a user of its own.
        jobs = capture(Path(folder))
        first, second = (datagrams_of(Path(folder) / f"{port}.pcap") for port in (1, 2))
    fine = [examine(first, second, number, job == "private") for job, number in jobs.items()]
    print("as it should be" if all(fine) else "NOT AS IT SHOULD BE")
    return int(not all(fine))


if __name__ == "__main__":
    sys.exit(main())
