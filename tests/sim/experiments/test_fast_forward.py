"""Fast-forward: with it, everything that a run counts is what it is without, and most of a long run is left out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.experiments.equal_jobs import equal_jobs
from sim.experiments.experiment import load_experiment, parse_experiment
from sim.experiments.netsum_job import NetsumJob, WrongSumError
from sim.experiments.running import Watch, run_point
from sim.experiments.values import expected_sum
from sim.network.forwarding import FastForward
from tests.sim.experiments.forwarding import compare, forwarded
from tests.sim.experiments.hashes import cheap_points
from tests.sim.experiments.random_files import SEEDS, random_file

SMALLER: dict[str, dict[str, Any]] = {
    "trees": {"job.size": "2MB", "job.workers": [32, 64]},
    "helpful": {"job.workers": [4]},
    "backup": {"job.collectives": 3},
    "zeros": {"job.size": "4MiB"},
    "racks": {"job.workers": [32]},
    "training": {"job.model": ["inception_v3"]},
}
"""Experiments that take long, with less to do."""
SHIPPED = (
    "backup",
    "bursts",
    "helpful",
    "incast",
    "jobs",
    "lanes",
    "loss",
    "quick",
    "racks",
    "slots",
    "stragglers",
    "traces",
    "training",
    "trees",
    "workers",
    "zeros",
)

STAR = """
[topology]
rate = "10gbit"
[[job]]
workers = 4
lanes = 64
size = "1MiB"
slots = 16
sparse = "never"
"""
RACKS = """
[topology]
kind = "leaf-spine"
leaves = 2
hosts = 8
spines = 1
rate = "10gbit"
[[job]]
name = "near"
tree = true
lanes = 64
size = "1MiB"
slots = 16
sparse = "never"
[[job]]
name = "far"
first_host = 5
tree = true
lanes = 64
size = "1MiB"
slots = 32
sparse = "never"
"""


def both(text: str, programs: dict[int, str]) -> FastForward:
    """Run the only point of an experiment with and without; everything must be the same."""
    (point,) = parse_experiment(text, "x", None).points
    compared = compare(point, programs)
    assert compared.different == []
    return forwarded(compared.watch)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_experiment_has_the_same_results(name: str, programs: dict[int, str]) -> None:
    for point in cheap_points(load_experiment(name, SMALLER.get(name))):
        if point.settings.job[0].contender == "netsum":
            assert compare(point, programs).different == []


def test_most_of_a_long_run_is_left_out(programs: dict[int, str]) -> None:
    forward = both(STAR, programs)
    assert forward.skipped_chunks > 0.8 * 4 * 4096
    assert forward.jumps == 1


@pytest.mark.parametrize(
    ("what", "jumps"),
    [
        ('[[fault]]\nlinks = "h1>s1"\nloss = "0.05%"\n', 2),
        ('[[fault]]\nlinks = "h1>s1"\njitter = "1us"\n', 0),
        ('[[script]]\nlinks = "h1>s1"\nchunk = 2000\nkind = "contribute"\n', 0),
        (
            '[[event]]\nat = "300us"\naction = "link-down"\nlinks = "h1>s1"\n'
            '[[event]]\nat = "310us"\naction = "link-up"\nlinks = "h1>s1"\n',
            2,
        ),
        ('[[event]]\nat = "300us"\naction = "switch-restart"\n', 2),
        ('[[event]]\nat = "300us"\naction = "kill-worker"\nworker = 1\n[run]\nlimit = "100ms"\n', 1),
        (
            '[[background]]\nsource = "h6"\ntarget = "h1"\nrate = "1gbit"\nstart = "200us"\nstop = "400us"\n',
            0,
        ),
        ('[run]\nseries = "200us"\n', 3),
        ('[switch]\nservice = "100ns"\nlatency = "500ns"\n', 1),
        ('[host]\ncost = "measured"\n', 1),
        ('[run]\nlimit = "500us"\n', 1),
    ],
)
def test_what_comes_from_outside_ends_it(what: str, jumps: int, programs: dict[int, str]) -> None:
    forward = both(STAR + what, programs)
    assert (forward.jumps >= jumps) if jumps else (forward.jumps == 0)


def test_rates_at_which_a_period_is_not_a_whole_number_of_nanoseconds(programs: dict[int, str]) -> None:
    forward = both(STAR.replace("10gbit", "7gbit"), programs)
    assert forward.jumps == 1


def test_jobs_that_share_links_go_on_together(programs: dict[int, str]) -> None:
    forward = both(STAR.replace("[[job]]", "[[job]]\ncopies = 2"), programs)
    assert forward.jumps >= 1


def test_losses_in_one_job_do_not_keep_another_from_it(programs: dict[int, str]) -> None:
    forward = both(RACKS + '[[fault]]\nlinks = "h1>leaf1"\nloss = "1%"\n', programs)
    assert forward.jumps == 1
    assert forward.skipped_chunks > 0.7 * 4 * 4096


def test_a_straggler_is_waited_for_between_periods(programs: dict[int, str]) -> None:
    more = 'collectives = 3\nstraggler = 1\nlate = "2ms"\n'
    forward = both(STAR + more, programs)
    assert forward.jumps == 3


@pytest.mark.parametrize("slots", [2, 16])
def test_a_job_is_right_beside_one_that_waits(slots: int, programs: dict[int, str]) -> None:
    """The sums that its RESULTs are compared with are there, though only the other job's RESULTs are counted."""
    waits = STAR.replace("workers = 4", 'name = "waits"\nworkers = 2\nstraggler = 1\nlate = "5ms"')
    works = (
        f'name = "works"\nworkers = 2\nfirst_host = 3\nsize = "256KiB"\nslots = {slots}\nstart = "100us"\n'
    )
    both(f'{waits}[[job]]\n{works}lanes = 64\nsparse = "never"\n', programs)


def test_links_that_nothing_passes_are_as_if_all_were_run(programs: dict[int, str]) -> None:
    text = STAR.replace("[topology]", '[topology]\nkind = "pods"\nleaves = 2\nrack = 2\nspines = 2\npods = 1')
    forward = both(text + "tree = true\n", programs)
    assert forward.jumps == 1


def test_a_wrong_sum_behind_what_is_left_out_is_found(
    programs: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of all packets that are run are compared, those after a jump too; none of those left out is computed."""
    sizes: list[int] = []

    def wrong_later(parts: Any, lanes: int) -> Any:
        sums = expected_sum(parts, lanes)
        sums[:] += np.float32(len(sizes))
        sizes.append(sums.size)
        return sums

    monkeypatch.setattr("sim.experiments.values.expected_sum", wrong_later)
    (point,) = parse_experiment(STAR, "x", None).points
    watch = Watch()
    with pytest.raises(WrongSumError, match="is not the sum"):
        run_point(point, programs, watch)
    assert forwarded(watch).jumps == 1
    assert sum(sizes) < (1 << 18) / 4


def test_a_block_that_a_worker_did_not_write_is_missing_in_spite_of_it(programs: dict[int, str]) -> None:
    class Forgets(Watch):
        def begin(self, scenario: Any, jobs: Any) -> None:
            super().begin(scenario, jobs)
            (job,) = jobs
            assert isinstance(job, NetsumJob)

            def without_history() -> None:
                (output,) = job._outputs.values()
                output._blocks[1] -= 1

            scenario.network.at(20_000, without_history)

    (point,) = parse_experiment(STAR, "x", None).points
    watch = Forgets()
    with pytest.raises(WrongSumError, match="of worker 1: 4,095 of 4,096 blocks were written"):
        run_point(point, programs, watch)
    assert forwarded(watch).jumps == 1


PODS = """
[topology]
kind = "pods"
leaves = 2
rack = 2
spines = 1
cores = 2
rate = "10gbit"
[host]
cost = "measured"
[controller]
delay = "30us"
[[job]]
name = "a"
copies = 5
apart = true
tree = true
lanes = 64
size = "200kB"
collectives = 2
slots = 16
jitter = "100us"
compute = "20us"
[[job]]
name = "other"
first_host = 21
workers = 3
tree = true
lanes = 64
size = "100kB"
[[job]]
name = "ring"
contender = "ring"
first_host = 25
workers = 4
size = "100kB"
"""


@pytest.mark.parametrize(
    ("more", "equal"),
    [
        ("", 5),
        ('[[fault]]\nlinks = "h*>edge1x*"\nloss = "1%"', 4),
        ('[[fault]]\nlinks = "core1>agg*"\nduplicate = "1%"', 0),
        ('[[event]]\nat = "1ms"\naction = "link-down"\nlinks = "h17>edge4x0"\n[run]\nlimit = "40ms"', 0),
        ('[[job]]\nname = "guest"\nfirst_host = 5\nworkers = 2\ntree = true\nlanes = 64', 4),
        ('[[background]]\nsource = "h1"\ntarget = "h3"\nrate = "1gbit"\nstop = "1ms"', 0),
        ('[run]\nlimit = "400us"', 5),
        ('[run]\nlimit = "130us"', 5),
        (
            '[[job]]\nname = "guest"\nfirst_host = 29\nworkers = 2\nswitch = "agg1x0"\nlanes = 64\nsize = "16KiB"',
            4,
        ),
    ],
)
def test_of_equal_jobs_one_is_run(more: str, equal: int, programs: dict[int, str]) -> None:
    (point,) = parse_experiment(PODS + more, "x", None).points
    compared = compare(point, programs)
    assert compared.different == []
    assert compared.equal_jobs == (0 if compared.reported.startswith("PointFailedError") else equal)


def test_equal_jobs_that_no_switch_takes_are_refused_before_others_are_run(programs: dict[int, str]) -> None:
    text = PODS.replace("rack = 2", "rack = 40").replace("leaves = 2", "leaves = 1")
    text = text.replace("workers = 4", "workers = 1").replace("copies = 5", "copies = 5\nworkers = 40")
    text = text.replace("first_host = 2", "first_host = 20")
    (point,) = parse_experiment(text, "x", None).points
    assert len(equal_jobs(point.settings)) == 5
    compared = compare(point, programs)
    assert compared.reported.startswith("SettingError: job a1: switch edge0x0 would have 40 children")
    assert compared.different == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_file_has_the_same_results(seed: int, tmp_path: Path, programs: dict[int, str]) -> None:
    (point,) = parse_experiment(random_file(seed, tmp_path), "x", None).points
    compared = compare(point, programs)
    assert compared.different == []
    assert not compared.reported.startswith(("WrongSumError", "SettingError"))
