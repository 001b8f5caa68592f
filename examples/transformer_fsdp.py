"""The Transformer of transformer_lm.py with FSDP2: each rank keeps its shard of the parameters, gradients and optimizer state.

torchrun --nproc-per-node 4 examples/transformer_fsdp.py --backend netsum
torchrun --nproc-per-node 4 examples/transformer_fsdp.py --backend gloo

Before a layer computes, its parameters are gathered from all ranks; its gradients are reduce-scattered.
"""

import warnings
from dataclasses import replace

import torch
import torch.distributed as dist
import transformer_lm
from harness import main
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def sharded(model: nn.Module, group: dist.ProcessGroup, gradients: str) -> nn.Module:
    """Shard a model's layers, and the rest of it, over the ranks of a group; all begin with the same parameters."""
    # The view is not changed in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view")
    mesh = DeviceMesh.from_group(group, "cpu")
    policy = MixedPrecisionPolicy(reduce_dtype=getattr(torch, gradients))
    for layer in model.layers.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


task = replace(transformer_lm.task, name="Transformer LM, sharded", spread=sharded)

if __name__ == "__main__":
    main(task)
