"""An exact sum through the data plane: the passes of real workers as packets, the same bits on every engine."""

from typing import Any

import numpy as np

from host_agent.protocol.passes import Pass
from host_agent.wire.constants import OP_BOR, OP_MAX, OP_SUM
from tests.dataplane.dataplane.frames import BOR, MAX, SUM
from tests.dataplane.dataplane.jobs import MakeJob
from tests.dataplane.dataplane.target import Target
from tests.host_agent.test_exact_sums import exactly, reduce, wanted

OPERATIONS = {OP_SUM: SUM, OP_MAX: MAX, OP_BOR: BOR}
WORKERS = 4


def test_an_exact_sum_has_the_same_bits_on_every_engine(target: Target, make_job: MakeJob) -> None:
    rng = np.random.default_rng(11)
    parts = [
        np.ldexp(rng.standard_normal(300), rng.integers(-30, 30, 300)).astype(np.float32)
        for _ in range(WORKERS)
    ]
    parts[1][7], parts[2][8] = np.inf, -0.0
    job = make_job(workers=WORKERS)
    chunk = 0

    def reduce_in_the_switch(passes: list[Pass]) -> None:
        nonlocal chunk
        contributed = [each.source.copy() for each in passes]
        reduce(passes)
        for first in range(0, contributed[0].size, target.lanes):
            lanes = [padded(each[first : first + target.lanes], target.lanes) for each in contributed]
            total = padded(passes[0].target[first : first + target.lanes], target.lanes)
            op = OPERATIONS[passes[0].op]
            job.expect(
                [job.contribution(worker, chunk, lanes[worker], op=op) for worker in range(WORKERS)],
                job.results(chunk, total, op=op),
            )
            chunk += 1

    result, _ = exactly([[each] for each in parts], reduced=reduce_in_the_switch)
    parts[1][7] = 0
    expected = wanted([[each] for each in parts])
    expected[7] = np.inf
    assert result.tobytes() == expected.tobytes()


def padded(words: Any, lanes: int) -> list[int]:
    return [*words.tolist(), *[0] * (lanes - words.size)]
