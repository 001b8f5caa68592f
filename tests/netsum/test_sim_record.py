"""`netsum sim record`: a step from the profiler's events, and trainings that are recorded or cannot be."""

import json
import re
import sys
from pathlib import Path

import pytest

from netsum.command_errors import CommandError
from netsum.record.running import record
from netsum.record.steps import (
    MARK,
    Communication,
    RecordingError,
    TraceEvent,
    communications,
    median_step,
    nodes_of,
)
from sim.traces.chakra import write_nodes
from sim.traces.reading import read_trace
from tests.netsum.test_sim_command import netsum

TRAINING = """
import gc, os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

steps, communicates = int(sys.argv[1]), sys.argv[2] == "yes"
dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 4))
trained = DistributedDataParallel(model) if communicates else model
optimizer = torch.optim.SGD(model.parameters(), 0.1)
# Computing takes longer than what a busy machine makes a rank wait.
for _ in range(steps):
    optimizer.zero_grad()
    trained(torch.randn(20_000, 64)).square().mean().backward()
    optimizer.step()
    if communicates:
        dist.broadcast(torch.ones(1000), 0)
dist.barrier()
# PyTorch's Gloo threads may abort at exit while they still hold Python objects.
del trained, optimizer, model
gc.collect()
dist.destroy_process_group()
"""
PARAMETERS = 64 * 128 + 128 + 128 * 4 + 4


def op(name: str, start: int, end: int, *, marked: bool = False, thread: int = 1) -> TraceEvent:
    return TraceEvent(name, 1000 * start, 1000 * end, marked, thread)


def a_step(at: int, slower: int = 0) -> list[TraceEvent]:
    """Return a step of 200 us: two buckets, of which the first is reduced meanwhile and the second is waited for."""
    return [
        op(MARK, at, at, marked=True),
        op("DistributedDataParallel.forward", at + 5, at + 40, marked=True),
        op("aten::linear", at + 10, at + 50 + slower),
        op("c10d::allreduce_", at + 60, at + 62),
        op("gloo:all_reduce", at + 61, at + 85, marked=True),
        op("aten::mm", at + 64, at + 98),
        op("c10d::allreduce_", at + 100, at + 102),
        op("gloo:all_reduce", at + 101, at + 150, marked=True),
        op("Optimizer.step#SGD.step", at + 160, at + 190, marked=True),
        op("aten::add_", at + 165, at + 185),
    ]


CALLED = [Communication("all-reduce", 4096), Communication("all-reduce", 8192)]


def test_a_step_is_computing_between_launches_and_waits(tmp_path: Path) -> None:
    events = [each for at in range(5) for each in a_step(200 * at)] + [op(MARK, 1000, 1000, marked=True)]
    step = median_step(events, CALLED)
    assert [each - step.start_ns for each in step.launches] == [60_000, 100_000]
    assert [
        (each.start_ns - step.start_ns, each.end_ns - step.start_ns, each.those) for each in step.waits
    ] == [
        (102_000, 150_000, (1,)),
        (160_000, 160_000, (0,)),
    ]
    # Without the profiler the step takes 124 us, of which the wait is 48 and the computing half of what it was.
    write_nodes(tmp_path / "trace.0.et", nodes_of(step, CALLED, 124_000, 0.75))
    trace = read_trace(str(tmp_path / "trace.0.et"), 1)
    nodes = sorted((each.node for each in trace.steps), key=lambda node: int(node.id))
    assert [(each.kind, each.size, each.duration_ns) for each in nodes] == [
        ("compute", 0, 30_000),
        ("all-reduce", 4096, 0),
        ("compute", 0, 20_000),
        ("all-reduce", 8192, 0),
        ("compute", 0, 1_000),
        ("compute", 0, 5_000),
        ("compute", 0, 20_000),
    ]
    assert [each.density for each in nodes if each.kind == "all-reduce"] == [0.75, 0.75]
    assert trace.computing_ns(1) == 76_000
    assert nodes[-1].after == [5, 1]


def test_a_communication_that_the_program_waits_for_at_once() -> None:
    """Two of netsum's, one after the other with no operator between: a range each, from the call to the end."""
    events = []
    for at in range(0, 500, 100):
        events += [
            op(MARK, at, at, marked=True),
            op("aten::mm", at, at + 20),
            op("netsum:all_reduce (SUM) of torch.float32 [8], 32 bytes", at + 30, at + 50, marked=True),
            op("netsum:barrier, 0 bytes", at + 55, at + 80, marked=True),
            op("aten::mm", at + 85, at + 95),
        ]
    step = median_step([*events, op(MARK, 500, 500, marked=True)], CALLED)
    assert [
        (each.start_ns - step.start_ns, each.end_ns - step.start_ns, each.those) for each in step.waits
    ] == [
        (30_000, 50_000, (0,)),
        (55_000, 80_000, (1,)),
    ]


def test_what_other_threads_do_meanwhile_is_no_computing() -> None:
    """DDP waits for netsum's range in its own thread; PyTorch runs what ends the range in another."""
    events = []
    for at in range(0, 500, 100):
        events += [
            op(MARK, at, at, marked=True),
            op("aten::mm", at, at + 20),
            op("netsum:all_reduce (SUM) of torch.float32 [8], 32 bytes", at + 15, at + 60, marked=True),
            op("<forked function>", at + 18, at + 65, thread=2),
            op("aten::mm", at + 70, at + 95),
        ]
    step = median_step([*events, op(MARK, 500, 500, marked=True)], CALLED[:1])
    assert [
        (each.start_ns - step.start_ns, each.end_ns - step.start_ns, each.those) for each in step.waits
    ] == [(20_000, 60_000, (0,))]


def test_a_step_with_an_uncommon_wait_is_not_taken() -> None:
    """Five profiled steps: the one with the median of computing waits 60 us, all others 10 us."""
    events, at = [], 0
    for computes, waits in ((20, 10), (20, 10), (20, 10), (25, 60), (30, 10), (30, 10), (20, 10)):
        events += [
            op(MARK, at, at, marked=True),
            op("aten::mm", at, at + computes),
            op("netsum:barrier, 0 bytes", at + computes, at + computes + waits, marked=True),
        ]
        at += computes + waits
    step = median_step([*events, op(MARK, at, at, marked=True)], CALLED[:1])
    assert step.waiting_ns == 10_000


def test_steps_that_cannot_be_recorded() -> None:
    events = [each for at in range(5) for each in a_step(200 * at)] + [op(MARK, 1000, 1000, marked=True)]
    with pytest.raises(RecordingError, match="one has 1 communications, another 2"):
        median_step(events, CALLED[:1])
    without = [each for each in events if not each.name.startswith("gloo")]
    with pytest.raises(RecordingError, match="expected the end of each communication"):
        median_step(without, CALLED)
    # On a machine that was busy while the profiler ran.
    with pytest.raises(
        RecordingError, match=r"waits 0\.05 ms .* takes only 0\.04 ms, so its computing is not"
    ):
        nodes_of(median_step(events, CALLED), CALLED, 40_000)


def observed(*calls: tuple[str, list[object]], ranks: list[int] | None = None) -> dict[str, object]:
    groups = json.dumps([{"pg_name": "0", "ranks": []}, {"pg_name": "1", "ranks": ranks or []}])
    nodes = [("## process_group:init ##", [groups]), *calls]
    return {
        "nodes": [
            {"id": number, "name": name, "inputs": {"values": values}}
            for number, (name, values) in enumerate(nodes)
        ]
    }


def test_what_the_observer_says_of_communications() -> None:
    tensor = [1, 2, 0, 1000, 4, "cpu"]
    found = communications(
        observed(
            ("aten::add", [tensor]),
            ("c10d::allreduce_", [[tensor, tensor], "<Object>"]),
            ("c10d::_allgather_base_", [[1, 2, 0, 4000, 4, "cpu"], tensor]),
            ("c10d::reduce_scatter_", [[tensor], [[tensor, tensor]]]),
            ("c10d::send", [[tensor], "<Object>", 1, 7]),
            ("netsum:all_gather of torch.float32 [10], call 3 of this group, 160 bytes", []),
            ("netsum:reduce_scatter (SUM) of torch.float32 [10], 40 bytes", []),
            ("netsum:barrier, 0 bytes", []),
        ),
        4,
    )
    assert [(each.kind, each.size, each.peer, each.tag) for each in found] == [
        ("all-reduce", 8000, -1, 0),
        ("all-gather", 4000, -1, 0),
        ("reduce-scatter", 8000, -1, 0),
        ("send", 4000, 1, 7),
        ("all-gather", 40, -1, 0),
        ("reduce-scatter", 160, -1, 0),
        ("all-reduce", 0, -1, 0),
    ]
    for wrong, sentence in (
        (observed(), "communicates nothing: expected collectives"),
        (observed(("c10d::gather_", [])), "calls c10d::gather_, which no trace holds"),
        (observed(ranks=[0, 1]), "a process group of 2 of its 4 ranks"),
    ):
        with pytest.raises(RecordingError, match=sentence):
            communications(wrong, 4)


@pytest.fixture
def training(tmp_path: Path) -> list[str]:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAINING)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*launcher, "--nproc-per-node", "2", str(tmp_path / "train.py")]


def test_a_training_is_recorded_and_run(training: list[str], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    ended = netsum(tmp_path, "record", "--steps", "5", "--", *training, "100000", "yes")
    assert ended.returncode == 0, ended.stderr
    shown = re.findall(r"step (\d+) of 17", ended.stderr)
    assert shown
    assert all(int(step) <= 17 for step in shown)
    kept = {each.name for each in (tmp_path / "runs/record").iterdir()}
    assert kept == {"output.txt", "trace.0.et", "trace.1.et"}
    assert "rank 1: a step takes" in ended.stdout
    assert f"2 communications of {4 * PARAMETERS + 4000:,} bytes" in ended.stdout
    place = "runs/record/trace.%d.et"
    assert f"written: {place}" in ended.stdout
    trace = read_trace(str(tmp_path / place), 2)
    found = [(each.node.kind, each.node.size, each.ranks) for each in trace.steps if len(each.ranks) > 1]
    assert found == [("broadcast", 4000, (0, 1)), ("all-reduce", 4 * PARAMETERS, (0, 1))]
    assert 0 < trace.computing_ns(1) < 10**9
    run = netsum(
        tmp_path, "run", "traces", "--set", f"job.workload={place}", "--set", "job.workers=2",
        "--set", "job.batch=1.0", "--set", "job.contender=netsum",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "sums were compared" in run.stdout


@pytest.mark.parametrize(
    ("steps", "communicates", "sentence"),
    [
        (
            "6",
            "yes",
            "the training ended after 6 optimizer steps: expected 17; take fewer --steps, or train longer",
        ),
        ("30", "no", "rank0: a step of the training communicates nothing"),
    ],
)
def test_a_training_that_cannot_be_recorded(
    training: list[str], steps: str, communicates: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(CommandError) as caught:
        record([*training, steps, communicates], tmp_path / "out", 5, 300, lambda step, last: None)
    assert sentence in str(caught.value).replace("rank1", "rank0")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["no-such-program"], "there is no program no-such-program"),
        (
            ["sh", "-c", "echo out of luck; exit 3"],
            "the training ended with status 3; the end of its output:\nout of luck",
        ),
        (["true"], "the training did not load PyTorch with netsum"),
        (["sleep", "60"], "the training was not recorded within 0.5 s: it is at step 0"),
    ],
)
def test_a_command_that_is_no_training(command: list[str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        record(command, tmp_path / "out", 5, 0.5 if command[0] == "sleep" else 60, lambda step, last: None)
    assert sentence in str(caught.value)


def test_zero_blocks_of_a_recorded_sum_travel_without_lanes(tmp_path: Path) -> None:
    from tests.sim.traces.files import chakra_node, write_chakra
    from tests.sim.traces.test_trace_jobs import run

    times = {}
    for density in (1.0, 0.5):
        nodes = [chakra_node(0, "all-reduce", comm_size=1 << 18, density=density)]
        place = write_chakra(tmp_path, [nodes] * 4, f"d{density}")
        for contender in ("netsum", "omnireduce", "ring"):
            slots = "slots = 128" if contender == "netsum" else ""
            (row,) = run(place, f'contender = "{contender}"\n{slots}')
            times[density, contender] = row["iteration_ns"]
    for contender in ("netsum", "omnireduce"):
        assert 0.4 < times[0.5, contender] / times[1.0, contender] < 0.75
    assert times[0.5, "ring"] == times[1.0, "ring"]
