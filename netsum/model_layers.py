"""A model's layers taken from torch: parameters, and measured times of the forward and backward pass."""

import statistics
import time
from collections.abc import Callable
from typing import Any

from sim.errors import SettingError
from sim.experiments.models import Model, ModelLayer


def layers_from_torch(
    module: Any,
    inputs: tuple[Any, ...],
    *,
    name: str = "model",
    loss: Callable[[Any], Any] = lambda output: output.sum(),
    repeats: int = 5,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> Model:
    """Measure a torch module layer by layer, on the device where its parameters are.

    A layer is a submodule with parameters of its own that require gradients. Code between two layers, such as activations,
    counts for the layer before in the forward pass. In the backward pass a layer's time ends when its last gradient is ready,
    which is when DDP may reduce it.

    `inputs`: arguments for the forward pass: one worker's batch. `loss`: makes a scalar of the module's output.
    `repeats`: passes of which the medians are taken; one more comes before. Returns its layers in the order of the forward
    pass; `sim.experiments.models.write_model` writes it. Raises SettingError if nothing requires gradients, or a layer gets
    none.
    """
    import torch

    owned = {
        title: [each for each in part.parameters(recurse=False) if each.requires_grad]
        for title, part in module.named_modules()
    }
    owned = {title: parameters for title, parameters in owned.items() if parameters}
    if not owned:
        raise SettingError("the model has no parameters that require gradients")
    device = next(iter(owned.values()))[0].device
    began: dict[str, int] = {}
    ready: dict[str, int] = {}

    def now_ns() -> int:
        if device.type != "cpu":
            torch.accelerator.synchronize()
        return clock_ns()

    def begin(title: str) -> Callable[..., None]:
        def note(part: Any, given: Any) -> None:
            if title not in began:
                began[title] = now_ns()

        return note

    def end(title: str) -> Callable[..., None]:
        def note(parameter: Any) -> None:
            ready[title] = now_ns()

        return note

    hooks = [
        part.register_forward_pre_hook(begin(title))
        for title, part in module.named_modules()
        if title in owned
    ]
    hooks += [
        each.register_post_accumulate_grad_hook(end(title))
        for title, parameters in owned.items()
        for each in parameters
    ]
    forward: dict[str, list[int]] = {title: [] for title in owned}
    backward: dict[str, list[int]] = {title: [] for title in owned}
    try:
        for repeat in range(repeats + 1):
            began.clear()
            ready.clear()
            module.zero_grad()
            started_ns = now_ns()
            scalar = loss(module(*inputs))
            turned_ns = now_ns()
            scalar.backward()
            missing = [title for title in owned if title not in ready or title not in began]
            if missing:
                raise SettingError(f"the layer {missing[0]} takes no part in the forward and backward pass")
            if repeat:
                _add_forward(forward, began, started_ns, turned_ns)
                _add_backward(backward, ready, turned_ns)
    finally:
        for hook in hooks:
            hook.remove()
    order = sorted(owned, key=began.__getitem__)
    return Model(
        name,
        tuple(
            ModelLayer(
                title,
                sum(each.numel() for each in owned[title]),
                round(statistics.median(forward[title])),
                round(statistics.median(backward[title])),
            )
            for title in order
        ),
    )


def _add_forward(found: dict[str, list[int]], began: dict[str, int], started_ns: int, turned_ns: int) -> None:
    """Add one pass: a layer takes until the next one begins, the first from the pass's start."""
    order = sorted(began, key=began.__getitem__)
    bounds = [started_ns, *(began[title] for title in order[1:]), turned_ns]
    for title, first, last in zip(order, bounds[:-1], bounds[1:], strict=True):
        found[title].append(last - first)


def _add_backward(found: dict[str, list[int]], ready: dict[str, int], turned_ns: int) -> None:
    """Add one pass: a layer takes from the one before in it until its own gradients are ready."""
    before = turned_ns
    for title in sorted(ready, key=ready.__getitem__):
        found[title].append(ready[title] - before)
        before = ready[title]
