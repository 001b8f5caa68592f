"""Measures what the congestion window does in virtual time: `python -m tests.sim.experiments.congestion_rows`.

Each row is run with fixed slots and with the window. A job's share while two run is measured with the other one four times as
long; 1 is half of what it reaches alone.
"""

import datetime
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from controller.sharing import jain
from docs.tables import DATA
from host_agent.environment import CONGESTION_WINDOW, is_on
from netsum.simulation import programs
from sim.experiments.experiment import parse_experiment
from sim.experiments.running import PointResult, Watch, run_point

PROGRAMS = programs()
SHORT, LONG = "8MiB", "32MiB"
Rows = dict[str, dict[str, Any]]


def result_of(text: str) -> PointResult:
    """Run an experiment of one point."""
    (point,) = parse_experiment(text, "congestion", None).points
    return run_point(point, PROGRAMS, Watch())


def run(text: str) -> Rows:
    """Run an experiment; returns the row of each job."""
    return {row["job"]: row for row in result_of(text).rows}


def star(
    slots: int,
    queue: str,
    rate: str = "10gbit",
    latency: str = "2us",
    more: str = "",
    mark: str = "",
    size: str = SHORT,
) -> str:
    """Return the share of the bound of a job alone, and the share of packets that were lost."""
    marks = f'mark = "{mark}"' if mark and is_on(CONGESTION_WINDOW) else ""
    (row,) = run(
        f'[topology]\nrate = "{rate}"\nlatency = "{latency}"\nqueue = "{queue}"\n{marks}\n'
        f'[[job]]\nworkers = 4\nsize = "{size}"\nslots = {slots}\nsparse = "never"\n{more}'
    ).values()
    if row["error"]:
        return "fails"
    return f"{100 * row['share_of_bound']:.1f} %, {100 * row['lost'] / row['packets_on_links']:.1f} %"


EDGE = {"bandwidth": "10gbit", "latency": "2us", "queue": 5000}


def file_of(
    folder: str, hosts: int, ends: Callable[[int], str], core: dict[str, Any], edge: dict[str, Any] = EDGE
) -> str:
    """Write a topology of hosts on two switches; returns the experiment's table."""
    links = [{"ends": [f"h{i}", ends(i)], **edge} for i in range(1, hosts + 1)]
    links.append({"ends": ["s1-p40", "s2-p40"], "latency": "2us", **core})
    topology = {
        "hosts": {f"h{i}": {"ip": f"10.0.0.{i}/24"} for i in range(1, hosts + 1)},
        "switches": {"s1": {}, "s2": {}},
        "links": links,
    }
    path = Path(folder) / "topology.json"
    path.write_text(json.dumps(topology), encoding="utf-8")
    return f'[topology]\nkind = "file"\nfile = "{path}"\n'


def incast(size: str) -> str:
    """Return the share of the bound of a job of 32 workers whose packets meet on one link."""
    with TemporaryDirectory() as folder:
        topology = file_of(folder, 32, lambda i: f"s1-p{i}", {"bandwidth": "10gbit", "queue": 66})
        (row,) = run(
            f'{topology}[[job]]\nworkers = 32\nsize = "{size}"\nslots = 256\nsparse = "never"\nswitch = "s2"\n'
        ).values()
    return f"{100 * 32 * row['share_of_bound']:.1f} %, {100 * row['lost'] / row['packets_on_links']:.1f} %"


def job(name: str, first: int, slots: int, size: str) -> str:
    """Return the table of a job of two workers, with 0 slots a ring."""
    kind = f'slots = {slots}\nsparse = "never"\nswitch = "s1"' if slots else 'contender = "ring"'
    return f'[[job]]\nname = "{name}"\nworkers = 2\nfirst_host = {first}\nsize = "{size}"\n{kind}\n'


def straggling(slots: int) -> str:
    """Return the share of a job whose straggler is late, from then on, beside another one with 256 slots."""
    late = job("b", 3, slots, "16MiB") + 'straggler = 1\nlate = "20ms"\n'
    with TemporaryDirectory() as folder:
        topology = file_of(folder, 8, lambda i: f"s{2 - i % 2}-p{i}", {"bandwidth": "10gbit", "queue": 64})
        alone, both = (run(topology + other + late)["b"] for other in ("", job("a", 1, 256, "96MiB")))
    return f"{2 * (alone['duration_ns'] - 20e6) / (both['duration_ns'] - 20e6):.2f}"


def beside(queue: int, slots: int) -> str:
    """Return the shares of a job with 256 slots and of another one, with 0 slots a ring, and Jain's index of both."""

    def rate(name: str, *jobs: str) -> float:
        return float(run(topology + "".join(jobs))[name]["goodput_bps"])

    with TemporaryDirectory() as folder:
        core = {"bandwidth": "10gbit", "queue": queue}
        topology = file_of(folder, 8, lambda i: f"s{2 - i % 2}-p{i}", core)
        ours, theirs = job("a", 1, 256, SHORT), job("b", 3, slots, SHORT)
        alone = rate("a", ours), rate("b", theirs)
        first = rate("a", ours, job("b", 3, slots, LONG)) / alone[0] * 2
        second = rate("b", job("a", 1, 256, LONG), theirs) / alone[1] * 2
    return f"{first:.2f} : {second:.2f}, {jain((first, second)):.3f}"


def beside_tcp(queue: int, flows: int, control: str = "cubic") -> tuple[float, float]:
    """Return the shares of a link of 100 Mbit/s that a job in a tree and the least of some TCP flows have; 1 is equal."""
    hosts = 4 + 2 * flows
    marks = f'mark = "{MARKED_FROM}"\n' if control == "dctcp" else ""
    with TemporaryDirectory() as folder:
        core = {"bandwidth": "100mbit", "latency": "100us", "queue": queue}
        topology = file_of(
            folder, hosts, lambda i: f"s{1 if i < 3 or (i > 4 and i % 2) else 2}-p{i}", core, core
        )
        background = "".join(
            f'[[background]]\nsource = "h{at}"\ntarget = "h{at + 1}"\nflow = "{control}"\nstart = "{at}ms"\n'
            for at in range(5, hosts, 2)
        )
        found = result_of(
            f'{topology}rate = "100mbit"\n{marks}[host]\ncost = "measured"\n[run]\nseries = "50ms"\n{background}'
            f'[[job]]\nsize = "{SHORT}"\nslots = 256\ntree = true\nsparse = "never"\nstart = "2s"\n'
        )
    (row,) = found.rows
    if row["error"]:
        return 0.0, float(flows + 1)
    least = float("inf")
    for at in range(6, hosts + 1, 2):
        first, *_, last = (
            each["bytes"]
            for each in found.series
            if each["link"] == f"s2>h{at}" and each["time_ns"] >= row["start_ns"]
        )
        least = min(least, (last - first) * 8 / (row["duration_ns"] / 1e9) / 1e8)
    return (flows + 1) * row["share_of_bound"], (flows + 1) * least


def tcp_shares(queue: int, flows: int, control: str) -> str:
    """Return both shares as a cell."""
    ours, theirs = beside_tcp(queue, flows, control)
    return f"{ours:.2f} : {theirs:.2f}" if ours else "fails"


MARKED_FROM = "30kB"  # 20 packets, K of DCTCP at 1 Gbit/s (Alizadeh et al., SIGCOMM 2010), which is enough for slower links.
LOSS = '[[fault]]\nloss = "1%"\n'
ROWS: dict[str, Callable[[], str]] = {
    "10 Gbit/s, queue 100 kB, 64 slots": lambda: star(64, "100kB"),
    "256 slots": lambda: star(256, "100kB"),
    "1,024 slots": lambda: star(1024, "100kB"),
    "256 slots, 1 % loss on each link, 32 MiB": lambda: star(256, "100kB", more=LOSS, size=LONG),
    "256 slots, marks from 20 kB on": lambda: star(256, "100kB", mark="20kB"),
    "100 Mbit/s, queue 1 MB, 128 slots, 1 % loss": lambda: star(128, "1MB", "100mbit", "100us", LOSS),
    "100 Mbit/s, queue 30 kB, 256 slots": lambda: star(256, "30kB", "100mbit", "100us"),
    "100 Mbit/s, queue 90 kB, 256 slots": lambda: star(256, "90kB", "100mbit", "100us"),
    "32 workers on one link, queue 100 kB, 256 slots, 4 MiB": lambda: incast("4MiB"),
    "32 workers on one link, queue 100 kB, 256 slots, 16 MiB": lambda: incast("16MiB"),
    "256 slots beside a ring, queue of 64": lambda: beside(64, 0),
    "256 slots beside a ring, queue of 256": lambda: beside(256, 0),
    "256 slots beside 16, queue of 64": lambda: beside(64, 16),
    "256 slots beside 64, queue of 64": lambda: beside(64, 64),
    **{
        f"{slots} slots beside 256, queue of 64, straggler of 20 ms: its job": partial(straggling, slots)
        for slots in (64, 256)
    },
    **{
        f"100 Mbit/s, queue of {queue:,}: 256 slots beside {flows} {control.upper()}": partial(
            tcp_shares, queue, flows, control
        )
        for control in ("cubic", "dctcp")
        for flows in (1, 4)
        for queue in (60, 200, 1000)
    },
}


def main() -> None:
    """Run all rows, print them, and write them to docs/data/congestion.json."""
    if len(sys.argv) > 1:
        sys.exit(
            f"expected no arguments, as all rows of a table are from one run; got {' '.join(sys.argv[1:])}"
        )
    path = DATA / "congestion.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    for table in document["tables"].values():
        table["rows"].clear()
    for title, measured in ROWS.items():
        cells = []
        for window in ("0", "1"):
            os.environ[CONGESTION_WINDOW] = window
            cells.append(measured())
        document["tables"]["shares" if " beside " in title else "alone"]["rows"].append([title, *cells])
        print(json.dumps([title, *cells]), flush=True)
    document["date"] = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
