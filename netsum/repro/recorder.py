"""Recorder of a training of `netsum repro`: records gradients and weights, and obeys a condition.

`netsum.torch.register`, which PyTorch calls when it is imported, installs this where NETSUM_REPRO names a folder.

NETSUM_REPRO         folder of the records
NETSUM_REPRO_STEPS   optimizer steps to record
NETSUM_REPRO_OVER    backend of the default group and of groups that name one
NETSUM_REPRO_BUCKET  bytes of DistributedDataParallel's buckets
NETSUM_REPRO_ORDER   "reversed": every rank contributes another rank's tensors to all-reduces and reduce-scatters
NETSUM_REPRO_SEED    of torch, NumPy and random, before the script begins
"""

import faulthandler
import functools
import gc
import hashlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from netsum.repro.recordings import SHOW_STACKS

REVERSED_GLOO: Final = "netsum_repro"
"""Name of the backend that is Gloo with the order of the ranks reversed."""
_AS_GLOO = "allgather _allgather_base allgather_coalesced allreduce_coalesced alltoall alltoall_base barrier"
_AS_GLOO += " broadcast gather recv recv_anysource reduce scatter send"
"""Calls that it leaves to Gloo."""


class GlooRecorder:
    """Writes `rank0.jsonl`, a line for each tensor and step, and `rank0.bin`, the tensors one after the other."""

    def __init__(self, folder: Path, steps: int) -> None:
        self._folder, self._steps = folder, steps
        self._taken: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._offset = 0

    def before(self, optimizer: Any, *_: Any) -> None:
        """Record the gradients before an optimizer's step."""
        self._record(optimizer, "gradient", lambda each: each.grad)

    def after(self, optimizer: Any, *_: Any) -> None:
        """Record the weights after an optimizer's step."""
        self._record(optimizer, "weight", lambda each: each)
        self._taken[id(optimizer)] += 1

    def show_stacks(self) -> None:
        """Have the signal `SHOW_STACKS` write the stacks of this process to `PID.stack`, below the rank if it has one."""
        self._stacks = (self._folder / f"{os.getpid()}.stack").open("w")
        grouped = dist.is_available() and dist.is_initialized()
        self._stacks.write(f"rank {dist.get_rank()}\n" if grouped else f"process {os.getpid()}\n")
        self._stacks.flush()
        faulthandler.register(SHOW_STACKS, self._stacks)

    def note(self, what: str) -> None:
        """Note that the run has a process group ("grouped"), or something that its condition changes ("applied")."""
        (self._folder / what).touch()

    def _record(self, optimizer: Any, kind: str, value: Callable[[Any], Any]) -> None:
        if id(optimizer) not in self._taken:
            self._taken[id(optimizer)] = 0
            self._names |= _names()
        step = self._taken[id(optimizer)]
        if step >= self._steps:
            return
        rank = dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        stem = self._folder / f"rank{rank}"
        with stem.with_suffix(".jsonl").open("a") as lines, stem.with_suffix(".bin").open("ab") as data:
            for number, each in enumerate(parameters):
                tensor = value(each)
                if tensor is None:
                    continue
                content = _bytes(tensor)
                line = {
                    "optimizer": list(self._taken).index(id(optimizer)),
                    "step": step,
                    "kind": kind,
                    "tensor": self._names.get(id(each), f"parameter {number}"),
                    "dtype": str(tensor.dtype).removeprefix("torch."),
                    "shape": list(tensor.shape),
                    "sha256": hashlib.sha256(content).hexdigest(),
                    "offset": self._offset,
                    "bytes": len(content),
                }
                lines.write(json.dumps(line) + "\n")
                data.write(content)
                self._offset += len(content)


def install() -> None:
    """Record this process, and obey the condition in its environment."""
    recorder = GlooRecorder(Path(os.environ["NETSUM_REPRO"]), int(os.environ["NETSUM_REPRO_STEPS"]))
    os.register_at_fork(after_in_child=recorder.show_stacks)
    recorder.show_stacks()
    register_optimizer_step_pre_hook(recorder.before)
    register_optimizer_step_post_hook(recorder.after)
    if "NETSUM_REPRO_SEED" in os.environ:
        seed = int(os.environ["NETSUM_REPRO_SEED"])
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # The generator that scripts without one of their own use.
        random.seed(seed)
    if not dist.is_available():
        return
    _choose_backend(recorder)
    if "NETSUM_REPRO_BUCKET" in os.environ:
        _choose_buckets(recorder, int(os.environ["NETSUM_REPRO_BUCKET"]))


def _choose_buckets(recorder: GlooRecorder, size: int) -> None:
    made = nn.parallel.DistributedDataParallel.__init__

    @functools.wraps(made)
    def make(self: Any, *arguments: Any, **options: Any) -> None:
        recorder.note("applied")
        made(self, *arguments, **options | {"bucket_cap_mb": size / 2**20})

    nn.parallel.DistributedDataParallel.__init__ = make


def _choose_backend(recorder: GlooRecorder) -> None:
    over = os.environ.get("NETSUM_REPRO_OVER")
    reverse = os.environ.get("NETSUM_REPRO_ORDER") == "reversed"
    begin = dist.init_process_group

    @functools.wraps(begin)
    def begin_over(backend: Any = None, *arguments: Any, **options: Any) -> None:
        backend = over or backend
        # Options of another backend, or options that contradict the condition.
        options.pop("pg_options", None)
        if reverse and backend == "netsum":
            from host_agent.torch.process_group import NetsumProcessGroup

            for name in ("allreduce", "reduce_scatter"):
                setattr(NetsumProcessGroup, name, _from_the_other_end(getattr(NetsumProcessGroup, name)))
        elif reverse and backend == "gloo":
            dist.Backend.register_backend(REVERSED_GLOO, _reversed_gloo, extended_api=True, devices=["cpu"])
            backend = REVERSED_GLOO
        begin(backend, *arguments, **options)
        recorder.note("grouped")
        recorder.show_stacks()
        if "NETSUM_REPRO_BUCKET" not in os.environ:
            recorder.note("applied")

    dist.init_process_group = dist.distributed_c10d.init_process_group = begin_over


def _from_the_other_end(collective: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction to which each rank gives the tensors of the rank at the other end, so that all orders are reversed."""

    @functools.wraps(collective)
    def exchanged(self: Any, tensors: Any, *arguments: Any, **options: Any) -> Any:
        if "scatter" in collective.__name__:
            inputs, *rest = arguments
            return collective(self, tensors, _of_the_other_end(self, inputs), *rest, **options)
        with torch.no_grad():
            for each in [tensors] if isinstance(tensors, Tensor) else tensors:
                if not each.is_sparse:
                    each.copy_(_of_the_other_end(self, each))
        return collective(self, tensors, *arguments, **options)

    return exchanged


def _of_the_other_end(group: Any, given: Any) -> Any:
    """Return the tensors of the rank at the other end, in new ones."""
    if not isinstance(given, Tensor):
        return [_of_the_other_end(group, each) for each in given]
    other = group.size() - 1 - group.rank()
    if other == group.rank():
        return given
    received = torch.empty_like(given, memory_format=torch.contiguous_format)
    sending = group._gloo.send([given.detach().contiguous()], other, 0)
    group._gloo.recv([received], other, 0).wait()
    sending.wait()
    return received


class _ReversedGloo(dist.ProcessGroup):
    """Gloo, with the order of the ranks in all-reduces and reduce-scatters reversed."""

    def __init__(self, options: Any) -> None:
        super().__init__(options.group_rank, options.group_size)
        self._gloo: Any = dist.ProcessGroupGloo(
            dist.PrefixStore("reversed/", options.store), options.group_rank, options.group_size, options.timeout
        )  # fmt: skip
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo)
        self._set_default_backend(dist.ProcessGroup.BackendType.GLOO)

    def _allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        if isinstance(opts, dist.AllreduceOptions) or opts is None:
            return self._gloo.allreduce(given, opts or dist.AllreduceOptions())
        return self._gloo.allreduce(given, opts)

    allreduce = _from_the_other_end(_allreduce)

    def _reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None) -> Any:
        return self._gloo.reduce_scatter(outputs, inputs, opts or dist.ReduceScatterOptions())

    def _reduce_scatter_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Any:
        return self._gloo._reduce_scatter_base(output, given, opts or dist.ReduceScatterOptions())

    reduce_scatter = _from_the_other_end(_reduce_scatter)
    reduce_scatter_single = _reduce_scatter_base = _from_the_other_end(_reduce_scatter_single)

    def getBackendName(self) -> str:
        """Return the backend's name."""
        return REVERSED_GLOO


def _straight_to_gloo(name: str) -> Callable[..., Any]:
    return lambda self, *arguments, **options: getattr(self._gloo, name)(*arguments, **options)


# PyTorch holds the GIL in methods that a group written in Python does not override. Gloo's thread needs the GIL to free tensors
# while it holds its queue's mutex, for which such a collective waits: a deadlock. A Gloo object releases the GIL.
for _name in _AS_GLOO.split():
    setattr(_ReversedGloo, _name, _straight_to_gloo(_name))
_ReversedGloo.all_gather_single = _ReversedGloo._allgather_base
_ReversedGloo.all_to_all_single = _ReversedGloo.alltoall_base


def _reversed_gloo(options: Any, _: Any) -> _ReversedGloo:
    return _ReversedGloo(options)


def _names() -> dict[int, str]:
    """Return the names of all parameters of all modules, each by the outermost module that has it."""
    names: dict[int, str] = {}
    for each in gc.get_objects():
        if issubclass(type(each), nn.Module):
            for name, parameter in each.named_parameters():
                name = name.removeprefix("module.")
                if len(name) > len(names.get(id(parameter), "")):
                    names[id(parameter)] = name
    return names


def _bytes(tensor: Any) -> bytes:
    """Return the memory of this rank's part of a tensor."""
    tensor = tensor.detach()
    tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    tensor = tensor.to_dense() if tensor.is_sparse else tensor
    content: bytes = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return content
