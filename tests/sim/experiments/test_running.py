"""Points: what they come to, that they repeat, and that reduced packets take the times of full ones."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from host_agent.collectives import Reduced
from sim.errors import SettingError
from sim.experiments import rounds
from sim.experiments.experiment import Point, parse_experiment
from sim.experiments.netsum_job import WrongSumError
from sim.experiments.running import PointFailedError, PointResult, run_point
from sim.experiments.summary import checked
from sim.experiments.values import contributions, expected_sum
from sim.network.engine.engine_records import GAPS
from sim.network.network import Network
from sim.network.parameters import BackgroundTraffic, LinkParameters
from topologies.generated import star
from topologies.topology import LinkEnd, LinkSpec


def point(text: str, **settings: Any) -> Point:
    return parse_experiment(text, "x", settings or None).points[0]


def rows(result: PointResult) -> str:
    return json.dumps(result.rows, sort_keys=True)


LOSSY = """
[topology]
rate = "10gbit"
[[job]]
workers = 3
size = "64KiB"
collectives = 2
[[fault]]
loss = "1%"
duplicate = "1%"
jitter = "5us"
"""


def test_the_same_point_gives_the_same_rows_and_another_seed_others(programs: dict[int, str]) -> None:
    one = point(LOSSY)
    assert rows(run_point(one, programs)) == rows(run_point(one, programs))
    assert rows(run_point(one, programs)) != rows(run_point(replace(one, seed=2), programs))


def test_sums_are_checked(programs: dict[int, str]) -> None:
    result = run_point(point(LOSSY), programs)
    assert {row["sums_checked"] for row in result.rows} == {6}
    assert all(row["error"] is None and row["resent"] > 0 for row in result.rows)


@pytest.mark.parametrize("window", ["0", "1"])
@pytest.mark.parametrize("loss", ["0%", "1%"])
def test_fewer_lanes_are_computed_in_the_same_virtual_time(
    programs: dict[int, str], loss: str, window: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETSUM_CONGESTION_WINDOW", window)
    full = run_point(point(LOSSY, **{"fault.loss": loss}), programs)
    reduced = run_point(point(LOSSY, **{"fault.loss": loss, "job.simulated_lanes": 64}), programs)
    assert rows(full) == rows(replace_varied(reduced, full))


def replace_varied(result: PointResult, like: PointResult) -> PointResult:
    """Take out the differing settings of the two runs."""
    keys = like.rows[0].keys()
    return replace(result, rows=[{key: row[key] for key in keys} for row in result.rows])


def test_loss_on_one_link_leaves_the_dice_of_others_alone(programs: dict[int, str]) -> None:
    text = '[[job]]\nworkers = 2\nsize = "64KiB"\n[[fault]]\nlinks = "h1>s1"\nloss = "2%"\n'
    with_other = text + '[[fault]]\nlinks = "s1>h2"\nduplicate = 0.0\njitter = "1ns"\n'
    assert (
        run_point(point(text), programs).rows[0]["lost"]
        == run_point(point(with_other), programs).rows[0]["lost"]
    )


def test_a_run_beyond_its_limit_fails(programs: dict[int, str]) -> None:
    with pytest.raises(
        PointFailedError,
        match="^1,000 ns of virtual time are over, and the run waits for worker 0 of job job, worker 1 of job job",
    ):
        run_point(point('[run]\nlimit = "1us"\n[[job]]\n'), programs)


@pytest.mark.parametrize(
    ("topology", "other", "switch"),
    [
        ('kind = "dumbbell"', "tree = true", "s1"),
        ('kind = "dumbbell"', 'switch = "s2"', "s1"),
        ('kind = "leaf-spine"\nhosts = 8', "tree = true", "leaf2"),
        ('kind = "pods"\nleaves = 2\nrack = 2\nspines = 1\npods = 2', 'switch = "edge0x1"', "agg1x0"),
        ('kind = "fat-tree"', "tree = true", "edge3x1"),
    ],
)
def test_a_switch_that_adds_for_one_job_forwards_what_is_for_another_switch(
    topology: str, other: str, switch: str, programs: dict[int, str]
) -> None:
    text = f"""
[topology]
{topology}
[[job]]
name = "other"
size = "16KiB"
{other}
[[job]]
name = "passes"
first_host = 2
size = "16KiB"
switch = "{switch}"
"""
    rows = run_point(point(text), programs).rows
    assert [(row["error"], row["resent"]) for row in rows] == [(None, 0)] * 2


def test_a_killed_worker_ends_the_job_with_an_error(programs: dict[int, str]) -> None:
    text = """
[[job]]
size = "1MiB"
timeout = "50ms"
[[event]]
at = "100us"
action = "kill-worker"
worker = 2
"""
    (row,) = run_point(point(text), programs).rows
    assert row["duration_ns"] is None
    assert "worker 2 did not contribute" in row["error"]


def test_a_link_that_is_down_for_a_while_is_survived(programs: dict[int, str]) -> None:
    text = """
[[job]]
size = "512KiB"
[[event]]
at = "50us"
action = "link-down"
links = "h1>s1"
[[event]]
at = "200us"
action = "link-up"
links = "h1>s1"
"""
    (row,) = run_point(point(text), programs).rows
    assert row["error"] is None
    assert row["lost"] > 0
    assert row["sums_checked"] == 4


RESTARTED = """
[topology]
rate = "10gbit"
[controller]
delay = "100us"
[[job]]
size = "128KiB"
collectives = 3
[[event]]
at = "250us"
action = "switch-restart"
"""


def test_a_restarted_switch_gets_its_jobs_in_a_new_epoch(programs: dict[int, str]) -> None:
    before, struck, after = run_point(point(RESTARTED), programs).rows
    assert {row["error"] for row in (before, struck, after)} == {None}
    assert after["sums_checked"] == 3 * 4
    # The second one was under way: it waits for the controller, and begins anew.
    # Times are rounded to whole nanoseconds.
    assert abs(before["duration_ns"] - after["duration_ns"]) <= 1
    assert struck["start_ns"] < 250_000
    assert abs(struck["start_ns"] + struck["duration_ns"] - 350_000 - after["duration_ns"]) <= 1


def test_a_controller_that_is_away_keeps_jobs_waiting_and_not_those_that_run(
    programs: dict[int, str],
) -> None:
    away = """
[topology]
rate = "10gbit"
[[job]]
name = "early"
size = "128KiB"
[[job]]
name = "late"
size = "128KiB"
first_host = 5
start = "100us"
[[event]]
at = "50us"
action = "controller-away"
[[event]]
at = "1ms"
action = "controller-back"
"""
    early, late = run_point(point(away), programs).rows
    assert (early["start_ns"], late["start_ns"]) == (0, 1_000_000)
    assert early["duration_ns"] == late["duration_ns"] < 1_000_000
    alone = run_point(point(away.split("[[event]]")[0]), programs).rows
    assert [row["duration_ns"] for row in alone] == [early["duration_ns"], late["duration_ns"]]


def test_a_switch_that_restarts_while_the_controller_is_away_waits_for_it(programs: dict[int, str]) -> None:
    text = (
        RESTARTED
        + """
[[event]]
at = "200us"
action = "controller-away"
[[event]]
at = "5ms"
action = "controller-back"
"""
    )
    before, struck, after = run_point(point(text), programs).rows
    assert struck["error"] is None
    # Times are rounded to whole nanoseconds.
    assert abs(struck["start_ns"] + struck["duration_ns"] - 5_100_000 - after["duration_ns"]) <= 1
    assert abs(before["duration_ns"] - after["duration_ns"]) <= 1


@pytest.mark.parametrize("switch", ["leaf1", "spine1"])
def test_a_restarted_switch_of_a_tree_restarts_the_job_on_all_of_it(
    programs: dict[int, str], switch: str
) -> None:
    tree = """
[topology]
kind = "leaf-spine"
leaves = 2
spines = 1
rate = "10gbit"
[controller]
delay = "100us"
[[job]]
tree = true
workers = 4
size = "128KiB"
collectives = 2
lanes = 64
[[event]]
at = "150us"
action = "switch-restart"
"""
    first, second = run_point(point(tree + f'switch = "{switch}"\n'), programs).rows
    assert second["sums_checked"] == 2 * 4
    # The controller takes 100 us to write the job's entries, when it begins and when the switch has restarted.
    assert first["start_ns"] == 100_000
    assert first["duration_ns"] == 150_000 + second["duration_ns"]


def test_a_marked_flow_slows_down_before_a_queue_is_full(programs: dict[int, str]) -> None:
    """Eight servers' shards meet at each worker: without marks the queue overflows, with them nothing is lost."""
    text = """
[topology]
rate = "10gbit"
latency = "10us"
queue = "150kB"
[[job]]
contender = "ps"
workers = 8
size = "2MiB"
"""
    (full,) = run_point(point(text), programs).rows
    (marked,) = run_point(point(text.replace("[[job]]", 'mark = "30kB"\n[[job]]')), programs).rows
    assert full["lost"] > 0
    assert marked["lost"] < full["lost"] / 2


def test_bursts_lose_the_share_that_they_should(programs: dict[int, str]) -> None:
    text = """
[[job]]
size = "2MiB"
[[fault]]
to_bad = 0.001
to_good = 0.1
"""
    (row,) = run_point(point(text), programs).rows
    assert row["sums_checked"] == 4
    share = row["lost"] / (row["lost"] + row["packets_on_links"])
    assert 0.003 < share < 0.03


def test_cross_traffic_takes_its_share_of_a_link(programs: dict[int, str]) -> None:
    text = """
[topology]
rate = "10gbit"
[[job]]
size = "4MiB"
lanes = 64
[[background]]
source = "h5"
target = "h1"
rate = "5gbit"
"""
    (shared,) = run_point(point(text), programs).rows
    (alone,) = run_point(point(text.split("[[background]]")[0]), programs).rows
    assert 1.8 < shared["duration_ns"] / alone["duration_ns"] < 2.1


def test_the_third_result_of_a_chunk_is_lost(programs: dict[int, str]) -> None:
    text = """
[[job]]
size = "16KiB"
[[script]]
kind = "result"
chunk = 7
worker = 2
"""
    (row,) = run_point(point(text), programs).rows
    assert row["lost"] == 1
    assert row["resent"] >= 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[topology]\nhosts = 2\n[[job]]\nworkers = 4\n",
            "expected 4 hosts from h1 on, the topology has 2",
        ),
        ('[[job]]\n[[fault]]\nlinks = "h9>s1"\nloss = 0.1\n', "there is no link 'h9>s1'"),
        ('[topology]\nkind = "leaf-spine"\nhosts = 7\n[[job]]\n', "expected a multiple of the 4 leaves"),
        ("[[job]]\nworkers = 33\n", "job job: switch s1 would have 33 children .* at most 32 are possible"),
        (
            '[topology]\nkind = "dumbbell"\n[[job]]\n[[event]]\nat = "1us"\naction = "switch-restart"\nswitch = "s2"\n',
            r"event\[0\].switch: expected a switch that adds for a job, found 's2'",
        ),
        ('[[job]]\nswitch = "s9"\n', "expected one of s1, found 's9'"),
        ('[topology]\nkind = "file"\nfile = "star-99"\n[[job]]\n', "there is no topology 'star-99'"),
        ('[[job]]\nmodel = "resnet5"\n', "there is no model 'resnet5'"),
        (
            '[topology]\nkind = "pods"\n[[job]]\n',
            "topology.rack: expected the number of hosts at each leaf of a pod",
        ),
        (
            '[topology]\nkind = "pods"\nrack = 256\nleaves = 256\npods = 3\n[[job]]\n',
            "hosts: expected 1 to 131072",
        ),
    ],
)
def test_settings_that_do_not_fit_get_a_sentence(programs: dict[int, str], text: str, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        run_point(point(text), programs)


@pytest.mark.parametrize("kind", ["dumbbell", "leaf-spine", "fat-tree", "pods"])
def test_workers_behind_other_switches_get_their_sums(programs: dict[int, str], kind: str) -> None:
    rack = "rack = 1\nleaves = 2\n" if kind == "pods" else ""
    text = f'[topology]\nkind = "{kind}"\n{rack}[[job]]\nworkers = 8\nsize = "32KiB"\nlanes = 64\n'
    (row,) = run_point(point(text), programs).rows
    assert row["sums_checked"] == 8


@pytest.mark.parametrize(("kind", "workers"), [("leaf-spine", 40), ("fat-tree", 16), ("pods", 100)])
def test_a_tree_of_switches_gives_all_workers_their_sums(
    programs: dict[int, str], kind: str, workers: int
) -> None:
    rack = "" if kind == "fat-tree" else "rack = 20\n"
    text = f'[topology]\nkind = "{kind}"\n{rack}[[job]]\ntree = true\nworkers = {workers}\nsize = "16KiB"\nlanes = 64\n'
    (row,) = run_point(point(text), programs).rows
    assert row["sums_checked"] == workers


def test_jobs_that_share_hosts_and_links(programs: dict[int, str]) -> None:
    text = '[[job]]\nworkers = 3\nsize = "64KiB"\nlanes = 64\ncopies = 4\n'
    shared = run_point(point(text), programs).rows
    alone = run_point(point(text, **{"job.copies": 1}), programs).rows
    assert [row["sums_checked"] for row in shared] == [3] * 4
    assert min(row["duration_ns"] for row in shared) > 3 * alone[0]["duration_ns"]


def test_training_overlaps_computing(programs: dict[int, str]) -> None:
    text = """
[topology]
rate = "100gbit"
[[job]]
workers = 2
model = "resnet50"
batch = 0.05
slots = 512
simulated_lanes = 64
[run]
check = false
"""
    result = run_point(point(text), programs)
    assert len(result.rows) == 5
    alone = sum(row["duration_ns"] for row in result.rows)
    computing = 0.05 * (29_739_509 + 59_479_056)
    assert computing < result.rows[0]["iteration_ns"] < computing + alone


def test_expected_sums_are_those_of_the_tests_own_reference() -> None:
    from tests.integration.simulated.reference import expected, same_bits

    parts = contributions((1, 0, 0), 5, 1000)
    assert same_bits(expected_sum(parts, 64), expected("sum", parts, 64))


@pytest.mark.parametrize("sparse", ["always", "never"])
def test_blocks_of_zeros_are_left_out_and_all_sums_are_right(programs: dict[int, str], sparse: str) -> None:
    text = f'[[job]]\nworkers = 4\nsize = "512KiB"\nlanes = 64\nsparse = "{sparse}"\n'
    dense, sparser = (run_point(point(text, **{"job.density": each}), programs) for each in (1.0, 0.05))
    assert {row["sums_checked"] for row in dense.rows + sparser.rows} == {4}
    assert all(row["error"] is None for row in sparser.rows)
    # With 4 workers 19 % of the blocks are not zero somewhere; of the others headers travel, or bitmaps.
    assert 0.19 < sparser.rows[0]["duration_ns"] / dense.rows[0]["duration_ns"] < 0.5


def test_layers_have_densities_of_their_own(programs: dict[int, str], tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    sent = {}
    for name, densities in {"dense": (1, 1), "embedding": (0.01, 1), "both": (0.01, 0.01)}.items():
        layers = [
            ["embedding", 900_000, 1000, 1000, densities[0]],
            ["head", 100_000, 1000, 1000, densities[1]],
        ]
        model.write_text(json.dumps({"layers": layers}))
        job = point(f'[[job]]\ncontender = "omnireduce"\nmodel = "{model}"\nbucket = "100kB"\n')
        sent[name] = run_point(job, programs).rows[0]["packets_sent"]
    assert 0.15 < sent["embedding"] / sent["dense"] < 0.25
    assert sent["both"] / sent["dense"] < 0.15


def test_series(programs: dict[int, str]) -> None:
    result = run_point(point('[run]\nseries = "50us"\n[[job]]\nworkers = 2\nsize = "256KiB"\n'), programs)
    mine = [row for row in result.series if row["link"] == "h1>s1"]
    assert [row["time_ns"] for row in mine[:3]] == [0, 50_000, 100_000]
    counts = [row["bytes"] for row in mine]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_a_run_that_no_memory_holds_is_refused_before_it_begins(programs: dict[int, str]) -> None:
    with pytest.raises(SettingError, match=r"needs about \d+ GB of memory, and this machine has \d+ GB"):
        run_point(point('[[job]]\nworkers = 32\nsize = "16GiB"\n'), programs)


@pytest.mark.parametrize(
    ("rate", "latency_us", "slots"),
    [(100, 20, 1024), (100, 20, 64), (100, 1, 256), (10, 1, 64), (10, 20, 1024), (10, 1, 1024), (1, 20, 256)],
)
def test_an_all_reduce_takes_the_time_of_the_formula(
    programs: dict[int, str], rate: int, latency_us: int, slots: int
) -> None:
    """The formula of docs/simulator-experiments.md: an opening round, then results at the link's rate or S at a time."""
    text = (
        f'[topology]\nrate = "{rate}gbit"\nlatency = "{latency_us}us"\n[switch]\nlatency = "500ns"\n'
        f'[[job]]\nsize = "1MiB"\nslots = {slots}\nsparse = "never"\n'
    )
    duration_ns = run_point(point(text), programs).rows[0]["duration_ns"]
    packet_ns, header_ns, way_ns = 1114 * 8 / rate, 90 * 8 / rate, 2000 * latency_us + 500
    trip_ns = way_ns + 2 * packet_ns
    rounds_ns = max(1023 * packet_ns, (1024 / slots - 1) * trip_ns + (slots - 1) * packet_ns)
    opening_ns = max(way_ns + 2 * header_ns, slots * header_ns)
    assert duration_ns == pytest.approx(opening_ns + trip_ns + rounds_ns, rel=1e-5)


@pytest.mark.parametrize(("size", "round_trips"), [("2MiB", 1), ("4MiB", 2)])
def test_the_search_for_zeros_costs_a_dense_array_few_round_trips(
    programs: dict[int, str], size: str, round_trips: int
) -> None:
    """One for the first bitmap, and one for the opening round of the blocks of the second bitmap, if there is one."""
    text = f'[topology]\nrate = "100gbit"\nlatency = "10us"\n[[job]]\nsize = "{size}"\nslots = 256\nsparse = '
    searched_ns, dense_ns = (
        run_point(point(f'{text}"{sparse}"\n'), programs).rows[0]["duration_ns"]
        for sparse in ("auto", "never")
    )
    assert (searched_ns - dense_ns) / 20_000 == pytest.approx(round_trips, rel=0.05)


@pytest.mark.parametrize(
    ("size", "trouble", "least_us", "what"),
    [
        ("1MiB", "", 0, "link"),
        ("16KiB", "", 0, "steps"),
        ("16KiB", '[[fault]]\nloss = "1%"\n', 0, "loss recovery"),
        ("1MiB", '[[fault]]\nloss = "0.1%"\n', 0, "loss recovery"),
        # Nothing tells the sender of packets that were lost on a link that was down, but its timer.
        (
            "1MiB",
            '[[event]]\nat = "50us"\naction = "link-down"\nlinks = "h3>s1"\n'
            '[[event]]\nat = "300us"\naction = "link-up"\nlinks = "h3>s1"\n',
            5000,
            "loss recovery",
        ),
    ],
)
def test_a_ring_is_limited_by_what_it_waits_for(
    programs: dict[int, str], size: str, trouble: str, least_us: int, what: str
) -> None:
    text = (
        f'[topology]\nrate = "100gbit"\n[[job]]\ncontender = "ring"\nworkers = 16\nsize = "{size}"\n{trouble}'
    )
    result = run_point(point(text), programs)
    (row,) = result.rows
    assert row["limited_by"] == what
    assert row["duration_ns"] > 1000 * least_us
    (recovery,) = (each for each in result.limits["job"] if each.what == "loss recovery")
    assert (recovery.share > 0.9) == (least_us > 0)
    assert (recovery.share > 0) == bool(trouble)


@pytest.mark.parametrize("contender", ["netsum", "ring"])
def test_a_job_that_computes_most_of_the_time_is_limited_by_that(
    contender: str, programs: dict[int, str]
) -> None:
    text = f'[[job]]\ncontender = "{contender}"\nsize = "64KiB"\ncollectives = 3\ncompute = "2ms"\n'
    result = run_point(point(text), programs)
    assert {row["limited_by"] for row in result.rows} == {"computing"}
    (computing,) = (each for each in result.limits["job"] if each.what == "computing")
    assert 0.9 < computing.share < 1
    assert result.rows[0]["waiting_share"] == pytest.approx(1 - computing.share, abs=0.01)
    slow = run_point(point(text + "straggler = 1\nslower = 5\n"), programs)
    assert {row["limited_by"] for row in slow.rows} == {"straggler"}


def test_losses_of_another_job_are_not_said_to_limit_a_ring(programs: dict[int, str]) -> None:
    text = """
    [topology]
    rate = "10gbit"
    [[job]]
    name = "lossy"
    contender = "ring"
    size = "64KiB"
    [[job]]
    name = "clean"
    contender = "ring"
    size = "64KiB"
    first_host = 5
    [[fault]]
    links = "h1>s1"
    loss = "20%"
    """
    rows = run_point(point(text), programs).rows
    assert {row["job"]: row["limited_by"] == "loss recovery" for row in rows} == {
        "lossy": True,
        "clean": False,
    }


def test_poisson_traffic_has_the_gaps_of_its_distribution() -> None:
    gaps = []
    for kind in GAPS:
        network = Network(1, lanes=64)
        pair = replace(star(2), switches={}, links=(LinkSpec((LinkEnd("h1"), LinkEnd("h2"))),))
        network.add_topology(pair, LinkParameters(rate_bps=10**11, latency_ns=0))
        one, other = network.hosts
        network.add_traffic(
            one, other, BackgroundTraffic(10**9, packet_bytes=1000, gaps=kind, stop_ns=40_000_000)
        )
        network.tap(0, frame_bytes=0)
        network.pending.add(("traffic", 0))
        network.at(40_000_000, network.pending.clear)
        network.run(limit_ns=50_000_000)
        network.trace.flush()
        times = np.concatenate([rows["time_ps"] for rows, _ in network.trace.parts])
        gaps.append(np.diff(times) / 8e6)
    even, uniform, poisson = gaps
    assert even.std() < 1e-3
    assert uniform.std() == pytest.approx(3**-0.5, rel=0.05)
    assert poisson.mean() == pytest.approx(1, rel=0.05)
    assert poisson.std() == pytest.approx(1, rel=0.05)
    assert np.mean(poisson > 2) == pytest.approx(np.exp(-2), rel=0.1)


@pytest.mark.parametrize("kind", GAPS)
def test_sources_at_random_do_not_begin_together(kind: str) -> None:
    """The first packet comes a gap after the source's start, drawn as all others are."""
    network = Network(1, lanes=64)
    network.add_topology(star(201), LinkParameters(rate_bps=10**11, latency_ns=0))
    other, *hosts = network.hosts
    for host in hosts:
        network.add_traffic(
            host, other, BackgroundTraffic(10**9, packet_bytes=1000, gaps=kind, start_ns=5000, stop_ns=10**6)
        )
        network.tap(network.link_numbers[f"{host.name}>s1"], frame_bytes=0)
    network.pending = {("traffic", 0)}
    network.at(10**6, network.pending.clear)
    network.run(limit_ns=10**7)
    network.trace.flush()
    rows = np.concatenate([rows for rows, _ in network.trace.parts])
    firsts = np.array([rows["time_ps"][rows["where"] == where].min() for where in np.unique(rows["where"])])
    gaps = (firsts - 5_000_000) / 8e6
    assert len(gaps) == 200
    if kind == "even":
        assert (gaps == 0).all()
    else:
        assert gaps.min() > 0
        assert gaps.mean() == pytest.approx(1, rel=0.2)


def test_programs_are_where_they_should_be() -> None:
    with pytest.raises(SettingError, match="is missing: run `make p4`"):
        run_point(point("[[job]]\n"), {64: "/nowhere.json", 256: str(Path("/nowhere.json"))})


BACKUP = """
[[job]]
workers = 4
size = "8KiB"
lanes = 64
collectives = 12
compute = "1ms"
straggler = 1
slower = 10
quorum = 3
"""


def test_a_round_does_not_wait_for_the_slow_worker(programs: dict[int, str]) -> None:
    found = {
        (slower, quorum): run_point(
            point(BACKUP, **{"job.slower": slower, "job.quorum": quorum}), programs
        ).rows
        for slower in (1, 10)
        for quorum in (0, 3)
    }
    took = {each: rows[5]["iteration_ns"] for each, rows in found.items()}
    assert took[10, 0] > 9 * took[1, 0]
    assert took[10, 3] == pytest.approx(took[1, 0], rel=0.1)
    last = found[10, 3][-1]
    assert (last["sums_checked"], last["members_checked"], last["late"]) == (4 * 12, 4 * 12, 1)
    assert all(row["error"] is None for rows in found.values() for row in rows)


def test_what_was_compared_is_said_in_lines_of_80_columns() -> None:
    row = {"seed": 1, "job": "job", "sums_checked": 960, "members_checked": 123_456, "late": 3}
    assert [len(line) <= 80 for line in checked([row])] == [True] * 3
    assert checked([row])[1:] == [
        "Contributors of rounds were compared 123,456 times: the same at every worker.",
        "3 arrays came late and were in no sum.",
    ]


def test_rounds_on_a_lossy_network(programs: dict[int, str]) -> None:
    lossy = {
        "fault.loss": "2%",
        "fault.duplicate": "2%",
        "fault.jitter": "20us",
        "job.slots": 2,
        "job.quorum": 2,
    }
    last = run_point(point(BACKUP, **lossy, **{"job.jitter": "1ms"}), programs).rows[-1]
    assert (last["members_checked"], last["error"]) == (4 * 12, None)
    assert last["resent"] > 0
    assert last["late"] > 0


def test_members_that_differ_are_found(programs: dict[int, str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rounds.RoundsJob._compare_round

    def compare(self: rounds.RoundsJob, number: int, worker: int, result: Reduced) -> None:
        shifted = tuple((rank + (worker == 2)) % 4 for rank in result.ranks)
        whole(self, number, worker, replace(result, ranks=shifted))

    monkeypatch.setattr(rounds.RoundsJob, "_compare_round", compare)
    with pytest.raises(WrongSumError, match="at another worker|contributed no array|is not the sum"):
        run_point(point(BACKUP), programs)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"job.quorum": 5}, "a quorum is 1 to 4"),
        ({"job.slots": 1}, "needs 2 slots, not 1"),
        ({"event.action": "switch-restart", "event.at": "1ms"}, "no switch that restarts"),
        (
            {"job.tree": True, "topology.kind": "leaf-spine", "topology.rack": 2},
            "a job with a quorum is added on one switch",
        ),
    ],
)
def test_what_no_job_with_a_quorum_can_be(
    programs: dict[int, str], given: dict[str, Any], expected: str
) -> None:
    with pytest.raises(SettingError, match=expected):
        run_point(point(BACKUP, **given), programs)


def test_jobs_that_overlap_in_turn_do_not_take_the_same_place_on_a_host(programs: dict[int, str]) -> None:
    text = "[topology]\nhosts = 8\n" + "".join(
        f'[[job]]\nname = "j{first}"\nworkers = 4\nsize = "16KiB"\nfirst_host = {first}\n'
        for first in (1, 3, 5)
    )
    rows = run_point(point(text), programs).rows
    assert [row["job"] for row in rows] == ["j1", "j3", "j5"]
    assert {(row["error"], row["sums_checked"]) for row in rows} == {(None, 4)}
