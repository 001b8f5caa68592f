"""Points the tests that PyTorch ships for its own c10d backends at netsum, and prints the result of each.

    python tests/host_agent/torch/run_torch_own_tests.py [--backend gloo] [NAME ...]

They are those of torch.testing._internal.distributed.distributed_test (needs the package expecttest). PyTorch starts
processes anew for each; here all run one after another in the same three, and a process group that a test broke is
made anew. The tests branch on the backend's name, so it is given as Gloo: what they do with CPU tensors for it is
what is asked of netsum.
"""

import argparse
import collections
import contextlib
import faulthandler
import io
import multiprocessing
import os
import sys
import tempfile
import time
import unittest
from datetime import timedelta
from pathlib import Path

WORLD = 3
TIMEOUT = timedelta(seconds=12)
TEST_DEADLINE_S = 400


def main() -> None:
    """Run them and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--backend", default="netsum")
    parser.add_argument("names", nargs="*", help="only tests whose names contain one of these")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("spawn")
        ranks = [
            context.Process(target=_rank, args=(rank, options.backend, options.names, folder))
            for rank in range(WORLD)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()


def _rank(rank: int, backend: str, wanted: list[str], folder: str) -> None:
    os.environ.update(
        BACKEND="gloo", WORLD_SIZE=str(WORLD), RANK=str(rank), TEMP_DIR=folder, OMP_NUM_THREADS="1",
        MASTER_ADDR="127.0.0.1", MASTER_PORT="29512",
    )  # fmt: skip
    sys.argv = sys.argv[:1]
    import torch
    import torch.distributed as dist

    import netsum.torch

    netsum.torch.register()
    torch.manual_seed(0)  # some models are made on import, alike in all processes
    from torch.testing._internal.distributed import distributed_test as own

    class Tests(own.TestDistBackend, own.DistributedTest._DistTestBase):
        def _barrier(self, *arguments: object, **options: object) -> None:
            """The runner has its own."""

        def runTest(self) -> None:
            """For unittest."""

    torch.set_num_threads(1)
    meeting = dist.FileStore(f"{folder}/meeting", WORLD)
    names = [name for name in dir(Tests) if name.startswith("test_")]
    names = [name for name in names if not wanted or any(part in name for part in wanted)]
    outcomes: dict[str, list[str]] = collections.defaultdict(list)
    life = 0
    _begin(dist, backend, rank, f"{folder}/life{life}")
    for name in names:
        faulthandler.dump_traceback_later(TEST_DEADLINE_S, exit=True)
        os.makedirs(f"{folder}/test_dir", exist_ok=True)
        outcome = _run(Tests, name, rank, folder)
        meeting.set(f"{name}/{rank}", outcome)
        results = [meeting.get(f"{name}/{each}").decode() for each in range(WORLD)]
        worst = next((each for each in results if each.startswith("failed")), max(results))
        if rank == 0:
            outcomes[worst.partition(":")[0]].append(name)
            print(f"{name}: {worst}", flush=True)
        harmless = any(f"{kind}:" in worst for kind in ("NameError", "IndexError", "ValueError"))
        if (worst.startswith("failed") and not harmless) or not dist.is_initialized():
            life += 1
            with contextlib.suppress(Exception):
                dist.destroy_process_group()
            _begin(dist, backend, rank, f"{folder}/life{life}")
        for group in [each for each in dist.distributed_c10d._world.pg_map if each is not dist.group.WORLD]:
            with contextlib.suppress(Exception):
                dist.destroy_process_group(group)
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()
    if rank == 0:
        print({outcome: len(tests) for outcome, tests in outcomes.items()})


def _begin(dist: object, backend: str, rank: int, store: str) -> None:
    dist.init_process_group(  # type: ignore[attr-defined]
        backend, init_method=f"file://{store}", rank=rank, world_size=WORLD, timeout=TIMEOUT
    )


def _run(tests: type, name: str, rank: int, folder: str) -> str:
    import torch

    test = tests(name)
    test.rank, test.file_name = rank, f"{folder}/{name}"
    begun = time.monotonic()
    torch.manual_seed(0)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            getattr(test, name)()
    except unittest.SkipTest as reason:
        return f"skipped: {reason}"
    except SystemExit as end:
        return f"skipped: needs what this machine lacks (status {end.code})"
    except BaseException as error:
        return f"failed: rank {rank}: {type(error).__name__}: {str(error)[:160]}".replace("\n", " ")
    return f"passed: {time.monotonic() - begun:.1f} s"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
