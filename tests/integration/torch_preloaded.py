"""Imports that every rank of the tests needs, loaded once in the process they are forked from (see torch_ranks)."""

import contextlib
import os

os.environ["OMP_NUM_THREADS"] = "1"

with contextlib.suppress(ImportError):  # without PyTorch the tests skip themselves
    import pytest  # noqa: F401
    import torch
    import torch.distributed._functional_collectives
    import torch.distributed.device_mesh
    import torch.distributed.fsdp
    import torch.distributed.optim

    import host_agent.torch.process_group  # noqa: F401
    from host_agent.communicator import compile_ahead

    torch.set_num_threads(1)
    compile_ahead()
