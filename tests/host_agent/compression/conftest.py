"""One thread for tensors this small: OpenMP's barriers cost more than the work where other processes keep the cores busy."""

import importlib.util

if importlib.util.find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)
