"""DDP communication hooks."""

# No postponed annotations here: DDP reads them.

import torch
import torch.distributed as dist

from host_agent.torch.tracing import untraced


@untraced
def allreduce_hook(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients on the slots.

    `group`: of backend "netsum", as ``new_group(backend="netsum")`` makes it. `bucket`: from DDP.

    Examples
    --------
    >>> model.register_comm_hook(dist.new_group(backend="netsum"), allreduce_hook)  # doctest: +SKIP
    """
    work = group.allreduce([bucket.buffer()], dist.ReduceOp.AVG)
    averaged: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda done: done.value()[0])
    return averaged


@untraced
def bfloat16_hook(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients as bfloat16; over netsum these travel in 16 bits, and are rounded once.

    PyTorch's ``bf16_compress_hook`` does the same, and refuses tensors of the CPU.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup
        Of any backend whose all-reduce takes bfloat16.
    bucket : torch.distributed.GradBucket
        From DDP.
    """
    buffer = bucket.buffer()
    narrow = (buffer / group.size()).to(torch.bfloat16)
    work = group.allreduce([narrow], dist.ReduceOp.SUM)
    averaged: torch.futures.Future[torch.Tensor] = work.get_future().then(
        lambda done: buffer.copy_(done.value()[0])
    )
    return averaged
