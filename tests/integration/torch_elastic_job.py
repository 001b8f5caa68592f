"""A training job that is restarted; in its first life rank 1 is killed in the middle."""

import os
import signal
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

STEPS, KILLED_AT = 8, 5


def main(folder: Path, controller: str) -> None:
    """Train to the end from the last checkpoint."""
    os.environ["NETSUM_CONTROLLER"] = controller
    dist.init_process_group("netsum", timeout=timedelta(seconds=150))
    rank, first_life = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 4))
    descent = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    checkpoint, begin = folder / "checkpoint.pt", 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.module.load_state_dict(saved["model"])
        descent.load_state_dict(saved["descent"])
        begin = saved["step"]
    for step in range(begin, STEPS):
        if first_life and step == KILLED_AT:
            dist.barrier()  # until rank 0 has written what the next life begins with
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        descent.zero_grad()
        inputs = torch.randn(16, 10, generator=torch.Generator().manual_seed(100 * step + rank))
        model(inputs).square().mean().backward()
        descent.step()
        if rank == 0:
            state = {"model": model.module.state_dict(), "descent": descent.state_dict(), "step": step + 1}
            torch.save(state, f"{checkpoint}.new")
            os.replace(f"{checkpoint}.new", checkpoint)
    epoch = dist.group.WORLD.communicator.admission.epoch
    torch.save(
        {"weight": model.module.weight.detach(), "begin": begin, "epoch": epoch}, folder / f"result{rank}.pt"
    )
    dist.destroy_process_group()
