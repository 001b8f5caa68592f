"""Experiments' files: contents and errors."""

import subprocess
import sys
from pathlib import Path

import pytest

from sim.errors import SettingError
from sim.experiments.experiment import load_experiment, parse_experiment, shipped_experiments
from sim.experiments.models import FILES, load_model, shipped_models
from sim.experiments.settings import size_bytes
from tests.sim.experiments.architectures import ARCHITECTURES, text_of

ROOT = Path(__file__).resolve().parents[3]
JOB = "[[job]]\n"


@pytest.mark.parametrize("name", shipped_experiments())
def test_shipped_experiments_can_be_read(name: str) -> None:
    read = load_experiment(name)
    assert read.question.endswith("?") or read.question.endswith(".")
    assert read.points
    keys = [point.key("") for point in read.points]
    assert len(set(keys)) == len(keys)


def test_what_varies_makes_points() -> None:
    read = parse_experiment(
        JOB
        + """
[run]
seeds = 2
[sweep]
"job.workers" = { from = 2, to = 8, times = 2 }
"topology.rate" = ["1gbit", "10gbit"]
""",
        "x",
    )
    assert read.varies == ("job.workers", "topology.rate")
    assert len(read.points) == 3 * 2 * 2
    assert [point.settings.job[0].workers for point in read.points[::4]] == [2, 4, 8]
    assert {point.settings.topology.rate for point in read.points} == {10**9, 10**10}
    assert [point.seed for point in read.points[:2]] == [1, 2]


def test_a_value_on_the_command_line_replaces_the_files() -> None:
    read = parse_experiment(JOB + '[sweep]\n"job.workers" = [2, 4]\n', "x", {"job.workers": 3})
    assert [point.settings.job[0].workers for point in read.points] == [3]


def test_the_same_settings_have_the_same_key_whatever_they_are_written_as() -> None:
    one = parse_experiment('[topology]\nrate = "1gbit"\n[[job]]\nsize = 1048576\n', "x").points[0]
    other = parse_experiment('[[job]]\nsize = "1MiB"\n[topology]\nrate = "1000mbit"\n', "y").points[0]
    assert one.key("") == other.key("")
    assert one.key("") != one.key("another program")


def test_copies_of_a_job_share_hosts_or_have_their_own() -> None:
    together = parse_experiment("[[job]]\nworkers = 3\ncopies = 2\n", "x").points[0].settings.job
    assert [(job.name, job.first_host) for job in together] == [("job1", 1), ("job2", 1)]
    apart = parse_experiment("[[job]]\nworkers = 3\ncopies = 2\napart = true\n", "x").points[0].settings.job
    assert [job.first_host for job in apart] == [1, 4]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "job: expected at least one"),
        ("[[job]]\nwrokers = 4", r"job\[0\]: unknown key wrokers; expected one of name"),
        ("[topologie]\n" + JOB, "unknown key topologie; expected one of about"),
        ('[topology]\nrate = "0gbit"\n' + JOB, r"topology.rate: expected a rate between"),
        ("[topology]\nrate = 10\n" + JOB, r"topology.rate: expected a rate with a unit"),
        (
            JOB + '[[fault]]\nloss = "120%"',
            r'fault\[0\].loss: expected a share from 0 to 1, or in percent .* found "120%"',
        ),
        ("[[job]]\nslots = 48", r"job\[0\].slots: expected a power of two"),
        ("[[job]]\nworkers = 4097", r"job\[0\].workers: expected a whole number from 1 to 4,096"),
        ('[[job]]\ncontender = "gloo"', r"job\[0\].contender: expected one of netsum, ring"),
        (JOB + "[[event]]\nat = 5", r"event\[0\].at: expected a time with a unit"),
        (JOB + '[[event]]\nat = "1ms"', r"event\[0\].action: missing"),
        (JOB + '[sweep]\n"job.workers" = []', "sweep.job.workers: expected a list of values, or a range"),
        (JOB + '[sweep]\n"job.workers" = { from = 4, to = 2, step = 1 }', "expected a range that goes up"),
        (JOB + '[sweep]\n"jobs.workers" = [1]', "sweep.jobs.workers: expected TABLE.KEY"),
        (JOB + '[sweep]\n"job.3.workers" = [1]', "there is no job 3"),
        (JOB + JOB, "expected each job to have a name of its own"),
        ("[[job]", "not TOML"),
        ("a = " + "[" * 3000 + "]" * 3000, "nested less deeply"),
        ('[[job]]\nsize = "' + "9" * 5000 + '"', r"job\[0\].size: expected a size .*found \"9+…$"),
        ("[[job]]\nworkers = 1" + "0" * 5000, "numbers of at most 4,300 digits"),
        (
            'x = "job.wrokers"\n' + JOB + '[sweep]\n"job.workers" = [2]',
            "x, lines: expected keys of .*job.wrokers",
        ),
        ('y = "speed"\n' + JOB, "y: expected one of duration_ns, goodput_bps, .*found 'speed'"),
        ("[[job]]\nworkers = 2\nstraggler = 2", "job job: straggler: expected a worker from 0 to 1, found 2"),
        (
            JOB + '[[background]]\nsource = "h1"\ntarget = "h1"\nrate = "1gbit"',
            "another target than its source",
        ),
        (
            JOB + '[[background]]\nsource = "h1"\ntarget = "h2"\nrate = "1gbit"\nflow = "cubic"',
            r"background\[0\]: expected either a rate or a flow",
        ),
        (
            JOB + '[[background]]\nsource = "h1"\ntarget = "h2"\nrate = "1gbit"\npacket = 9000',
            r"background\[0\].packet: expected at most 1514 bytes, found 9000",
        ),
        ("[topology]\nmtu = 1000\n" + JOB, "expected 1076 or more for packets of 256 lanes, found 1000"),
        (
            '[transport]\nsegment = 8948\n[[job]]\ncontender = "ring"',
            "expected 9000 or more for packets of the transport's segments, found 1500",
        ),
        (
            JOB + '[run]\nseeds = 1000\n[sweep]\n"job.workers" = { from = 1, to = 101, step = 1 }',
            "at most 100,000",
        ),
    ],
)
def test_a_wrong_file_gets_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        parse_experiment(text, "x")


def test_a_run_may_be_long() -> None:
    for written, ns in (("3600s", 3600 * 10**9), ("1.5s", 1_500_000_000), ("20ms", 20_000_000)):
        text = f'[[job]]\n[run]\nlimit = "{written}"\n'
        assert parse_experiment(text, "x").points[0].settings.run.limit == ns
    with pytest.raises(SettingError, match=r"run\.limit: expected a time with a unit .*found \"9999999s\""):
        parse_experiment('[[job]]\n[run]\nlimit = "9999999s"\n', "x")


def test_events_may_be_late() -> None:
    text = JOB + '[[event]]\nat = "120s"\naction = "link-down"\nlinks = "*"\n[run]\nlimit = "200s"\n'
    assert parse_experiment(text, "x").points[0].settings.event[0].at == 120 * 10**9


def test_a_new_peer_needs_its_line_in_the_table_alone() -> None:
    code = """
from sim.peers import table
table.PEERS["mine"] = table.PEERS["ring"]
from sim.experiments.experiment import parse_experiment
print(parse_experiment('[[job]]\\ncontender = "mine"', "x").points[0].settings.job[0].contender)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "mine\n"


def test_a_missing_file_gets_a_sentence() -> None:
    with pytest.raises(SettingError, match="cannot read the experiment /nowhere/x.toml: No such file"):
        load_experiment("/nowhere/x.toml")
    with pytest.raises(SettingError, match="there is no experiment 'wrkers': expected backup, bursts"):
        load_experiment("wrkers")


@pytest.mark.parametrize(
    ("written", "size"),
    [("4MiB", 4 << 20), ("100kB", 100_000), ("1.5kib", 1536), (12, 12), ("7", 7), ("7B", 7)],
)
def test_sizes(written: object, size: int) -> None:
    assert size_bytes(written) == size


# torchvision's and Hugging Face's counts.
PARAMETERS = {
    "alexnet": 61_100_840,
    "vgg16": 138_357_544,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "inception_v3": 23_834_568,
    "bert_base": 109_482_240,
    "transformer_lm": 53_024_254,
    "deeplight": 607_959_381,  # 2.26 GiB
    "lstm_gbw": 426_465_919,  # 1.59 GiB, 1.52 of them embeddings with the decoder's bias
    "ncf": 178_064_769,  # 679 MiB
}


def test_models_are_the_layers_of_their_papers() -> None:
    assert shipped_models() == sorted(ARCHITECTURES)
    for name in ARCHITECTURES:
        assert (FILES / f"{name}.json").read_text(encoding="utf-8") == text_of(name), name


@pytest.mark.parametrize("name", shipped_models())
def test_models_have_the_parameters_that_are_published(name: str) -> None:
    assert load_model(name).parameters == PARAMETERS[name]
