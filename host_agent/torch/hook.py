"""A DDP communication hook, for those who keep Gloo or NCCL as the default group."""

# No postponed annotations here: DDP looks at them.

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
