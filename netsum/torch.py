"""Makes ``torch.distributed.init_process_group("netsum")`` known to PyTorch.

PyTorch calls `register` by itself when it is imported (entry point group ``torch.backends``); where that is switched
off, ``import netsum.torch`` does it. `netsum.torch.allreduce_hook` and `netsum.torch.bfloat16_hook` are DDP communication hooks,
`netsum.torch.Options` says how a group reduces, `netsum.torch.resize`, `netsum.torch.newcomers` and `netsum.torch.join_running`
let a job change its size, `netsum.torch.monitored_barrier` is a barrier that names the ranks that do
not come, `netsum.torch.MicroBatches` makes a training independent of the number of ranks, and
`netsum.torch.write_flight_recorder` writes the last collectives for ``torchfrtrace``.
"""

import os
from typing import Any

NAME = "netsum"


def register() -> None:
    """Register the backend, if this PyTorch has torch.distributed; can be called again."""
    # Not at the top of the module: PyTorch calls this while it is being imported, by this module for one.
    import torch.distributed as dist

    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
        if "NETSUM_REPRO" in os.environ:
            from netsum.repro.recorder import install

            install()


def _create(options: Any, backend_options: Any) -> Any:
    # What a process group needs, compiled code among it, is loaded by who makes one, not by all who import torch.
    from host_agent.torch.process_group import create

    return create(options, backend_options)


def __getattr__(name: str) -> Any:
    if name in ("allreduce_hook", "bfloat16_hook"):
        from host_agent.torch import hook

        return getattr(hook, name)
    if name in ("resize", "join_running", "newcomers"):
        from host_agent.torch import resizing

        return getattr(resizing, name)
    if name == "Options":
        from host_agent.torch.options import Options

        return Options
    if name == "MicroBatches":
        from host_agent.torch.micro_batches import MicroBatches

        return MicroBatches
    if name == "monitored_barrier":
        from host_agent.torch.monitored_barrier import monitored_barrier

        return monitored_barrier
    if name == "write_flight_recorder":
        from host_agent.torch.flight_recorder import write_flight_recorder

        return write_flight_recorder
    raise AttributeError(f"module 'netsum.torch' has no attribute {name!r}")


register()
