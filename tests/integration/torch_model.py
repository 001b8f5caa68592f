"""A small model for tests of training, its inputs, and its result."""

import torch


def small_model() -> torch.nn.Module:
    """Return the same model in every process, on the default device."""
    with torch.device("cpu"):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 5))
    return model.to(torch.get_default_device())


def inputs_of(step: int, rank: int) -> torch.Tensor:
    """Return a rank's inputs of a step."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 20, generator=generator, device="cpu").to(torch.get_default_device())


def flat(model: torch.nn.Module) -> list[float]:
    """Return all parameters, one after the other."""
    return [float(each) for parameter in model.parameters() for each in parameter.detach().flatten()]
