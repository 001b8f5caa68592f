"""Write the hashes of the shipped experiments anew: ``python tests/sim/experiments/hashes.py [NAME]...``."""

import hashlib
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from sim.experiments.experiment import (  # noqa: E402
    Experiment,
    Point,
    Settings,
    load_experiment,
    shipped_experiments,
)
from sim.experiments.running import run_point  # noqa: E402

MOST_BYTES = 1 << 20
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


def programs() -> dict[int, str]:
    return {lanes: str(ROOT / "p4" / "build" / f"netsum_v1model_{lanes}.json") for lanes in (64, 256)}


def cheap_points(experiment: Experiment) -> list[Point]:
    """Return the first point of each contender, of those with seed 1, with arrays of at most 1 MiB, once."""
    first: dict[str, Point] = {}
    for point in experiment.points:
        if point.seed == 1:
            first.setdefault(point.settings.job[0].contender, point)
    return [replace(point, settings=small(point.settings)) for point in first.values()]


def small(settings: Settings) -> Settings:
    jobs = tuple(replace(job, size=min(job.size, MOST_BYTES), collectives=1) for job in settings.job)
    return replace(settings, job=jobs)


def hash_of(experiment: Experiment) -> str:
    digest = hashlib.sha256()
    for point in cheap_points(experiment):
        for row in run_point(point, programs()).rows:
            digest.update(json.dumps([row[name] for name in COLUMNS]).encode())
    return digest.hexdigest()[:16]


def main() -> None:
    before = json.loads(FILE.read_text())
    names = sys.argv[1:] or shipped_experiments()
    hashes = {}
    for name in shipped_experiments():
        started = time.monotonic()
        hashes[name] = hash_of(load_experiment(name)) if name in names else before.get(name)
        if name in names:
            what = "as before" if hashes[name] == before.get(name) else f"was {before.get(name)}"
            print(f"{name}: {hashes[name]}, {what} ({time.monotonic() - started:.1f} s)", flush=True)
    FILE.write_text(json.dumps(hashes, indent=1) + "\n")


if __name__ == "__main__":
    main()
