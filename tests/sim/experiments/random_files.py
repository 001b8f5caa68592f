"""Experiment files drawn from a seed. ``python tests/sim/experiments/random_files.py`` runs them with fast-forward and without.

Much of what the simulator can do comes together in them: jobs side by side on all topologies, trees, quorums, peers, models and
traces, faults, scripts, events, cross traffic. Arrays are long enough for periods to be left out, and short enough for a
run of some tenths of a second.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from sim.experiments.experiment import parse_experiment  # noqa: E402
from tests.sim.experiments.forwarding import compare, forwarded  # noqa: E402
from tests.sim.experiments.hashes import programs  # noqa: E402

SEEDS = tuple(range(1, 201)) if "NETSUM_LONG_TESTS" in os.environ else (13, 46, 59, 72, 79, 87, 97, 128)
"""Seeds of the files that tests run: of files with much to leave out, and with jobs that wait for each other; or 200."""
SHAPES: tuple[dict[str, Any], ...] = (
    {"kind": "star"},
    {"kind": "star", "hosts": 12},
    {"kind": "dumbbell", "hosts": 12, "core_rate": "25gbit"},
    {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts": 12, "core_rate": "40gbit"},
    {"kind": "leaf-spine", "rack": 3, "spines": 1, "hosts": 12},
    {"kind": "pods", "leaves": 1, "rack": 4, "spines": 1, "cores": 1, "pods": 4},
    {"kind": "pods", "leaves": 2, "rack": 2, "spines": 1, "cores": 2, "pods": 4},
    {"kind": "pods", "leaves": 2, "rack": 2, "spines": 2, "pods": 3},
    {"kind": "fat-tree", "ports": 4},
)
HOSTS = 12  # As many are in each of the shapes at least; a star has as many as it needs.
SWITCHES = {
    "star": ["s1"],
    "dumbbell": ["s1", "s2"],
    "leaf-spine": ["spine1", "leaf1", "leaf2"],
    "pods": ["core1", "agg0x0", "edge0x0", "agg1x0"],
    "fat-tree": ["core1", "agg0x0", "edge0x0", "edge1x1"],
}
FIRST_LINK = {
    "star": "s1",
    "dumbbell": "s1",
    "leaf-spine": "leaf1",
    "pods": "edge0x0",
    "fat-tree": "edge0x0",
}
PEERS = ("ring", "halving-doubling", "tree", "ps", "ps-colocated", "omnireduce")
GOAL = """num_ranks 3
rank 0 {
l1: calc 20000
l2: send 65536b to 1 tag 1
l2 requires l1
}
rank 1 {
l1: recv 65536b from 0 tag 1
l2: send 65536b to 2 tag 1
l2 requires l1
}
rank 2 {
l1: recv 65536b from 1 tag 1
}
"""
LAYERS = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 all_gpus: 4 checkpoints: 0\n2\n"
    "first -1 1000 ALLREDUCE 65536 2000 ALLGATHER 8192 3000 REDUCESCATTER 16384 1\n"
    "second -1 100 NONE 0 200 NONE 0 300 ALLREDUCE 131072 1\n"
)
MODEL = {
    "layers": [["a", 70_000, 100_000, 200_000], ["b", 40_000, 50_000, 10_000], ["c", 300_000, 10_000, 90_000]]
}


class _Job(NamedTuple):
    """Properties of a job that other settings depend on."""

    name: str
    ours: bool  # Whether netsum runs the job.
    plain: bool  # And has no workload and no quorum.
    workers: int


class _File:
    """A file that is being drawn."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.dice = Random(seed)
        self._folder = folder
        self.lines: list[str] = []
        # Nothing but jobs of netsum whose blocks all travel alike: much can be left out.
        self.calm = self.often(50)

    def often(self, percent: int) -> bool:
        return self.dice.randrange(100) < percent

    def seldom(self, percent: int) -> bool:
        """Return whether to draw something that makes a run irregular."""
        return self.often(percent) and not self.calm

    def one(self, values: Iterable[Any]) -> Any:
        return self.dice.choice(list(values))

    def table(self, title: str, **values: Any) -> None:
        """Add a table of the values that are not None."""
        self.lines.append(title)
        for key, value in values.items():
            if value is not None:
                self.lines.append(f"{key} = {json.dumps(value)}")

    def us(self, low: int, high: int) -> str:
        return f"{self.dice.randrange(low, high)}us"

    def place(self, name: str, text: str) -> str:
        path = self._folder / name
        path.write_text(text)
        return str(path)


def random_file(seed: int, folder: Path) -> str:
    """Return an experiment; models and traces that it names are written to a folder."""
    file = _File(seed, folder)
    shape = file.one(SHAPES)
    kind = shape["kind"]
    file.table(
        "[topology]",
        **shape,
        rate=file.one(["10gbit", "10gbit", "7gbit", "25gbit", "1gbit"]),
        latency=file.one(["0us", "1us", "1us", "5us", "333ns"]),
        queue=file.one(["20kB", "60kB", "200kB"]) if file.often(15) else None,
    )
    if file.often(40):
        file.table(
            "[switch]",
            latency=file.one([None, "500ns", 37.5]),
            service=file.one(["50ns", "120ns", 12.25]),
            queue_pkts=file.one([None, None, 40, 200]),
        )
    host = file.one(["ideal", "ideal", "measured", "given"])
    if host == "given":
        file.table(
            "[host]", cost=host, send=file.one([100, 33.3]), receive="210ns", byte=file.one([None, 0.07])
        )
    elif host == "measured":
        file.table("[host]", cost=host)
    jobs = [_add_job(file, kind, at, host) for at in range(file.one([1, 1, 1, 2, 2, 3]))]
    ours = any(job.ours for job in jobs)
    if ours and file.often(30):
        file.table("[controller]", delay=file.us(1, 300))
    _add_faults(file, kind, jobs)
    file.table(
        "[run]",
        limit="2ms" if file.often(15) else "100s",
        check=False if ours and file.often(15) else None,
        series="100us" if file.seldom(20) else None,
    )
    return "\n".join(file.lines) + "\n"


def _add_job(file: _File, kind: str, at: int, host: str) -> _Job:
    """Add a job."""
    equal = (
        kind == "pods" and at == 0 and file.calm and file.often(80)
    )  # Copies with a pod of four hosts each.
    name, workers = f"job{at}", 4 if equal else file.one([1, 2, 2, 3, 4, 4, 6])
    contender = file.one(PEERS) if file.seldom(20) else "netsum"
    ours = contender == "netsum"
    quorum = workers - 1 if ours and workers > 2 and file.seldom(15) else None
    what = "size" if quorum or file.calm else file.one(["size"] * 6 + ["model", "goal", "aicb"])
    workers = {"goal": 3, "aicb": 4}.get(what, workers)
    straggler = file.dice.randrange(workers) if file.often(35) else None
    late = file.us(1, 6000) if straggler is not None and file.often(70) else None
    compute = file.us(1, 500) if what == "size" and file.often(30) else None
    costly = compute is not None or what != "size" or host != "ideal"
    slower = (
        file.one([2, 1.37]) if straggler is not None and costly and (late is None or file.often(30)) else None
    )
    if late is None and slower is None:
        straggler = None
    tree = True if equal or (ours and not quorum and file.often(45)) else None
    elsewhere = ours and not tree and kind != "star" and file.often(40)
    copies = 2 if equal or (file.often(20) and what == "size") else None
    density = (
        file.one([0.5, 0.1])
        if what == "size" and not quorum and contender in ("netsum", "omnireduce") and file.seldom(15)
        else None
    )
    span = workers * (copies or 1) * (2 if contender == "omnireduce" else 1) + (contender == "ps")
    first = 1 + file.dice.randrange(max(HOSTS - span, 0) + 1) if file.often(70) else 1
    if kind == "pods" and file.often(75):
        first = 1 if equal else 5 + 4 * at
    file.table(
        "[[job]]",
        name=name,
        contender=None if ours else contender,
        workers=workers,
        copies=copies,
        apart=True if equal or (copies and span <= HOSTS and file.often(60)) else None,
        first_host=first if first + span <= HOSTS + 1 else 1,
        size=file.one(["16KiB", "64KiB", "256KiB", "512KiB", "512KiB", "300kB", 100_004])
        if what == "size"
        else None,
        model=file.place("model.json", json.dumps(MODEL)) if what == "model" else None,
        workload=file.place("ring.goal", GOAL)
        if what == "goal"
        else file.place("layers.txt", LAYERS)
        if what == "aicb"
        else None,
        collectives=file.one([None, None, 2, 3]),
        compute=compute,
        batch=file.one([None, 0.5]) if what != "size" else None,
        bucket=file.one([None, "200kB"]) if what == "model" else None,
        lanes=64,
        slots=file.one([1, 2, 4, 8, 8, 16, 16, 32][bool(quorum) :]) if ours else None,
        sparse=file.one([None, "never", "never" if file.calm else "always"]) if ours and not quorum else None,
        tree=tree,
        switch=file.one(SWITCHES[kind]) if elsewhere else None,
        quorum=quorum,
        start=file.us(1, 1000) if file.often(35) else None,
        straggler=straggler,
        slower=slower,
        late=late,
        jitter=file.us(1, 50) if file.often(15) else None,
        density=density,
        timeout=file.one(["20ms", "50ms"]) if ours else None,  # A series of 30 s is long.
    )
    plain = ours and not quorum and what in ("size", "model")
    return _Job(f"{name}1" if copies else name, ours, plain, workers)


def _add_faults(file: _File, kind: str, jobs: list[_Job]) -> None:
    """Add what comes from outside; all of it is before 2 ms."""
    links = ["*", f"h1>{FIRST_LINK[kind]}", f"{FIRST_LINK[kind]}>h1", "h*>*"]
    if file.seldom(40):
        fault = file.one([{"loss": "0.05%"}, {"loss": "0.5%"}, {"duplicate": "0.5%"}, {"jitter": "2us"}])
        file.table("[[fault]]", links=file.one(links), **fault)
    if file.seldom(15):
        file.table("[[fault]]", links=links[1], to_bad=0.001, to_good=0.2)
    ours = any(job.ours for job in jobs)
    if ours and file.seldom(20):
        delay = file.one([None, "20us"])
        file.table(
            "[[script]]",
            links=file.one(links[1:]),
            kind=file.one(["contribute", "result", "any"]),
            nth=file.dice.randrange(1, 400),
            action="delay" if delay else None,
            delay=delay,
        )
    if file.seldom(40):
        _add_event(file, kind, links[1], jobs)
    if file.seldom(20):
        source, target = file.dice.sample(range(1, HOSTS + 1), 2)
        file.table(
            "[[background]]",
            source=f"h{source}",
            target=f"h{target}",
            rate=file.one(["100mbit", "1gbit"]),
            gaps=file.one([None, "poisson"]),
            start=file.us(1, 500),
            stop=file.us(600, 2000),
        )


def _add_event(file: _File, kind: str, link: str, jobs: list[_Job]) -> None:
    """Add something that happens, and mostly its end."""
    chosen = file.one(["link", "switch", "pause", "kill", "controller", "restart"])
    start = file.dice.randrange(10, 800)
    at, then = f"{start}us", f"{start + file.dice.randrange(1, 400)}us"
    ours = any(job.ours for job in jobs)
    if chosen == "link":
        file.table("[[event]]", at=at, action="link-down", links=link)
        file.table("[[event]]", at=then, action="link-up", links=link)
    elif chosen == "switch" and ours:
        file.table("[[event]]", at=at, action="switch-down")
        file.table("[[event]]", at=then, action="switch-up")
    elif chosen == "controller" and ours:
        file.table("[[event]]", at=at, action="controller-away")
        file.table("[[event]]", at=then, action="controller-back")
    elif chosen == "restart" and kind == "star" and all(job.plain for job in jobs):
        file.table("[[event]]", at=at, action="switch-restart")
    elif chosen in ("pause", "kill") and jobs[0].plain:
        worker = file.dice.randrange(jobs[0].workers)
        file.table("[[event]]", at=at, action=f"{chosen}-worker", job=jobs[0].name, worker=worker)
        if chosen == "pause":
            file.table("[[event]]", at=then, action="resume-worker", job=jobs[0].name, worker=worker)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run random experiment files with fast-forward and without.")
    parser.add_argument("count", type=int, nargs="?", default=200, help="how many")
    parser.add_argument("--first", type=int, default=1, metavar="SEED", help="seed of the first")
    parser.add_argument("--show", action="store_true", help="print the files in place of running them")
    arguments = parser.parse_args()
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.first, arguments.first + arguments.count):
            text = random_file(seed, Path(folder))
            if arguments.show:
                print(text)
                continue
            (point,) = parse_experiment(text, "x").points
            compared = compare(point, programs())
            error, colon, _ = compared.reported.partition("Error: ")
            found["files"] += 1
            found["different"] += bool(compared.different)
            found[f"ended with {error}Error"] += bool(colon)
            found["with periods left out"] += forwarded(compared.watch).jumps > 0
            found["with equal jobs of which one was run"] += compared.equal_jobs > 0
            if compared.different or error in ("WrongSum", "Setting"):
                print(f"seed {seed}: {', '.join(compared.different)} {compared.reported[:200]}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in found.items() if count or what == "different"))
    sys.exit(1 if found["different"] else 0)


if __name__ == "__main__":
    main()
