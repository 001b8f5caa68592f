"""`netsum repro` on trainings with a planted cause of different bits: it finds each, and says which it is."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from netsum.cli.app import app
from netsum.command_errors import UsageError
from netsum.repro.runs import with_workers

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")
pytestmark = pytest.mark.torch

ALONE = """
import sys, threading, torch
from torch import nn
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 8), nn.Dropout({dropout}), nn.Linear(8, 1))
for each in model.parameters():
    nn.init.constant_(each, 0.1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
sys.setswitchinterval(1e-6)
total = [0.0]

def plus(one, other):
    return one + other

def add(thread, begin):
    begin.wait()
    for number in range(10000):
        total[0] = plus(total[0], thread / (1 + number))  # What another thread adds meanwhile is lost.

for step in range(5):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    begin = threading.Barrier(4)
    threads = [threading.Thread(target=add, args=(each, begin)) for each in range(4)]
    for each in threads * {race}:
        each.start()
    for each in threads * {race}:
        each.join()
    model[2].bias.grad += total[0]
    optimizer.step()
"""

TOGETHER = """
import tempfile, torch, torch.distributed as dist, torch.multiprocessing as processes
from torch import nn

def train(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=3)
    torch.manual_seed(0)
    layers = [nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 1)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        rows = torch.randn(16, 64, generator=torch.Generator().manual_seed(3 * step + rank))
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        processes.start_processes(train, (folder,), nprocs=3, start_method="fork")
"""

BY_TORCHRUN = """
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
weight = torch.nn.Parameter(torch.zeros(1000))
optimizer = torch.optim.SGD([weight], 0.1)
for step in range(2):
    weight.grad = torch.randn(1000, generator=torch.Generator().manual_seed(dist.get_rank()))
    dist.all_reduce(weight.grad)
    optimizer.step()
dist.destroy_process_group()
"""


SCATTERED = """
import tempfile, torch, torch.distributed as dist, torch.multiprocessing as processes

def train(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=3)
    weight = torch.nn.Parameter(torch.zeros(1000))
    optimizer = torch.optim.SGD([weight], 0.1)
    given = torch.randn(3000, generator=torch.Generator().manual_seed(rank))
    before = given.clone()
    for step in range(2):
        weight.grad = torch.empty(1000)
        if step == 0:
            dist.reduce_scatter_tensor(weight.grad, given)
        else:
            dist.reduce_scatter(weight.grad, list(given.chunk(3)))
        assert torch.equal(given, before)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        processes.start_processes(train, (folder,), nprocs=3, start_method="fork")
"""


def repro(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["repro", *arguments])


def document(folder: Path, script: str, *options: str, launcher: tuple[str, ...] = (sys.executable,)) -> Any:
    path = folder / "train.py"
    path.write_text(script)
    done = repro("--json", *options, "--", *launcher, str(path))
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    assert found["reproducible"] is False
    return found


@pytest.mark.timeout(600)
def test_dropout_without_a_seed(tmp_path: Path) -> None:
    found = document(tmp_path, ALONE.format(dropout=0.5, race=0))
    assert found["causes"] == ["the training uses random numbers without a seed"]
    repeated, seeded = found["runs"]
    assert (repeated["result"], seeded["result"]) == ("different", "same")
    first = repeated["first"]
    assert first["kind"] == "gradient"
    assert first["tensor"] in ("0.weight", "2.weight")
    assert len(first["element"]) == 2
    one, other = first["values"]
    assert one != other
    assert len(one) == len(other) == len("0x3f800000")


@pytest.mark.timeout(600)
def test_a_race(tmp_path: Path) -> None:
    found = document(tmp_path, ALONE.format(dropout=0.0, race=1))
    (cause,) = found["causes"]
    assert cause.startswith("the training differs from run to run whatever the seeds: a race")
    assert found["runs"][-1]["condition"] == "seeded"
    assert found["runs"][-1]["first"]["tensor"] == "2.bias"


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_buckets_and_order_of_ranks_over_gloo_but_not_with_exact_sums(tmp_path: Path) -> None:
    options = ["--over", "exact", "--over", "gloo", "--condition", "buckets", "--condition", "order"]
    options += ["--condition", "tree"]
    found = document(tmp_path, TOGETHER, *options)
    assert found["causes"] == [
        "over gloo: the training depends on the size of gradient buckets",
        "over gloo: the training depends on the order of the ranks",
    ]
    results = [(each["over"], each["condition"], each["result"]) for each in found["runs"]]
    assert results[:4] == [("exact", name, "same") for name in ("repeated", "buckets", "order", "tree")]
    assert results[4:] == [
        ("gloo", "repeated", "same"), ("gloo", "buckets", "different"), ("gloo", "order", "different")
    ]  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_what_a_switch_is_started_with_is_not_applied_to_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch_service: str
) -> None:
    monkeypatch.setenv("NETSUM_CONTROLLER", torch_service)
    (tmp_path / "train.py").write_text(TOGETHER)
    options = ["--json", "--over", "exact", "--condition", "lanes", "--condition", "loss"]
    done = repro(*options, "--", sys.executable, str(tmp_path / "train.py"))
    assert done.exit_code == 0, done.output
    results = [(each["condition"], each["result"]) for each in json.loads(done.stdout)["runs"]]
    assert results == [("repeated", "same"), ("lanes", "not applied"), ("loss", "not applied")]


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_order_of_ranks_alone_and_their_number_under_torchrun(tmp_path: Path) -> None:
    options = ["--over", "gloo", "--condition", "buckets", "--condition", "order", "--workers", "2"]
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1")
    found = document(tmp_path, BY_TORCHRUN, *options, launcher=(*launcher, "--nproc-per-node", "3"))
    assert found["causes"] == [
        "over gloo: the training depends on the order of the ranks",
        "over gloo: the training depends on the number of workers",
    ]
    assert {each["condition"]: each["result"] for each in found["runs"]}["buckets"] == "not applied"


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_order_of_ranks_in_a_reduce_scatter(tmp_path: Path) -> None:
    options = ["--over", "exact", "--over", "gloo", "--condition", "order"]
    found = document(tmp_path, SCATTERED, *options)
    assert found["causes"] == ["over gloo: the training depends on the order of the ranks"]
    results = [(each["over"], each["condition"], each["result"]) for each in found["runs"]]
    assert results == [
        ("exact", "repeated", "same"), ("exact", "order", "same"),
        ("gloo", "repeated", "same"), ("gloo", "order", "different"),
    ]  # fmt: skip


WAITING = """
import tempfile, time, torch, torch.distributed as dist, torch.multiprocessing as processes

def train(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    if rank == 1:
        time.sleep(1000)
    dist.barrier()

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        processes.start_processes(train, (folder,), nprocs=2, start_method="fork")
"""


@pytest.mark.timeout(600)
def test_a_run_that_hangs_is_ended_with_all_its_processes_and_each_is_named(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(WAITING)
    done = repro("--over", "gloo", "--timeout", "15", "--", sys.executable, str(script))
    assert done.exit_code == 1
    first, *places = done.stderr.splitlines()
    assert first == "netsum: the training (gloo first) was not done within 15 s"
    assert f"rank 0 is in barrier, called from {script}, line 8" in places
    assert f"rank 1 is in train, called from {script}, line 7" in places
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [each for each in commands if str(script).encode() in each]


def test_no_collective_of_a_group_in_python_is_left_to_pytorch_which_holds_the_gil() -> None:
    """Gloo's thread takes the GIL while it holds the mutex that a collective waits for."""
    import torch.distributed as dist

    from host_agent.torch.process_group import NetsumProcessGroup
    from netsum.repro.recorder import _ReversedGloo

    no_collectives = {"abort", "monitored_barrier", "name", "rank", "set_timeout", "shutdown", "size"}
    both = set(dir(dist.ProcessGroup)) & set(dir(dist.ProcessGroupGloo)) - set(dir(object)) - no_collectives
    names = {each for each in both if each.endswith("_base") or not each.startswith("_")}
    assert {"allreduce", "barrier", "broadcast", "_allgather_base"} <= names
    for group in (NetsumProcessGroup, _ReversedGloo):
        assert not [each for each in names if getattr(group, each) is getattr(dist.ProcessGroup, each)]


def test_the_number_of_processes_of_a_command() -> None:
    assert with_workers(["torchrun", "--nproc-per-node=4", "x"], 2) == ["torchrun", "--nproc-per-node=2", "x"]
    assert with_workers(["torchrun", "--nproc_per_node", "4", "x"], 2)[2] == "2"
    with pytest.raises(UsageError, match="expected a torchrun command that has it"):
        with_workers(["python", "x"], 2)


def test_what_is_refused(tmp_path: Path) -> None:
    missing = repro("--", "no-such-program")
    assert (missing.exit_code, missing.stderr) == (2, "netsum: there is no program no-such-program\n")
    kept = repro("--keep", str(tmp_path), "--", "true")
    assert kept.exit_code == 2
    assert "expected a folder that does not exist yet" in kept.stderr
    failed = repro("--", sys.executable, "-c", "raise SystemExit('no data')")
    assert failed.exit_code == 1
    assert "ended with status 1; the end of its output:\nno data" in failed.stderr
    late = repro("--timeout", "1", "--", "sleep", "60")
    assert "was not done within 1 s" in late.stderr
    deaf = repro("--timeout", "1", "--", "sh", "-c", "trap '' TERM; sleep 600 & wait; wait")
    assert "was not done within 1 s" in deaf.stderr
    nothing = repro("--", "true")
    assert "no step of an optimizer was recorded" in nothing.stderr
