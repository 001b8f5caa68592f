"""A second implementation of the worker, made from the Internet-Draft alone, through the embedded switch."""

import ast
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from host_agent.communicator import Communicator
from host_agent.wire import Admission
from tests.integration.simulated.loopback import LoopbackSwitch

WORKER = Path(__file__).parents[1] / "second_worker" / "worker.py"
WORKERS = 3
SLOTS = 16
LOSS_PPM = 50_000
DEADLINE_S = 300.0

Collectives = list[dict[str, Any]]


def lines_for(admission: Admission, bind: tuple[str, int], collectives: Collectives) -> str:
    given = {
        "job_id": admission.job_id,
        "token": admission.token,
        "worker_id": admission.worker_id,
        "num_workers": admission.num_workers,
        "slots": admission.slot_count,
        "lanes": admission.lanes,
        "switch": admission.switch,
        "bind": bind,
        "timeout_s": DEADLINE_S - 100,
    }
    return "\n".join(json.dumps(each) for each in (given, *collectives))


def run(lines: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", str(WORKER)]
    return subprocess.run(
        command, input=lines, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def through_a_switch(collectives: list[Collectives], drop_ppm: int = 0) -> list[list[Any]]:
    """Return each worker's results of its collectives, through a switch that loses packets each way."""
    with (
        LoopbackSwitch(workers=WORKERS, drop_ppm=drop_ppm) as switch,
        ThreadPoolExecutor(WORKERS) as pool,
    ):
        lines = [
            lines_for(*each, given) for each, given in zip(switch.start_job(SLOTS), collectives, strict=True)
        ]
        ended = list(pool.map(run, lines))
    for each in ended:
        assert each.returncode == 0, each.stderr
    return [[json.loads(line) for line in each.stdout.splitlines()] for each in ended]


def block_sum(parts: npt.NDArray[np.float32], lanes: int) -> npt.NDArray[np.float32]:
    """Return the sum of one block by the definition of its numbers."""
    largest = float(np.abs(parts).max())
    if not largest:
        return np.zeros(lanes, np.float32)
    scale = 2.0 ** (30 - 2 - (np.frexp(largest)[1]))
    total: npt.NDArray[np.float64] = np.rint(parts * np.float64(scale)).sum(axis=0) / scale
    return total.astype(np.float32)


def test_it_needs_the_standard_library_alone_and_three_hundred_lines() -> None:
    source = WORKER.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 300
    imported = {
        name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
        )
    }
    assert {str(name).partition(".")[0] for name in imported} <= sys.stdlib_module_names


def test_three_of_them_sum_under_five_percent_of_loss() -> None:
    source = np.random.default_rng(1)
    lanes = 64
    whole = source.integers(-(2**20), 2**20, (WORKERS, 3_000))
    whole[:, 640:704] *= 2**9  # Partial sums may leave int32: such blocks take two passes.
    floats = source.standard_normal((WORKERS, 60 * lanes)).astype(np.float32)
    floats[:, 5 * lanes : 9 * lanes] = 0
    collectives = [
        [{"dtype": "int32", "values": integers.tolist()}, {"dtype": "float32", "values": values.tolist()}]
        for integers, values in zip(whole, floats, strict=True)
    ]
    said = through_a_switch(collectives, LOSS_PPM)
    blocks = floats.reshape(WORKERS, -1, lanes)
    expected = np.concatenate([block_sum(blocks[:, each], lanes) for each in range(blocks.shape[1])])
    for integers, values, counts in said:
        assert integers == whole.sum(axis=0).tolist()
        assert values == expected.tolist()
        assert counts["retransmissions"] > 0
        assert counts["probes"] > 0


def test_two_of_them_and_a_worker_of_this_repository_sum_in_one_job() -> None:
    source = np.random.default_rng(2)
    whole = source.integers(-(2**31) // WORKERS, 2**31 // WORKERS, (WORKERS, 700), dtype=np.int32)
    floats = source.standard_normal((WORKERS, 1_500)).astype(np.float32)
    collectives = [
        [{"dtype": "int32", "values": integers.tolist()}, {"dtype": "float32", "values": values.tolist()}]
        for integers, values in zip(whole, floats, strict=True)
    ]
    with (
        LoopbackSwitch(workers=WORKERS, drop_ppm=LOSS_PPM) as switch,
        ThreadPoolExecutor(WORKERS) as pool,
    ):
        *others, (admission, bind) = switch.start_job(SLOTS)
        ended = [
            pool.submit(run, lines_for(*each, given))
            for each, given in zip(others, collectives, strict=False)
        ]
        with Communicator(admission, bind=bind, timeout_s=DEADLINE_S - 100) as own:
            results = [own.allreduce(array).tolist() for array in (whole[-1], floats[-1])]
        for each in ended:
            assert each.result().returncode == 0, each.result().stderr
    assert results[0] == whole.sum(axis=0).tolist()
    for each in ended:
        integers, values, _ = map(json.loads, each.result().stdout.splitlines())
        assert [integers, values] == results


def test_values_that_are_not_finite_arrive_as_such() -> None:
    values = [[1.0, 2.0] * 40, [float("inf")] + [0.5] * 79, [0.0] * 80]
    collectives = [[{"dtype": "float32", "values": each}] for each in values]
    for floats, _ in through_a_switch(collectives):
        assert np.isnan(floats[:64]).all()
        assert floats[64:] == [1.5, 2.5] * 8


def test_workers_that_disagree_all_fail() -> None:
    with LoopbackSwitch(workers=WORKERS) as switch, ThreadPoolExecutor(WORKERS) as pool:
        lines = [
            lines_for(*each, [{"dtype": "int32", "values": [1] * (100 + (worker == 1))}])
            for worker, each in enumerate(switch.start_job(SLOTS))
        ]
        ended = list(pool.map(run, lines))
    for each in ended:
        assert each.returncode != 0
        assert "the workers disagree about the collective" in each.stderr
