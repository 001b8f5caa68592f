"""Records a step of an example's training as a Chakra trace, one process a rank, and says how long a step took.

    torchrun --nproc-per-node 2 tests/sim/traces/record.py digits_cnn gloo FOLDER

A hook of DDP notes when each bucket of gradients is ready and when it is reduced. A step becomes the computing before each
bucket, its all-reduce, and the computing after the last of both, each as long as at the median of the steps.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

from harness import task_named  # noqa: E402

from tests.sim.traces.files import chakra_bytes, chakra_node  # noqa: E402

WARM, STEPS = 5, 25


class Recorder:
    """What a step does when: ready and reduced are in the order of the buckets."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.ready: list[float] = []
        self.reduced: list[float] = []

    def hook(self, state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer = bucket.buffer()
        self.sizes.append(buffer.numel() * buffer.element_size())
        at = len(self.ready)
        self.ready.append(time.perf_counter())
        self.reduced.append(0.0)
        buffer.div_(dist.get_world_size())

        def ended(future: Any) -> Any:
            self.reduced[at] = time.perf_counter()
            return future.value()[0]

        return dist.all_reduce(buffer, async_op=True).get_future().then(ended)


def main(name: str, backend: str, folder: Path) -> None:
    torch.set_num_threads(1)
    if backend == "netsum":
        import netsum.torch  # noqa: F401
    dist.init_process_group(backend)
    rank, workers = dist.get_rank(), dist.get_world_size()
    task = task_named(name)
    torch.manual_seed(0)
    model = DistributedDataParallel(task.model())
    recorder = Recorder()
    model.register_comm_hook(None, recorder.hook)
    optimizers = task.optimizers(model, task.rate)
    lengths, parts = [], []
    for step in range(WARM + STEPS):
        inputs, targets = task.batch(step, rank, workers)
        recorder.__init__()  # type: ignore[misc]
        begun = time.perf_counter()
        for optimizer in optimizers:
            optimizer.zero_grad()
        task.loss(model(inputs), targets).backward()
        for optimizer in optimizers:
            optimizer.step()
        ended = time.perf_counter()
        if step >= WARM:
            lengths.append(ended - begun)
            after = ended - max(*recorder.reduced, recorder.ready[-1])
            parts.append([*np.diff([begun, *recorder.ready]), after])
    micros = np.rint(np.median(parts, axis=0) * 1e6).astype(int).tolist()
    nodes = []
    for at, size in enumerate(recorder.sizes):
        nodes.append(chakra_node(2 * at, "compute", [2 * at - 2] if at else [], micros[at]))
        nodes.append(chakra_node(2 * at + 1, "all-reduce", [2 * at], comm_size=size))
    nodes.append(chakra_node(len(nodes), "compute", range(len(nodes)), micros[-1]))
    (folder / f"{name}.{rank}.et").write_bytes(chakra_bytes(nodes))
    if rank == 0:
        quarters = np.percentile(lengths, [25, 50, 75]) * 1e3
        print(
            json.dumps({"bytes": recorder.sizes, "micros": micros, "step_ms": quarters.round(3).tolist()}),
            flush=True,
        )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
