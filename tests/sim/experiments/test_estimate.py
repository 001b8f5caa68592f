"""Estimates before a run beside its counts: packets, those that are left out, and memory."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sim.experiments.estimate import estimate
from sim.experiments.experiment import load_experiment, parse_experiment
from sim.experiments.running import run_point
from sim.peers.table import PEERS

RACKS = """
[topology]
kind = "leaf-spine"
rack = 2
spines = 1
[[job]]
workers = {workers}
tree = true
lanes = 64
slots = {slots}
size = "{size}"
sparse = "never"
[run]
limit = "100s"
"""
LOSS = '[[fault]]\nlinks = "h1>leaf*"\nloss = "{loss}"\n'


@pytest.mark.parametrize("contender", ["netsum", *PEERS])
def test_packets_on_a_star(programs: dict[int, str], contender: str) -> None:
    text = f'[[job]]\ncontender = "{contender}"\nworkers = 8\nsize = "1MiB"\ncollectives = 2\n'
    (point,) = parse_experiment(text, "x").points
    assert estimate(point.settings).packets == pytest.approx(
        run_point(point, programs).rows[0]["packets_on_links"], rel=0.3
    )


@pytest.mark.parametrize("contender", ["netsum", *PEERS])
def test_one_worker_alone_has_an_estimate_and_a_run(programs: dict[int, str], contender: str) -> None:
    (point,) = parse_experiment(f'[[job]]\ncontender = "{contender}"\nworkers = 1\n', "x").points
    assert estimate(point.settings).seconds > 0
    assert run_point(point, programs).rows[0]["duration_ns"] is not None


@pytest.mark.parametrize(
    ("loss", "fast_forward"), [("0%", True), ("0%", False), ("0.01%", True), ("5%", True)]
)
def test_packets_of_a_tree_and_those_that_are_left_out(
    programs: dict[int, str], loss: str, fast_forward: bool
) -> None:
    text = RACKS.format(workers=8, slots=16, size="1MiB") + f"fast_forward = {str(fast_forward).lower()}\n"
    (point,) = parse_experiment(text + LOSS.format(loss=loss), "x").points
    found, result = estimate(point.settings), run_point(point, programs)
    packets = result.rows[0]["packets_on_links"]
    assert found.packets == pytest.approx(packets, rel=0.1)
    assert 0.5 < found.run / (packets - result.left_out) < 2
    assert (result.left_out > 0) == (fast_forward and loss != "5%")


@pytest.mark.parametrize("name", ["traces", "jobs", "zeros", "racks", "training"])
def test_packets_of_shipped_experiments(name: str, programs: dict[int, str]) -> None:
    smaller: dict[str, dict[str, Any]] = {
        "zeros": {"job.size": "4MiB"},
        "racks": {"job.workers": [64]},
        "training": {"job.model": ["inception_v3"]},
    }
    points = load_experiment(name, smaller.get(name)).points
    for contender in ("netsum", "ring"):
        point = next((each for each in points if each.settings.job[0].contender == contender), None)
        if point is not None:
            packets = run_point(point, programs).rows[0]["packets_on_links"]
            assert 0.5 < estimate(point.settings).packets / packets < 2, contender


MEMORY = """
import json, sys
from netsum_common.memory_used import most_bytes
from sim.experiments.estimate import estimate
from sim.experiments.experiment import parse_experiment
from sim.experiments.running import run_point
(point,) = parse_experiment(sys.argv[1], "x").points
run_point(point, {int(lanes): path for lanes, path in json.loads(sys.argv[2]).items()})
print(json.dumps([estimate(point.settings).memory_bytes, most_bytes()]))
"""


@pytest.mark.parametrize(
    "text",
    [
        RACKS.format(workers=64, slots=64, size="4KiB"),
        RACKS.format(workers=16, slots=1024, size="16MB"),
        '[[job]]\ncontender = "ring"\nworkers = 128\nsize = "1MB"\n',
    ],
    ids=["many switches", "packets under way and arrays", "messages"],
)
def test_memory(text: str, programs: dict[int, str]) -> None:
    """In a process of its own, as a process's most memory never decreases.

    Where a switch wrote to all rows of its multicast groups, the first was 0.72.
    """
    ended = subprocess.run(
        [sys.executable, "-c", MEMORY, text, json.dumps(programs)],
        cwd=Path(__file__).resolve().parents[3], capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    expected, found = json.loads(ended.stdout)
    assert 0.75 < expected / found < 1.33
