"""A global batch of fixed micro-batches: the same gradient bits whichever ranks compute them, and however many there are."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from host_agent.codecs.accumulator import Accumulator
from host_agent.errors import MisuseError
from host_agent.torch.tensor_memory import array_of


class MicroBatches:
    """The micro-batches of every step of a training, shared out over the ranks of a group.

    The ranks' models are plain modules with the same weights, not `DistributedDataParallel`. A parameter's gradient becomes
    the mean of those of all micro-batches of the step: the exact sum, divided and rounded once. It depends on the
    micro-batches alone if the model computes the same bits for each of them at every rank: the same machine type and number of
    threads, and no state that passes from one micro-batch to the next, such as the running means of batch normalization.

    `parameters`: the model's; float16, bfloat16, float32 or float64, in the memory of the host. One without a gradient
    counts as zero. `count`: micro-batches of a step, of all ranks together. `seed`: torch's generator is seeded anew for
    every micro-batch, with a number of its own. `group`: of backend "netsum"; the default group by default. Raises
    MisuseError if the group has another backend, or `count` is below 1.

    Examples
    --------
    >>> batches = MicroBatches(model.parameters(), count=8)  # doctest: +SKIP
    >>> for step in range(steps):  # doctest: +SKIP
    ...     for index in batches.of_step(step):
    ...         loss(model(inputs[step][index]), targets[step][index]).backward()
    ...     optimizer.step()
    """

    def __init__(self, parameters: Iterable[Tensor], count: int, *, seed: int = 0, group: Any = None) -> None:
        self._group = group or dist.group.WORLD
        if dist.get_backend(self._group) != "netsum":
            raise MisuseError(
                f"micro-batches are added exactly by backend netsum, not by {dist.get_backend(self._group)}"
            )
        if count < 1:
            raise MisuseError(f"count: expected at least one micro-batch a step, got {count}")
        self._count, self._seed = count, seed
        self._by_type: dict[torch.dtype, list[Tensor]] = {}
        for each in parameters:
            self._by_type.setdefault(each.dtype, []).append(each)
        self._totals = {
            dtype: Accumulator((sum(each.numel() for each in tensors),), _name(dtype))
            for dtype, tensors in self._by_type.items()
        }

    def of_step(self, step: int) -> Iterator[int]:
        """Yield the numbers of this rank's micro-batches, each time without gradients; at the end every gradient is the mean.

        The caller computes the gradient of one micro-batch, by `backward`, for each number.

        `step`: for the seeds.
        """
        self._clear()
        for index in range(dist.get_rank(self._group), self._count, dist.get_world_size(self._group)):
            torch.manual_seed(self._seed + step * self._count + index)
            yield index
            for dtype, tensors in self._by_type.items():
                gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in tensors]
                flat = torch.cat([each.detach().reshape(-1) for each in gradients])
                self._totals[dtype].add(array_of(flat.float() if dtype == torch.bfloat16 else flat))
            self._clear()
        means = {dtype: torch.empty(total.shape, dtype=dtype) for dtype, total in self._totals.items()}
        works = [self._group.exact_mean(self._totals[dtype], mean) for dtype, mean in means.items()]
        for work, tensors, mean in zip(works, self._by_type.values(), means.values(), strict=True):
            work.wait()
            for tensor, part in zip(tensors, mean.split([each.numel() for each in tensors]), strict=True):
                tensor.grad = part.reshape(tensor.shape)

    def _clear(self) -> None:
        for each in itertools.chain.from_iterable(self._by_type.values()):
            each.grad = None


def _name(dtype: torch.dtype) -> str:
    """Return NumPy's name of the type in which gradients of a type are added."""
    return "float32" if dtype == torch.bfloat16 else str(dtype).removeprefix("torch.")
