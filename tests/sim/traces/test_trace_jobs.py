"""Jobs that run traces: times that follow from the graph, in every contender, and the same in every run."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from sim.errors import SettingError
from sim.experiments.experiment import load_experiment, parse_experiment
from sim.experiments.running import run_point
from tests.sim.experiments.hashes import COLUMNS, programs
from tests.sim.traces.files import FORMATS, chakra_node, training, write_chakra

CONTENDERS = ("netsum", "ring", "halving-doubling", "tree", "ps", "ps-colocated", "omnireduce")
COLLECTIVES = ("all-reduce", "reduce", "broadcast", "all-gather", "reduce-scatter", "all-to-all")
MB = 1 << 20
HASHES = {"chakra": "1e43efe80c2ce897", "goal": "102347bea2247f5b", "aicb": "64bf53926b19336d"}
"""Expected rows of netsum and a ring with loss, by format."""


def run(workload: str, more: str = "", tables: str = "", workers: int = 4) -> list[dict[str, Any]]:
    text = f'[topology]\nrate = "10gbit"\n[[job]]\nworkers = {workers}\nlanes = 64\nworkload = "{workload}"\n{more}\n{tables}'
    return run_point(parse_experiment(text, "trace").points[0], programs()).rows


@pytest.mark.parametrize("contender", CONTENDERS)
def test_every_contender_runs_a_trace_and_repeats(contender: str, tmp_path: Path) -> None:
    place = write_chakra(tmp_path, [training(rank) for rank in range(4)])
    first, second = (run(place, f'contender = "{contender}"\ncollectives = 2') for _ in range(2))
    assert first == second
    assert [row["iteration"] for row in first] == [0, 1]
    # Computing alone takes 270 us, and a link of 10 Gbit/s 210 us for the 256 KiB of one collective.
    assert all(0.27e6 + 5 * 0.21e6 < row["iteration_ns"] < 10e6 for row in first)
    # Two iterations of an all-reduce, a reduce, a broadcast and an all-gather, and of four parts of a reduce-scatter.
    assert first[0]["sums_checked"] == (2 * 4 * (4 + 4) if contender == "netsum" else 0)


@pytest.mark.parametrize("name", FORMATS)
def test_a_trace_of_each_format_has_the_results_that_were_committed(name: str, tmp_path: Path) -> None:
    place = FORMATS[name](tmp_path)
    rows = [
        row
        for contender in ("netsum", "ring")
        for row in run(place, f'contender = "{contender}"\ncollectives = 2', '[[fault]]\nloss = "0.1%"')
    ]
    text = json.dumps([[row[column] for column in COLUMNS] for row in rows])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == HASHES[name], (
        "the virtual times of a trace are not those that were committed; if they were meant to change, write the found one above"
    )


@pytest.mark.parametrize("contender", ["netsum", "ring"])
@pytest.mark.parametrize("kind", COLLECTIVES)
def test_a_collective_takes_the_bytes_that_its_algorithm_sends(
    kind: str, contender: str, tmp_path: Path
) -> None:
    size = 4 * MB if kind != "all-gather" else MB
    place = write_chakra(tmp_path, [[chakra_node(0, kind, comm_size=size)]] * 4)
    (row,) = run(place, 'contender = "ring"' if contender == "ring" else "slots = 128")
    # The part of an array that a worker sends or receives, whichever is more.
    share = {"all-reduce": 1.5, "broadcast": 1, "reduce": 1}.get(kind, 0.75) if contender == "ring" else 1
    if kind in ("all-to-all", "all-gather"):
        share = 0.75
    payload, wire = (1448, 1538) if contender == "ring" or kind == "all-to-all" else (256, 346)
    bound_ns = share * 4 * MB * wire / payload * 8 / 10
    assert bound_ns < row["iteration_ns"] < 1.13 * bound_ns


@pytest.mark.parametrize("size", [4, 4000, 4096 + 4, 300 * 256])
def test_parts_of_an_all_gather_may_share_blocks(size: int, tmp_path: Path) -> None:
    place = write_chakra(tmp_path, [[chakra_node(0, "all-gather", comm_size=size)]] * 3)
    (row,) = run(place, "slots = 4", '[[fault]]\nloss = "2%"', workers=3)
    assert row["sums_checked"] == 3


def test_computing_is_scaled_and_overlaps_communication(tmp_path: Path) -> None:
    nodes = [
        chakra_node(0, "compute", micros=1000),
        chakra_node(1, "all-reduce", comm_size=MB // 4),
        chakra_node(2, "compute", [0], micros=500),
        chakra_node(3, "compute", [1, 2], micros=100),
    ]
    place = write_chakra(tmp_path, [nodes] * 4)
    for factor in (0.5, 1, 2):
        (row,) = run(place, f"batch = {factor}")
        assert row["iteration_ns"] == 1_600_000 * factor
        assert row["waiting_share"] == 0
    slow = run(place, "straggler = 1\nslower = 3")
    assert slow[0]["iteration_ns"] == 4_800_000


def test_collectives_of_some_ranks_share_the_switch(tmp_path: Path) -> None:
    groups = '[\'[{"pg_name": "0", "ranks": []}, {"pg_name": "7", "ranks": [0, 1]}, {"pg_name": "8", "ranks": [2, 3]}]\']'

    def nodes(rank: int) -> list[Any]:
        about = chakra_node(0, "metadata")
        about.inputs.values = groups
        mine = "7" if rank < 2 else "8"
        return [
            about,
            chakra_node(1, "all-reduce", [0], comm_size=MB, pg_name=mine),
            chakra_node(2, "all-reduce", [1], comm_size=MB, pg_name="0"),
        ]

    place = write_chakra(tmp_path, map(nodes, range(4)))
    (row,) = run(place)
    assert row["sums_checked"] == 8
    alone = write_chakra(tmp_path, [[chakra_node(1, "all-reduce", comm_size=MB)]] * 4, "alone")
    (one,) = run(alone)
    # The two pairs reduce at the same time: each port carries one array.
    assert row["iteration_ns"] == pytest.approx(2 * one["iteration_ns"], rel=0.02)


@pytest.mark.parametrize("contender", ["netsum", "ring"])
def test_jobs_with_traces_of_their_own_beside_a_job_without(contender: str, tmp_path: Path) -> None:
    """Periods that fast-forward leaves out of a job beside them change nothing."""
    first = write_chakra(tmp_path, [training(rank) for rank in range(4)], "first")
    second = write_chakra(tmp_path, [[chakra_node(5, "all-reduce", comm_size=MB)]] * 2, "second")
    tables = f"""
    [[job]]
    name = "second"
    workers = 2
    lanes = 64
    first_host = 3
    workload = "{second}"
    contender = "{contender}"
    [[job]]
    name = "plain"
    first_host = 5
    lanes = 64
    switch = "{{switch}}"
    size = "2MiB"
    sparse = "never"
    [run]
    fast_forward = {{on}}
    """
    lines = f'contender = "{contender}"\nname = "first"'
    results = [run(first, lines, tables.format(on=on, switch="s1")) for on in ("true", "false")]
    assert results[0] == results[1]
    assert {row["job"] for row in results[0]} == {"first", "second", "plain"}


def test_settings_that_a_workload_has_no_use_for(tmp_path: Path) -> None:
    place = write_chakra(tmp_path, [training(rank) for rank in range(4)])
    for more, sentence in (
        ('model = "vgg16"', r"job\[0\].model has no effect here: it needs no workload"),
        ("density = 0.5", r"job\[0\].density has no effect here: it needs .* no workload"),
        ("", "the trace has 4 ranks: expected workers = 4, found 2"),
    ):
        with pytest.raises(SettingError, match=sentence):
            run(place, more, workers=2 if not more else 4)
    with pytest.raises(SettingError, match="no switch that restarts under a job with a workload"):
        run(place, "", '[[event]]\nat = "1us"\naction = "switch-restart"')
    with pytest.raises(SettingError, match="only workers of netsum without a workload"):
        run(place, "", '[[event]]\nat = "1us"\naction = "kill-worker"')


def test_a_trace_that_changes_is_another_point(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    place = write_chakra(tmp_path, [training(rank) for rank in range(4)])
    path.write_text(f'[[job]]\nworkload = "{place}"')
    (before,) = load_experiment(str(path)).points
    key = before.key("")
    write_chakra(tmp_path, [training(rank, size=MB) for rank in range(4)])
    after = before.key("")
    assert after != key
    # One that is wrong has no content that counts, so 10 GB of it (of zeros, without blocks on the disk) are not read.
    os.truncate(place.replace("%d", "2"), 10**10)
    assert before.key("") not in (after, key)
