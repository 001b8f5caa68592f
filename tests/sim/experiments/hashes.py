"""Write the hashes of the shipped experiments anew: ``python tests/sim/experiments/hashes.py [NAME]...``."""

import hashlib
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from sim.experiments.experiment import Experiment, Point, load_experiment, shipped_experiments  # noqa: E402
from sim.experiments.running import run_point  # noqa: E402

FILE = Path(__file__).with_name("hashes.json")
COLUMNS = (
    "start_ns",
    "duration_ns",
    "iteration_ns",
    "packets_on_links",
    "packets_sent",
    "resent",
    "lost",
    "events",
)


LONG = ("trees",)
"""Experiments whose first point alone takes long."""
NAMES = tuple(name for name in shipped_experiments() if name not in LONG)


def programs() -> dict[int, str]:
    return {lanes: str(ROOT / "p4" / "build" / f"netsum_v1model_{lanes}.json") for lanes in (64, 256)}


def cheap_points(experiment: Experiment) -> list[Point]:
    """Return two points of each contender, of those with seed 1: the first one often has no faults."""
    first: dict[str, list[Point]] = {}
    for point in experiment.points:
        of_contender = first.setdefault(point.settings.job[0].contender, [])
        if point.seed == 1 and len(of_contender) < 2:
            of_contender.append(point)
    return [point for points in first.values() for point in points]


def hash_of(experiment: Experiment) -> str:
    digest = hashlib.sha256()
    for point in cheap_points(experiment):
        for row in run_point(point, programs()).rows:
            digest.update(json.dumps([row[name] for name in COLUMNS]).encode())
    return digest.hexdigest()[:16]


def main() -> None:
    before = json.loads(FILE.read_text())
    names = sys.argv[1:] or NAMES
    hashes = {}
    for name in NAMES:
        started = time.monotonic()
        hashes[name] = hash_of(load_experiment(name)) if name in names else before.get(name)
        if name in names:
            what = "as before" if hashes[name] == before.get(name) else f"was {before.get(name)}"
            print(f"{name}: {hashes[name]}, {what} ({time.monotonic() - started:.1f} s)", flush=True)
    FILE.write_text(json.dumps(hashes, indent=1) + "\n")


if __name__ == "__main__":
    main()
