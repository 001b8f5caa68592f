"""Makes ``torch.distributed.init_process_group("netsum")`` known to PyTorch.

PyTorch calls `register` by itself when it is imported (entry point group ``torch.backends``); where that is switched
off, ``import netsum.torch`` does it. `netsum.torch.allreduce_hook` and `netsum.torch.bfloat16_hook` are DDP communication hooks,
`netsum.torch.Options` says how a group reduces, `netsum.torch.resize`, `netsum.torch.newcomers` and `netsum.torch.join_running`
let a job change its size, `netsum.torch.monitored_barrier` is a barrier that names the ranks that do
not come, `netsum.torch.MicroBatches` makes a training independent of the number of ranks, and
`netsum.torch.write_flight_recorder` writes the last collectives for ``torchfrtrace``.
"""

import os
from importlib import import_module
from typing import Any, Final

NAME = "netsum"
_PLACES: Final = {
    "MicroBatches": "micro_batches",
    "Options": "options",
    "allreduce_hook": "hook",
    "bfloat16_hook": "hook",
    "join_running": "resizing",
    "monitored_barrier": "monitored_barrier",
    "newcomers": "resizing",
    "resize": "resizing",
    "write_flight_recorder": "flight_recorder",
}
"""Names of this module to the modules of `host_agent.torch` that have them, which are imported when first used."""


def register() -> None:
    """Register the backend, if this PyTorch has torch.distributed; can be called again."""
    # PyTorch calls this while it is being imported, by this module for one, so the import is not at the top.
    import torch.distributed as dist

    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
        if "NETSUM_REPRO" in os.environ:
            from netsum.repro.recorder import install

            install()
        if "NETSUM_RECORD" in os.environ:
            from netsum.record.recorder import install as record

            record()


def _create(options: Any, backend_options: Any) -> Any:
    # The needs of a process group, compiled code among them, are loaded with the first group, not by every import of torch.
    from host_agent.torch.process_group import create

    return create(options, backend_options)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'netsum.torch' has no attribute {name!r}")
    return getattr(import_module(f"host_agent.torch.{_PLACES[name]}"), name)


register()
