"""Measures fixed slots and the congestion window on testbeds: `python -m tests.integration.congestion_testbed`, as root.

All rows are run both ways in turn, and written to docs/data/congestion-testbed.json. It takes about ten minutes of a machine
without other work. Beside TCP, the job's rounds are the part of the run in which the flows get the least.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import topologies
from docs.tables import DATA
from netsum.bench.machine import machine_and_date
from netsum.bench.testbeds import NETSUM

TOPOLOGIES = Path(topologies.__file__).parent / "files"
FIELD_BYTES = 1514  # A full frame of TCP; of its data 1,448 bytes.
SAMPLE_S = 0.05
FILLED_BYTES = 10_000_000  # So many bytes of TCP have arrived before a job begins.
RECEIVE = f"""
import select, socket, time
listening = socket.create_server(("", 5001), backlog=16)
ends, count, then = [listening], 0, time.monotonic()
while True:
    for each in select.select(ends, [], [], {SAMPLE_S})[0]:
        if each is listening:
            ends.append(each.accept()[0])
        else:
            count += len(each.recv(1 << 20))
    if time.monotonic() - then >= {SAMPLE_S}:
        then = time.monotonic()
        print(then, count, flush=True)
"""
SEND = """
import contextlib, socket, sys
flow = socket.socket()
flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[2].encode())
flow.connect((sys.argv[1], 5001))
with contextlib.suppress(OSError):
    while True:
        flow.sendall(bytes(1 << 16))
"""


class Row(NamedTuple):
    """A network, and the job on it."""

    topology: str = "star-4"
    rate: str = "100mbit"
    queue: int = 60
    slots: int = 64
    size: str = "4MiB"
    repeats: int = 5
    flows: int = 0
    switch: str = "embedded"
    congestion: str = "cubic"

    @property
    def title(self) -> str:
        beside = f", beside {self.flows} {self.congestion.upper()}" if self.flows else ""
        switch = ", XDP" if self.switch == "xdp" else ""
        return f"{self.topology}, {self.rate}, queue {self.queue:,}, {self.slots} slots, {self.size}{switch}{beside}"


ROWS = (
    *(Row(queue=queue) for queue in (20, 60, 200, 1000)),
    Row(rate="10mbit", queue=1000, size="512KiB"),
    Row(slots=256),
    *(Row(queue=200, size=size, repeats=50) for size in ("4KiB", "64KiB")),
    *(Row(rate="1gbit", queue=1000, slots=slots, size="32MiB", switch="xdp") for slots in (64, 256)),
    *(Row("dumbbell", queue=queue, slots=256, size="8MiB", repeats=3, flows=1) for queue in (60, 200, 1000)),
    Row("dumbbell", queue=200, slots=256, size="8MiB", repeats=3, flows=4),
)


def netsum(*arguments: str, **environment: str) -> str:
    """Run a command and return its output."""
    done = subprocess.run(
        [*NETSUM, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"netsum {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def flows(row: Row, name: str) -> Iterator[list[tuple[float, int]]]:
    """Let TCP flows go from x1 to x2; yields a list that has (time, bytes that have arrived) when they have ended."""
    samples: list[tuple[float, int]] = []
    if not row.flows:
        yield samples
        return
    node = (*NETSUM, "testbed", "exec", "--testbed", name)
    python = (sys.executable, "-c")
    with contextlib.ExitStack() as stack:
        receiver = subprocess.Popen([*node, "x2", *python, RECEIVE], stdout=subprocess.PIPE, text=True)
        stack.callback(receiver.wait)
        stack.callback(receiver.terminate)
        assert receiver.stdout is not None
        receiver.stdout.readline()
        for _ in range(row.flows):
            sender = subprocess.Popen([*node, "x1", *python, SEND, "10.0.0.12", row.congestion])
            stack.callback(sender.wait)
            stack.callback(sender.terminate)
        while int(receiver.stdout.readline().split()[1]) < FILLED_BYTES:
            pass
        yield samples
        receiver.terminate()
        for line in receiver.stdout:
            if len(words := line.split()) == 2:
                samples.append((float(words[0]), int(words[1])))


def least_share(samples: list[tuple[float, int]], seconds: float, rate_bps: float) -> float:
    """Return the share of a link that flows have where they have the least for so long."""
    least = float("inf")
    first = 0
    for last, (ends, count) in enumerate(samples):
        while ends - samples[first + 1][0] >= seconds and first + 1 < last:
            first += 1
        begins, before = samples[first]
        if ends - begins >= seconds:
            least = min(least, (count - before) / (ends - begins))
    return least * FIELD_BYTES / 1448 * 8 / rate_bps


def quiet(topology: str, folder: str) -> str:
    """Write a topology without its cross traffic, which is no part of a row; returns the file's path."""
    document = json.loads((TOPOLOGIES / f"{topology}.json").read_text(encoding="utf-8"))
    path = Path(folder) / f"{topology}.json"
    path.write_text(json.dumps(document | {"traffic": []}), encoding="utf-8")
    return str(path)


def measure(row: Row, name: str, repeats: int) -> dict[str, list[float]]:
    """Run a row both ways in turn; returns what each way gave, in the order of the table's columns."""
    found: dict[str, list[list[float]]] = {"0": [], "1": []}
    with TemporaryDirectory() as folder:
        netsum(
            *("testbed", "up", quiet(row.topology, folder), "--testbed", name, "--switch", row.switch),
            *("--rate", row.rate, "--queue", str(row.queue)),
        )
    try:
        for way in ("0", "1") * repeats:
            with flows(row, name) as samples:
                text = netsum(
                    *("allreduce", "--testbed", name, "--sizes", row.size, "--dtypes", "float32", "--json"),
                    *("--slots", str(row.slots), "--repeats", str(row.repeats), "--sparse", "never"),
                    *(("--hosts", "h1,h2,h3,h4") if row.flows else ()),
                    NETSUM_CONGESTION_WINDOW=way,
                )
            document = json.loads(text)
            result, switch = document["results"][0], document["switch"]
            seconds = result["seconds"]
            share = least_share(samples, seconds["median"] * row.repeats, 1e8) if row.flows else 0.0
            found[way].append(
                [
                    *(1000 * seconds[each] for each in ("median", "least", "most")),
                    100 * result["retransmissions"] / max(result["packets"], 1),
                    100 * switch["probes"] / max(switch["results"], 1),
                    share,
                ]
            )
    finally:
        netsum("testbed", "down", "--testbed", name)
    columns = {way: list(zip(*runs, strict=True)) for way, runs in found.items()}
    return {
        way: [median(each[0]), min(each[1]), max(each[2]), *map(median, each[3:])]
        for way, each in columns.items()
    }


def cells(row: Row, found: list[float]) -> list[str]:
    """Return the cells of one way."""
    middle, least, most, again, probes, share = found
    beside = f"; TCP {share:.2f}" if row.flows else ""
    return [f"{middle:,.1f} ({least:,.1f} … {most:,.1f}){beside}", f"{again:.1f} %, {probes:.0f} %"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", help="only rows whose titles contain this text; nothing is written"
    )
    parser.add_argument("--alternations", type=int, default=2, help="how often a row is run each way")
    given = parser.parse_args()
    if given.alternations < 1:
        parser.error(f"--alternations: expected 1 or more, got {given.alternations}")
    chosen = [row for row in ROWS if given.only in row.title]
    if not chosen:
        parser.error(f"--only: expected a part of one of {'; '.join(row.title for row in ROWS)}")
    rows = []
    for row in chosen:
        found = measure(row, f"congestion-{os.getpid()}", given.alternations)
        rows.append([row.title, *cells(row, found["0"]), *cells(row, found["1"])])
        print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    if given.only:
        return
    titles = (
        *("network", "fixed slots: ms", "sent again, PROBEs of RESULTs"),
        *("window: ms", "sent again, PROBEs of RESULTs"),
    )
    machine, *_, date = machine_and_date().split("; ")
    document: dict[str, Any] = {
        "measures": "All-reduces on testbeds with fixed slots and with the congestion window; median (least … most)",
        "command": "python -m tests.integration.congestion_testbed",
        "machine": machine,
        "date": date.split()[0],
        "repeats": 2,
        "tables": {"testbed": {"columns": [{"title": title} for title in titles], "rows": rows}},
    }
    path = DATA / "congestion-testbed.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
