"""Recorder of a rank's training: times steps, profiles some, and writes a trace.

`netsum.torch.register`, which PyTorch calls when it is imported, installs this where NETSUM_RECORD names a folder.

NETSUM_RECORD        folder of the traces
NETSUM_RECORD_STEPS  steps to time, and as many to profile

A step lies between two steps of an optimizer of torch.optim, the first of several. After some that are not counted, steps are
timed unprofiled; then PyTorch's profiler records their operators, and, in one more, its ExecutionTraceObserver the
communications. The profiler makes a step longer, so the computing is scaled to that of the steps without it.
"""

import itertools
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function

from netsum.record.steps import BLOCK, MARK, RecordingError, TraceEvent, communications, median_step, nodes_of
from sim.traces.chakra import write_nodes

WARM: Final = 5  # Steps before the first that is timed: buckets, caches and machine code are made in them.


class Recorder:
    """Counts the steps of this process, and records some."""

    def __init__(self, folder: Path, steps: int) -> None:
        self._folder, self._steps = folder, steps
        self._optimizer: Any = None
        self._other: Any = None  # The last other one that stepped since.
        self._step = -1
        self._times: list[int] = []
        self._profile: Any = None
        self._observed: Path | None = None
        self._observer: Any = None

    def after(self, optimizer: Any, *_: Any) -> None:
        """Note the end of an optimizer's step."""
        if not dist.is_initialized():
            return
        if optimizer is not self._optimizer:
            if self._optimizer is not None and optimizer is not self._other:
                self._other = optimizer
                return
            # The first one; or it stepped twice, and the one before has had its last step: that was another loop.
            if self._profile is not None:
                return
            self._optimizer, self._step = optimizer, -1
            self._times.clear()
        self._other = None
        self._step += 1
        timed, profiled = WARM + self._steps, WARM + 2 * self._steps
        if self._step > profiled + 1:
            return
        if WARM <= self._step <= timed:
            self._times.append(time.perf_counter_ns())
        if self._step == timed:
            self._profile = profile(activities=[ProfilerActivity.CPU])
            self._profile.start()
        if timed <= self._step:
            with record_function(MARK):
                pass
        if self._step == profiled:
            self._observe()
        elif self._step == profiled + 1:
            self._end()
        self._note("step", f"{self._step} {profiled + 1}")

    def _observe(self) -> None:
        # PyTorch compresses, and removes, a file whose name ends in "gz".
        descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=".observed", suffix=".json")
        os.close(descriptor)
        self._observed, self._observer = Path(name), ExecutionTraceObserver()
        self._observer.register_callback(name)
        self._observer.start()

    def _end(self) -> None:
        assert self._observed is not None
        self._observer.stop()
        self._observer.unregister_callback()
        self._profile.stop()
        try:
            self._write(json.loads(self._observed.read_text()))
        except RecordingError as error:
            self._note("error", str(error))
        finally:
            self._observed.unlink()

    def _write(self, observed: Any) -> None:
        events = [
            TraceEvent(
                each.name,
                round(each.time_range.start * 1000),
                round(each.time_range.end * 1000),
                each.is_user_annotation,
                each.thread,
            )
            for each in self._profile.events()
        ]
        called = communications(observed, dist.get_world_size())
        lengths = [last - first for first, last in itertools.pairwise(self._times)]
        step = median_step(events, called)
        plain_ns = sorted(lengths)[len(lengths) // 2]
        density = self._density()
        nodes = nodes_of(step, called, plain_ns, density)
        rank = dist.get_rank()
        write_nodes(self._folder / f"trace.{rank}.et", nodes)
        summary = {
            "world_size": dist.get_world_size(),
            "steps_ns": lengths,
            "profiled_ns": step.length_ns,
            "computing_ns": sum(each.duration_micros for each in nodes) * 1000,
            "waiting_ns": step.waiting_ns,
            "density": density,
            "communications": [[each.kind, each.size] for each in called],
        }
        self._note("json", json.dumps(summary))

    def _density(self) -> float:
        """Return the share of blocks of the reduced gradients that are not zero; they are in the order of DDP's buckets."""
        parameters = [each for group in self._optimizer.param_groups for each in group["params"]]
        gradients = [each.grad.detach().reshape(-1) for each in reversed(parameters) if each.grad is not None]
        if not gradients or any(each.is_sparse or each.device.type != "cpu" for each in gradients):
            return 1.0
        whole = torch.cat([each.to(torch.float32) for each in gradients])
        blocks = torch.nn.functional.pad(whole, (0, -len(whole) % BLOCK)).reshape(-1, BLOCK)
        return float(blocks.any(dim=1).float().mean())

    def _note(self, kind: str, text: str) -> None:
        path = self._folder / f"rank{dist.get_rank()}.{kind}"
        written = path.with_suffix(f".{kind}.new")
        written.write_text(text)
        written.replace(path)  # A reader sees all of it or nothing.


def install() -> None:
    """Record this process as its environment says."""
    if not dist.is_available():
        return
    recorder = Recorder(Path(os.environ["NETSUM_RECORD"]), int(os.environ["NETSUM_RECORD_STEPS"]))
    register_optimizer_step_post_hook(recorder.after)
    # torchrun's own process and other child processes of the training have no optimizer.
    (Path(os.environ["NETSUM_RECORD"]) / "torch").touch()
